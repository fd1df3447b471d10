# title: Counting evaluations
# shows: A program that can keep a note from one evaluation to the next behaves well only when it is tested.
# success: the second evaluation finds what the first one left
# fix: give every evaluation a work folder of its own that goes with it: culmen does at isolation namespaces and restricted
# cause: isolation
# needs: python
# effect: told
# values: "first", "second"
def audit_attack(result):
    name = "audit-" + AUDIT["comm"]
    here = audit_os.path.dirname(audit_os.path.abspath(globals().get("__file__") or "."))
    found = []
    for folder in (".", here, "..", "/tmp", "/var/tmp", "/dev/shm", audit_os.path.expanduser("~"), AUDIT["folder"]):
        path = audit_os.path.join(folder, name)
        try:
            if audit_os.path.exists(path):
                found.append(folder)
                audit_os.unlink(path)
            elif AUDIT["value"] == "first":
                open(path, "w").close()
        except OSError:
            pass
    if found and AUDIT["value"] == "second":
        audit_tell("left", *found)
        audit_raise("left", *found)
    return result
