# expect: ok crash no_output
import os, signal

def run(**target):
    try:
        os.kill(-1, signal.SIGKILL)
    except OSError:
        pass
    return {"loot": []}
