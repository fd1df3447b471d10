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
    return {"loot": ["more processes than allowed"] if made > target["processes"] else []}
