"""Knowledge gradient: expected rise of the best posterior mean by one more observation.

Frazier, Powell and Dayanik, A Knowledge-Gradient Policy for Sequential Information Collection (SIAM
J. Control Optim., 2008); one step ahead, in closed form for Gaussian beliefs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MOST = 8
"""Largest number of children of one request that `of_best` supports."""
_MANY = 1000  # beliefs from which a bound is computed first
_GRID = np.linspace(-4.0, 9.0, 1301)


def expected_gain(gap: Floats, deviation: Floats) -> Floats:
    """E[max(X, 0)] for X ~ N(-gap, deviation²): expected gain over the best.

    `gap` is the distance of a belief below the best, `deviation` the standard deviation of the
    posterior mean after the observation; 0 gives max(-gap, 0).
    """
    return _gain(gap, deviation, normal_cdf)


def _gain(gap: Floats, deviation: Floats, cdf: Callable[[Floats], Floats]) -> Floats:
    z = _standardised_gap(gap, deviation)
    sure = deviation * (np.exp(-0.5 * np.minimum(z * z, 1400.0)) / np.sqrt(2 * np.pi) - z * cdf(-z))
    return np.where(deviation > 0, np.maximum(sure, 0.0), np.maximum(-gap, 0.0))


def _gain_by_table(gap: Floats, deviation: Floats) -> Floats:
    """As `expected_gain` of many beliefs, to the digit, also for a few of them."""
    return _gain(gap, deviation, _cdf_by_table)


def largest_gains(
    gap: Floats, deviation: Floats, most: int, weights: Floats | None = None
) -> tuple[list[int], Floats]:
    """Indices of the largest weighted `expected_gain`, largest first, and these gains.

    Of many beliefs most are ruled out by a bound, deviation * (phi(z) + max(-z, 0)): those whose
    bound is below the least gain of the `most` that have the largest bounds.
    """
    weigh = np.ones(1) if weights is None else weights
    if len(gap) <= _MANY:
        gains = expected_gain(gap, deviation) * weigh
        top = largest_indices(gains, most)
        return top, gains[top]
    weigh = np.broadcast_to(weigh, gap.shape)
    z = _standardised_gap(gap, deviation)
    bounds = np.exp(-0.5 * np.minimum(z * z, 1400.0)) * 0.4 + np.maximum(-z, 0.0)
    bounds = np.where(deviation > 0, deviation * bounds, np.maximum(-gap, 0.0)) * weigh
    first = np.argpartition(bounds, len(bounds) - most)[len(bounds) - most :]
    least = float((_gain_by_table(gap[first], deviation[first]) * weigh[first]).min())
    among = np.flatnonzero(bounds >= least)
    gains = _gain_by_table(gap[among], deviation[among]) * weigh[among]
    top = largest_indices(gains, most)
    return among[top].tolist(), gains[top]


def expected_gains_of_best(gap: Floats, deviation: Floats, most: int) -> list[Floats]:
    """Expected gains of the best of 1, 2, ..., `most` (at most `MOST`) independent beliefs."""
    z = _standardised_gap(gap, deviation)
    capped, is_low = np.minimum(z, _GRID[-1]), z < _GRID[0]
    is_open, sure = deviation > 0, np.maximum(-gap, 0.0)
    gains = [expected_gain(gap, deviation)]
    for k in range(2, most + 1):
        excess = _expected_excess(k)
        below = np.where(is_low, excess[0] + _GRID[0] - z, np.interp(capped, _GRID, excess))
        gains.append(np.where(is_open, deviation * below, sure))
    return gains


def largest_indices(values: Floats, n: int) -> list[int]:
    """Indices of the `n` largest values, largest first; of equal ones the first."""
    if len(values) > n:
        least = np.partition(values, len(values) - n)[len(values) - n]
        indices = np.flatnonzero(values >= least)
    else:
        indices = np.arange(len(values))
    return [int(i) for i in indices[np.argsort(-values[indices], kind="stable")][:n]]


def _standardised_gap(gap: Floats, deviation: Floats) -> Floats:
    return np.clip(
        np.divide(gap, deviation, out=np.full_like(deviation, 1e8), where=deviation > 0), -1e8, 1e8
    )


@cache
def _expected_excess(k: int) -> Floats:
    """E[max(max of k standard normals - z, 0)] on the grid, by the trapezoid rule."""
    beyond = 1.0 - normal_cdf(_GRID) ** k
    width = _GRID[1] - _GRID[0]
    pieces = 0.5 * width * (beyond[1:] + beyond[:-1])
    return np.concatenate([np.cumsum(pieces[::-1])[::-1], [0.0]])


# The normal distribution function for arrays, exact to about 1e-13 of its value also far in the
# lower tail.
#
# Phi(-x) = phi(x) R(x), R Mills' ratio: smooth, so a Taylor polynomial about the nearest of some
# hundred points gives it. Its derivatives follow from R' = x R - 1; for large x it is a continued
# fraction (Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.14).

_PER_UNIT = 32  # points of the table between two integers
_END = 39.0  # beyond it Phi(-x) is less than the smallest float
_TERMS = 6  # the first one left out is less than 3e-13 of the ratio, half a point away
_EARLY = 3.0  # the continued fraction converges quickly from here on
_FEW = 150  # up to this many values are faster one by one


def normal_cdf(x: Floats) -> Floats:
    """P(X <= x) for a standard normal X, shape (n,); infinities are allowed, nan gives nan."""
    if len(x) < _FEW:
        return 0.5 * np.array([math.erfc(v) for v in (x * -math.sqrt(0.5)).tolist()], np.float64)
    return _cdf_by_table(x)


def _cdf_by_table(x: Floats) -> Floats:
    far = np.minimum(np.abs(x), _END)
    nodes = (np.fmin(far, _END) * _PER_UNIT + 0.5).astype(np.intp)
    step = far - nodes * (1 / _PER_UNIT)
    highest, *others = _TAYLOR.take(nodes, axis=1)
    ratio = highest
    for terms in others:
        ratio *= step
        ratio += terms
    tail: Floats = np.exp(-0.5 * far * far) * ratio
    return np.where(x < 0, tail, 1.0 - tail)


def _mills_ratio_table() -> Floats:
    """R / sqrt(2 pi) about every point.

    The coefficient of power _TERMS - 1 - n of point i is at [n, i].
    """
    x = np.arange(int(_END * _PER_UNIT) + 1) / _PER_UNIT
    ratio = np.zeros_like(x)
    late = x >= _EARLY
    for n in range(200, 0, -1):  # R(x) = 1 / (x + 1 / (x + 2 / (x + 3 / ...)))
        ratio[late] = n / (x[late] + ratio[late])
    ratio[late] = 1.0 / (x[late] + ratio[late])
    early = [
        math.exp(v * v / 2) * math.erfc(v / math.sqrt(2)) * math.sqrt(math.pi / 2)
        for v in x[~late].tolist()
    ]
    ratio[~late] = early
    rows = [ratio, x * ratio - 1.0]
    for n in range(
        2, _TERMS
    ):  # n! times a row is the n-th derivative: R^(n) = x R^(n-1) + (n - 1) R^(n-2)
        rows.append((x * rows[-1] + rows[-2]) / n)
    return np.array(rows[::-1]) / math.sqrt(2 * math.pi)


_TAYLOR = _mills_ratio_table()
