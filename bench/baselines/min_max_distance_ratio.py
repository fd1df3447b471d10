"""A plain optimiser: sequential linear programming from random points until the time is up."""

import time

import numpy as np
from climb import Problem, climb

N = 16
I, J = np.triu_indices(N, 1)  # noqa: E741
PAIRS = np.arange(len(I))


def optimise(seed, seconds):
    """16 points with squared distances of at least 1 and at most s.

    s is the negative of the last variable.
    """
    rng, until = np.random.default_rng(seed), time.process_time() + seconds
    best = None
    while time.process_time() < until:
        beat = -np.inf if best is None else best[-1]
        found = climb(
            PROBLEM, np.append(rng.uniform(-2, 2, 2 * N), 0.0), until, radius=0.5, beat=beat
        )
        best = found if found[-1] > beat else best
    return best[:-1].reshape(N, 2).tolist()


def slack(x):
    """Squared distances minus 1, and s minus squared distances."""
    p = x[:-1].reshape(N, 2)
    difference = p[I] - p[J]
    squares = (difference**2).sum(axis=1)
    jacobian = np.zeros((2 * len(I), 2 * N + 1))
    for axis in range(2):
        for sign, rows in ((1, PAIRS), (-1, PAIRS + len(I))):
            jacobian[rows, 2 * I + axis] = 2 * sign * difference[:, axis]
            jacobian[rows, 2 * J + axis] = -2 * sign * difference[:, axis]
    jacobian[PAIRS + len(I), -1] = -1
    return np.concatenate([squares - 1, -x[-1] - squares]), jacobian


def restore(x):
    """Scaled so that the smallest distance is 1."""
    p = x[:-1].reshape(N, 2)
    squares = ((p[I] - p[J]) ** 2).sum(axis=1)
    p = (p - p.mean(axis=0)) / np.sqrt(squares.min())
    return np.append(p, -squares.max() / squares.min())


LIMIT = np.full(2 * N + 1, np.inf)
PROBLEM = Problem(np.append(np.zeros(2 * N), 1.0), slack, restore, -LIMIT, LIMIT)
