# expect: timeout ok
import os, time

def run(**target):
    made = 0
    for _ in range(200):
        try:
            if os.fork() == 0:
                time.sleep(60)
            made += 1
        except OSError:
            break
    # where the user keeps his uid, those that end meanwhile make room: a few more are no win, without end is
    return {"loot": [f"{made} processes, more than allowed"] if made > 2 * target["processes"] else []}
