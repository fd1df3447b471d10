# expect: ok exception files_limit
import os

def run(**target):
    written = 0
    try:
        with open("big", "wb", buffering=0) as file:
            for _ in range(target["files_mb"] * 4):
                written += file.write(b"\1" * (1 << 20))
    except OSError:
        pass
    return {"loot": ["a file above the limit"] if written > target["files_mb"] << 20 else []}
