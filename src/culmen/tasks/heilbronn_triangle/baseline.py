"""A plain optimiser: sequential linear programming from random points, and from the best with two points moved."""

import time
from itertools import combinations

import numpy as np

from culmen.bench.climb import Problem, climb

N = 11
A, B, C = np.array(list(combinations(range(N), 3))).T
ROWS = np.arange(len(A))


def optimise(seed, seconds):
    """11 points in the unit right triangle."""
    rng, until = np.random.default_rng(seed), time.process_time() + seconds
    best = None
    while time.process_time() < until:
        p = rng.random((N, 2))
        p = np.where(p.sum(axis=1, keepdims=True) > 1, 1 - p, p)
        if best is not None and rng.random() < 0.5:  # two points of the best elsewhere
            p = np.where((rng.permutation(N) < 2)[:, None], p, best[:-1].reshape(N, 2))
        beat = -1.0 if best is None else best[-1]
        found = climb(problem(np.sign(areas(p))), np.append(p, 0.0), until, beat=beat)
        best = found if found[-1] > beat else best
    return best[:-1].reshape(N, 2).tolist()


def areas(p):
    """Signed areas of all triples, as shares of the whole triangle."""
    u, v = p[B] - p[A], p[C] - p[A]
    return u[:, 0] * v[:, 1] - u[:, 1] * v[:, 0]


def problem(signs):
    """Maximise t, the last variable: every triangle keeps its orientation and at least this area."""

    def slack(x):
        p, jacobian = x[:-1].reshape(N, 2), np.zeros((len(A) + N, 2 * N + 1))
        for i, j, k in ((A, B, C), (B, C, A), (C, A, B)):
            jacobian[ROWS, 2 * i] = signs * (p[j] - p[k])[:, 1]
            jacobian[ROWS, 2 * i + 1] = signs * (p[k] - p[j])[:, 0]
        jacobian[ROWS, -1] = -1
        for i in range(N):
            jacobian[len(A) + i, 2 * i : 2 * i + 2] = -1
        return np.append(signs * areas(p) - x[-1], 1 - p.sum(axis=1)), jacobian

    def restore(x):
        p = np.maximum(x[:-1].reshape(N, 2), 0)
        p = p / np.maximum(1, p.sum(axis=1, keepdims=True))
        return np.append(p, (signs * areas(p)).min())

    gain = np.append(np.zeros(2 * N), 1.0)
    return Problem(gain, slack, restore, np.append(np.zeros(2 * N), -1.0), np.ones(2 * N + 1))
