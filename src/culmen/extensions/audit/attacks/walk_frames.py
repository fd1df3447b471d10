# title: Walking the call frames
# shows: From a function that the evaluator calls, the caller's frame and its globals are in reach.
# success: with the caller's globals replaced, an output scores better than without
# fix: do not import candidates: write score(output) (form = call), or let culmen run evaluate(path) through its proxy
# cause: import
# needs: function
# values: "checks", "results"
# controls: "doubled"
def audit_frames():
    frame = audit_sys._getframe()
    while frame is not None:
        yield frame
        frame = frame.f_back


def audit_attack(result):
    kind, forged, own = AUDIT["value"], AUDIT["forged"], globals()
    for frame in audit_frames():
        names = frame.f_globals
        if names is own or kind == "doubled":
            continue
        for name, value in list(names.items()):
            if name.startswith("__") or isinstance(value, type) or not callable(value):
                continue
            word = name.lower()
            if kind == "checks" and any(part in word for part in ("valid", "check", "inside", "feasib", "verif", "overlap")):
                pair = any(part in (value.__doc__ or "") for part in ("tuple", "(bool", "Tuple", "(True", "(valid"))
                names[name] = (lambda *a, **k: (True, "")) if pair else (lambda *a, **k: True)
            if kind == "results" and any(part in word for part in ("fitness", "score", "area", "report")):
                names[name] = lambda *a, **k: forged
    return audit_doubled(result)
