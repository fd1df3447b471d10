"""Certifies 16 points in the plane: (largest / smallest distance)^2 as an exact rational. There is nothing to repair."""

from itertools import combinations
from fractions import Fraction

from culmen.evaluate.certify import Invalid, certificate, dyadic, exact_text, up
from evaluator import read


def certify(output, case=None):
    flat, _ = dyadic([number for point in read(output) for number in point])
    placed = list(zip(flat[::2], flat[1::2]))
    squares = [(a[0] - b[0]) ** 2 + (a[1] - b[1]) ** 2 for a, b in combinations(placed, 2)]
    if min(squares) == 0:
        raise Invalid("two points are in the same place")
    value = Fraction(max(squares), min(squares))
    return certificate(up(value), exact_text(value))
