"""Scores a packing in whole numbers: no bin may be too full, and every item must be in one."""

from collections import Counter


def score(output, case):
    items, capacity = case.input["items"], case.input["capacity"]
    chosen = output.tolist() if type(output).__name__ == "ndarray" else output
    if not isinstance(chosen, (list, tuple)) or len(chosen) != len(items):
        return {"score": None, "feedback": f"pack() must return {len(items)} bin numbers, one for each item"}
    if any(type(b) is not int for b in chosen):
        return {"score": None, "feedback": "bin numbers must be whole numbers"}
    load = Counter()
    for size, b in zip(items, chosen):
        load[b] += size
    fullest, most = max(load.items(), key=lambda pair: pair[1])
    if most > capacity:
        return {"score": None, "feedback": f"bin {fullest} holds {most}, its capacity is {capacity}"}
    best, used = case.info["bins"], len(load)
    wasted = sorted((capacity - filled for filled in load.values()), reverse=True)[:5]
    feedback = f"{used} bins where {best} are enough; most space left in a bin: {wasted}"
    return {"score": best / used, "metrics": {"bins": used}, "feedback": feedback}
