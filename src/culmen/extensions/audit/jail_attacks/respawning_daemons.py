# expect: ok timeout exception
# each child starts the next one and ends, so that whoever looks is always a step behind;
# at the process limit a child's fork may fail, and then the child answers in its parent's place: its own exception
import os, time

def run(**target):
    if os.fork() == 0:
        while True:
            os.setsid() if os.getpid() != os.getsid(0) else None
            if os.fork():
                os._exit(0)
            time.sleep(0.001)
    time.sleep(0.1)
    return {"loot": []}
