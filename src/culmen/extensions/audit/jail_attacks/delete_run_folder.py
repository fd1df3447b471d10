# expect: ok
import os, shutil

def run(**target):
    shutil.rmtree(target["run_folder"], ignore_errors=True)
    try:
        os.truncate(os.path.join(target["run_folder"], "journal"), 0)
        return {"loot": ["truncated"]}
    except OSError:
        return {"loot": []}
