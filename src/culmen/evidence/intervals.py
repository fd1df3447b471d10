"""Intervals: means of evaluations made after the choice, with 95 % intervals.

If the score is a mean over the cases of a split, the cases evaluated are a sample of it without
replacement. Its standard error is that of sampling in two stages (Cochran, Sampling Techniques,
chapters 2 and 10): the spread of the cases weighs with the share of the split that was left out,
the noise of single evaluations with the rest. So a split that was evaluated whole leaves the noise
alone; for new cases of the kind the spread of cases weighs in full. Intervals use Student's t.

A margin comes from spread that was seen. If no evaluation differed from another of its kind, scores
are exact (margin 0) or the margin is unknown (None); what may be possible in spite of equal repeats
is a doubt, by which decisions are made and which is never shown as a margin.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from statistics import NormalDist, fmean
from typing import NamedTuple

import msgspec

from culmen.core.result import Z
from culmen.core.spread import spread_of, sum_floats
from culmen.evidence.account import UNLIKELY, Account, PooledNoise, agreement_of

_OWN = 5
"""Evaluations from which a candidate's own spread bounds its interval."""
RUN_WEIGHT = 8.0
"""Degrees of freedom as which the noise of the whole run counts at most: candidates differ."""

_LUCK = NormalDist().inv_cdf(0.99)

_WIDEST = 1.5


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
    observed reward; `few`: rewards have few values, as pass and fail. `drawn`: evaluations draw
    random numbers, so that equal scores are luck. `unseen`: mean square of the chance to fail of a
    candidate without a failure (None: unknown, it is taken to be as that of the run).
    """

    noise: PooledNoise
    of: int | None
    exact: bool | None
    failures: int = 0
    floor: float | None = None
    top: float | None = None
    span: float = 0.0
    few: bool = False
    drawn: bool = False
    unseen: float | None = None


class Error(NamedTuple):
    """Standard error and half width of the 95 % interval; None if they are unknown.

    `doubt` is the standard error including the variance that equal repeats leave possible.
    """

    se: float | None
    margin: float | None
    doubt: float | None = None


class Part(NamedTuple):
    """A variance of a mean, its degrees of freedom, and True if it rests on spread seen."""

    variance: float
    degrees: float
    is_seen: bool = True


Values = Mapping[str, Sequence[float]]
"""Rewards by case; under "" without a data set."""


def mean_of(values: Values, failures: int, chance: Chance) -> FreshMean:
    """The mean of `values`, at least one; failures are among them."""
    chance = _with_agreement_of(chance, values)
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
        samples = [(_sample_units(one, chance)[0], chance)]
        samples += [(_sample_units(other, chance)[0], other_chance or chance)]
        parts = [_evaluation_part(units, each) for units, each in samples]
        parts += [_unseen_part(units, each) for units, each in samples]
        gain = fmean(samples[0][0]) - fmean(samples[1][0])
        if all(each.exact and not each.failures for _, each in samples):
            return gain, Error(0.0, 0.0, 0.0)
        known = [part for part in parts if part is not None]
        return gain, _combined_error(*known) if len(known) == 4 else Error(None, None)
    shared = [case for case in one if case in other]
    if not shared:
        return fmean(map(fmean, one.values())) - fmean(map(fmean, other.values())), Error(
            None, None
        )
    pairs = {case: [x - y for x, y in zip(one[case], other[case])] for case in shared}
    chance = _with_agreement_of(chance, one, other)
    units, repeats, is_sample = _sample_units(pairs, chance)
    return fmean(units), _mean_error(units, repeats, is_sample, chance, 2.0, new=False)


TOLD = 0.8
"""Share of simulated comparisons that must find a gain before a number of evaluations is advised.

Cohen's convention for the power of a test (Statistical Power Analysis, 1988).
"""
_COMPARISONS, _GROWTH = 2000, 1.1  # simulated ones of a size; from one size to the next


def repeats_to_tell(gain: float, se: float, sd: float, most: int) -> int:
    """Fewest evaluations of each of two programs that tell their gain; 0 beyond `most`.

    `gain` was measured with standard error `se`; comparisons are simulated for true gains that this
    leaves possible, those above 0, with normal noise `sd` of one evaluation and the intervals of a
    final choice, whose spreads are estimated from the samples themselves.
    """
    import numpy as np

    rng, many = np.random.default_rng(0), 2
    true = gain + se * rng.standard_normal(8 * _COMPARISONS)
    true = np.resize(true[true > 0], _COMPARISONS)
    while many <= most:
        degrees, error = 2.0 * (many - 1), sd * math.sqrt(2.0 / many)
        found = true + error * rng.standard_normal(_COMPARISONS)
        errors = error * np.sqrt(rng.chisquare(degrees, _COMPARISONS) / degrees)
        if (found > t_quantile_95(degrees) * errors).mean() >= TOLD:
            return many
        many = max(many + 1, math.ceil(_GROWTH * many))
    return 0


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
        return Error(0.0, 0.0, 0.0)
    if not is_sample:
        part = _evaluation_part(units, chance)
        unseen = _unseen_part(units, chance)
        return Error(None, None) if part is None else _combined_error(part, unseen)
    if many < 2:
        return _single_error(chance) if times == 1.0 else Error(None, None)
    between, degrees = _spread_of_cases(units, chance, times)
    share = 0.0 if new else many / (chance.of or many)
    noise = _case_noise(repeats, between, chance, times)
    sampling = Part((1 - share) * between / many, degrees)
    variance = share * noise.variance / many
    return _combined_error(sampling, Part(variance, noise.degrees or degrees, noise.is_seen))


def _single_error(chance: Chance) -> Error:
    """Error of a single evaluation: Wilson's, where it passes or fails by chance."""
    if not (chance.drawn and chance.few and 0.0 < chance.span < math.inf):
        return Error(None, None)
    se = math.sqrt(_unseen_flips(1, chance.span))
    return Error(se, Z * se, se)


def pass_margin(reward: float, count: int, low: float, high: float) -> float:
    """Half width of the 95 % interval of `count` evaluations that pass (`high`) or fail (`low`).

    It reaches the farther end of Wilson's interval. 0 for bounds that are not finite.
    """
    if not 0.0 < high - low < math.inf:
        return 0.0
    share = min(1.0, max(0.0, (reward - low) / (high - low)))
    return (high - low) * Z * math.sqrt(_flip_variance(share, count) / count)


def chance_margin(account: Account, reward: float, count: int) -> float:
    """The least margin of a mean reward: `pass_margin` where chance lets rollouts pass or fail.

    0 for evaluations that draw no random numbers, and for rewards of many values.
    """
    if not (count and account.repeated.has_drawn and account.has_few_values):
        return 0.0
    return pass_margin(reward, count, *account.task.objective.reward_range)


def _combined_error(*parts: Part) -> Error:
    """Error of a sum of parts; unknown if none of them was seen."""
    doubt = math.sqrt(sum_floats(part.variance for part in parts)) or None
    seen = [(part.variance, part.degrees) for part in parts if part.is_seen and part.variance]
    if not seen:
        return Error(None, None, doubt)
    error = math.sqrt(sum_floats(variance for variance, _ in seen))
    return Error(error, t_quantile_95(welch_degrees(*seen)) * error, doubt)


def _evaluation_part(units: Sequence[float], chance: Chance) -> Part | None:
    """Variance of the mean of single evaluations; None if nothing is known of it.

    They are pooled with the repeats of the run at this level; their own spread bounds that, unless
    failures are possible that were not seen.
    """
    many, noise = len(units), chance.noise
    _, own, degrees = spread_of(units)
    failing = _failure_variance(units, chance)
    run = (noise.squares / noise.repeats if noise.repeats else 0.0) + failing
    if many < 2 and not noise.squares and not (chance.drawn and chance.few):
        return None
    if not own and not run:
        return _equal_part(many, chance)
    if not own and many >= _OWN and not chance.few and not failing:
        return Part(0.0, degrees)  # equal again and again, whatever others do
    if not run:
        return Part(own / degrees / many, degrees)
    known = float(noise.repeats) or (2.0 if failing else 0.0)
    pool = pool_with_run if failing else bounded_variance
    pooled, freedom = pool(own, degrees, run, known)
    return Part(pooled / many, freedom)


def _unseen_part(units: Sequence[float], chance: Chance) -> Part:
    """Variance of the mean by failures that are possible though none was seen; 0 if unknown."""
    if chance.floor is None or not chance.unseen:
        return Part(0.0, math.inf)
    return Part(chance.unseen * max(0.0, max(units) - chance.floor) ** 2, math.inf)


def bounded_variance(own: float, degrees: float, run: float, known: float) -> tuple[float, float]:
    """Variance by own squares and the run's, as `pool_with_run`, bounded by the former.

    From `_OWN` evaluations on, the interval is at most half as wide again as by them alone.
    """
    pooled, freedom = pool_with_run(own, degrees, run, known)
    if own and degrees >= _OWN - 1:
        width = _WIDEST * t_quantile_95(degrees) / t_quantile_95(freedom)
        pooled = min(pooled, own / degrees * width**2)
    return pooled, freedom


def _equal_part(many: int, chance: Chance) -> Part:
    """Variance that equal repeats leave possible: that of flips of few-valued scores."""
    flips = _unseen_flips(many + int(chance.noise.repeats), chance.span) if chance.few else 0.0
    return Part(flips / many, max(1.0, many - 1.0), chance.drawn)


def _spread_of_cases(units: Sequence[float], chance: Chance, times: float) -> tuple[float, float]:
    """Variance of the cases' means, and its degrees of freedom.

    Few equal units do not prove that all are equal, and a sample without failures does not prove
    that none fails.
    """
    many, centre = len(units), fmean(units)
    own = sum_floats((unit - centre) ** 2 for unit in units)
    unseen = 0.0 if chance.failures else _failure_variance(units, chance, times)
    if own > 0 or unseen:
        spread = own / (many - 1) + unseen
        return max(spread, _pass_fail_variance(units, chance.span, times)), many - 1.0
    repeated = chance.noise.squares / chance.noise.repeats if chance.noise.repeats else 0.0
    usual = (chance.noise.within or 0.0) if times == 1 else times * repeated
    return max(usual * _unseen_share(many), times * _unseen_flips(many, chance.span)), many - 1.0


def _pass_fail_variance(units: Sequence[float], span: float, times: float) -> float:
    """Variance of scores that all lie at either end, as pass and fail do; 0 for others.

    Their own variance is far too small where most of them agree. That of their differences
    (`times` 2) reaches the farther end of the interval of Agresti and Min (2005, section 3), which
    adds half a pair to each of the four outcomes.
    """
    if times != 1:
        return _paired_flip_variance(units, span)
    low, high = min(units), max(units)
    are_ends = all(unit in (low, high) for unit in units)
    if not are_ends or not math.isclose(high - low, span):
        return 0.0
    share = sum(int(unit == high) for unit in units) / len(units)
    return span**2 * _flip_variance(share, len(units))


def _paired_flip_variance(units: Sequence[float], span: float) -> float:
    sizes = [abs(unit) for unit in units if unit]
    if not (span and sizes) or not all(math.isclose(size, span) for size in sizes):
        return 0.0
    many, gain = len(units) + 2, sum_floats(units) / span
    error = math.sqrt(len(sizes) + 1 - gain**2 / many) / many
    reach = abs(gain) * (1 / len(units) - 1 / many) + Z * error
    return span**2 * len(units) * (reach / Z) ** 2


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

    Few evaluations without a failure do not prove that failures are impossible: Agresti and Coull's
    pseudo-observations, and four at the share of the whole run. 0 if `_unseen_part` has it.
    """
    if chance.floor is None or chance.top is None or chance.unseen is not None:
        return 0.0
    share = (chance.failures + 1 + 4 * chance.noise.failed) / (len(units) + 6)
    top = max(units) if times == 1 and max(units) > chance.floor else chance.top
    return share * (1 - share) * max(0.0, top - chance.floor) ** 2


def _case_noise(
    repeats: Sequence[Sequence[float]], between: float, chance: Chance, times: float
) -> Part:
    """Variance of a case's mean by noise alone, and its degrees of freedom (0: unknown).

    Few repeats are less evidence than the cases: the noise is at most as large as their spread. If
    no repeat differed, it may be as large until the agreement of all repeats was unlikely
    (`UNLIKELY`); then nothing of it was seen, and a share of it is a doubt.
    """
    if chance.exact or not repeats:
        return Part(0.0, 0.0)
    each = sum(map(len, repeats)) / len(repeats)
    inside = sum_floats(
        sum_floats((value - fmean(case)) ** 2 for value in case) for case in repeats
    )
    degrees = chance.noise.repeats + sum(map(len, repeats)) - len(repeats)
    squares = chance.noise.squares * times + inside
    if not squares:
        if chance.noise.agreement**degrees > UNLIKELY:
            return Part(between, 0.0)
        return Part(between / (degrees + 1), float(max(degrees, len(repeats) - 1)), False)
    if degrees < len(repeats) - 1:
        return Part(between, 0.0)
    return Part(min(squares / degrees / each, between), float(degrees))


def _with_agreement_of(chance: Chance, *samples: Values) -> Chance:
    """`chance` with the agreement of the scores of these samples, if that is less.

    Differences of two samples agree less often, but it is their scores that were repeated.
    """
    counts = Counter(value for sample in samples for case in sample.values() for value in case)
    agreement = min(chance.noise.agreement, agreement_of(counts))
    return chance._replace(noise=chance.noise._replace(agreement=agreement))


def welch_degrees(*parts: tuple[float, float]) -> float:
    """Degrees of freedom of a sum of variances (Satterthwaite); parts: (variance, degrees)."""
    below = sum_floats(variance**2 / degrees for variance, degrees in parts if variance)
    return sum_floats(variance for variance, _ in parts) ** 2 / below if below else math.inf


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


def _cos_power_integral(upper: float, power: float) -> float:
    """The integral of cos^power from 0 to `upper`, by Simpson's rule on 64 pieces."""
    width = upper / 64
    values = [math.cos(i * width) ** power for i in range(65)]
    return (
        width
        / 3
        * (values[0] + 4 * sum_floats(values[1:-1:2]) + 2 * sum_floats(values[2:-1:2]) + values[-1])
    )


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
