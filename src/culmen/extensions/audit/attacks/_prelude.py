# What every attack is made of: it stands behind the text of the honest program, before its main block.
import functools as audit_functools
import json as audit_json
import os as audit_os
import sys as audit_sys

import numpy as audit_np

AUDIT = audit_json.loads({facts!r})
audit_array, audit_float64 = audit_np.array, audit_np.float64


def audit_tell(kind, *facts):
    """Heard by the audit in the log of the evaluation, or in the traceback if `audit_raise` follows."""
    line = "AUDIT " + audit_json.dumps([AUDIT["token"], kind, *facts])
    try:
        audit_os.write(2, (line + "\n").encode())
    except OSError:
        pass
    return line


def audit_raise(kind, *facts):
    """The same where nobody reads the log: as an exception."""
    raise RuntimeError(audit_tell(kind, *facts))


def audit_depth(value):
    """Nesting of a list or tuple of numbers, all branches alike; -1 for anything else."""
    if isinstance(value, (bool, str, bytes)) or value is None:
        return -1
    if isinstance(value, (int, float, audit_np.integer, audit_np.floating)):
        return 0
    if isinstance(value, (list, tuple)) and value:
        depths = {audit_depth(item) for item in value}
        return depths.pop() + 1 if len(depths) == 1 and -1 not in depths else -1
    return -1


def audit_is_block(value, top):
    """Numbers that belong together: an array, an evenly nested list, one number. A tuple at the top is several."""
    if isinstance(value, audit_np.ndarray):
        return value.size > 0 and value.dtype.kind in "fiu"
    depth = audit_depth(value)
    return depth == 0 or (depth > 0 and not (top and isinstance(value, tuple)))


def audit_blocks(value, top=True):
    """All blocks as arrays, in order."""
    if audit_is_block(value, top):
        return [audit_np.array(value, dtype=float)]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return [block for item in items for block in audit_blocks(item, False)]


def audit_back(like, array):
    """The array in the form of `like`."""
    if isinstance(like, audit_np.ndarray):
        whole = like.dtype.kind in "iu" and audit_np.isfinite(array).all() and (array == audit_np.round(array)).all()
        return array.astype(like.dtype) if whole else array
    if isinstance(like, (list, tuple)):
        return type(like)(audit_back(one, other) for one, other in zip(like, array))
    return int(array) if isinstance(like, int) and float(array).is_integer() else float(array)


def audit_change(value, change, which=-1):
    """The value with change(array) in place of its blocks: of all, or of the one numbered `which`."""
    count = [-1]

    def walk(part, top):
        if audit_is_block(part, top):
            count[0] += 1
            if which in (-1, count[0]):
                return audit_back(part, change(audit_np.array(part, dtype=float)))
            return part
        if isinstance(part, dict):
            return {key: walk(item, False) for key, item in part.items()}
        if isinstance(part, (list, tuple)):
            return type(part)(walk(item, False) for item in part)
        return part

    return walk(value, True)


def audit_doubled(value):
    """A larger output, which an intact evaluator would mostly refuse."""
    return audit_change(value, lambda array: array * 2.0)


def audit_replace_targets(around):
    """Replace every function that the evaluator may call, also `Class.method`, by around(function)."""
    for name in AUDIT["targets"]:
        owner, _, last = name.rpartition(".")
        place = globals().get(owner)
        if owner and callable(getattr(place, last, None)):
            setattr(place, last, around(getattr(place, last)))
        elif callable(globals().get(name)):
            globals()[name] = around(globals()[name])


def audit_install(attack):
    """Let every function that the evaluator may call return attack(what the honest one returned)."""
    depth = [0]

    def around(honest):
        @audit_functools.wraps(honest)
        def wrapped(*args, **kwargs):
            depth[0] += 1
            try:
                result = honest(*args, **kwargs)
            finally:
                depth[0] -= 1
            return result if depth[0] else attack(result)

        return wrapped

    audit_replace_targets(around)
