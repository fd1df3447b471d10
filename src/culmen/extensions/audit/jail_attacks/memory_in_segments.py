# expect: ok memory_limit
# System V segments stay when nobody has them in sight: no process occupies what is in them
import ctypes

def run(**target):
    libc, total = ctypes.CDLL(None, use_errno=True), 0
    libc.shmat.restype = ctypes.c_void_p
    while total < 2 * target["memory_mb"]:
        segment = libc.shmget(0, 64 << 20, 0o1600)
        place = libc.shmat(segment, None, 0) if segment >= 0 else None
        if place is None or place == 2**64 - 1:
            break
        ctypes.memset(place, 1, 64 << 20)
        libc.shmdt(ctypes.c_void_p(place))
        total += 64
    queues = sum(libc.msgget(0, 0o1600) >= 0 for _ in range(100))
    held = [f"{total} MB in segments"] * (total > 1.5 * target["memory_mb"]) + [f"{queues} queues"] * (queues > 0)
    return {"loot": held}
