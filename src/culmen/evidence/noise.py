"""Noise of one evaluation as a function of the level: log-linear, robust, learnt nearby.

Of each candidate that was evaluated repeatedly, the squares about its mean are known. The deviation
of one evaluation is modelled as a power of the size of the expected reward, so that its logarithm
is linear in that of the size:

    s(L) = s · ((|L| + s) / (m + s)) ^ slope     m middle level; slope -1 .. 1, all are weighed

Candidates out of reach of the levels of interest tell nothing, and one candidate of extraordinary
spread has a bounded influence (Huber).

Drift: scores that change in the course of a run, whatever is evaluated.

A machine that warms up, a service that slows down, an evaluator that wears out. Two candidates
measured at different times then differ by it, so comparisons are made of evaluations that stand
side by side (`pair_differences`), and the change itself is seen in the repeats of the initial
programs: unlike those of other candidates, they are never made because of a lucky score.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import chain
from statistics import median
from typing import NamedTuple, TypeVar

import numpy as np

from culmen.core.spread import ROUNDING
from culmen.evidence.pedigree.arrays import Floats
from culmen.evidence.pedigree.scale import reach_of

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


BOUND = 4.0
"""Standard errors by which the squares of one candidate may exceed their expectation (Huber)."""

SLOPES = np.array([-1.0, -0.5, 0.0, 0.5, 1.0])
"""Exponents of the size of a reward in the deviation: 0 equal noise, 1 a share of the reward."""

BELIEFS = np.array([1.0, 2.0, 6.0, 8.0, 13.0]) / 30.0
"""Prior probabilities of `SLOPES`: noise that falls as the reward grows is rare.

One that grows in proportion weighs most, since the best is above the levels that were repeated.
"""

_LEAST = 1 / 16  # of the plain variance that is left at least: many equal repeats prove nothing


class NoiseLaw:
    """Noise of one evaluation by the level, learnt within reach of the `levels` of interest.

    `spreads` are rows of `spread.spread_of`, one a candidate. `degrees` are the degrees of freedom
    within reach; without spread the variance is 0 at every level.
    """

    def __init__(self, spreads: Floats, levels: Sequence[float]) -> None:
        means, squares, degrees = _within_reach(_without_rounding(spreads), np.array(levels)).T
        self.degrees = float(degrees.sum())
        self._variances, self._weights = np.zeros(len(SLOPES)), BELIEFS
        unit = math.sqrt(float(squares.max(initial=0.0)))
        if not 0.0 < unit < math.inf:
            return
        squares = squares / unit**2  # so that no sum overflows
        self._least = unit * math.sqrt(float(squares.sum()) / self.degrees)
        self._middle = median(np.abs(means).tolist())
        sizes = np.log((np.abs(means) + self._least) / (self._middle + self._least))
        logs = np.zeros(len(SLOPES))
        for place, slope in enumerate(SLOPES):
            shares = np.exp(2.0 * slope * sizes)
            variance = _bounded_variance(squares / shares, degrees)
            logs[place] = -0.5 * (self.degrees * math.log(variance) + degrees @ np.log(shares))
            self._variances[place] = unit**2 * variance
        self._weights = BELIEFS * np.exp(logs - logs.max())

    def variance_at(self, level: float) -> float:
        """Variance of one evaluation whose expected reward is `level`."""
        return self.estimate_at(level)[0]

    def estimate_at(self, level: float) -> tuple[float, float]:
        """Variance of one evaluation at this level, and its degrees of freedom.

        Slopes that disagree about a level are doubt, too: their spread is that of a variance with
        2 mean² / variance degrees (Satterthwaite 1946), and relative variances add up.
        """
        if not self._variances.any():
            return 0.0, self.degrees
        size = math.log((abs(level) + self._least) / (self._middle + self._least))
        variances = self._variances * np.exp(2.0 * SLOPES * size)
        weights = self._weights / self._weights.sum()
        mean = float(weights @ variances)
        doubt = float(weights @ (variances / mean - 1.0) ** 2)
        return mean, 1.0 / (1.0 / self.degrees + doubt / 2.0)


def _without_rounding(spreads: Floats) -> Floats:
    """The rows with squares that errors of arithmetic explain set to 0."""
    means, squares, degrees = spreads.T
    sound = np.where(squares > degrees * (ROUNDING * means) ** 2, squares, 0.0)
    return np.column_stack([means, sound, degrees])


def _within_reach(spreads: Floats, levels: Floats) -> Floats:
    if not len(spreads) or not len(levels):
        return spreads
    distances = np.abs(spreads[:, :1] - levels).min(axis=1)
    return spreads[distances <= reach_of(spreads, levels)]


def _bounded_variance(squares: Floats, degrees: Floats) -> float:
    """Variance by these squares, each bounded at `BOUND` errors above its expectation."""
    total, bounds = float(degrees.sum()), degrees + BOUND * np.sqrt(2.0 * degrees)
    plain = before = float(squares.sum()) / total
    while before > _LEAST * plain:
        variance = float(np.minimum(squares, bounds * before).sum()) / total
        if before - variance <= 1e-3 * before:
            return variance
        before = variance
    return _LEAST * plain
