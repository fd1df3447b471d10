"""A plain optimiser: a swarm of gradient ascents on a smooth stand-in.

Its best is made exact by linear programming.
"""

import time
from itertools import combinations

import numpy as np
from climb import Problem, climb

N, SWARM, STEPS = 11, 256, 300
A, B, C = np.array(list(combinations(range(N), 3))).T
CORNERS = [np.eye(N)[corner] for corner in (A, B, C)]
ROWS = np.arange(len(A))


def optimise(seed, seconds):
    """11 points in the unit right triangle: swarms of new points and of changed ones.

    The changed ones are good ones with one to three points moved.
    """
    rng, until = np.random.default_rng(seed), time.process_time() + seconds
    best = []
    while not best or time.process_time() < until:
        swarm = ascend(starts(rng, best), until)
        order = np.argsort(-np.abs(areas(swarm)).min(axis=1))
        for p in swarm[order[:8]]:
            beat = best[0][-1] if best else -1.0
            found = climb(
                problem(np.sign(areas(p))), np.append(p, 0.0), until, radius=0.02, beat=beat
            )
            if all(abs(found[-1] - other[-1]) > 1e-7 for other in best):
                best = sorted([*best, found], key=lambda x: -x[-1])[:16]
    return best[0][:-1].reshape(N, 2).tolist()


def starts(rng, best):
    """Shape (SWARM, N, 2)."""
    p = rng.random((SWARM, N, 2))
    p = np.where(p.sum(axis=-1, keepdims=True) > 1, 1 - p, p)
    if not best:
        return p
    good = np.array([x[:-1].reshape(N, 2) for x in best])[rng.integers(len(best), size=SWARM)]
    moved = rng.random((SWARM, N)).argsort(axis=1) < rng.integers(1, 4, size=(SWARM, 1))
    changed = np.where(moved[..., None], p, good)
    return np.where((rng.random(SWARM) < 0.7)[:, None, None], changed, p)


def ascend(p, until):
    """Adam on a mean of the areas that weighs the small ones, ever more sharply.

    Points stay in the triangle.
    """
    mean, square = np.zeros_like(p), np.zeros_like(p)
    for step in range(STEPS):
        if time.process_time() > until:
            break
        signed = areas(p)
        sizes, sharp = np.abs(signed), 30 * 100 ** (step / STEPS)
        weights = np.exp(-sharp * (sizes - sizes.min(axis=1, keepdims=True)))
        slope = gradient(p, np.sign(signed) * weights / weights.sum(axis=1, keepdims=True))
        mean, square = 0.8 * mean + 0.2 * slope, 0.95 * square + 0.05 * slope**2
        scale = np.sqrt(square / (1 - 0.95 ** (step + 1))) + 1e-9
        p = p + 0.03 * 0.02 ** (step / STEPS) * mean / (1 - 0.8 ** (step + 1)) / scale
        p = np.maximum(p, 0)
        p = p / np.maximum(1, p.sum(axis=-1, keepdims=True))
    return p


def areas(p):
    """Signed areas of all triples, as shares of the whole triangle; p has shape (..., N, 2)."""
    u, v = p[..., B, :] - p[..., A, :], p[..., C, :] - p[..., A, :]
    return u[..., 0] * v[..., 1] - u[..., 1] * v[..., 0]


def gradient(p, weights):
    """Of the weighted sum of the areas."""
    a, b, c = p[:, A], p[:, B], p[:, C]
    total = np.zeros_like(p)
    for corner, d in zip(CORNERS, (b - c, c - a, a - b)):
        total[..., 0] += (d[..., 1] * weights) @ corner
        total[..., 1] -= (d[..., 0] * weights) @ corner
    return total


def problem(signs):
    """Maximise t, the last variable.

    Every triangle keeps its orientation and at least this area.
    """

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
