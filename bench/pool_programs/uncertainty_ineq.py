"""Pieces of programs for `uncertainty_ineq`: coefficients, and ways to better them."""

import math

import numpy as np
from numpy.polynomial import hermite

SEED, SIZE, ROUNDS = 0, 3, 10
NUMBERS: list[float] = []


def start_simple():
    """A first guess: signs alternate, sizes fall."""
    return np.array([1.0, -0.01, 1e-5, -1e-9, 1e-14])[:SIZE]


def start_known():
    """The coefficients that a longer search found."""
    return np.array(NUMBERS)


def start_near():
    """The coefficients that a longer search found, changed a little."""
    noise = np.random.default_rng(SEED).normal(size=len(NUMBERS))
    return np.array(NUMBERS) * np.exp(0.01 * noise)


def better_not(c):
    """The coefficients as they are."""
    return c


def better_by_steps(c):
    """Random steps that keep the order of magnitude of every coefficient."""
    rng = np.random.default_rng(SEED)
    best, level = c, last_sign_change(c)
    for step in range(20 * ROUNDS):
        scale = 0.2 * 0.01 ** (step / (20 * ROUNDS))
        trial = best * np.exp(scale * rng.normal(size=len(best)))
        now = last_sign_change(trial)
        if now < level:
            best, level = trial, now
    return best


def better_by_simplex(c):
    """Nelder and Mead on the logarithms of the sizes."""
    from scipy.optimize import minimize

    sign, sizes = np.sign(c), np.log(np.abs(c))
    options = {"maxfev": 20 * ROUNDS, "xatol": 1e-10, "fatol": 1e-12}
    found = minimize(
        lambda x: last_sign_change(sign * np.exp(x)), sizes, method="Nelder-Mead", options=options
    )
    return min(c, sign * np.exp(found.x), key=last_sign_change)


def better_by_differences(c):
    """Differential evolution around the coefficients."""
    rng = np.random.default_rng(SEED)
    crowd = c * np.exp(0.1 * rng.normal(size=(4 * len(c), len(c))))
    crowd[0] = c
    levels = [last_sign_change(each) for each in crowd]
    for _ in range(ROUNDS):
        for i in range(len(crowd)):
            a, b, d = crowd[rng.choice(len(crowd), 3, replace=False)]
            trial = np.where(rng.random(len(c)) < 0.7, a + 0.6 * (b - d), crowd[i])
            now = last_sign_change(trial)
            if now < levels[i]:
                crowd[i], levels[i] = trial, now
    return crowd[int(np.argmin(levels))]


def better_by_programmes(c):
    """A linear programme for each r: the largest margin beyond it; r by bisection."""
    best, low, high = c, 0.315, 0.4
    for _ in range(ROUNDS):
        middle = (low + high) / 2
        found = solve(len(c), 2 * np.pi * middle)
        if found is None or last_sign_change(found) > middle * (1 + 1e-4):
            low = middle
        else:
            best, high = found, middle
    return best


def solve(m, start):
    """Coefficients of a polynomial without a sign change beyond u = start; None if none exists."""
    from scipy.optimize import linprog

    top, points = 8 * m + 60.0, 40 * m + 200
    grid = start + (top - start) * (1 - np.cos(np.linspace(0, np.pi, points))) / 2
    table, at_zero = functions(2 * m, grid)[::2], functions(2 * m, np.zeros(1))[::2, 0]
    rows = np.column_stack([-table.T * grid[:, None] ** 0.25, np.zeros(points)])
    rows[:, -1] = np.minimum(1, np.abs(rows).max(axis=1))
    gain = np.append(np.zeros(m + 1), -1.0)
    bounds = [(-1, 1)] * (m + 1) + [(0, 1)]
    equal = np.append(at_zero, 0.0)[None, :]
    found = linprog(gain, rows, np.zeros(points), equal, [0.0], bounds, method="highs")
    if found.status != 0 or found.x[-1] <= 1e-12:
        return None
    sizes = [norm(2 * k) / (2.0 ** (4 * k) * math.factorial(2 * k)) for k in range(m)]
    return found.x[:m] * np.array(sizes)


def functions(degree, u):
    """Orthonormal Laguerre functions of parameter -1/2, one row for each degree."""
    rows = [np.exp(-u / 2) * norm(0), (0.5 - u) * np.exp(-u / 2) * norm(0) / np.sqrt(0.5)]
    for n in range(1, degree):
        a, b = np.sqrt((n + 1) * (n + 0.5)), np.sqrt(n * (n - 0.5))
        rows.append(((2 * n + 0.5 - u) * rows[n] - b * rows[n - 1]) / a)
    return np.array(rows[: degree + 1])


def norm(n):
    """One over the norm of the Laguerre polynomial of degree n."""
    return math.exp((math.lgamma(n + 1) - math.lgamma(n + 0.5)) / 2)


def last_sign_change(coefficients):
    """The largest simple positive root of the polynomial, squared and over 2 pi."""
    series = np.zeros(4 * len(coefficients) + 1)
    series[: 4 * len(coefficients) : 4] = coefficients
    at_zero = hermite.hermval(0, series)
    series[-1] = 1
    series[-1] = -at_zero / (hermite.hermval(0, series) - at_zero)
    roots = np.roots(hermite.herm2poly(series)[::-1][:-2])
    real = roots[(abs(roots.imag) < 1e-9) & (roots.real > 0)].real
    return real.max() ** 2 / (2 * np.pi) if len(real) else np.inf


def search():
    """The start, bettered."""
    return better(start())


def start():
    raise NotImplementedError


def better(c):
    raise NotImplementedError
