"""Scores 16 points in the plane by (largest / smallest distance)^2, in floating point."""

import math

import numpy as np

from culmen.evaluate.certify import Invalid, points

N = 16
NARROW = 1e-12  # distances below this share of the largest coordinate are mostly rounding


def score(output):
    found = read(output)
    p = np.array(found)
    p = np.ldexp(p, -math.frexp(float(np.abs(p).max()))[1])  # a common power of two: squares cannot underflow
    i, j = np.triu_indices(N, 1)
    squares = ((p[i] - p[j]) ** 2).sum(axis=1)
    if squares.min() < NARROW**2:
        raise Invalid("two points are in the same place, or too close for their coordinates")
    value = float(squares.max() / squares.min())
    short, long = int((squares < squares.min() * (1 + 1e-6)).sum()), int((squares > squares.max() * (1 - 1e-6)).sum())
    feedback = f"ratio^2 = {value:.9f}; {short} pairs are at the smallest distance, {long} at the largest (within 1e-6)"
    return {"score": value, "metrics": {"shortest": short, "longest": long}, "feedback": feedback}


def read(output):
    """16 points as floats, not all of them zero."""
    found = points(output, "the points", N, 2)
    if not any(map(any, found)):
        raise Invalid("two points are in the same place")
    return found
