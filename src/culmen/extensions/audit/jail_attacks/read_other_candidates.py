# expect: ok timeout
import glob, os

def run(**target):
    loot = []
    for pattern in ("/tmp/culmen-jail-*/*/*", "../*/*", "/proc/*/cwd/*", "/w/../w/*/*", "/proc/*/root/w/*"):
        for path in glob.glob(pattern):
            try:
                if os.path.isfile(path) and "def " + "honest" in open(path, errors="replace").read(10_000):
                    loot.append(path)
            except OSError:
                pass
    return {"loot": loot}
