# expect: ok bad_output exception
import os, pickle

class Bomb:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}/culmen-was-here",)

def run(**target):
    bomb = Bomb(target["run_folder"])
    if target["tcp"] % 2:
        return bomb
    return {"loot": [], "pickled": pickle.dumps(bomb)}
