"""A plain optimiser: sequential linear programming on few steps from random starts, then on twice as many, and so on."""

import time

import numpy as np

from culmen.bench.climb import Problem, climb

STEPS = (25, 50, 100, 200)


def optimise(seed, seconds):
    """Heights in [0, 1] with mean 1/2: some coarse starts, the best refined, and again until the time is up."""
    rng, until = np.random.default_rng(seed), time.process_time() + seconds
    best = None
    while time.process_time() < until:
        starts = (np.append(rng.random(STEPS[0]), 0.0) for _ in range(8))
        found = max((climb(problem(STEPS[0]), x, until) for x in starts), key=lambda x: x[-1])
        for n in STEPS[1:]:
            found = climb(problem(n), np.append(np.repeat(found[:-1], 2), 0.0), until, radius=0.03)
        best = found if best is None or found[-1] > best[-1] else best
    return best[:-1].tolist()


def problem(n):
    """Maximise -M, the last variable: M >= 2/n sum_i h_i (1 - h_{i+k}) for all shifts k."""

    def slack(x):
        h = x[:-1]
        free = windows(1 - h)  # row k: 1 - h_{i+k} by i, zero outside
        held = windows(h[::-1])[:, ::-1]  # row k: h_{j-k} by j, zero outside
        return -x[-1] - 2 / n * (free @ h), np.column_stack([-2 / n * (free - held), np.full(2 * n - 1, -1.0)])

    def restore(x):
        h = np.clip(x[:-1], 0, 1)
        h = h / (2 * h.mean()) if h.mean() > 0.5 else 1 - (1 - h) / (2 * (1 - h).mean())
        return np.append(h, -2 / n * np.correlate(1 - h, h, mode="full").max())

    ones = np.append(np.ones(n), 0.0)
    lower, upper = np.append(np.zeros(n), -np.inf), np.append(np.ones(n), np.inf)
    return Problem(1 - ones, slack, restore, lower, upper, ones)


def windows(values):
    """Shape (2n - 1, n): row n - 1 + k holds values[i + k] by i, zero outside."""
    n = len(values)
    return np.lib.stride_tricks.sliding_window_view(np.pad(values, n - 1), n)
