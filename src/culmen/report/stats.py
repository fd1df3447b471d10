"""Statistics of comparisons: intervals by bootstrap, probability of improvement, profiles, best of n, running time.

Measures and the stratified bootstrap follow Agarwal et al. 2021, "Deep reinforcement learning at the edge of the
statistical precipice", Section 4; the expected running time Hansen et al. 2021 (COCO). Values are such that
higher is better. Strata are tasks: runs are drawn anew within each of them, tasks are taken as they are.
Nothing depends on the order of runs: samples are sorted before anything is drawn, and the draws have a fixed seed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, comb, inf, log2, nextafter
from typing import Any

import msgspec

from culmen.core.errors import missing_extra

CONFIDENCE = 0.95
RESAMPLES, PERMUTATIONS = 2000, 9999
_CUT = 0.25  # of the values at either end, for the interquartile mean
_SEED, _BATCH = 0, 500

Sample = Sequence[float]


class Estimate(msgspec.Struct, frozen=True):
    """A figure and its bootstrap interval; None of nothing, no interval where a stratum has a single value."""

    value: float | None = None
    low: float | None = None
    high: float | None = None

    def mirrored(self) -> Estimate:
        """One minus it."""
        return Estimate(*(None if each is None else 1 - each for each in (self.value, self.high, self.low)))


class Improvement(msgspec.Struct, frozen=True):
    """How likely a run of one strategy beats a run of another, ties counting half.

    `p` is two-sided, of the hypothesis that both are alike (None: a single run on a side). `pairs` counts those of the
    same seed, 0 where seeds do not pair.
    """

    estimate: Estimate
    p: float | None
    pairs: int


def mean(strata: Sequence[Sample]) -> Estimate:
    """Mean over strata of the means within them."""
    return _estimate(strata, lambda *given: sum(each.mean(axis=-1) for each in given) / len(given))


def median(strata: Sequence[Sample]) -> Estimate:
    """Median of all values."""
    import numpy as np

    return _estimate(strata, lambda *given: np.median(np.concatenate(given, axis=-1), axis=-1))


def iqm(strata: Sequence[Sample]) -> Estimate:
    """Interquartile mean of all values: the lowest and highest quarter (rounded down) are left out."""
    import numpy as np

    return _estimate(strata, lambda *given: _scipy_stats().trim_mean(np.concatenate(given, axis=-1), _CUT, axis=-1))


def improvement(strata: Sequence[tuple[Sample, Sample]], paired: bool) -> Improvement:
    """Of the first over the second sample, mean over strata; `paired` samples hold the same seed at the same place.

    -inf stands for a run without a score: it loses against all others and ties with its like. Raises `ValueError` for
    an empty sample.
    """
    if paired:
        wins = [[_win(one, other) for one, other in zip(*pair, strict=True)] for pair in strata]
        return Improvement(mean(wins), _signs(wins), sum(map(len, wins)))
    flat = [_ranks(sample, pair) for pair in strata for sample in pair]
    return Improvement(_estimate(flat, _beats), _shuffled(strata), 0)


def holm(p: Sequence[float | None]) -> list[float | None]:
    """Holm's correction of p-values for how many of them there are; None stays and counts for nothing."""
    known = sorted((value, place) for place, value in enumerate(p) if value is not None)
    found: list[float | None] = [None] * len(p)
    highest = 0.0
    for step, (value, place) in enumerate(known):
        highest = max(highest, min(1.0, value * (len(known) - step)))
        found[place] = highest
    return found


def pairs_needed(comparisons: int = 1, level: float = 1 - CONFIDENCE) -> int:
    """Pairs of seeds below which not even a win in each of them could tell two strategies apart (2^(1-n) > level)."""
    return ceil(1 + log2(max(1, comparisons) / level))


def profile(strata: Sequence[Sample], thresholds: Sequence[float]) -> list[float]:
    """Share of runs at or above each threshold, mean over strata (performance profile)."""
    shares = [[sum(value >= mark for value in each) / len(each) for each in strata] for mark in thresholds]
    return [sum(each) / len(each) for each in shares]


def steps(strata: Sequence[Sample]) -> list[tuple[float, float]]:
    """The whole performance profile: (level, share of runs above it), from (0, all) down, one step for each value."""
    levels = sorted({value for each in strata for value in each})
    shares = profile(strata, [0.0, *(nextafter(level, inf) for level in levels)])
    return list(zip([0.0, *levels], shares))


def best_of(values: Sample) -> list[float]:
    """Expected best of n runs drawn without repeats from these, for n = 1 to all of them."""
    ranked, total = sorted(values), len(values)
    return [
        sum(value * comb(place, n - 1) for place, value in enumerate(ranked)) / comb(total, n)
        for n in range(1, total + 1)
    ]


def expected_running_time(spent: Sample, reached: Sequence[bool]) -> float | None:
    """What all runs spent, until the target or their end, per run that reached it; None if none did."""
    return sum(spent) / sum(reached) if any(reached) else None


def median_to_target(spent: Sample, reached: Sequence[bool]) -> float | None:
    """Median of what it took, a run that did not get there counting as later than all; None if the median did not."""
    ranked = sorted(value if there else float("inf") for value, there in zip(spent, reached, strict=True))
    if not ranked:
        return None
    low, high = ranked[(len(ranked) - 1) // 2], ranked[len(ranked) // 2]
    return None if high == float("inf") else (low + high) / 2


def check_installed() -> None:
    """Raises `UserError` where scipy is missing."""
    _scipy_stats()


def _scipy_stats() -> Any:
    try:
        import scipy.stats
    except ImportError:
        raise missing_extra("a comparison", "scipy", "compare", "culmen compare") from None
    return scipy.stats


def _estimate(strata: Sequence[Sample], statistic: Callable[..., Any]) -> Estimate:
    """The statistic of the strata, vectorised over leading axes, with its percentile interval."""
    import numpy as np

    given = [np.sort(np.asarray(each, float)) for each in strata]
    if not given or not all(each.size for each in given):
        return Estimate()
    value = float(statistic(*given))
    if min(each.size for each in given) < 2:
        return Estimate(value)

    def along(*drawn: Any, axis: int) -> Any:  # the axis is the last one
        return statistic(*drawn)

    interval = (
        _scipy_stats()
        .bootstrap(
            given,
            along,
            n_resamples=RESAMPLES,
            batch=_BATCH,
            vectorized=True,
            confidence_level=CONFIDENCE,
            method="percentile",
            rng=np.random.default_rng(_SEED),
        )
        .confidence_interval
    )
    return Estimate(value, min(float(interval.low), value), max(float(interval.high), value))


def _win(one: float, other: float) -> float:
    return 0.5 if one == other else float(one > other)


def _ranks(sample: Sample, pair: tuple[Sample, Sample]) -> list[float]:
    """Ranks among both samples: all that matters of the values, and finite."""
    order = {value: float(place) for place, value in enumerate(sorted({*pair[0], *pair[1]}))}
    return [order[value] for value in sample]


def _beats(*drawn: Any) -> Any:
    """Mean over pairs of samples of the share of wins of the first one's values, over all combinations."""
    import numpy as np

    shares = [
        ((np.sign(one[..., :, None] - other[..., None, :]) + 1) / 2).mean(axis=(-2, -1))
        for one, other in zip(drawn[::2], drawn[1::2], strict=True)
    ]
    return sum(shares) / len(shares)


def _signs(wins: Sequence[Sample]) -> float | None:
    """Sign-flip test of the mean win share: exact for up to 13 pairs."""
    import numpy as np

    signs = np.asarray(sorted((win - 0.5) / len(each) for each in wins for win in each))
    if signs.size < 2:
        return None
    return float(
        _scipy_stats()
        .permutation_test(
            (signs,),
            lambda given, axis: given.sum(axis=axis),
            permutation_type="samples",
            vectorized=True,
            n_resamples=PERMUTATIONS,
            batch=_BATCH,
            rng=np.random.default_rng(_SEED),
        )
        .pvalue
    )


def _shuffled(strata: Sequence[tuple[Sample, Sample]]) -> float | None:
    """Rank-sum test by permutation within each stratum, one-sided ones joined by Fisher's method, then doubled."""
    sides: dict[str, list[float]] = {"greater": [], "less": []}
    for one, other in strata:
        if min(len(one), len(other)) < 2:
            return None
        ranks = _scipy_stats().rankdata([*_ranks(sorted(one), (one, other)), *_ranks(sorted(other), (one, other))])
        for side, found in sides.items():
            found.append(_rank_sum(ranks[: len(one)], ranks[len(one) :], side))
    joined: list[float] = []
    for found in sides.values():
        whole: Any = _scipy_stats().combine_pvalues(found)
        joined.append(float(whole.pvalue))
    return min(1.0, 2 * min(joined))


def _rank_sum(one: Any, other: Any, side: str) -> float:
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
