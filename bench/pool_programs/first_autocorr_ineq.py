"""Pieces of programs for `first_autocorr_ineq`: first heights, and ways to better them."""

import numpy as np
from step_functions import improve_not, start_known, start_resampled  # noqa: F401 - named by recipes

N = 120
SEED, SIZE, ROUNDS = 0, 60, 10
NUMBERS: list[float] = []


def start_singular():
    """The square-root singularity at one end."""
    return 1 / np.sqrt((np.arange(SIZE) + 0.5) / SIZE)


def start_random():
    """Random heights, many of them small."""
    return np.random.default_rng(SEED).random(SIZE) ** 2


def start_comb():
    """Narrow peaks on a low floor, and a singularity at the end."""
    rng = np.random.default_rng(SEED)
    h = 0.3 + rng.random(SIZE)
    h[rng.integers(SIZE, size=SIZE // 6)] += 3 * rng.random(SIZE // 6)
    h[-1] += 6
    return h


def start_finer():
    """The heights that a longer search found, on twice as many steps, with a little noise."""
    h = np.repeat(np.array(NUMBERS), 2)
    return h * np.exp(0.01 * np.random.default_rng(SEED).normal(size=len(h)))


def improve_by_programmes(h):
    """Sequential linear programming: no entry of h * h above m, m as small as possible."""
    from scipy.linalg import toeplitz
    from scipy.optimize import linprog

    n, box = len(h), 0.3
    h = h / h.mean()
    gain, level = np.append(np.zeros(n), 1.0), np.append(np.ones(n), 0.0)[None, :]
    for _ in range(ROUNDS):
        shifted = toeplitz(np.append(h, np.zeros(n - 1)), np.zeros(n))
        values = 2 / n * (shifted @ h)
        rows = np.column_stack([4 / n * shifted, -np.ones(2 * n - 1)])
        close = values > values.max() - 4 * box
        bounds = [*zip(np.maximum(-box, -h), np.full(n, box)), (None, None)]
        found = linprog(gain, rows[close], -values[close], level, [0.0], bounds)
        if found.status != 0:
            break
        trial = np.maximum(h + found.x[:n], 0)
        if peak(trial) < peak(h) - 1e-14:
            h = trial / trial.mean()
        else:
            box /= 3
    return h


def improve_by_smoothing(h):
    """Adam on a smooth maximum of h * h for heights that are squares, ever sharper."""
    n, root, best, steps = len(h), np.sqrt(h / h.mean()), h, 150 * ROUNDS
    mean, square = np.zeros(n), np.zeros(n)
    for step in range(steps):
        share = step / steps
        h = root**2
        best = min(best, h, key=peak)
        values = np.convolve(h, h)
        weight = np.exp(100 * 100**share * (values / values.max() - 1))
        weight /= weight.sum() * values.max()
        slope = 2 * np.correlate(weight, h, mode="valid") - 2 / h.sum()
        slope = 2 * root * slope
        mean, square = 0.9 * mean + 0.1 * slope, 0.99 * square + 0.01 * slope**2
        root = np.abs(root - 0.03 * 0.02**share * mean / (np.sqrt(square) + 1e-9))
    return best


def improve_by_subgradient(h):
    """Steps down the gradient of the largest entry; the best seen."""
    n, best = len(h), h
    h = h / h.sum()
    for step in range(150 * ROUNDS):
        values = np.convolve(h, h)
        k = int(np.argmax(values))
        i = np.arange(max(0, k - n + 1), min(n, k + 1))
        slope = np.full(n, -2 * values[k])
        slope[i] += 2 * h[k - i]
        h = np.maximum(h - 0.02 / (step + 20) * slope / np.linalg.norm(slope), 0)
        h /= h.sum()
        best = min(best, h, key=peak)
    return best


def improve_by_moves(h):
    """A few heights scaled at a time; kept where that is better."""
    rng = np.random.default_rng(SEED + 1)
    level = peak(h)
    for step in range(150 * ROUNDS):
        trial, count = h.copy(), rng.integers(1, 5)
        at = rng.integers(len(h), size=count)
        trial[at] *= np.exp(0.5 * 0.02 ** (step / (150 * ROUNDS)) * rng.normal(size=count))
        now = peak(trial)
        if now < level:
            h, level = trial, now
    return h


def peak(h):
    """C1 of a step function."""
    return 2 * len(h) * np.convolve(h, h).max() / h.sum() ** 2
