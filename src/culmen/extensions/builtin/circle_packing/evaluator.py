"""Scores a packing of 26 circles in the unit square by exact rational arithmetic.

Every double is read as the fraction it is, so nothing is gained by rounding. Radii that are too large by at most
`SLACK` are made smaller until the packing is valid, and the score is the sum of these radii, rounded down.
"""

import math
from fractions import Fraction
from itertools import combinations

N = 26
SLACK = 1e-6  # how far a circle may stick out or overlap and still be repaired
CLEAR = 1e-9  # a gap wider than this in floating point (error below 1e-14 here) needs no exact check


def score(output):
    try:
        points, radii = read(output)
    except ValueError as error:
        return {"score": None, "feedback": str(error)}
    exact = [Fraction(r) for r in radii]
    worst = repair(points, exact)
    if worst[0] > SLACK:
        return {"score": None, "feedback": f"{worst[1]} by {float(worst[0]):.3g}; at most {SLACK} is repaired"}
    certified = sum(exact)
    value = rounded_down(certified)
    raw = math.fsum(radii)
    metrics = {"raw_sum": raw, "shrink": float(sum(Fraction(r) for r in radii) - certified)}
    return {"score": value, "metrics": metrics, "feedback": report(points, exact, value)}


def read(output):
    """26 points and 26 radii as Python numbers; ValueError says what is wrong."""
    if not isinstance(output, (list, tuple)) or len(output) != 2:
        raise ValueError("run() must return (centers, radii)")
    centers, radii = (part.tolist() if type(part).__name__ == "ndarray" else part for part in output)
    if not isinstance(centers, (list, tuple)) or len(centers) != N:
        raise ValueError(f"centers must be {N} points")
    if not isinstance(radii, (list, tuple)) or len(radii) != N:
        raise ValueError(f"radii must be {N} numbers")
    for i, point in enumerate(centers):
        if not isinstance(point, (list, tuple)) or len(point) != 2:
            raise ValueError(f"center {i} must be two numbers")
        for number in (*point, radii[i]):
            check(number, i)
    return centers, radii


def check(number, i):
    if type(number) not in (int, float) or not 0 <= number <= 1:  # NaN fails the comparison too
        raise ValueError(f"circle {i}: every coordinate and radius must be a number between 0 and 1")


def repair(points, radii):
    """Shrink `radii` (fractions, changed in place) until all circles are inside and disjoint.

    Returns the largest violation found and its description. One pass is enough: radii only ever get smaller.
    """
    worst = (Fraction(0), "")
    for i, (x, y) in enumerate(points):
        room = min(Fraction(x), Fraction(y), 1 - Fraction(x), 1 - Fraction(y))
        if radii[i] > room:
            worst = max(worst, (radii[i] - room, f"circle {i} leaves the square"))
            radii[i] = room
    for i, j in combinations(range(N), 2):
        if math.dist(points[i], points[j]) - float(radii[i]) - float(radii[j]) > CLEAR:
            continue
        overlap = shrink_pair(points[i], points[j], radii, i, j)
        worst = max(worst, (overlap, f"circles {i} and {j} overlap"))
    return worst


def shrink_pair(p, q, radii, i, j):
    """Make two circles disjoint by shrinking the larger (both, if one alone is too large); returns the overlap."""
    square = (Fraction(p[0]) - Fraction(q[0])) ** 2 + (Fraction(p[1]) - Fraction(q[1])) ** 2
    if (radii[i] + radii[j]) ** 2 <= square:
        return Fraction(0)
    distance = root_below(square)
    overlap = radii[i] + radii[j] - distance
    large, small = (i, j) if radii[i] >= radii[j] else (j, i)
    radii[small] = min(radii[small], distance)
    radii[large] = distance - radii[small]
    return overlap


def root_below(square):
    """A fraction not above the square root, within 2**-100."""
    return Fraction(math.isqrt(math.floor(square * 4**100)), 2**100)


def rounded_down(value):
    """The largest double that is not above a fraction."""
    number = float(value)
    return number if Fraction(number) <= value else math.nextafter(number, -math.inf)


def report(points, radii, value):
    """What a person or a model would want to know next."""
    sizes = [float(r) for r in radii]
    gaps = [math.dist(points[i], points[j]) - sizes[i] - sizes[j] for i, j in combinations(range(N), 2)]
    order = sorted(range(N), key=sizes.__getitem__)
    small = ", ".join(f"{i} at ({points[i][0]:.3f}, {points[i][1]:.3f}) r={sizes[i]:.4f}" for i in order[:4])
    covered = math.pi * sum(r * r for r in sizes)
    touching = sum(gap < 1e-9 for gap in gaps)
    return f"sum of radii {value:.6f}; {touching} pairs touch; {covered:.1%} covered; smallest: {small}"
