# expect: crash exception memory_limit
import sys

def run(**target):
    sys.setrecursionlimit(10**9)
    return run(**target)
