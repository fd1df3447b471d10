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
    return {"loot": ["more threads than allowed"] if made > target["processes"] else []}
