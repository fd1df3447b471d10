"""Statistics of comparisons: bootstrap intervals, probability of improvement, profiles.

Measures and the stratified bootstrap follow Agarwal et al. 2021, "Deep reinforcement learning at
the edge of the statistical precipice", Section 4; the expected running time follows Hansen et al.
2021 (COCO). Values are such that higher is better. Strata are tasks: runs are resampled within each
of them, tasks are fixed. Nothing depends on the order of runs: samples are sorted before anything
is drawn, and the draws have a fixed random seed.

Values measured with an error come with draws of their possible values (`MeasuredValues`). Each
resample takes one of these, so that intervals cover both the variation between runs and the error
of measurement.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, comb, inf, log2, nextafter, sqrt
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from culmen.core.errors import missing_extra

if TYPE_CHECKING:
    from types import ModuleType

    import numpy as np
    from numpy.random import Generator
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    # values, and draws of them: shapes (n,) and (RESAMPLES, n)
    _Arrays = tuple[Floats, Floats]
    _Couples = Sequence[tuple[_Arrays, _Arrays]]

CONFIDENCE = 0.95  # level of all intervals
NORMAL = 1.959963984540054  # quantile of the normal law that leaves 2.5 % above it
RESAMPLES, PERMUTATIONS = 2000, 9999
_SEED, _BATCH = 0, 500

Sample = Sequence[float]


class MeasuredValues(NamedTuple):
    """Values measured with an error.

    `draws` has shape (RESAMPLES, number of values); each row is a joint draw of all possible
    values.

    `ruled` and `raw` have the same shape and are for comparing two samples (None: `draws`). Both
    contain only the errors that runs share, since the spread of the runs shows all others. In
    `ruled`, values whose difference was not shown are equal, in `raw` they are not. Two samples
    differ only if both agree: that one value is shown to be better than a third and another is not
    does not show a difference between the two.
    """

    values: Sample
    draws: Floats
    ruled: Floats | None = None
    raw: Floats | None = None

    def take_positions(self, positions: Sequence[int]) -> MeasuredValues:
        """Some of the values, by position."""
        chosen = list(positions)
        return MeasuredValues(
            [self.values[position] for position in chosen],
            self.draws[:, chosen],
            None if self.ruled is None else self.ruled[:, chosen],
            None if self.raw is None else self.raw[:, chosen],
        )

    @property
    def ruled_and_raw(self) -> tuple[MeasuredValues, MeasuredValues]:
        """The values with the draws for comparisons: ruled, and raw."""
        ruled = self.draws if self.ruled is None else self.ruled
        raw = self.draws if self.raw is None else self.raw
        return MeasuredValues(self.values, ruled), MeasuredValues(self.values, raw)


Given = Sample | MeasuredValues


class Estimate(msgspec.Struct, frozen=True):
    """A figure and its bootstrap interval.

    All None without data; no interval if a stratum has a single value.
    """

    value: float | None = None
    low: float | None = None
    high: float | None = None

    def complement(self) -> Estimate:
        """The estimate of one minus the figure."""
        return Estimate(
            *(None if each is None else 1 - each for each in (self.value, self.high, self.low))
        )


class Improvement(msgspec.Struct, frozen=True):
    """Probability that a run of one strategy beats a run of another, ties counting half.

    `p` is two-sided, for the hypothesis that both are equal (None: a single run on a side). `pairs`
    is the number of pairs of the same seed, 0 if unpaired.
    """

    estimate: Estimate
    p: float | None
    pairs: int


def mean_estimate(strata: Sequence[Given]) -> Estimate:
    """Mean over strata of the means within them."""
    return _bootstrap_estimate(
        strata, lambda *values: sum(each.mean(axis=-1) for each in values) / len(values)
    )


def median_estimate(strata: Sequence[Given]) -> Estimate:
    """Median of all values."""
    import numpy as np

    return _bootstrap_estimate(
        strata, lambda *values: np.median(np.concatenate(values, axis=-1), axis=-1)
    )


def iqm_estimate(strata: Sequence[Given]) -> Estimate:
    """Interquartile mean of all values.

    The lowest and the highest quarter (rounded down) are left out.
    """
    import numpy as np

    return _bootstrap_estimate(
        strata,
        # share of the values cut at either end, for the interquartile mean
        lambda *values: _scipy_stats().trim_mean(np.concatenate(values, axis=-1), 0.25, axis=-1),
    )


def estimate_improvement(strata: Sequence[tuple[Given, Given]], paired: bool) -> Improvement:
    """Probability of improvement of the first over the second sample, mean over strata.

    `paired` samples hold the same seed at the same place. -inf stands for a run without a score: it
    loses against all others and ties with another one. For values with errors the estimate is the
    mean over their draws, and p is the larger of two: that of the test over runs, and that from the
    share of draws in which neither is ahead, since runs of the same program share its error. The
    interval is never narrower than Wilson's for this number of pairs (unpaired: the size of the
    smaller sample). Raises `ValueError` for an empty sample.
    """
    couples, raw = (
        [
            (_sample_arrays(_comparison_draws(a, n)), _sample_arrays(_comparison_draws(b, n)))
            for a, b in strata
        ]
        for n in (0, 1)
    )
    pairs = sum(min(one[0].size, other[0].size) for one, other in couples)
    if paired and any(one[0].size != other[0].size for one, other in couples):
        raise ValueError("paired samples of different sizes")
    shares = _paired_shares if paired else _all_shares
    value = float(shares(couples, None).mean())
    if min(each[0].size for couple in couples for each in couple) < 2:
        p = None if not paired or pairs < 2 else _sign_flip_p_value(_soft_wins(couples))
        return Improvement(Estimate(value), p, pairs if paired else 0)
    p = (
        _sign_flip_p_value(_soft_wins(couples))
        if paired
        else _stratified_p_value([(one[0], other[0]) for one, other in couples])
    )
    low, high = wilson_interval(value, pairs)
    for each in (couples, raw):
        share = shares(each, None)
        if p is not None and share.min() < share.max():
            p = max(p, min(1.0, 2 * float(min((share <= 0.5).mean(), (share >= 0.5).mean()))))
        drawn = shares(each, _random_generator())
        low, high = (
            min(low, _draws_quantile(drawn, 1 - CONFIDENCE)),
            max(high, _draws_quantile(drawn, 1 + CONFIDENCE)),
        )
    return Improvement(Estimate(value, low, high), p, pairs if paired else 0)


def _comparison_draws(sample: Given, number: int) -> Given:
    return sample.ruled_and_raw[number] if isinstance(sample, MeasuredValues) else sample


def wilson_interval(share: float, count: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share of `count` items; wide if a few all agree."""
    square = NORMAL**2
    centre = (share + square / (2 * count)) / (1 + square / count)
    half = (
        NORMAL / (1 + square / count) * sqrt(share * (1 - share) / count + square / (4 * count**2))
    )
    return max(0.0, centre - half), min(1.0, centre + half)


def holm_correction(p: Sequence[float | None]) -> list[float | None]:
    """Holm's correction of p-values for their number; None stays and is not counted."""
    known = sorted((value, index) for index, value in enumerate(p) if value is not None)
    corrected: list[float | None] = [None] * len(p)
    highest = 0.0
    for step, (value, index) in enumerate(known):
        highest = max(highest, min(1.0, value * (len(known) - step)))
        corrected[index] = highest
    return corrected


def pairs_needed(comparisons: int = 1) -> int:
    """Smallest number of pairs of seeds at which a win in each could be significant.

    The smallest n with 2^(1-n) <= (1 - CONFIDENCE) / comparisons.
    """
    return ceil(1 + log2(max(1, comparisons) / (1 - CONFIDENCE)))


def profile_steps(strata: Sequence[Sample]) -> list[tuple[float, float]]:
    """The performance profile: (level, share of runs above it), mean over strata, from 0 upward.

    One step for each distinct value.
    """
    levels = sorted({value for each in strata for value in each})
    shares = [
        [sum(value >= mark for value in each) / len(each) for each in strata]
        for mark in (0.0, *(nextafter(level, inf) for level in levels))
    ]
    return [(level, sum(each) / len(each)) for level, each in zip([0.0, *levels], shares)]


def best_of(values: Sample) -> list[float]:
    """Expected best of n of these runs drawn without replacement, for n = 1 to all."""
    ranked, total = sorted(values), len(values)
    return [
        sum(value * comb(place, n - 1) for place, value in enumerate(ranked)) / comb(total, n)
        for n in range(1, total + 1)
    ]


def expected_running_time(spent: Sample, reached: Sequence[bool]) -> float | None:
    """Effort of all runs, until the target or their end, per run that reached it.

    None if no run reached it.
    """
    return sum(spent) / sum(reached) if any(reached) else None


def median_to_target(spent: Sample, reached: Sequence[bool]) -> float | None:
    """Median effort to the target; None if the median run did not reach it.

    A run that did not reach it counts as later than all others.
    """
    ranked = sorted(
        value if there else float("inf") for value, there in zip(spent, reached, strict=True)
    )
    if not ranked:
        return None
    low, high = ranked[(len(ranked) - 1) // 2], ranked[len(ranked) // 2]
    return None if high == float("inf") else (low + high) / 2


def _scipy_stats() -> ModuleType:
    try:
        import scipy.stats
    except ImportError:
        raise missing_extra("a comparison", "scipy", "compare", "culmen compare") from None
    return scipy.stats


def _random_generator() -> Generator:
    import numpy as np

    return np.random.default_rng(_SEED)


def _sample_arrays(sample: Given) -> _Arrays:
    """Values and their draws as arrays; without errors all draws are equal.

    Raises `ValueError` for an empty sample.
    """
    import numpy as np

    values = np.asarray(sample.values if isinstance(sample, MeasuredValues) else sample, float)
    if not values.size:
        raise ValueError("an empty sample")
    if not isinstance(sample, MeasuredValues):
        return values, np.broadcast_to(values, (RESAMPLES, values.size))
    return values, sample.draws


def _sorted_samples(*samples: _Arrays) -> list[_Arrays]:
    """The samples in a common order of positions, independent of the order of runs."""
    import numpy as np

    order = np.lexsort([key for values, draws in samples for key in (draws[0], values)])
    return [(values[order], draws[:, order]) for values, draws in samples]


def _bootstrap_estimate(
    strata: Sequence[Given], statistic: Callable[..., Floats | float]
) -> Estimate:
    """The statistic of the strata, vectorised over leading axes, with its percentile interval."""
    import numpy as np

    if not strata or not all(
        len(each.values if isinstance(each, MeasuredValues) else each) for each in strata
    ):
        return Estimate()
    samples = [_sorted_samples(_sample_arrays(each))[0] for each in strata]
    value = float(statistic(*(values for values, _ in samples)))
    if min(values.size for values, _ in samples) < 2:
        return Estimate(value)
    random = _random_generator()
    drawn = [
        np.take_along_axis(draws, _resampled_positions(random, values.size), axis=1)
        for values, draws in samples
    ]
    return _interval_estimate(statistic(*drawn), value)


def _resampled_positions(random: Generator, size: int) -> NDArray[np.int64]:
    return random.integers(0, size, (RESAMPLES, size))


def _interval_estimate(drawn: Floats | float, value: float) -> Estimate:
    low, high = _draws_quantile(drawn, 1 - CONFIDENCE), _draws_quantile(drawn, 1 + CONFIDENCE)
    return Estimate(value, min(low, value), max(high, value))


def _draws_quantile(drawn: Floats | float, of_two: float) -> float:
    """The quantile at half of `of_two` (0..2)."""
    import numpy as np

    return float(np.percentile(drawn, 50 * of_two))


def _win_share(one: Floats, other: Floats) -> Floats:
    """1 if `one` is larger, 0.5 for a tie, else 0."""
    return (one > other) + (one == other) / 2


def _soft_wins(couples: _Couples) -> list[list[float]]:
    """Share of draws that the first of each pair wins."""
    return [list(_win_share(one[1], other[1]).mean(axis=0)) for one, other in couples]


def _paired_shares(couples: _Couples, random: Generator | None) -> Floats:
    """Share of pairs that the first wins in every draw, of shape (RESAMPLES,).

    With `random`, pairs are resampled.
    """
    import numpy as np

    shares: list[Floats] = []
    for couple in couples:
        one, other = _sorted_samples(*couple)
        wins = _win_share(one[1], other[1])
        if random is not None:
            wins = np.take_along_axis(wins, _resampled_positions(random, one[0].size), axis=1)
        shares.append(wins.mean(axis=1))
    return sum(shares[1:], shares[0]) / len(shares)


def _all_shares(couples: _Couples, random: Generator | None) -> Floats:
    """Share of all combinations of two values that the first wins, of shape (RESAMPLES,).

    With `random`, values are resampled.
    """
    import numpy as np

    shares: list[Floats] = []
    for couple in couples:
        sides = [_sorted_samples(side)[0] for side in couple]
        drawn = [
            draws
            if random is None
            else np.take_along_axis(draws, _resampled_positions(random, values.size), axis=1)
            for values, draws in sides
        ]
        # comparisons of two values held in memory at once
        step = max(1, 2_000_000 // (drawn[0].shape[1] * drawn[1].shape[1]))
        parts = [
            _win_share(drawn[0][at : at + step, :, None], drawn[1][at : at + step, None, :]).mean(
                axis=(1, 2)
            )
            for at in range(0, RESAMPLES, step)
        ]
        shares.append(np.concatenate(parts))
    return sum(shares[1:], shares[0]) / len(shares)


def _joint_ranks(sample: Sample, pair: tuple[Floats, Floats]) -> list[float]:
    """Ranks among both samples: they determine the test, and are finite."""
    order = {value: float(rank) for rank, value in enumerate(sorted({*pair[0], *pair[1]}))}
    return [order[value] for value in sample]


def _sign_flip_p_value(wins: Sequence[Sample]) -> float | None:
    """Sign-flip test of the mean win share: exact for up to 13 pairs."""
    import numpy as np

    signs = np.asarray(sorted((win - 0.5) / len(each) for each in wins for win in each))
    if signs.size < 2:
        return None
    return float(
        _scipy_stats()
        .permutation_test(
            (signs,),
            lambda values, axis: values.sum(axis=axis),
            permutation_type="samples",
            vectorized=True,
            n_resamples=PERMUTATIONS,
            batch=_BATCH,
            rng=np.random.default_rng(_SEED),
        )
        .pvalue
    )


def _stratified_p_value(strata: Sequence[tuple[Floats, Floats]]) -> float | None:
    """Rank-sum test by permutation within each stratum.

    One-sided p-values are combined by Fisher's method, and the smaller one is doubled.
    """
    sides: dict[str, list[float]] = {"greater": [], "less": []}
    for one, other in strata:
        if min(len(one), len(other)) < 2:
            return None
        ranks = _scipy_stats().rankdata(
            [*_joint_ranks(sorted(one), (one, other)), *_joint_ranks(sorted(other), (one, other))]
        )
        for side, p_values in sides.items():
            p_values.append(_rank_sum_p_value(ranks[: len(one)], ranks[len(one) :], side))
    joined: list[float] = []
    for p_values in sides.values():
        joined.append(float(_scipy_stats().combine_pvalues(p_values).pvalue))
    return min(1.0, 2 * min(joined))


def _rank_sum_p_value(one: Floats, other: Floats, side: str) -> float:
    import numpy as np

    return float(
        _scipy_stats()
        .permutation_test(
            (one, other),
            lambda x, y, axis: x.mean(axis=axis) - y.mean(axis=axis),
            permutation_type="independent",
            alternative=side,
            vectorized=True,
            n_resamples=PERMUTATIONS,
            batch=_BATCH,
            rng=np.random.default_rng(_SEED),
        )
        .pvalue
    )
