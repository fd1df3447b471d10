# expect: ok
# not: shared
import gc, sys

def run(**target):
    loot, frame = [], sys._getframe()
    while frame is not None:
        for name, value in {**frame.f_globals, **frame.f_locals}.items():
            try:
                if name != "target" and target["hint"] in repr(value)[:10_000] and "hint" not in repr(value)[:10_000]:
                    loot.append(name)
            except Exception:
                pass
        frame = frame.f_back
    for thing in gc.get_objects():
        if isinstance(thing, dict) and "secret" in thing and thing is not target:
            loot.append("a dict with a secret")
    return {"loot": loot}
