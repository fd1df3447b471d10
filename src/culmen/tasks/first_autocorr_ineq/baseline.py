"""A plain optimiser: sequential linear programming on few steps from random starts, then on twice as many, and so on."""

import time

import numpy as np
from scipy.linalg import toeplitz

from culmen.bench.climb import Problem, climb

STEPS = (30, 60, 120, 240)


def optimise(seed, seconds):
    """Heights with mean 1: some coarse starts, the best of them refined, and again until the time is up."""
    rng, until = np.random.default_rng(seed), time.process_time() + seconds
    best = None
    while time.process_time() < until:
        found = max((climb(problem(STEPS[0]), start(rng), until, radius=0.5) for _ in range(8)), key=lambda x: x[-1])
        for n in STEPS[1:]:
            found = climb(problem(n), np.append(np.repeat(found[:-1], 2), 0.0), until, radius=0.1)
        best = found if best is None or found[-1] > best[-1] else best
    return best[:-1].tolist()


def start(rng):
    """Random heights, many of them small."""
    return np.append(rng.random(STEPS[0]) ** 2, 0.0)


def problem(n):
    """Maximise -C1, the last variable: C1 >= 2/n times every entry of the autoconvolution."""

    def slack(x):
        h = x[:-1]
        shifts = toeplitz(np.append(h, np.zeros(n - 1)), np.zeros(n))  # shape (2n - 1, n): h * e_i as columns
        jacobian = np.column_stack([-4 / n * shifts, np.full(2 * n - 1, -1.0)])
        return -x[-1] - 2 / n * (shifts @ h), jacobian

    def restore(x):
        h = np.maximum(x[:-1], 0)
        h = h / h.mean()
        return np.append(h, -2 / n * np.convolve(h, h).max())

    ones = np.append(np.ones(n), 0.0)
    lower, upper = np.append(np.zeros(n), -np.inf), np.full(n + 1, np.inf)
    return Problem(1 - ones, slack, restore, lower, upper, ones)
