"""What evaluations made after the choice say: a mean with a 95 % interval, and the difference of two of them.

Where the score is a mean over the cases of a split, the cases evaluated are a sample of it without replacement. Its
standard error is that of sampling in two stages (Cochran, Sampling Techniques, chapters 2 and 10): the spread of the
cases weighs with the share of the split that was left out, the noise of single evaluations with the rest. So a split
that was evaluated whole leaves the noise alone. Intervals use Student's t.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from statistics import fmean

import msgspec

from culmen.engine.record import RewardNoise

_PSEUDO = 4.0  # degrees of freedom that the spread seen in the whole run counts for: few equal scores are no certainty


class FreshMean(msgspec.Struct, frozen=True):
    """`mean` over `count` evaluations with standard error `se` and `margin`, half the width of the 95 % interval.

    Both are None where one evaluation cannot tell. `failures` of the `count` gave no score and count at the floor.
    `cases` different ones were evaluated (0 without a data set).
    """

    mean: float
    count: int
    se: float | None = None
    margin: float | None = None
    failures: int = 0
    cases: int = 0


class Spread(msgspec.Struct, frozen=True):
    """What is known of chance before: `noise` of the run, `of` how many cases there are (None: no data set, each
    evaluation is a sample), `exact` whether equal evaluations give equal scores. Where candidates that score also fail
    at times, `floor` is what a failure counts as, and `failures` how many of these evaluations did."""

    noise: RewardNoise
    of: int | None
    exact: bool
    failures: int = 0
    floor: float | None = None


def fresh_mean(values: Mapping[str, Sequence[float]], failures: int, spread: Spread) -> FreshMean:
    """The mean of `values` (by case; under "" without a data set), at least one; failures are among them."""
    count = sum(len(each) for each in values.values())
    units, repeats, sampled = _units(values, spread)
    error = _error(units, repeats, sampled, spread, 1.0)
    cases = 0 if spread.of is None else len(values)
    return FreshMean(fmean(units), count, error[0], error[1], failures, cases)


def difference(
    one: Mapping[str, Sequence[float]], other: Mapping[str, Sequence[float]], spread: Spread
) -> tuple[float, float | None]:
    """How much larger the mean of `one` is than that of `other`, and half the width of its 95 % interval.

    Judged on the cases that both were evaluated on; without a data set on two independent samples.
    """
    if spread.of is None or spread.of == 1:
        a, b = fresh_mean(one, 0, spread), fresh_mean(other, 0, spread)
        if a.se is None or b.se is None:
            return a.mean - b.mean, None
        degrees = _welch((a.se**2, a.count - 1 + _PSEUDO), (b.se**2, b.count - 1 + _PSEUDO))
        return a.mean - b.mean, t95(degrees) * math.hypot(a.se, b.se)
    shared = [case for case in one if case in other]
    if not shared:
        return fmean(map(fmean, one.values())) - fmean(map(fmean, other.values())), None
    pairs = {case: [x - y for x, y in zip(one[case], other[case])] for case in shared}
    units, repeats, sampled = _units(pairs, spread)
    return fmean(units), _error(units, repeats, sampled, spread, 2.0)[1]


@lru_cache(1024)
def t95(degrees: float) -> float:
    """The quantile of Student's t that leaves 2.5 % above it.

    With theta = atan(t / sqrt(n)) the mass between 0 and t is proportional to the integral of cos^(n-1) up to theta;
    Newton's method from the normal distribution's quantile, from below. (An import of scipy would cost every run more.)
    """
    normal = 1.959963984540054
    if degrees > 1e7:
        return normal
    n = max(1.0, degrees)
    scale = math.exp(math.lgamma((n + 1) / 2) - math.lgamma(n / 2)) / math.sqrt(math.pi)
    theta = math.atan(normal / math.sqrt(n))
    for _ in range(50):
        step = (0.475 / scale - _simpson(theta, n - 1)) / math.cos(theta) ** (n - 1)
        theta += step
        if abs(step) < 1e-14:
            break
    return math.sqrt(n) * math.tan(theta)


def _simpson(upper: float, power: float, pieces: int = 64) -> float:
    """The integral of cos^power from 0 to `upper`."""
    width = upper / pieces
    values = [math.cos(i * width) ** power for i in range(pieces + 1)]
    return width / 3 * (values[0] + 4 * sum(values[1:-1:2]) + 2 * sum(values[2:-1:2]) + values[-1])


def _units(values: Mapping[str, Sequence[float]], spread: Spread) -> tuple[list[float], list[Sequence[float]], bool]:
    """What was sampled: means of cases, or single evaluations where there is no choice of cases."""
    if spread.of is None or spread.of == 1:
        return [value for each in values.values() for value in each], [], False
    return [fmean(each) for each in values.values()], list(values.values()), True


def _error(
    units: Sequence[float], repeats: Sequence[Sequence[float]], sampled: bool, spread: Spread, times: float
) -> tuple[float | None, float | None]:
    """Standard error and margin of the mean of the units; noise weighs `times` as much (2: of a difference)."""
    many = len(units)
    if spread.exact and (not sampled or many == spread.of):
        return 0.0, 0.0
    if many < 2:
        return None, None
    between, degrees = _between(units, spread, times)
    share = many / spread.of if sampled and spread.of else 0.0
    noise, known = _noise(repeats, between, spread, times)
    parts = ((1 - share) * between / many, degrees), (share * noise / many, known or degrees)
    error = math.sqrt(parts[0][0] + parts[1][0])
    return error, t95(_welch(*parts)) * error


def _between(units: Sequence[float], spread: Spread, times: float) -> tuple[float, float]:
    """Variance of the units and its degrees of freedom: their own, or with the run's if that makes it larger."""
    many, centre = len(units), fmean(units)
    squares = sum((unit - centre) ** 2 for unit in units)
    prior = None if spread.noise.within is None else spread.noise.within + _failing(units, spread)
    if times > 1 and (squares or not centre):  # differences on shared cases know nothing of the spread of cases
        prior = times * spread.noise.squares / spread.noise.repeats if spread.noise.repeats else None
    own, pooled = squares / (many - 1), (squares + _PSEUDO * (prior or 0.0)) / (many - 1 + _PSEUDO)
    return (pooled, many - 1 + _PSEUDO) if pooled > own else (own, many - 1.0)


def _failing(units: Sequence[float], spread: Spread) -> float:
    """Variance that the chance to fail adds to one evaluation; none of a few that failed does not mean that none can
    (Agresti and Coull's two pseudo-observations, and `_PSEUDO` at the share of the whole run)."""
    if spread.floor is None:
        return 0.0
    share = (spread.failures + 1 + _PSEUDO * spread.noise.failed) / (len(units) + 2 + _PSEUDO)
    return share * (1 - share) * (max(units) - spread.floor) ** 2


def _noise(repeats: Sequence[Sequence[float]], between: float, spread: Spread, times: float) -> tuple[float, float]:
    """Variance of a case's mean by noise alone, and its degrees of freedom (0: no repeat has told it)."""
    if spread.exact or not repeats:
        return 0.0, 0.0
    each = sum(map(len, repeats)) / len(repeats)
    inside = sum(sum((value - fmean(case)) ** 2 for value in case) for case in repeats)
    degrees = spread.noise.repeats + sum(len(case) - 1 for case in repeats)
    squares = spread.noise.squares * times + inside
    if not squares:  # equal repeats, or none: as large as the spread of cases, until many have told otherwise
        return between / (2 * degrees + 1), float(degrees)
    return min(squares / degrees / each, between), float(degrees)


def _welch(*parts: tuple[float, float]) -> float:
    """Degrees of freedom of a sum of variances (Satterthwaite): (variance, its degrees of freedom) each."""
    below = sum(variance**2 / degrees for variance, degrees in parts if variance)
    return sum(variance for variance, _ in parts) ** 2 / below if below else math.inf
