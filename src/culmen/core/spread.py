"""Mean and spread of numbers that come one by one, and likely sums of more of their kind."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from functools import reduce


def sum_floats(values: Iterable[float]) -> float:
    """Sum from left to right: the same number in every Python, infinite where it overflows.

    The built-in `sum` compensates rounding errors from Python 3.12 on; `math.fsum` raises on
    overflow.
    """
    return reduce(operator.add, values, 0.0)


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
