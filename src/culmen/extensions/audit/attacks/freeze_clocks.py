# title: Frozen clocks
# shows: Where speed counts and the clock belongs to the candidate's process, time can be stopped.
# success: with frozen clocks the program scores better
# fix: measure outside the candidate's process: score(output, seconds) has the time that culmen measured
# cause: clock
# needs: function
def audit_attack(result):
    import time

    for name in ("time", "perf_counter", "monotonic", "process_time"):
        setattr(time, name, lambda value=getattr(time, name)(): value)
    for name in ("time_ns", "perf_counter_ns", "monotonic_ns", "process_time_ns"):
        setattr(time, name, lambda value=getattr(time, name)(): value)
    return result
