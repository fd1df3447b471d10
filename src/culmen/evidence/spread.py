"""Spread of repeated evaluations: the one estimate of noise that all surfaces quote."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import NormalDist, fmean

from culmen.core.spread import sum_floats

ROUNDING = 1e-12
"""Share of a score up to which a deviation is an error of arithmetic."""


RUN_WEIGHT = 8.0
"""Degrees of freedom as which the noise of the whole run counts at most: candidates differ."""

_LUCK = NormalDist().inv_cdf(0.99)


def spread_of(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean, sum of squared deviations (without rounding errors) and degrees of freedom.

    Of at least one value.
    """
    mean, degrees = fmean(values), len(values) - 1.0
    squares = math.fsum((value - mean) ** 2 for value in values)
    return mean, squares if squares > degrees * (ROUNDING * mean) ** 2 else 0.0, degrees


def pooled_deviation(groups: Iterable[Sequence[float]]) -> float | None:
    """Standard deviation within groups, pooled over groups of at least two; None without any."""
    variance = pooled_variance(groups)
    return None if variance is None else math.sqrt(variance)


def pooled_variance(groups: Iterable[Sequence[float]]) -> float | None:
    """Variance within groups, pooled over groups of at least two; None without any."""
    spreads = [spread_of(group) for group in groups if len(group) > 1]
    if not spreads:
        return None
    return sum_floats(each[1] for each in spreads) / sum_floats(each[2] for each in spreads)


def pool_with_run(own: float, degrees: float, run: float, known: float) -> tuple[float, float]:
    """Variance by a candidate's own squares and that of the run, and its degrees of freedom.

    The run's variance `run` is known with `known` degrees of freedom (0: it is not) and counts as
    `RUN_WEIGHT` at most. A spread that is larger than luck allows stands alone.
    """
    if not known or (degrees and _is_larger(own / degrees, run, degrees, known)):
        return own / max(1.0, degrees), degrees
    weight = min(known, RUN_WEIGHT)
    return (own + weight * run) / (degrees + weight), degrees + weight


def _is_larger(one: float, other: float, degrees: float, known: float) -> bool:
    """True if a variance is above another beyond the 99 % quantile of Fisher's F.

    By Paulson's approximation (1942), whose quantile is too low where few degrees are known.
    """
    if not 0.0 < other < math.inf:
        return one > other
    above, below, root = 2.0 / (9.0 * degrees), 2.0 / (9.0 * known), math.cbrt(one / other)
    return (1.0 - below) * root - (1.0 - above) > _LUCK * math.sqrt(above + below * root**2)
