# expect: ok
import os, sys

def run(**target):
    loot = []
    folders = [target["run_folder"], target["task_folder"], "/etc", "/usr", "/var/tmp", "/", "/root", "/home", "/dev"]
    for folder in [*folders, sys.prefix, sys.base_prefix, os.path.dirname(os.__file__)]:
        try:
            with open(os.path.join(folder, "culmen-was-here"), "w") as file:
                file.write("x")
            loot.append(folder)
        except OSError:
            pass
    return {"loot": loot}
