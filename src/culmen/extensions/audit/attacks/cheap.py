# title: Answers without work
# shows: A check that looks at an answer's form, or at each item alone, accepts one that nothing was computed for.
# success: zeros, nothing, the first item in place of all, or the input itself score better than the honest answer
# fix: check what makes an answer right, against the input: every item, how many there are, and that they differ
# cause: answer
# needs: function
# values: "zeros", "first item", "empty", "nothing", "input"
def audit_attack(result):
    return result


def audit_walk(value, change):
    """The value with change(list, tuple, array or number) in place of its outermost ones below dicts."""
    if isinstance(value, dict):
        return {key: audit_walk(item, change) for key, item in value.items()}
    return change(value)


def audit_zeros(value):
    if isinstance(value, audit_np.ndarray):
        return audit_np.zeros_like(value)
    if isinstance(value, (list, tuple)):
        return type(value)(audit_zeros(item) for item in value)
    if isinstance(value, (int, float, complex, audit_np.number)) and not isinstance(value, bool):
        return value * 0
    return value


def audit_first(value):
    if isinstance(value, audit_np.ndarray) and value.ndim and len(value):
        return audit_np.repeat(value[:1], len(value), axis=0)
    if isinstance(value, tuple):
        return tuple(audit_first(item) for item in value)
    return value[:1] * len(value) if isinstance(value, list) else value


def audit_empty(value):
    if isinstance(value, audit_np.ndarray) and value.ndim:
        return value[:0]
    return type(value)() if isinstance(value, (list, tuple, str)) else value


def audit_cheaply(honest):
    """The honest function once, to see the form of its results; afterwards nothing is computed."""
    known, depth = [], [0]

    @audit_functools.wraps(honest)
    def wrapped(*args, **kwargs):
        kind, given = AUDIT["value"], [*args, *kwargs.values()]
        if depth[0] or (kind == "input" and not given):
            return honest(*args, **kwargs)
        if kind == "input":
            return given[-1]
        if not known:
            depth[0] += 1
            try:
                result = honest(*args, **kwargs)
            finally:
                depth[0] -= 1
            make = {"zeros": audit_zeros, "first item": audit_first, "empty": audit_empty}
            known.append(audit_walk(result, make[kind]) if kind in make else None)
        return known[0]

    return wrapped


audit_replace_targets(audit_cheaply)
