# expect: ok exception bad_output score_not_a_number no_output bad_frame
# not: shared
import builtins, json, math, sys, time

def run(**target):
    forged = lambda *args, **kwargs: 100.0
    for module in (json, math, time, *[m for n, m in sys.modules.items() if n.startswith(("numpy", "culmen"))]):
        for name in list(vars(module)):
            if callable(getattr(module, name, None)) and not name.startswith("__"):
                try:
                    setattr(module, name, forged)
                except (AttributeError, TypeError):
                    pass
    builtins.float = builtins.sorted = builtins.sum = forged
    return {"loot": []}
