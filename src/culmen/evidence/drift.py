"""Drift: scores that change in the course of a run, whatever is evaluated.

A machine that warms up, a service that slows down, an evaluator that wears out. Two candidates
measured at different times then differ by it, so comparisons are made of evaluations that stand
side by side (`pair_differences`), and the change itself is seen in the repeats of the initial
programs: unlike those of other candidates, they are never made because of a lucky score.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import chain
from typing import NamedTuple, TypeVar

T = TypeVar("T")

SEEN = 4.0
"""Standard errors from 0 at which a slope counts as drift: one run in a thousand by chance."""


class DriftLine(NamedTuple):
    """Change of rewards per evaluation of the run, and its standard error."""

    slope: float
    error: float

    def largest_change(self, evaluations: int) -> float:
        """Most by which two of this number of evaluations differ through drift."""
        return abs(self.slope) * evaluations


class DriftWatch:
    """A line through the repeats of each watched candidate, against the number of evaluations.

    Sums within each candidate and case (Welford's update), and one common slope by least squares.
    """

    def __init__(self) -> None:
        self._groups: dict[tuple[int, str], tuple[int, float, float]] = {}
        self._times = self._products = self._squares = 0.0
        self._repeats = 0

    def observe(self, candidate: int, case: str, at: int, reward: float) -> None:
        """Count an evaluation that was the `at`-th of the run."""
        count, time, mean = self._groups.get((candidate, case), (0, 0.0, 0.0))
        late, high, share = at - time, reward - mean, count / (count + 1)
        self._times += late * late * share
        self._products += late * high * share
        self._squares += high * high * share
        self._repeats += count > 0
        count += 1
        self._groups[candidate, case] = count, time + late / count, mean + high / count

    @property
    def line(self) -> DriftLine | None:
        """The drift of the run; None while none is seen."""
        degrees = self._repeats - 1
        if degrees < 3 or not self._products:  # the deviations about a line are hardly known
            return None
        slope = self._products / self._times
        rest = max(0.0, self._squares - slope * self._products)
        error = math.sqrt(rest / degrees / self._times)
        return DriftLine(slope, error) if abs(slope) > SEEN * error else None


def pair_differences(
    one: Sequence[T], other: Sequence[T], order: Callable[[T], int], value: Callable[[T], float]
) -> list[float]:
    """Values of `one` less those of `other` in pairs that were evaluated side by side.

    Each is paired with the latest evaluation of the other candidate that has no pair yet. Of the
    candidate with more evaluations the oldest, made beside another one, have none.
    """
    both = [(order(x), 1, x) for x in one], [(order(x), -1, x) for x in other]
    many = min(map(len, both))
    latest = (sorted(each, key=lambda seen: seen[0])[len(each) - many :] for each in both)
    merged = sorted(chain.from_iterable(latest), key=lambda seen: seen[0])
    found, waiting = list[float](), list[tuple[int, T]]()
    for _, sign, seen in merged:
        if waiting and waiting[-1][0] != sign:
            found.append(sign * (value(seen) - value(waiting.pop()[1])))
        else:
            waiting.append((sign, seen))
    return found
