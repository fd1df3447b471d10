# expect: ok
# run twice: what the first one left must not meet the second
import ctypes, glob, os

def run(**target):
    found = []
    libc = ctypes.CDLL(None, use_errno=True)
    for folder in (".", "/tmp", "/dev/shm", "/var/tmp", "..", "/run"):
        path = os.path.join(folder, "culmen-leftover")
        if glob.glob(path):
            found.append(path)
        try:
            open(path, "w").close()
        except OSError:
            pass
    if libc.shmget(0x5EED, 4096, 0) >= 0:
        found.append("a System V segment")
    libc.shmget(0x5EED, 4096, 0o1666)
    return {"loot": found}
