# expect: ok exception memory_limit
import threading, time

def run(**target):
    made = 0
    for _ in range(300):
        try:
            threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
            made += 1
        except RuntimeError:
            break
    # where the user keeps his uid, those that end meanwhile make room: a few more are no win, without end is
    return {"loot": [f"{made} threads, more than allowed"] if made > 2 * target["processes"] else []}
