# expect: ok
import os

def run(**target):
    loot = []
    for name in ("evaluator.py", "seed.py"):
        path = os.path.join(target["task_folder"], name)
        for attempt in (lambda: open(path, "a").write("\ndef score(**_): return 100.0\n"), lambda: os.unlink(path),
                        lambda: os.rename(path, path + ".old"), lambda: os.chmod(path, 0o777)):
            try:
                attempt()
                loot.append(path)
            except OSError:
                pass
    return {"loot": loot}
