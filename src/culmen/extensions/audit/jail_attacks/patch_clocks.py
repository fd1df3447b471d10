# expect: ok
import time

def run(**target):
    end = time.monotonic() + 0.25
    while time.monotonic() < end:
        pass
    time.time = time.monotonic = time.perf_counter = lambda: 0.0
    try:
        time.clock_settime(time.CLOCK_REALTIME, 0)
        return {"loot": ["the clock"]}
    except OSError:
        return {"loot": []}
