# expect: ok
import os, signal

def run(**target):
    loot = []
    for pid in (target["orchestrator"], target["victim"]):
        for number in (0, signal.SIGTERM, signal.SIGKILL):
            try:
                os.kill(pid, number)
                loot.append(pid)
            except OSError:
                pass
    return {"loot": loot}
