"""A plain optimiser: sequential linear programming from random centers.

Also from the best with two circles moved.
"""

import time

import numpy as np
from climb import Problem, climb

N = 26
I, J = np.triu_indices(N, 1)  # noqa: E741
PAIRS = np.arange(len(I))


def optimise(seed, seconds):
    """(centers, radii) of 26 circles in the unit square."""
    rng, until = np.random.default_rng(seed), time.process_time() + seconds
    best = None
    while time.process_time() < until:
        p = rng.random((N, 2))
        if best is not None and rng.random() < 0.7:  # two circles of the best elsewhere
            p = np.where((rng.permutation(N) < 2)[:, None], p, best[: 2 * N].reshape(N, 2))
        start = np.concatenate([p.ravel(), np.full(N, 0.01)])
        beat = -1.0 if best is None else GAIN @ best
        found = climb(PROBLEM, start, until, beat=beat)
        best = found if GAIN @ found > beat else best
    return best[: 2 * N].reshape(N, 2).tolist(), best[2 * N :].tolist()


def slack(x):
    """Distance minus radii for every pair, then the four walls."""
    p, r = x[: 2 * N].reshape(N, 2), x[2 * N :]
    difference = p[I] - p[J]
    distance = np.maximum(np.sqrt((difference**2).sum(axis=1)), 1e-12)
    jacobian = np.zeros((len(I) + 4 * N, 3 * N))
    for axis in range(2):
        jacobian[PAIRS, 2 * I + axis] = difference[:, axis] / distance
        jacobian[PAIRS, 2 * J + axis] = -difference[:, axis] / distance
        low, high = len(I) + 2 * axis * N + np.arange(N), len(I) + (2 * axis + 1) * N + np.arange(N)
        jacobian[low, 2 * np.arange(N) + axis] = 1
        jacobian[high, 2 * np.arange(N) + axis] = -1
        jacobian[low, 2 * N + np.arange(N)] = jacobian[high, 2 * N + np.arange(N)] = -1
    jacobian[PAIRS, 2 * N + I] = jacobian[PAIRS, 2 * N + J] = -1
    walls = [p[:, 0] - r, 1 - p[:, 0] - r, p[:, 1] - r, 1 - p[:, 1] - r]
    return np.concatenate([distance - r[I] - r[J], *walls]), jacobian


def restore(x):
    """Circles that overlap or stick out become smaller: first by the walls, then pair by pair."""
    p, r = x[: 2 * N].reshape(N, 2), x[2 * N :]
    r = np.minimum(r, np.minimum(p, 1 - p).min(axis=1))
    distance = np.sqrt(((p[I] - p[J]) ** 2).sum(axis=1))
    for k in np.flatnonzero(r[I] + r[J] > distance):
        i, j = I[k], J[k]
        over = r[i] + r[j] - distance[k]
        if over > 0:
            r[i], r[j] = r[i] - over * r[i] / (r[i] + r[j]), r[j] - over * r[j] / (r[i] + r[j])
    return np.concatenate([p.ravel(), r])


GAIN = np.concatenate([np.zeros(2 * N), np.ones(N)])
PROBLEM = Problem(
    GAIN, slack, restore, np.zeros(3 * N), np.concatenate([np.ones(2 * N), np.full(N, 0.5)])
)
