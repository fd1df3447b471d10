"""Intervals: means of evaluations made after the choice, with 95 % intervals.

If the score is a mean over the cases of a split, the cases evaluated are a sample of it without
replacement. Its standard error is that of sampling in two stages (Cochran, Sampling Techniques,
chapters 2 and 10): the spread of the cases weighs with the share of the split that was left out,
the noise of single evaluations with the rest. So a split that was evaluated whole leaves the noise
alone; for new cases of the kind the spread of cases weighs in full. Intervals use Student's t.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from statistics import fmean
from typing import NamedTuple

import msgspec
import numpy as np

from culmen.core.result import Z
from culmen.evidence.account import PooledNoise
from culmen.evidence.pedigree.arrays import Floats

_POOLED = 8.0
"""Largest number of degrees of freedom for the noise of the whole run.

It is bounded since candidates differ.
"""

_SMALLEST = 1e-100
"""Least mean, as a share of the largest one, whose square is a number."""

_UNTOLD = 0.05
"""Chance that equal repeats agree by luck, above which they are no evidence of exactness."""


class FreshMean(msgspec.Struct, frozen=True):
    """`mean` over `count` evaluations with standard error `se`.

    `margin` is half the width of the 95 % interval for these cases (without a data set: of the
    expected score), `new_margin` that for new cases of the kind; None if they are unknown.
    `failures` of the `count` gave no score and count at the floor. `cases` different ones were
    evaluated (0 without a data set).
    """

    mean: float
    count: int
    se: float | None
    margin: float | None
    new_margin: float | None
    failures: int
    cases: int


class Chance(NamedTuple):
    """Prior knowledge of the noise.

    `noise` is that of the run; `of` is the number of cases in the split (None: no data set, each
    evaluation is a sample); `exact` is True if equal evaluations give equal scores, None if the
    repeats so far could not show a difference. If candidates that score also fail at times, `floor`
    is the reward of a failure, `top` the reward of a success and `failures` the number of these
    evaluations that failed. `span` is the distance between the lowest and the highest possible or
    observed reward.
    """

    noise: PooledNoise
    of: int | None
    exact: bool | None
    failures: int = 0
    floor: float | None = None
    top: float | None = None
    span: float = 0.0


class Error(NamedTuple):
    """Standard error and half width of the 95 % interval; None if they are unknown."""

    se: float | None
    margin: float | None


Values = Mapping[str, Sequence[float]]
"""Rewards by case; under "" without a data set."""


def mean_of(values: Values, failures: int, chance: Chance) -> FreshMean:
    """The mean of `values`, at least one; failures are among them."""
    units, repeats, is_sample = _sample_units(values, chance)
    here = _mean_error(units, repeats, is_sample, chance, 1.0, new=False)
    kind = _mean_error(units, repeats, is_sample, chance, 1.0, new=True)
    cases = 0 if chance.of is None else len(values)
    count = sum(len(each) for each in values.values())
    return FreshMean(fmean(units), count, here.se, here.margin, kind.margin, failures, cases)


def mean_difference(
    one: Values, other: Values, chance: Chance, other_chance: Chance | None = None
) -> tuple[float, Error]:
    """Mean of `one` less that of `other`, and its error.

    Paired on the cases that both were evaluated on; without a data set two independent samples, of
    which the second may have noise of its own (`other_chance`).
    """
    if chance.of is None or chance.of == 1:
        a, b = mean_of(one, 0, chance), mean_of(other, 0, other_chance or chance)
        if a.se is None or b.se is None:
            return a.mean - b.mean, Error(None, None)
        degrees = welch_degrees(
            (a.se**2, _pooled_degrees(a.count, chance)), (b.se**2, _pooled_degrees(b.count, chance))
        )
        error = math.hypot(a.se, b.se)
        return a.mean - b.mean, Error(error, t_quantile_95(degrees) * error)
    shared = [case for case in one if case in other]
    if not shared:
        return fmean(map(fmean, one.values())) - fmean(map(fmean, other.values())), Error(
            None, None
        )
    pairs = {case: [x - y for x, y in zip(one[case], other[case])] for case in shared}
    units, repeats, is_sample = _sample_units(pairs, chance)
    return fmean(units), _mean_error(units, repeats, is_sample, chance, 2.0, new=False)


def spread_of(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean, sum of squared deviations and degrees of freedom of at least two values."""
    mean = fmean(values)
    return mean, sum((value - mean) ** 2 for value in values), len(values) - 1.0


def noise_at_level(noise: PooledNoise, spreads: Floats, level: float) -> PooledNoise:
    """The noise of evaluations whose expected reward has the magnitude `level`.

    Noise may be the same everywhere or grow with the reward, and the best is above most of the run.
    Both laws are weighted by the likelihood of `spreads`, the rows of `spread_of` for repeats of
    one candidate each; rewards of both signs leave the first. Never less than the pooled noise.
    """
    means, squares, degrees = spreads.T
    total = float(squares.sum())
    if not noise.squares or not 0.0 < total < math.inf:
        return noise
    if not ((means > 0).all() or (means < 0).all()):
        return noise
    unit = float(np.abs(means).max())  # so that no square overflows
    sizes = np.maximum(np.abs(means) / unit, _SMALLEST)
    plain = _log_likelihood(squares / total, degrees)
    shares = _log_likelihood(squares / total / sizes**2, degrees) - degrees @ np.log(sizes)
    weight = 1.0 / (1.0 + math.exp(min(700.0, plain - shares)))
    growth = float(degrees.sum() / (degrees @ sizes**2)) * (level / unit) ** 2
    return noise._replace(squares=noise.squares * max(1.0, 1.0 + weight * (growth - 1.0)))


def _log_likelihood(squares: Floats, degrees: Floats) -> float:
    """Largest log likelihood of normal deviations with one variance, less a constant."""
    many = float(degrees.sum())
    return -0.5 * many * math.log(float(squares.sum()) / many)


def _pooled_degrees(count: int, chance: Chance) -> float:
    return count - 1 + min(chance.noise.repeats, _POOLED)


def _sample_units(
    values: Values, chance: Chance
) -> tuple[list[float], list[Sequence[float]], bool]:
    """The sample: means of cases, or single evaluations if there is no choice of cases.

    Returns units, repeats by case, and True if the units are cases.
    """
    if chance.of is None or chance.of == 1:
        return [value for each in values.values() for value in each], [], False
    return [fmean(each) for each in values.values()], list(values.values()), True


def _mean_error(
    units: Sequence[float],
    repeats: Sequence[Sequence[float]],
    is_sample: bool,
    chance: Chance,
    times: float,
    new: bool,
) -> Error:
    """Error of the mean of the units; noise weighs `times` as much (2: of a difference).

    `new`: for new cases of the kind, so that the spread of the cases weighs in full.
    """
    many = len(units)
    if chance.exact and not chance.failures and not (is_sample and (new or many != chance.of)):
        return Error(0.0, 0.0)
    if many < 2 and not (not is_sample and chance.noise.repeats and chance.noise.squares):
        return Error(None, None)
    between, degrees = _unit_variance(units, chance, times, is_sample)
    if not is_sample:
        return _combined_error((between / many, degrees))
    share = 0.0 if new else many / (chance.of or many)
    noise, known = _case_noise(repeats, between, chance, times)
    return _combined_error(
        ((1 - share) * between / many, degrees), (share * noise / many, known or degrees)
    )


def _combined_error(*parts: tuple[float, float]) -> Error:
    """Error with this variance; parts as in `welch`.

    Unknown if equal scores, without a bound on the distance of others, make it 0.
    """
    error = math.sqrt(sum(variance for variance, _ in parts))
    return (
        Error(error, t_quantile_95(welch_degrees(*parts)) * error) if error else Error(None, None)
    )


def _unit_variance(
    units: Sequence[float], chance: Chance, times: float, is_sample: bool
) -> tuple[float, float]:
    """Variance of the units and its degrees of freedom.

    Single evaluations are pooled with the repeats of the whole run; if their own spread is larger
    than that by more than luck allows, it stands alone.
    """
    many, noise = len(units), chance.noise
    centre = fmean(units)
    own, degrees = sum((unit - centre) ** 2 for unit in units), many - 1.0
    if is_sample:
        return _spread_of_cases(units, own, chance, times)
    failing = _failure_variance(units, chance)
    run = (noise.squares / noise.repeats if noise.repeats else 0.0) + failing
    if not own and not run and not chance.exact:
        unproven = max(
            _unproven_variance(many, noise), _unseen_flips(many + int(noise.repeats), chance.span)
        )
        return unproven, degrees + min(float(noise.repeats), _POOLED)
    if not noise.repeats and not failing:
        return own / degrees, degrees
    weight = min(float(noise.repeats), _POOLED) + (2.0 if failing else 0.0)
    if degrees and own / degrees > 4.0 * run:
        return own / degrees, degrees
    pooled = (own + weight * run) / (degrees + weight)
    return pooled, degrees + weight


def _unproven_variance(many: int, noise: PooledNoise) -> float:
    """Variance of one evaluation that is possible in spite of equal repeats.

    That of the run's scores until their agreement was unlikely by luck, then a share of it.
    """
    repeats = noise.repeats + many - 1
    return noise.between * (1.0 if noise.agreement**repeats > _UNTOLD else 1.0 / (repeats + 1.0))


def _spread_of_cases(
    units: Sequence[float], own: float, chance: Chance, times: float
) -> tuple[float, float]:
    """Variance of the cases' means, and its degrees of freedom.

    Few equal units do not prove that all are equal, and a sample without failures does not prove
    that none fails.
    """
    many = len(units)
    unseen = 0.0 if chance.failures else _failure_variance(units, chance, times)
    if own > 0 or unseen:
        spread = own / (many - 1) + unseen
        return max(spread, _pass_fail_variance(units, chance.span, times)), many - 1.0
    repeated = chance.noise.squares / chance.noise.repeats if chance.noise.repeats else 0.0
    usual = (chance.noise.within or 0.0) if times == 1 else times * repeated
    return max(usual * _unseen_share(many), times * _unseen_flips(many, chance.span)), many - 1.0


def _pass_fail_variance(units: Sequence[float], span: float, times: float) -> float:
    """Variance of scores that all lie at either end, as pass and fail do; 0 for others.

    Their own variance is far too small where most of them agree. Differences (`times` 2) are no
    pass rates.
    """
    low, high = min(units), max(units)
    are_ends = all(unit in (low, high) for unit in units)
    if times != 1 or not are_ends or not math.isclose(high - low, span):
        return 0.0
    share = sum(unit == high for unit in units) / len(units)
    return span**2 * _flip_variance(share, len(units))


def _unseen_flips(many: int, span: float) -> float:
    """Variance that scores at either end leave possible though `many` were equal."""
    return span**2 * _flip_variance(1.0, many)


def _flip_variance(share: float, many: int) -> float:
    """Variance of one flip, `share` of `many` heads.

    1.96 standard errors of the share reach the farther end of Wilson's interval (1927).
    """
    ratio = Z**2 / many
    shift = ratio * abs(0.5 - share)
    half = math.sqrt(ratio * share * (1.0 - share) + ratio**2 / 4)
    return many * ((shift + half) / (1.0 + ratio) / Z) ** 2


def _unseen_share(many: int) -> float:
    """Share of a variance that `many` equal values leave possible (rule of succession)."""
    return 1.0 / (many + 1.0)


def _failure_variance(units: Sequence[float], chance: Chance, times: float = 1.0) -> float:
    """Variance that the chance to fail adds to one evaluation; `times` 2: to a difference.

    Few evaluations without a failure do not prove that failures are impossible (Agresti and Coull's
    pseudo-observations, and four at the share of the whole run).
    """
    if chance.floor is None or chance.top is None:
        return 0.0
    share = (chance.failures + 1 + 4 * chance.noise.failed) / (len(units) + 6)
    top = max(units) if times == 1 and max(units) > chance.floor else chance.top
    return share * (1 - share) * max(0.0, top - chance.floor) ** 2


def _case_noise(
    repeats: Sequence[Sequence[float]], between: float, chance: Chance, times: float
) -> tuple[float, float]:
    """Variance of a case's mean by noise alone, and its degrees of freedom (0: unknown).

    Few repeats are less evidence than the cases: the noise is at most as large as their spread. If
    no repeat differed, it may be as large until the agreement of all repeats was unlikely
    (`_UNTOLD`), then a share of it.
    """
    if chance.exact or not repeats:
        return 0.0, 0.0
    each = sum(map(len, repeats)) / len(repeats)
    inside = sum(sum((value - fmean(case)) ** 2 for value in case) for case in repeats)
    degrees = chance.noise.repeats + sum(len(case) - 1 for case in repeats)
    squares = chance.noise.squares * times + inside
    if not squares:
        if min(chance.noise.agreement, _value_agreement(repeats)) ** degrees > _UNTOLD:
            return between, 0.0
        return between / (degrees + 1), float(max(degrees, len(repeats) - 1))
    if degrees < len(repeats) - 1:
        return between, 0.0
    return min(squares / degrees / each, between), float(degrees)


def _value_agreement(repeats: Sequence[Sequence[float]]) -> float:
    """Chance that two of these values, across all cases, are equal (Simpson's index)."""
    counts = Counter(value for case in repeats for value in case)
    return sum(many**2 for many in counts.values()) / counts.total() ** 2


def welch_degrees(*parts: tuple[float, float]) -> float:
    """Degrees of freedom of a sum of variances (Satterthwaite); parts: (variance, degrees)."""
    below = sum(variance**2 / degrees for variance, degrees in parts if variance)
    return sum(variance for variance, _ in parts) ** 2 / below if below else math.inf


@lru_cache(1024)
def t_quantile_95(degrees: float) -> float:
    """The quantile of Student's t that leaves 2.5 % above it.

    With theta = atan(t / sqrt(n)) the mass between 0 and t is proportional to the integral of
    cos^(n-1) up to theta; Newton's method from the normal distribution's quantile, from below. (An
    import of scipy would slow every run.)
    """
    if degrees > 1e7:
        return Z
    n = max(1.0, degrees)
    scale = math.exp(math.lgamma((n + 1) / 2) - math.lgamma(n / 2)) / math.sqrt(math.pi)
    theta = math.atan(Z / math.sqrt(n))
    for _ in range(50):
        step = (0.475 / scale - _cos_power_integral(theta, n - 1)) / math.cos(theta) ** (n - 1)
        theta += step
        if abs(step) < 1e-14:
            break
    return math.sqrt(n) * math.tan(theta)


def _cos_power_integral(upper: float, power: float, pieces: int = 64) -> float:
    """The integral of cos^power from 0 to `upper`."""
    width = upper / pieces
    values = [math.cos(i * width) ** power for i in range(pieces + 1)]
    return width / 3 * (values[0] + 4 * sum(values[1:-1:2]) + 2 * sum(values[2:-1:2]) + values[-1])
