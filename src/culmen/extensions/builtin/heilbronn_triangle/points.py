"""11 points in the unit right triangle, no three of them close to a line."""

from itertools import combinations

import numpy as np

N = 11
TRIES = 60
TRIPLES = np.array(list(combinations(range(N), 3)))


# EVOLVE-BLOCK-START
def scatter(rng):
    """Uniform points: what falls beyond the long side is reflected."""
    points = rng.random((N, 2))
    return np.where(points.sum(axis=1, keepdims=True) > 1, 1 - points, points)


def smallest(points):
    """The smallest triangle, as a share of the whole."""
    a, b, c = (points[TRIPLES[:, i]] for i in range(3))
    return np.abs((b - a)[:, 0] * (c - a)[:, 1] - (b - a)[:, 1] * (c - a)[:, 0]).min()


def search():
    """The best of some random placements."""
    rng = np.random.default_rng(0)
    return max((scatter(rng) for _ in range(TRIES)), key=smallest)
# EVOLVE-BLOCK-END


def run():
    return search()
