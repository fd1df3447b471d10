"""A plain optimiser: a linear programme and a bisection.

That is the problem for a fixed number of coefficients.

In the variable u = x^2 the functions H_4k(x) exp(-x^2 / 2) are Laguerre functions L_2k^(-1/2)(u)
exp(-u / 2) up to a factor. For a given r the polynomials that are not negative beyond r form a
convex cone; a linear programme finds one that stays above a small margin on a grid, and the exact
scorer gives its worth.
"""

import math
import time

import numpy as np
from evaluator import score
from scipy.optimize import linprog

SIZES = (3, 5, 7, 9, 11, 15, 19, 23, 25, 27, 29, 31)
POINTS = 3000
ROUNDS = 16


def optimise(seed, seconds):
    """Coefficients of H_0, H_4, ...: ever more of them, the best by the exact scorer.

    There is nothing random here.
    """
    until, best, level = time.process_time() + seconds, None, math.inf
    for m in SIZES:
        low, high = 0.31, 0.36
        for _ in range(ROUNDS):
            if best is not None and time.process_time() > until:
                return best
            middle = (low + high) / 2
            found = coefficients(m, 2 * math.pi * middle)
            value = score(found)["score"] if found is not None else math.inf
            if value < level:
                best, level = found, value
            low, high = (low, middle) if value < middle * (1 + 1e-6) else (middle, high)
    return best


def coefficients(m, start):
    """The polynomial with the largest margin beyond u = start; None if there is none.

    It is given as the first m coefficients.
    """
    top = 8 * m + 60.0
    grid = start + (top - start) * (1 - np.cos(np.linspace(0, np.pi, POINTS))) / 2
    table = laguerre(2 * m, grid)[::2]
    at_zero = laguerre(2 * m, np.zeros(1))[::2, 0]
    scale = grid[:, None] ** 0.25  # Laguerre functions fall like u^(-1/4)
    rows = np.column_stack([-table.T * scale, np.full(POINTS, 1.0)])
    rows[:, -1] *= np.minimum(1, np.abs(table).max(axis=0) * scale[:, 0])
    bounds = [(-1, 1)] * (m + 1) + [(0, 1)]
    equal = np.append(at_zero, 0.0)[None, :]
    gain = np.append(np.zeros(m + 1), -1.0)
    found = linprog(gain, rows, np.zeros(POINTS), equal, [0.0], bounds, method="highs")
    if found.status != 0 or found.x[-1] <= 0:
        return None
    return [float(c) * norm(2 * k) / hermite_factor(k) for k, c in enumerate(found.x[:m])]


def laguerre(degree, u):
    """Orthonormal Laguerre functions of parameter -1/2 at u, shape (degree + 1, len(u))."""
    rows = [np.exp(-u / 2) * norm(0), (0.5 - u) * np.exp(-u / 2) * norm(0) / math.sqrt(0.5)]
    for n in range(1, degree):
        a, b = math.sqrt((n + 1) * (n + 0.5)), math.sqrt(n * (n - 0.5))
        rows.append(((2 * n + 0.5 - u) * rows[n] - b * rows[n - 1]) / a)
    return np.array(rows[: degree + 1])


def norm(n):
    """One over the norm of L_n^(-1/2) under u^(-1/2) exp(-u)."""
    return math.exp((math.lgamma(n + 1) - math.lgamma(n + 0.5)) / 2)


def hermite_factor(k):
    """H_4k(x) = 2^(4k) (2k)! L_2k^(-1/2)(x^2)."""
    return 2.0 ** (4 * k) * math.factorial(2 * k)
