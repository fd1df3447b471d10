# expect: ok exception
"""Space reserved beyond the end of a file, which the limit on the size of a file does not count."""
import ctypes, os

def run(**target):
    libc = ctypes.CDLL(None, use_errno=True)
    with open("large", "wb") as file:
        libc.fallocate(file.fileno(), 1, ctypes.c_long(0), ctypes.c_long(4 * target["files_mb"] << 20))
        taken = os.fstat(file.fileno()).st_blocks * 512 >> 20
    return {"loot": [f"{taken} MB on disk"] if taken > target["files_mb"] else []}
