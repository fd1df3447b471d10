"""A plain optimiser: Adam on squared heights, again and again, coarse to fine.

It starts from changed copies of the best.
"""

import time

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft

COARSE, LITTER, ROUND, RATE = 256, 16, 2 / 60, 0.03  # a round is this share of the time


def optimise(seed, seconds):
    """Heights: 0.7 of the time on few steps, the rest on three times and nine times as many."""
    rng, begun = np.random.default_rng(seed), time.process_time()
    first, _ = ascend(rng.random((LITTER, COARSE)) ** 0.5, begun + ROUND * seconds, RATE)
    best = max(first, key=ratio)
    while (now := time.process_time()) < begun + 0.7 * seconds:
        litter = np.array([changed(rng, best, kind % 4) for kind in range(LITTER)])
        children, values = ascend(litter, now + ROUND * seconds, RATE)
        best = children[values.argmax()] if values.max() > ratio(best) else best
    for end in (0.85, 1.0):
        fine = np.repeat(best, 3) * np.exp(0.05 * rng.normal(size=3 * len(best)))
        children, values = ascend(fine[None], begun + end * seconds, RATE / 3)
        best = children[0] if values[0] > ratio(best) else best
    return ((best / best.max()) ** 2).tolist()


def changed(rng, root, kind):
    """Scaled at random, raised at random, a piece made anew, or laid over itself with a shift."""
    n = len(root)
    if kind == 0:
        made = root * np.exp(rng.choice([0.1, 0.3, 1.0]) * rng.normal(size=n))
    elif kind == 1:
        made = root + rng.choice([0.02, 0.1, 0.3]) * rng.random(n)
    elif kind == 2:
        low, high = sorted(rng.integers(n, size=2))
        made = root.copy()
        made[low:high] = 2 * root.mean() * np.sqrt(rng.random(high - low))
    else:
        made = np.roll(root, rng.integers(-5, 6)) + 0.5 * root
    return np.maximum(made, 1e-3)


def ascend(roots, until, rate):
    """Up the ratio of the squares, the step shrinking to nothing at `until`.

    Returns the best of each row, and its ratio.
    """
    begun = time.process_time()
    mean, square = np.zeros_like(roots), np.zeros_like(roots)
    best, level = roots, np.zeros(len(roots))
    step, share = 0, 0.0
    while share < 1:
        share = min(1.0, (time.process_time() - begun) / max(until - begun, 1e-9))
        values, slope = climbing(roots**2)
        best, level = np.where((values > level)[:, None], roots, best), np.maximum(values, level)
        slope, step = 2 * roots * slope, step + 1
        mean, square = 0.9 * mean + 0.1 * slope, 0.999 * square + 0.001 * slope**2
        scale = np.sqrt(square / (1 - 0.999**step)) + 1e-12
        roots = roots + rate * 0.003**share * mean / (1 - 0.9**step) / scale
        if step % 50 == 0:
            roots = roots / np.abs(roots).max(axis=1, keepdims=True)
    return np.abs(best), level


def climbing(h):
    """The ratios of the rows of `h`, shape (m, n), and the gradients of their logarithms.

    The largest entry alone stands for the maximum.
    """
    m, n = h.shape
    size = next_fast_len(2 * n, real=True)
    spectrum = rfft(h, size)
    y = np.zeros((m, 2 * n + 1))
    y[:, 1:-1] = np.maximum(irfft(spectrum**2, size)[:, : 2 * n - 1], 0)
    square = np.sum(y[:, :-1] ** 2 + y[:, :-1] * y[:, 1:] + y[:, 1:] ** 2, axis=1)
    total, at, rows = y.sum(axis=1), y.argmax(axis=1), np.arange(m)
    slope = (4 * y[:, 1:-1] + y[:, :-2] + y[:, 2:]) / square[:, None] - 1 / total[:, None]
    slope[rows, at - 1] -= 1 / y[rows, at]
    back = irfft(rfft(slope, size) * np.conj(spectrum), size)[
        :, :n
    ]  # the adjoint of h -> h * h, halved
    return square / (3 * total * y[rows, at]), 2 * back


def ratio(root):
    """Of one row of roots."""
    return climbing((root**2)[None])[0][0]
