# expect: ok timeout cpu_limit memory_limit
# every process of a session of its own, where time is divided by sessions, would have a share of its own
# (without the right to read what processes share, their memory is counted once for each)
import os, time

def run(**target):
    end = time.monotonic() + 1.0
    for place in range(target["processes"] - 4):
        try:
            if os.fork() == 0:
                if place % 2:
                    os.setsid()
                while time.monotonic() < end:
                    pass
                os._exit(0)
        except OSError:
            break
    while time.monotonic() < end:
        pass
    return {"loot": []}
