"""A plain optimiser: sequential linear programming from many starts.

Then on twice as many steps, and so on.
"""

import time

import numpy as np
from climb import Problem, climb, contest

COARSE, FIELD = 48, 64


def optimise(seed, seconds):
    """Heights in [0, 1] with mean 1/2: contests of random coarse starts.

    Then the best of them is refined.
    """
    rng, begun = np.random.default_rng(seed), time.process_time()
    until, early = begun + seconds, begun + 0.6 * seconds
    best = None
    while best is None or time.process_time() < early:
        found = contest(
            problem(COARSE),
            [np.append(rng.random(COARSE), 0.0) for _ in range(FIELD)],
            early,
            radius=0.3,
        )
        best = found if best is None or found[-1] > best[-1] else best
    while time.process_time() < until:
        best = refined(best, rng, until)
    return best[:-1].tolist()


def refined(best, rng, until):
    """The best on twice as many steps.

    Noise helps where the linear model sees no way on from a repeated optimum.
    """
    n, fine = 2 * (len(best) - 1), np.repeat(best[:-1], 2)
    found = climb(problem(n), np.append(fine, 0.0), until, radius=0.03)
    if found[-1] < best[-1] + 1e-7:
        fine = np.clip(fine + 0.003 * rng.normal(size=n), 0, 1)
        found = max(
            climb(problem(n), np.append(fine, 0.0), until, radius=0.03), found, key=lambda x: x[-1]
        )
    return found


def problem(n):
    """Maximise -M, the last variable: M >= 2/n sum_i h_i (1 - h_{i+k}) for all shifts k."""

    def slack(x):
        h = x[:-1]
        free = windows(1 - h)  # row k: 1 - h_{i+k} by i, zero outside
        held = windows(h[::-1])[:, ::-1]  # row k: h_{j-k} by j, zero outside
        return -x[-1] - 2 / n * (free @ h), np.column_stack(
            [-2 / n * (free - held), np.full(2 * n - 1, -1.0)]
        )

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
