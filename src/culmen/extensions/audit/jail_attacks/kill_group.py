# expect: ok crash no_output
import os, signal

def run(**target):
    for group in (0, os.getpgid(0), target["orchestrator"], os.getppid()):
        try:
            os.killpg(group, signal.SIGTERM)
        except OSError:
            pass
    return {"loot": []}
