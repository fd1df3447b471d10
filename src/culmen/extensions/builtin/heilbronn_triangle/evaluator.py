"""Scores 11 points in the unit right triangle by their smallest triangle, in floating point."""

from itertools import combinations

import numpy as np

from culmen.evaluate.certify import Invalid, points

N = 11
SLACK = 1e-6  # how far a point may lie outside; it is moved to the border
TRIPLES = np.array(list(combinations(range(N), 3)))


def score(output):
    p = np.array([inside(x, y) for x, y in read(output)])
    a, b, c = (p[TRIPLES[:, i]] for i in range(3))
    areas = np.abs((b - a)[:, 0] * (c - a)[:, 1] - (b - a)[:, 1] * (c - a)[:, 0])
    order = np.argsort(areas)
    value = float(areas[order[0]])
    triples = ", ".join(str(tuple(map(int, TRIPLES[i]))) for i in order[:4])
    near = int((areas < value + 1e-6).sum())
    feedback = f"smallest area {value:.9f} of the whole; {near} triangles are within 1e-6 of it; smallest: {triples}"
    return {"score": value, "metrics": {"near_minimum": near}, "feedback": feedback}


def read(output):
    """11 points as floats, none farther outside than the slack."""
    found = points(output, "the points", N, 2)
    for i, (x, y) in enumerate(found):
        if x < -SLACK or y < -SLACK or x + y > 1 + SLACK:
            raise Invalid(f"point {i} at ({x:.6g}, {y:.6g}) lies outside the triangle")
    return found


def inside(x, y):
    """The point itself if it lies in the triangle, else one on the border; works on floats and fractions."""
    x, y = max(x, 0 * x), max(y, 0 * y)
    return (x, y) if x + y <= 1 else (x / (x + y), y / (x + y))
