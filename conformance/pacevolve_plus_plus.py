"""PACEvolve++: advantages of a group (Sections 2.2 and 3.3, equations 2 to 4). No culmen needed."""

import json
import sys
from itertools import combinations
from math import comb, exp, isclose, log
from statistics import fmean, pstdev

EPS_NUM = 1e-8


def standardised(values):
    return [(value - fmean(values)) / (pstdev(values) + EPS_NUM) for value in values]


def expected(group):
    """The advantages by their definitions: sums over all subsets of size k."""
    g, k = group["rewards"], group["k"]
    best = {
        s: max(g[j] for j in s) for size in (k - 1, k) for s in combinations(range(len(g)), size)
    }
    with_i = [[s for s in combinations(range(len(g)), k) if i in s] for i in range(len(g))]
    total = comb(len(g), k)
    without = [[best[tuple(j for j in s if j != i)] for s in sets] for i, sets in enumerate(with_i)]
    pkpo = [sum(best[s] for s in sets) / total for sets in with_i]
    sloo = [pkpo[i] - sum(without[i]) / total for i in range(len(g))]
    raw = [reward - fmean(g) for reward in g]
    alpha, mixed = group["alpha"], zip(standardised(raw), standardised(sloo))
    tilted = [exp(group["beta"] * (reward - max(g))) for reward in g]
    entropic = [w / ((sum(tilted) - w) / (len(g) - 1) + 1e-12) - 1 for w in tilted]
    mix = [(1 - alpha) * a + alpha * b for a, b in mixed]
    return {"pkpo": pkpo, "sloo": sloo, "group": raw, "mix": mix, "entropic": entropic}


def check_temperature(group):
    """Faults of beta: gamma nats from uniform; with m ties at the top at most log(n / m)."""
    g = group["rewards"]
    tilted = [exp(group["beta"] * (reward - max(g))) for reward in g]
    nats = sum(w / sum(tilted) * log(len(g) * max(w, 1e-300) / sum(tilted)) for w in tilted)
    if not (isclose(nats, group["gamma"], rel_tol=1e-6) or nats < log(len(g) / g.count(max(g)))):
        yield f"{g}: beta is {nats} nats from uniform, not {group['gamma']}"
    if nats < group["gamma"] * (1 - 1e-6) and log(len(g) / g.count(max(g))) > group["gamma"] / 0.9:
        yield f"{g}: beta is {nats} nats from uniform, and {group['gamma']} can be reached"


def check(document):
    """All faults of a document, in words."""
    for group in document["groups"]:
        for name, values in expected(group).items():
            pairs = list(zip(group[name], values, strict=True))
            if not all(isclose(a, b, rel_tol=1e-6, abs_tol=1e-9) for a, b in pairs):
                yield f"{group['rewards']}, k = {group['k']}: {name} is {group[name]}, not {values}"
        yield from check_temperature(group)


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        faults = list(check(json.load(file)))
    sys.exit("\n".join(faults) or 0)
