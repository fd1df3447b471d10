# expect: ok
# not: shared
import importlib, sys

def run(**target):
    sys.path.insert(0, target["task_folder"])
    for name in ("evaluator",):
        try:
            return {"loot": [importlib.import_module(name).SECRET]}
        except ImportError:
            pass
    return {"loot": []}
