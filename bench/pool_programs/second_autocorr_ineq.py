"""Pieces of programs for `second_autocorr_ineq`: first heights, and ways to better them."""

import numpy as np
from step_functions import improve_not, start_known, start_resampled  # noqa: F401 - named by recipes

N = 50
SEED, SIZE, ROUNDS = 0, 60, 10
NUMBERS: list[float] = []


def start_random():
    """Random heights, smoothed a little."""
    rng = np.random.default_rng(SEED)
    return np.convolve(rng.random(SIZE + 4), np.ones(5) / 5, mode="valid") + 0.1


def start_comb():
    """Peaks at random places on a low floor."""
    rng = np.random.default_rng(SEED)
    h = 0.1 + 0.2 * rng.random(SIZE)
    h[rng.integers(SIZE, size=SIZE // 5)] += 1
    return h


def start_two_parts():
    """A high narrow part and a low broad one, as in the functions of Matolcsi and Vinuesa."""
    x = (np.arange(SIZE) + 0.5) / SIZE
    noise = np.random.default_rng(SEED).random(SIZE)
    return np.where(x < 0.25, 2.0, 0.6 + 0.5 * (x > 0.9)) * (0.7 + 0.6 * noise)


def start_finer():
    """The heights that a longer search found, on three times as many steps, with some noise."""
    h = np.repeat(np.array(NUMBERS), 3)
    return h * np.exp(0.05 * np.random.default_rng(SEED).normal(size=len(h)))


def improve_by_ascent(h):
    """Adam on the logarithm of the ratio, for heights that are squares, the step ever smaller."""
    from scipy.fft import irfft, next_fast_len, rfft

    n, root, best, steps = len(h), np.sqrt(h / h.max()), h, 150 * ROUNDS
    size = next_fast_len(2 * n, real=True)
    mean, square, level = np.zeros(n), np.zeros(n), ratio(h)
    for step in range(steps):
        share = step / steps
        h = root**2
        spectrum = rfft(h, size)
        y = np.zeros(2 * n + 1)
        y[1:-1] = np.maximum(irfft(spectrum**2, size)[: 2 * n - 1], 0)
        now = np.sum(y[:-1] ** 2 + y[:-1] * y[1:] + y[1:] ** 2)
        value = now / (3 * y.sum() * y.max())
        if value > level:
            best, level = h, value
        weight = np.exp(50 * 200**share * (y[1:-1] / y.max() - 1))
        slope = (4 * y[1:-1] + y[:-2] + y[2:]) / now - 1 / y.sum()
        slope -= weight / weight.sum() / y.max()
        slope = root * irfft(rfft(slope, size) * np.conj(spectrum), size)[:n]
        mean, square = 0.9 * mean + 0.1 * slope, 0.999 * square + 0.001 * slope**2
        scale = np.sqrt(square / (1 - 0.999 ** (step + 1))) + 1e-12
        root = np.abs(root + 0.02 * 0.01**share * mean / (1 - 0.9 ** (step + 1)) / scale)
    return best


def improve_by_moves(h):
    """A few heights scaled at a time; kept where that is better."""
    rng = np.random.default_rng(SEED + 1)
    level = ratio(h)
    for step in range(150 * ROUNDS):
        trial, count = h.copy(), rng.integers(1, 5)
        at = rng.integers(len(h), size=count)
        trial[at] *= np.exp(0.5 * 0.05 ** (step / (150 * ROUNDS)) * rng.normal(size=count))
        now = ratio(trial)
        if now > level:
            h, level = trial, now
    return h


def improve_by_programmes(h):
    """Linear programmes: up the ratio's slope in h, no value of h*h above its maximum, within a shrinking radius."""
    from scipy.linalg import toeplitz
    from scipy.optimize import linprog

    n, radius, level = len(h), 0.3, ratio(h)
    for _ in range(10 * ROUNDS):
        h = h / np.sqrt(np.convolve(h, h).max())
        y = np.concatenate([[0], np.convolve(h, h), [0]])
        now = np.sum(y[:-1] ** 2 + y[:-1] * y[1:] + y[1:] ** 2)
        change = 2 * toeplitz(np.append(h, np.zeros(n - 1)), np.append(h[0], np.zeros(n - 1)))
        slope = change.T @ ((4 * y[1:-1] + y[:-2] + y[2:]) / now - 1 / y.sum())
        reach, room = radius * h.max(), 1 - y[1:-1]
        near = room < np.abs(change).sum(axis=1) * reach  # the others cannot become active
        limits = np.column_stack([np.maximum(-h, -reach), np.full(n, reach)])
        step = linprog(
            -slope / np.abs(slope).max(),
            change[near],
            room[near],
            bounds=limits,
            method="highs-ipm",
        ).x
        tries = (
            [] if step is None else [np.maximum(h + share * step, 0) for share in (1, 0.5, 0.25)]
        )
        better = next((trial for trial in tries if ratio(trial) > level), None)
        if better is None:
            radius /= 2.5
        else:
            h, level, radius = better, ratio(better), min(1.0, 1.3 * radius)
        if radius < 1e-6:
            break
    return h


def improve_by_quasi_newton(h):
    """L-BFGS on the logarithm of the ratio, the maximum replaced by a p-norm, p ever larger."""
    from scipy.optimize import minimize

    def cost(root, p):
        h = root**2
        y = np.concatenate([[0], np.convolve(h, h), [0]])
        now, top = np.sum(y[:-1] ** 2 + y[:-1] * y[1:] + y[1:] ** 2), y.max()
        power = (y[1:-1] / top) ** p
        value = np.log(now) - np.log(y.sum()) - np.log(top) - np.log(power.sum()) / p
        slope = (4 * y[1:-1] + y[:-2] + y[2:]) / now - 1 / y.sum()
        slope -= power / np.maximum(y[1:-1], 1e-12) / power.sum()
        return -value, -4 * root * np.correlate(slope, h, mode="valid")

    root, best = np.sqrt(h / h.max()), h
    for p in (20, 60, 200, 600, 2000):
        options = {"maxiter": 10 * ROUNDS}
        root = minimize(cost, root, (p,), "L-BFGS-B", True, options=options).x
        best = max(best, root**2, key=ratio)
    return best


def ratio(heights):
    """||g||_2^2 / (||g||_1 ||g||_inf) of the autoconvolution g."""
    y = np.concatenate([[0], np.convolve(heights, heights), [0]])
    a, b = y[:-1], y[1:]
    return np.sum(a * a + a * b + b * b) / (3 * y.sum() * y.max())
