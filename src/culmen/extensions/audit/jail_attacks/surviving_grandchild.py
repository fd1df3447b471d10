# expect: ok
import os, time

def run(**target):
    for _ in range(3):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                for fd in range(64):
                    try:
                        os.close(fd)
                    except OSError:
                        pass
                time.sleep(600)
            os._exit(0)
    return {"loot": []}
