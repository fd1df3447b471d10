"""Coefficients of H_0, H_4, ... for a function that equals its Fourier transform and turns positive early."""

import numpy as np
from numpy.polynomial import hermite

STEPS = 100
SCALE = 0.1


# EVOLVE-BLOCK-START
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
    """Random steps from a first guess; each keeps the order of magnitude of every coefficient."""
    rng = np.random.default_rng(0)
    best = np.array([1.0, -0.01])
    level = last_sign_change(best)
    for _ in range(STEPS):
        trial = best * np.exp(SCALE * rng.normal(size=len(best)))
        now = last_sign_change(trial)
        if now < level:
            best, level = trial, now
    return best
# EVOLVE-BLOCK-END


def run():
    return search()
