"""POLCA: the loop's statistics (Algorithm 1), the filter (Algorithm 4). No culmen needed."""

import json
import sys
from math import dist, inf

CLOSE = 1e-9  # of means and distances


def mean(rewards):
    return sum(rewards) / len(rewards) if rewards else -inf


def check_search(trace):
    """Faults of a search: lines 4 (the best `explore` of Q), 6 and 10 (means of all rewards)."""
    memory = {name: [] for name in trace["initial"]}
    for number, turn in enumerate(trace["rounds"], 1):
        rest = [mean(memory[name]) for name in memory if name not in turn["parents"]]
        worst = min((mean(memory.get(name, ())) for name in turn["parents"]), default=inf)
        if len(set(turn["parents"])) != min(trace["explore"], len(memory)):
            yield f"round {number}: {len(turn['parents'])} parents of a memory of {len(memory)}"
        if not memory.keys() >= set(turn["parents"]) or max(rest, default=-inf) > worst + CLOSE:
            yield f"round {number}: the parents are not those of the highest mean"
        for name, rewards in [*turn["observed"].items(), *turn["admitted"].items()]:
            memory.setdefault(name, []).extend(rewards)
        for name, (count, value) in turn["statistics"].items():
            if count != len(memory[name]) or abs(value - mean(memory[name])) > CLOSE:
                yield f"round {number}: the count and the mean of {name} are wrong"


def check_filter(case):
    """Faults of the filter: `admitted` are places in `raw`, in the order of admission."""
    memory, left = list(case["memory"]), dict(enumerate(case["raw"]))
    for place in case["admitted"]:
        gaps = {i: min((dist(point, q) for q in memory), default=inf) for i, point in left.items()}
        if place not in gaps or gaps[place] < max(case["epsilon"], *gaps.values()) - CLOSE:
            yield f"admitted {place}: it is not the farthest, or within epsilon"
            return
        memory.append(left.pop(place))
    for i, point in left.items():
        if min((dist(point, q) for q in memory), default=inf) >= case["epsilon"] + CLOSE:
            yield f"refused {i}: it is epsilon away from all"


def check(document):
    """All faults of a document, in words."""
    for trace in document.get("searches", ()):
        yield from check_search(trace)
    for case in document.get("filters", ()):
        yield from check_filter(case)


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        faults = list(check(json.load(file)))
    sys.exit("\n".join(faults) or 0)
