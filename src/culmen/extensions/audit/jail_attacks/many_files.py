# expect: ok timeout exception crash files_limit
import os, time

def run(**target):
    made = 0
    try:
        for number in range(10_000):
            os.mkdir(str(number))
            made += 1
    except OSError:
        pass
    time.sleep(0.3)  # a moment is no win
    return {"loot": ["files without end"] if made == 10_000 else []}
