"""A plain optimiser: sequential linear programming from many starts.

Then on twice as many steps, and so on.
"""

import time

import numpy as np
from climb import Problem, climb, contest
from scipy.linalg import toeplitz

COARSE, FIELD = 60, 48


def optimise(seed, seconds):
    """Heights with mean 1: half of the time for contests of coarse starts.

    The rest is for refining the best of them.
    """
    rng, begun = np.random.default_rng(seed), time.process_time()
    until, early = begun + seconds, begun + seconds / 2
    best = None
    while best is None or time.process_time() < early:
        found = contest(
            problem(COARSE), [start(rng, best) for _ in range(FIELD)], early, radius=0.5
        )
        best = found if best is None or found[-1] > best[-1] else best
    while time.process_time() < until:
        n = 2 * (len(best) - 1)
        fine = np.repeat(best[:-1], 2) * np.exp(0.01 * rng.normal(size=n))
        best = max(
            climb(problem(n), np.append(fine, 0.0), until, radius=0.1), best, key=lambda x: x[-1]
        )
        if len(best) <= n:
            break
    return best[:-1].tolist()


def start(rng, best):
    """Random heights, many of them small; or the best ones, some of them changed."""
    if best is None or rng.random() < 0.5:
        return np.append(rng.random(COARSE) ** rng.choice([1, 2, 4]), 0.0)
    changed = rng.random(COARSE) < rng.choice([0.2, 0.5, 1.0])
    noise = rng.choice([0.1, 0.3, 0.6]) * rng.normal(size=COARSE)
    return np.append(best[:-1] * np.exp(noise * changed), 0.0)


def problem(n):
    """Maximise -C1, the last variable: C1 >= 2/n times every entry of the autoconvolution."""

    def slack(x):
        h = x[:-1]
        shifts = toeplitz(
            np.append(h, np.zeros(n - 1)), np.zeros(n)
        )  # shape (2n - 1, n): h * e_i as columns
        jacobian = np.column_stack([-4 / n * shifts, np.full(2 * n - 1, -1.0)])
        return -x[-1] - 2 / n * (shifts @ h), jacobian

    def restore(x):
        h = np.maximum(x[:-1], 0)
        h = h / h.mean()
        return np.append(h, -2 / n * np.convolve(h, h).max())

    ones = np.append(np.ones(n), 0.0)
    lower, upper = np.append(np.zeros(n), -np.inf), np.full(n + 1, np.inf)
    return Problem(1 - ones, slack, restore, lower, upper, ones)
