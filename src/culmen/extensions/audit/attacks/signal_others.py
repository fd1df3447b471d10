# title: Signals to other processes
# shows: A program that can signal the process that judges it can end, stop or confuse it.
# success: the program was allowed to signal processes of the audit
# fix: run with isolation namespaces or restricted (culmen doctor)
# cause: isolation
# needs: python
# effect: told
# values: "tell", "raise"
def audit_attack(result):
    reached = []
    for pid, started in AUDIT["processes"]:
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                if file.read().rpartition(b")")[2].split()[19].decode() != started:
                    continue
            audit_os.kill(pid, 0)
            reached.append(pid)
        except OSError:
            pass
    if reached:
        audit_tell("signals", *reached)
        if AUDIT["value"] == "raise":
            audit_raise("signals", *reached)
    return result
