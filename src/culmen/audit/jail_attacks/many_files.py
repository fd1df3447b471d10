# expect: ok timeout exception crash
# not: restricted
import os

def run(**target):
    made = 0
    try:
        for number in range(40_000):
            os.mkdir(str(number))
            made += 1
    except OSError:
        pass
    return {"loot": ["files without end"] if made == 40_000 else []}
