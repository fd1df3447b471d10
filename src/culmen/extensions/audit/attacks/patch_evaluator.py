# title: Patched evaluator
# shows: A candidate in the evaluator's process finds its module and replaces the functions that check and score.
# success: with the evaluator's functions replaced, an output scores better than without
# fix: do not import candidates: write score(output) (form = call), or let culmen run evaluate(path) through its proxy
# cause: import
# needs: function
# values: "true", "pair", "score"
# controls: "doubled"
def audit_modules():
    """Modules that lie in the task's folder, and those that report for it."""
    for name, module in list(audit_sys.modules.items()):
        file = getattr(module, "__file__", None) or ""
        if file.startswith(AUDIT["folder"]) or name.startswith("culmen.evaluate"):
            yield vars(module)


def audit_replace(names):
    kind, forged = AUDIT["value"], AUDIT["forged"]
    for name, value in list(names.items()):
        if not callable(value) or name.startswith("__") or isinstance(value, type):
            continue
        word = name.lower()
        if any(part in word for part in ("valid", "check", "inside", "feasib", "verif", "overlap", "legal")):
            names[name] = (lambda *a, **k: True) if kind == "true" else (lambda *a, **k: (True, ""))
        elif kind == "score" and any(part in word for part in ("score", "fitness", "objective", "metric", "area", "ratio", "measure")):
            names[name] = lambda *a, **k: forged


def audit_attack(result):
    if AUDIT["value"] != "doubled":
        for names in audit_modules():
            audit_replace(names)
    return audit_doubled(result)
