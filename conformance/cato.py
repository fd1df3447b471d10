"""CATO: gaming of tolerances (appendix), judged in exact arithmetic. No culmen needed."""

import json
import sys
from fractions import Fraction
from itertools import combinations

ROUNDING = Fraction(1, 10**9)  # of a solver; beyond it, an output lives on a tolerance


def excess(problem, output):
    """The largest violation of the problem's own limits; 0 if there is none."""
    rows = [
        [Fraction(x) for x in row] if isinstance(row, list) else Fraction(row) for row in output
    ]
    if problem == "sum":  # amounts of at least 0 that sum to at most 1
        return max([sum(rows) - 1, *(-x for x in rows), Fraction(0)])
    if problem == "triangle":  # points with x, y >= 0 and x + y <= 1
        return max([0, *(v for x, y in rows for v in (-x, -y, x + y - 1))])
    walls = [v for x, y, r in rows for v in (r - x, r - y, x + r - 1, y + r - 1)]  # circles
    pairs = [
        (a[2] + b[2]) ** 2 - (a[0] - b[0]) ** 2 - (a[1] - b[1]) ** 2
        for a, b in combinations(rows, 2)
    ]
    return max([0, *walls, *pairs])


def check(document):
    """All faults of a document, in words: outputs that are accused or believed wrongly."""
    for case in document["cases"]:
        beyond = excess(case["problem"], case["output"])
        if (beyond > ROUNDING) != case["gamed"]:
            yield f"{case['problem']} {case['output']}: {float(beyond)} beyond its limits"


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        faults = list(check(json.load(file)))
    sys.exit("\n".join(faults) or 0)
