"""Knowledge gradient: by how much one more piece of knowledge is expected to raise the best posterior mean.

Frazier, Powell and Dayanik, A Knowledge-Gradient Policy for Sequential Information Collection (SIAM J. Control Optim.,
2008); one step ahead, in closed form for Gaussian beliefs.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from culmen.memory.normal import cumulative

Floats = NDArray[np.float64]

MOST = 8
"""Most children of one request that `of_best` knows of."""
_GRID = np.linspace(-4.0, 9.0, 1301)


def gain(gap: Floats, deviation: Floats) -> Floats:
    """E[max(X, 0)] for X ~ N(-gap, deviation²): what a belief that now lies `gap` below the best may add to it.

    `deviation` is that of the posterior mean after the observation; 0 gives max(-gap, 0).
    """
    z = _ratio(gap, deviation)
    sure = deviation * (np.exp(-0.5 * np.minimum(z * z, 1400.0)) / np.sqrt(2 * np.pi) - z * cumulative(-z))
    return np.where(deviation > 0, np.maximum(sure, 0.0), np.maximum(-gap, 0.0))


def of_best(gap: Floats, deviation: Floats, k: int) -> Floats:
    """The same for the best of `k` (1..`MOST`) independent such beliefs."""
    if k == 1:
        return gain(gap, deviation)
    z = _ratio(gap, deviation)
    inside = np.interp(np.minimum(z, _GRID[-1]), _GRID, _excess(k))
    below = np.where(z < _GRID[0], _excess(k)[0] + _GRID[0] - z, inside)
    return np.where(deviation > 0, deviation * below, np.maximum(-gap, 0.0))


def largest(values: Floats, n: int) -> list[int]:
    """Places of the `n` largest values, largest first; of equal ones the first."""
    if len(values) > n:
        least = np.partition(values, len(values) - n)[len(values) - n]
        places = np.flatnonzero(values >= least)
    else:
        places = np.arange(len(values))
    return [int(i) for i in places[np.argsort(-values[places], kind="stable")][:n]]


def _ratio(gap: Floats, deviation: Floats) -> Floats:
    return np.clip(np.divide(gap, deviation, out=np.full_like(deviation, 1e8), where=deviation > 0), -1e8, 1e8)


@cache
def _excess(k: int) -> Floats:
    """E[max(max of k standard normals - z, 0)] on the grid, by the trapezoid rule."""
    beyond = 1.0 - cumulative(_GRID) ** k
    width = _GRID[1] - _GRID[0]
    pieces = 0.5 * width * (beyond[1:] + beyond[:-1])
    return np.concatenate([np.cumsum(pieces[::-1])[::-1], [0.0]])
