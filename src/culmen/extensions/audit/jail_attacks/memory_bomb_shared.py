# expect: memory_limit timeout crash exception
# pages that no limit of a single process counts: shared mappings, spread over children
import mmap, os, time

def run(**target):
    for _ in range(4):
        if os.fork() == 0:
            block = mmap.mmap(-1, 100 << 20)
            block.write(b"\1" * (100 << 20))
            time.sleep(60)
    block = mmap.mmap(-1, 100 << 20)
    block.write(b"\1" * (100 << 20))
    time.sleep(60)
