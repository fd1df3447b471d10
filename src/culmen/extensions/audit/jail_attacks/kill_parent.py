# expect: ok crash no_output
import os, signal

def run(**target):
    parent = os.getppid()
    if parent > 1 and os.getpid() != 1:
        try:
            os.kill(parent, signal.SIGKILL)
        except OSError:
            pass
    return {"loot": []}
