"""Statistics of comparisons against hand-computed values and scipy's own tests.

Also the rules that must hold of all of them.
"""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from culmen.extensions.bench import stats
from culmen.extensions.bench.stats import Estimate

WORST = float("-inf")
SAMPLE = st.lists(
    st.floats(-5, 5, allow_nan=False).map(lambda x: round(x, 1)), min_size=1, max_size=6
)
HARD = st.lists(st.sampled_from([WORST, 0.0, 1.0, 2.0]), min_size=1, max_size=5)
FEW = settings(max_examples=20, deadline=None)


@pytest.fixture
def theirs() -> Any:
    """The module of statistics of scipy."""
    return pytest.importorskip("scipy.stats", reason="scipy is not installed")


def numbers(estimate: Estimate) -> list[float]:
    return [each for each in (estimate.value, estimate.low, estimate.high) if each is not None]


def test_means_medians_and_interquartile_means_by_hand():
    values = [8.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 100.0]
    assert stats.iqm_estimate([values]).value == (3 + 4 + 5 + 6) / 4
    assert stats.median_estimate([values]).value == 4.5
    assert stats.mean_estimate([[1.0, 3.0], [10.0, 20.0, 30.0]]).value == 11.0  # tasks weigh alike
    assert stats.iqm_estimate([[1.0, 2.0, 9.0]]).value == 4.0  # nothing to cut
    assert stats.mean_estimate([]) == stats.mean_estimate([[]]) == Estimate()


def test_an_interval_is_scipys(theirs: Any):
    import numpy as np

    values = [0.1, 0.5, 0.7, 0.9, 1.3]
    want = theirs.bootstrap(
        (values,),
        np.mean,
        n_resamples=stats.RESAMPLES,
        method="percentile",
        batch=stats._BATCH,
        rng=np.random.default_rng(stats._SEED),
    ).confidence_interval
    found = stats.mean_estimate([values])
    assert (found.low, found.high) == pytest.approx((want.low, want.high))


def test_strata_are_drawn_apart():
    """Two constant tasks far apart: whatever is drawn within them, the mean stays."""
    assert stats.mean_estimate([[0.0, 0.0], [10.0, 10.0]]) == Estimate(5.0, 5.0, 5.0)


def test_one_run_has_no_interval():
    assert stats.mean_estimate([[2.0]]) == Estimate(2.0)
    assert stats.mean_estimate([[2.0], [1.0, 3.0]]) == Estimate(2.0)


def test_probability_of_improvement_by_hand():
    found = stats.estimate_improvement([([3.0, 1.0], [2.0, 1.0])], paired=False)
    assert found.estimate.value == (1 + 1 + 0 + 0.5) / 4
    paired = stats.estimate_improvement([([3.0, 1.0], [2.0, 1.0])], paired=True)
    assert (paired.estimate.value, paired.pairs) == (0.75, 2)
    assert (
        stats.estimate_improvement([([WORST, 1.0], [WORST, WORST])], paired=True).estimate.value
        == 0.75
    )
    several = stats.estimate_improvement(
        [([2.0, 2.0], [1.0, 1.0]), ([1.0, 1.0], [1.0, 1.0])], paired=False
    )
    assert several.estimate.value == 0.75


@pytest.mark.parametrize("pairs", range(2, 9))
def test_a_win_in_every_pair_has_the_p_of_the_sign_test(pairs: int, theirs: Any):
    found = stats.estimate_improvement([([2.0] * pairs, [1.0] * pairs)], paired=True)
    assert found.p == pytest.approx(theirs.binomtest(pairs, pairs).pvalue)
    assert (found.p <= 0.05) == (pairs >= stats.pairs_needed())


def test_mixed_pairs_have_the_p_of_the_sign_test(theirs: Any):
    one = [2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 0.0, 1.0]
    found = stats.estimate_improvement([(one, [1.0] * 8)], paired=True)  # the tie says nothing
    assert found.p == pytest.approx(theirs.binomtest(6, 7).pvalue)


def test_unpaired_runs_have_the_p_of_the_rank_sum_test(theirs: Any):
    one, other = [1.0, 4.0, 6.0, 7.0, 9.0], [2.0, 3.0, 5.0, 0.0]
    want = theirs.mannwhitneyu(one, other, method="exact").pvalue
    assert stats.estimate_improvement([(one, other)], paired=False).p == pytest.approx(want)


def test_tasks_that_disagree_are_no_evidence():
    split = [([2.0] * 4, [1.0] * 4), ([1.0] * 4, [2.0] * 4)]
    assert stats.estimate_improvement(split, paired=True).p == 1.0
    assert stats.estimate_improvement(split, paired=True).estimate.value == 0.5


def test_holm_by_hand():
    assert stats.holm_correction([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert stats.holm_correction([0.5, None, 0.9]) == [1.0, None, 1.0]
    assert stats.holm_correction([]) == []


def test_profiles_and_best_of_by_hand():
    steps = stats.profile_steps([[0.0, 0.5], [1.0, 1.0, 0.0, 1.0]])
    assert steps == [(0.0, 1.0), (0.0, 0.625), (0.5, 0.375), (1.0, 0.0)]
    values = [1.0, 4.0, 2.0]
    means = [sum(map(max, combinations(values, n))) / math.comb(3, n) for n in (1, 2, 3)]
    assert stats.best_of(values) == pytest.approx(means)


def test_time_to_a_target_by_hand():
    assert stats.expected_running_time([10.0, 30.0, 50.0], [True, True, False]) == 45.0
    assert stats.expected_running_time([10.0], [False]) is None
    assert stats.median_to_target([10.0, 30.0, 50.0], [True, True, False]) == 30.0
    assert stats.median_to_target([10.0, 50.0], [True, False]) is None
    assert stats.median_to_target([], []) is None


@FEW
@given(st.lists(SAMPLE, min_size=1, max_size=3), st.randoms())
def test_estimates_are_finite_bracket_their_value_and_know_no_order(strata, random):
    for measure in (stats.mean_estimate, stats.median_estimate, stats.iqm_estimate):
        found = measure(strata)
        assert all(map(math.isfinite, numbers(found)))
        if found.low is not None:
            assert found.low <= found.value <= found.high  # pyright: ignore
        assert measure([random.sample(each, len(each)) for each in strata]) == found


@FEW
@given(HARD, HARD, st.randoms())
def test_improvement_is_never_nan_mirrors_and_knows_no_order(one, other, random):
    found, back = (
        stats.estimate_improvement([pair], paired=False) for pair in ((one, other), (other, one))
    )
    assert all(math.isfinite(each) and 0 <= each <= 1 for each in numbers(found.estimate))
    assert found.p is None or 0 < found.p <= 1
    assert found.estimate.value == pytest.approx(1 - back.estimate.value)  # pyright: ignore
    assert found.p is back.p is None or found.p == pytest.approx(
        back.p, abs=0.02
    )  # drawn at random beyond 8 against 8
    mixed = (random.sample(one, len(one)), random.sample(other, len(other)))
    assert stats.estimate_improvement([mixed], paired=False) == found


@FEW
@given(
    st.lists(
        st.tuples(st.sampled_from([WORST, 0.0, 1.0]), st.sampled_from([WORST, 0.0, 1.0])),
        min_size=1,
        max_size=6,
    )
)
def test_paired_improvement_of_a_thing_over_itself_is_a_half(pairs):
    same = [one for one, _ in pairs]
    found = stats.estimate_improvement([(same, same)], paired=True)
    assert found.estimate.value == 0.5 and found.p in (None, 1.0)
    mixed = stats.estimate_improvement([tuple(map(list, zip(*pairs)))], paired=True)  # pyright: ignore
    assert mixed == stats.estimate_improvement([tuple(map(list, zip(*pairs[::-1])))], paired=True)  # pyright: ignore
    assert all(map(math.isfinite, numbers(mixed.estimate)))
