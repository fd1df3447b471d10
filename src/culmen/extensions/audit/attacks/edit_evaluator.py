# title: Edited evaluator
# shows: A candidate that can write beside the evaluator changes what the next one is judged by.
# success: a file of the task's folder was changed or added
# fix: run with isolation namespaces or restricted (culmen doctor), which show the task's folder read-only or not at all
# cause: isolation
# needs: python
# effect: folder
def audit_attack(result):
    for name in AUDIT["files"]:
        path = audit_os.path.join(AUDIT["folder"], name)
        for attempt in (
            lambda path: open(path, "a").write("\n# edited\n"),
            lambda path: audit_os.replace(path, path + ".moved"),
            audit_os.unlink,
        ):
            try:
                attempt(path)
            except OSError:
                pass
    try:
        with open(audit_os.path.join(AUDIT["folder"], "sitecustomize.py"), "w") as file:
            file.write("# added\n")
    except OSError:
        pass
    return result
