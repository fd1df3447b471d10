"""Pieces of programs for `erdos_min_overlap`: first heights, and ways to better them."""

import numpy as np

N = 60
SEED, SIZE, ROUNDS = 0, 60, 10
NUMBERS: list[float] = []


def start_cosine():
    """High in the middle, low at the ends."""
    x = (np.arange(SIZE) + 0.5) / SIZE
    return 0.5 - 0.4 * np.cos(2 * np.pi * x)


def start_random():
    """Uniform heights."""
    return np.random.default_rng(SEED).random(SIZE)


def start_plateaus():
    """A broad plateau in the middle and two narrow ones beside it."""
    x = np.abs((np.arange(SIZE) + 0.5) / SIZE - 0.5)
    noise = 0.05 * np.random.default_rng(SEED).normal(size=SIZE)
    return np.select([x < 0.16, x < 0.24, x < 0.34], [0.95, 0.55, 0.75], 0.03) + noise


def start_known():
    """The heights that a longer search found."""
    return np.array(NUMBERS)


def start_finer():
    """The heights that a longer search found, on twice as many steps, with a little noise."""
    h = np.repeat(np.array(NUMBERS), 2)
    return h + 0.003 * np.random.default_rng(SEED).normal(size=len(h))


def start_resampled():
    """The heights that a longer search found, between other borders."""
    h = np.array(NUMBERS)
    return np.interp((np.arange(SIZE) + 0.5) / SIZE, (np.arange(len(h)) + 0.5) / len(h), h)


def improve_not(h):
    """The heights as they are."""
    return h


def improve_by_programmes(h):
    """Sequential linear programming: no overlap above m, m as small as possible."""
    from scipy.optimize import linprog

    n, box, shifts = len(h), 0.1, 2 * len(h) - 1
    pad = np.lib.stride_tricks.sliding_window_view
    gain, level = np.append(np.zeros(n), 1.0), np.append(np.ones(n), 0.0)[None, :]
    for _ in range(ROUNDS):
        free = pad(np.pad(1 - h, n - 1), n)
        held = pad(np.pad(h[::-1], n - 1), n)[:, ::-1]
        rows = np.column_stack([2 / n * (free - held), -np.ones(shifts)])
        values = 2 / n * (free @ h)
        close = values > values.max() - 4 * box
        bounds = [*zip(np.maximum(-box, -h), np.minimum(box, 1 - h)), (None, None)]
        found = linprog(gain, rows[close], -values[close], level, [0.0], bounds)
        if found.status != 0:
            break
        trial = balance(h + found.x[:n])
        if overlaps(trial).max() < overlaps(h).max() - 1e-14:
            h = trial
        else:
            box /= 3
    return h


def improve_by_smoothing(h):
    """Adam on a smooth largest overlap of logistic heights, ever sharper."""
    z = np.log(np.clip(h, 0.02, 0.98) / (1 - np.clip(h, 0.02, 0.98)))
    n, best, steps = len(h), h, 150 * ROUNDS
    mean, square = np.zeros(n), np.zeros(n)
    for step in range(steps):
        share = step / steps
        h = balance(1 / (1 + np.exp(-z)))
        values = overlaps(h)
        best = min(best, h, key=lambda each: overlaps(each).max())
        weight = np.exp(300 * 100**share * (values - values.max()))
        weight /= weight.sum()
        slope = np.correlate(weight, 1 - h, mode="full")[n - 1 : 2 * n - 1][::-1]
        slope = slope - np.convolve(weight, h)[n - 1 : 2 * n - 1]
        slope = (slope - slope.mean()) * h * (1 - h)
        mean, square = 0.9 * mean + 0.1 * slope, 0.99 * square + 0.01 * slope**2
        z = z - 0.1 * 0.02**share * mean / (np.sqrt(square) + 1e-9)
    return best


def improve_by_subgradient(h):
    """Steps down the gradient of the largest overlap; the best seen."""
    n, best, level = len(h), h, overlaps(h).max()
    for step in range(150 * ROUNDS):
        k = int(np.argmax(overlaps(h))) - (n - 1)
        i = np.arange(max(0, -k), min(n, n - k))
        slope = np.zeros(n)
        slope[i] += 1 - h[i + k]
        slope[i + k] -= h[i]
        slope -= slope.mean()
        h = balance(h - 0.05 / (1 + step / 30) * slope / (np.linalg.norm(slope) + 1e-12))
        now = overlaps(h).max()
        if now < level:
            best, level = h, now
    return best


def improve_by_moves(h):
    """A little height moved from one stretch to another; kept where that is better."""
    rng = np.random.default_rng(SEED + 1)
    n, level = len(h), overlaps(h).max()
    for step in range(150 * ROUNDS):
        width = rng.integers(1, max(2, n // 8))
        a, b = rng.integers(0, n - width + 1, size=2)
        trial, amount = h.copy(), 0.1 * rng.random() * 0.02 ** (step / (150 * ROUNDS))
        trial[a : a + width] += amount
        trial[b : b + width] -= amount
        trial = balance(trial)
        now = overlaps(trial).max()
        if now < level:
            h, level = trial, now
    return h


def overlaps(h):
    """Overlap with the complement for all whole shifts."""
    return np.correlate(1 - h, h, mode="full") * 2 / len(h)


def balance(h):
    """Inside [0, 1] and with integral 1."""
    for _ in range(30):
        h = np.clip(h + 0.5 - h.mean(), 0, 1)
    return h
