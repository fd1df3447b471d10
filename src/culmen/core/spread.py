"""Mean and spread of numbers: of repeated evaluations, and of those that come one by one."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from functools import reduce

ROUNDING = 1e-12
"""Share of a score up to which a deviation is an error of arithmetic."""


def sum_floats(values: Iterable[float]) -> float:
    """Sum from left to right: the same number in every Python, infinite where it overflows.

    The built-in `sum` compensates rounding errors from Python 3.12 on; `math.fsum` raises on
    overflow.
    """
    return reduce(operator.add, values, 0.0)


def spread_of(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean, sum of squared deviations (without rounding errors) and degrees of freedom.

    Of at least one value.
    """
    mean, degrees = math.fsum(values) / len(values), len(values) - 1.0
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


class Spread:
    """Count, mean and variance of the numbers so far (Welford's update)."""

    def __init__(self) -> None:
        self.count, self.mean, self._squares = 0, 0.0, 0.0

    def add(self, value: float) -> None:
        """Count one more number."""
        self.count += 1
        delta = value - self.mean
        self.mean += delta / self.count
        self._squares += delta * (value - self.mean)

    def likely_sum(self, count: int) -> float:
        """The likely upper bound of the sum of this many further numbers; infinity while unknown.

        Their mean, with three standard deviations of the sum and two of the mean.
        """
        if not self.count:
            return math.inf
        # one number says nothing of their spread
        variance = self._squares / (self.count - 1) if self.count > 1 else self.mean**2
        room = 3 * math.sqrt(count) + 2 * count / math.sqrt(self.count)
        return count * self.mean + room * math.sqrt(variance)
