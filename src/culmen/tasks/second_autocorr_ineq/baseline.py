"""A plain optimiser: L-BFGS on a smooth stand-in for the maximum, coarse to fine, from random starts."""

import time

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft
from scipy.optimize import minimize

STEPS = (50, 100, 200, 400, 800)
SHARP = (30, 100, 300, 1000, 3000, 10000)  # exponents p of ||g||_p in place of the maximum


def optimise(seed, seconds):
    """Heights: a third of the time on coarse starts, the rest on refining the best of them."""
    rng, until = np.random.default_rng(seed), time.process_time() + seconds
    early = time.process_time() + seconds / 3
    best, level = None, 0.0
    while best is None or time.process_time() < early:
        found = polish(rng.random(STEPS[0]) * (rng.random(STEPS[0]) < 0.7) + 0.01, until)
        if exact(found) > level:
            best, level = found, exact(found)
    for n in STEPS[1:]:
        fine = np.repeat(best, n // len(best)) * np.exp(0.05 * rng.normal(size=n))
        found = polish(fine, until)
        best = found if exact(found) > exact(best) else np.repeat(best, n // len(best))
    return (best / best.max()).tolist()


def polish(heights, until):
    """Up the ratio with an ever sharper maximum; heights are squares, so that they stay >= 0."""
    root = np.sqrt(heights)
    for p in SHARP:
        if time.process_time() > until:
            break
        root = minimize(loss, root / np.abs(root).max(), args=(p,), jac=True, method="L-BFGS-B", options=OPTIONS).x
    return root**2


OPTIONS = {"maxiter": 400, "maxcor": 20}


def loss(root, p):
    """-log of ||g||_2^2 / (||g||_1 ||g||_p'), where the last is a mean of power p over the entries, and its gradient."""
    n = len(root)
    size = next_fast_len(2 * n)
    spectrum = rfft(root**2, size)
    g = irfft(spectrum**2, size)[: 2 * n - 1]
    y = np.concatenate([[0.0], np.maximum(g, 0), [0.0]])
    square = np.sum(y[:-1] ** 2 + y[:-1] * y[1:] + y[1:] ** 2)
    top = y.max()
    powers = (y / top) ** p
    smooth = np.log(top) + np.log(powers.sum()) / p
    slope = (4 * y[1:-1] + y[:-2] + y[2:]) / square - 1 / y.sum()
    slope -= (y[1:-1] / top) ** (p - 1) / (top * powers.sum())
    back = irfft(rfft(slope, size) * np.conj(spectrum), size)[:n]  # the adjoint of h -> h * h, halved
    return smooth + np.log(y.sum()) - np.log(square), -4 * back * root


def exact(heights):
    """The ratio itself."""
    y = np.concatenate([[0.0], np.convolve(heights, heights), [0.0]])
    return np.sum(y[:-1] ** 2 + y[:-1] * y[1:] + y[1:] ** 2) / (3 * y.sum() * y.max())
