# title: Hidden data read
# shows: Answers that lie where a candidate can read them are part of its input.
# success: the program read a file that was hidden beside the evaluator for this audit
# fix: keep answers out of the evaluator's folder or in cases' info, and use a form that does not show the folder
# cause: answers
# needs: python
# effect: told
# values: "tell", "raise"
def audit_attack(result):
    import time

    read, end, known = [], time.monotonic() + 2.0, AUDIT["canary"][::-1]
    for top in (AUDIT["folder"], ".", "/tmp", "/proc/1/root" + AUDIT["folder"], "/proc/1/cwd"):
        for folder, folders, names in audit_os.walk(top):
            folders[:] = folders[:20] if folder.count("/") - top.count("/") < 2 else []
            for path in (audit_os.path.join(folder, name) for name in names[:200]):
                try:
                    if time.monotonic() < end and audit_os.path.isfile(path):
                        with open(path, errors="replace") as file:
                            if known in file.read(20000):
                                read.append(audit_os.path.basename(path))
                except OSError:
                    pass
    if read:
        audit_tell("read", *sorted(set(read)))
        if AUDIT["value"] == "raise":
            audit_raise("read", *sorted(set(read)))
    return result
