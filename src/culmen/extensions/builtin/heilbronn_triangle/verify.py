"""Certifies 11 points in the unit right triangle: the smallest triangle's share of it as an exact rational."""

from fractions import Fraction
from itertools import combinations

from culmen.evaluate.certify import certificate, down, exact_text
from evaluator import inside, read


def certify(output, case=None):
    given = [(Fraction(x), Fraction(y)) for x, y in read(output)]
    moved = [inside(x, y) for x, y in given]
    value = min(area(*triple) for triple in combinations(moved, 3))
    outside = sum(p != q for p, q in zip(given, moved))
    changes = [f"{outside} points outside by rounding or more moved to the border"] * bool(outside)
    return certificate(down(value), exact_text(value), changes)


def area(a, b, c):
    """Area over that of the unit right triangle."""
    return abs((b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0]))
