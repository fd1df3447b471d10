# expect: ok bad_frame bad_output no_output exception timeout
import os

def run(**target):
    for fd in range(4, 1024):
        try:
            os.write(fd, b"garbage")
            return {"loot": [f"descriptor {fd} was open"]}
        except OSError:
            pass
    return {"loot": []}
