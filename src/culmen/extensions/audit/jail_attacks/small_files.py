# expect: ok exception files_limit
"""Many files, each below the limit of a file; removed ones that stay open, too."""
import os, time

def run(**target):
    kept, taken, part = [], 0, b"x" * (1 << 20)
    for number in range(6 * target["files_mb"]):
        kept.append(open(str(number), "wb"))
        taken += os.write(kept[-1].fileno(), part) >> 20
        if number % 2:
            os.remove(str(number))
    time.sleep(0.5)  # a moment is no win
    return {"loot": [f"{taken} MB on disk"] if taken > 2 * target["files_mb"] else []}
