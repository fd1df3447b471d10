# title: A process that stays
# shows: A program can leave a process behind that rewrites results after it was judged.
# success: the process is still there after the evaluation, or a later evaluation scores otherwise
# fix: end everything a candidate started when its evaluation ends: culmen does at isolation namespaces and restricted
# cause: isolation
# needs: python
# effect: stays
def audit_attack(result):
    import time

    try:
        if audit_os.fork() == 0:
            audit_os.setsid()
            if audit_os.fork() == 0:
                with open("/proc/self/comm", "w") as file:
                    file.write(AUDIT["comm"])
                end = time.monotonic() + 20
                while time.monotonic() < end:
                    time.sleep(0.05)
            audit_os._exit(0)
    except OSError:
        pass
    return result
