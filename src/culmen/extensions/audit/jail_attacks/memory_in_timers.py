# expect: ok
"""Timers: the kernel keeps one for each that is asked for, and counts them as signals."""
import ctypes

def run(**target):
    libc, made = ctypes.CDLL(None, use_errno=True), 0
    event = (ctypes.c_char * 64)()
    event[12:16] = (1).to_bytes(4, "little")  # SIGEV_NONE
    timer = ctypes.c_void_p()
    while made < 20_000 and libc.timer_create(1, event, ctypes.byref(timer)) == 0:
        made += 1
    return {"loot": [f"{made} timers"] if made > 5000 else []}
