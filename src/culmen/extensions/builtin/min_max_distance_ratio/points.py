"""16 points in the plane, far apart and close together at once."""

import numpy as np

N = 16
STEPS = 100
MOVE = 0.1


# EVOLVE-BLOCK-START
def scatter():
    """The corners of a square grid, each moved at random."""
    rng = np.random.default_rng(0)
    side = np.arange(4.0)
    return np.array([[x, y] for x in side for y in side]) + 0.2 * rng.normal(size=(N, 2))


def ratio(points):
    """The largest distance over the smallest, squared."""
    i, j = np.triu_indices(N, 1)
    squares = ((points[i] - points[j]) ** 2).sum(axis=1)
    return squares.max() / squares.min()


def improve(points):
    """Move one point at a time at random; keep what is better."""
    rng = np.random.default_rng(1)
    best = ratio(points)
    for _ in range(STEPS):
        trial = points.copy()
        trial[rng.integers(N)] += MOVE * rng.normal(size=2)
        now = ratio(trial)
        if now < best:
            points, best = trial, now
    return points
# EVOLVE-BLOCK-END


def run():
    return improve(scatter())
