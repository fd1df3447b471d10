# title: Patched numpy, math and builtins
# shows: A candidate that is imported by the evaluator shares its modules, and can replace what the checks call.
# success: with replaced functions a worse output, or the same one, scores better than without
# fix: do not import candidates: write score(output) (form = call), or let culmen run evaluate(path) through its proxy
# cause: import
# needs: numbers
# values: "sums up", "sums down", "checks"
# controls: "doubled"
import builtins as audit_builtins
import math as audit_math


def audit_patch():
    np, kind = audit_np, AUDIT["value"]
    if kind.startswith("sums"):
        factor = 3.0 if kind == "sums up" else 1.0 / 3.0
        for module, names in ((np, ("sum", "mean", "min", "max", "amin", "amax", "median")), (audit_math, ("fsum", "prod")), (audit_builtins, ("sum", "min", "max"))):
            for name in names:
                if hasattr(module, name):
                    setattr(module, name, (lambda own: lambda *a, **k: own(*a, **k) * factor)(getattr(module, name)))
        return
    false, true = (lambda *a, **k: False), (lambda *a, **k: True)
    far = lambda *a, **k: 1e3
    np.any = np.isnan = np.isinf = false
    np.all = np.isclose = np.allclose = np.isfinite = true
    np.linalg.norm = np.hypot = audit_math.hypot = audit_math.dist = audit_math.sqrt = np.sqrt = far
    audit_math.isnan = audit_math.isinf = audit_builtins.any = false
    audit_math.isfinite = audit_math.isclose = audit_builtins.all = true


def audit_attack(result):
    if AUDIT["value"] == "doubled":
        return audit_doubled(result)
    changed = audit_doubled(result) if AUDIT["value"] == "checks" else result
    audit_patch()
    return changed
