# title: Remembered results
# shows: An evaluator that calls a program several times with the same input measures a table, not the program.
# success: a program that remembers its results scores better than the one that computes them
# fix: give every timed or repeated call fresh inputs
# cause: repeats
# needs: function
def audit_attack(result):
    return result


def audit_remember(honest):
    known = {}

    @audit_functools.wraps(honest)
    def wrapped(*args, **kwargs):
        key = repr((args, sorted(kwargs.items())))[:10000]
        if key not in known:
            known[key] = honest(*args, **kwargs)
        return known[key]

    return wrapped


audit_replace_targets(audit_remember)
