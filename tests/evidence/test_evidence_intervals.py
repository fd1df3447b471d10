"""Means of evaluations made after the choice, their 95 % intervals, and differences: by hand and by trial."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from culmen.core.candidate import Candidate
from culmen.core.evaluation import Observation, Status
from culmen.core.task import Task
from culmen.evidence.account import FINAL, SEARCH, PooledNoise
from culmen.evidence.evidence import Evidence
from culmen.evidence.intervals import (
    Chance,
    mean_difference,
    mean_of,
    noise_at_level,
    spread_of,
    t_quantile_95,
)
from culmen.evidence.pedigree.arrays import Floats

Values = Mapping[str, Sequence[float]]


def chance(
    of: int | None = None,
    within: float | None = None,
    repeats: int = 0,
    squares: float = 0.0,
    failed: float = 0.0,
    failures: int = 0,
    floor: float | None = None,
    exact: bool | None = None,
    top: float | None = None,
    span: float = 0.0,
    agreement: float = 0.0,
    between: float = 0.0,
) -> Chance:
    """What is known of chance: nothing, but for what is named."""
    noise = PooledNoise(within, 0.0, between, repeats, squares, agreement, failed)
    return Chance(noise, of, exact, failures, floor, top, span)


def t(degrees: float) -> float:
    stats = pytest.importorskip("scipy.stats", reason="scipy is not installed")
    return float(stats.t.ppf(0.975, degrees))


FIVE = [0.0, 1.0, 2.0, 3.0, 4.0]  # squares of 10 around their mean
CASES = {str(n): [value] for n, value in enumerate(FIVE)}


@pytest.mark.parametrize(
    ("values", "known", "variance", "degrees"),
    [
        ({"": FIVE}, chance(), 2.5 / 5, 4),
        ({"": FIVE}, chance(within=99.0), 2.5 / 5, 4),  # the spread of other candidates' cases is none of this one's
        ({"": FIVE}, chance(repeats=6, squares=30.0), (10 + 6 * 5.0) / 10 / 5, 10),
        ({"": FIVE}, chance(repeats=20, squares=100.0), (10 + 8 * 5.0) / 12 / 5, 12),  # eight of them at most
        ({"": FIVE}, chance(repeats=6, squares=6 * 0.625), (10 + 6 * 0.625) / 10 / 5, 10),
        ({"": FIVE}, chance(repeats=6, squares=6 * 0.62), 2.5 / 5, 4),  # four times that of the run: its own
        ({"": [1.0]}, chance(repeats=6, squares=3.0), 0.5, 6),  # one evaluation: the noise of the run
        ({"a": FIVE}, chance(of=1), 2.5 / 5, 4),  # one case: no choice of cases
    ],
)
def test_single_evaluations_have_their_own_spread_pooled_with_the_repeats_of_the_run(
    values: Values, known: Chance, variance: float, degrees: float
) -> None:
    one = mean_of(values, 2, known)
    (made,) = values.values()
    assert (one.mean, one.count, one.failures) == (fmean(made), len(made), 2)
    assert one.cases == (1 if known.of else 0)
    assert one.se == pytest.approx(variance**0.5) and one.margin == pytest.approx(t(degrees) * variance**0.5)
    assert one.new_margin == one.margin


@pytest.mark.parametrize(
    ("failures", "failed", "share"), [(0, 0.0, 1 / 10), (0, 0.25, 2 / 10), (2, 0.0, 3 / 10), (2, 0.25, 4 / 10)]
)
def test_evaluations_that_may_fail_spread_by_the_chance_to_fail(failures: int, failed: float, share: float) -> None:
    """Of four evaluations: two pseudo-observations, one of them a failure, and four at the run's share."""
    known = chance(None, 2.0, 0, 0.0, failed, failures, floor=-2.0, top=1.0)
    one = mean_of({"": [1.0, 1.0, 0.0, 0.0]}, failures, known)
    squares = 1.0 + 2 * share * (1 - share) * 3.0**2
    assert one.se == pytest.approx((squares / 5 / 4) ** 0.5) and one.margin == pytest.approx(t(5) * (one.se or 0.0))


def welch(*parts: tuple[float, float]) -> float:
    return sum(part for part, _ in parts) ** 2 / sum(part**2 / degrees for part, degrees in parts)


def flip(many: int) -> float:
    """Variance of a flip of which so many came out alike: 1.96 standard errors are Wilson's z²/(n + z²)."""
    z = t(1e9)
    return many * (z / (many + z**2)) ** 2


PAIRS = {"a": [0.0, 2.0], "b": [4.0, 6.0]}  # case means 1 and 5; squares of 2 inside each
FEW = {"a": [0.0], "b": [0.0], "c": [1.0], "d": [1.0]}  # half of the pairs agree
EQUAL = {"a": [1.0] * 2, "b": [5.0] * 2}


@pytest.mark.parametrize(
    ("values", "known", "parts"),
    [
        (CASES, chance(10, exact=True), [(0.5 * 2.5 / 5, 4)]),  # half of the cases were left out
        (CASES, chance(10), [(0.5 * 2.5 / 5, 4), (0.5 * 2.5 / 5, 4)]),  # all of the spread may be noise
        (CASES, chance(10, repeats=6, squares=3.0), [(0.5 * 2.5 / 5, 4), (0.5 * 0.5 / 5, 6)]),
        (CASES, chance(10, repeats=6, squares=99.0), [(0.5 * 2.5 / 5, 4), (0.5 * 2.5 / 5, 6)]),  # no more than in all
        (CASES, chance(10, repeats=2, squares=0.2), [(0.5 * 2.5 / 5, 4), (0.5 * 2.5 / 5, 4)]),  # fewer than the cases
        (CASES, chance(5, repeats=6, squares=3.0), [(0.5 / 5, 6)]),  # the whole split: noise alone
        (CASES, chance(5, repeats=3), [(2.5 / 4 / 5, 4)]),  # three equal repeats: perhaps little noise
        (CASES, chance(5, repeats=9), [(2.5 / 10 / 5, 9)]),
        (FEW, chance(4, repeats=4, agreement=0.6), [(1 / 3 / 4, 3)]),  # that they agree may be luck
        (FEW, chance(4, repeats=5, agreement=0.6), [(1 / 3 / 6 / 4, 5)]),
        (FEW, chance(4, repeats=4, agreement=0.4), [(1 / 3 / 5 / 4, 4)]),
        (PAIRS, chance(4), [(0.5 * 8 / 2, 1), (0.5 * 1 / 2, 2)]),  # 4 squares, 2 degrees, 2 of each case
        (PAIRS, chance(4, repeats=2, squares=4.0), [(0.5 * 8 / 2, 1), (0.5 * 1 / 2, 4)]),
        (EQUAL, chance(4), [(0.5 * 8 / 2, 1), (0.5 * 8 / 3 / 2, 2)]),
        ({"a": [0.0, 2.0], "b": [1.0]}, chance(4, within=3.0), [(0.5 * 1.0 / 2, 1), (0.5 * 1.0 / 2, 1)]),
        ({"a": [1.0], "b": [1.0]}, chance(4, span=3.0, exact=True), [(0.5 * 9 * flip(2) / 2, 1)]),  # another may differ
        ({"a": [1.0], "b": [1.0]}, chance(4, span=3.0), [(0.5 * 9 * flip(2) / 2, 1), (0.5 * 9 * flip(2) / 2, 1)]),
    ],
)
def test_a_sample_of_cases_in_two_stages(values: Values, known: Chance, parts: list[tuple[float, float]]) -> None:
    """The spread of cases weighs with the share of the split that was left out, noise with the rest."""
    one, variance = mean_of(values, 0, known), sum(part for part, _ in parts)
    assert (one.mean, one.cases) == (fmean(map(fmean, values.values())), len(values))
    assert one.se == pytest.approx(variance**0.5)
    assert one.margin == pytest.approx(t(welch(*parts)) * variance**0.5, rel=1e-5)


@pytest.mark.parametrize(
    ("known", "variance", "degrees"),
    [
        (chance(10), 2.5 / 5, 4),
        (chance(5, exact=True), 2.5 / 5, 4),  # what is certain of these cases is not of others
        (chance(5, repeats=6, squares=3.0), 2.5 / 5, 4),
    ],
)
def test_for_new_cases_of_the_kind_the_spread_of_cases_weighs_in_full(
    known: Chance, variance: float, degrees: float
) -> None:
    one = mean_of(CASES, 0, known)
    assert one.new_margin == pytest.approx(t(degrees) * variance**0.5)
    assert one.margin is not None and one.margin < (one.new_margin or 0.0)


def test_exact_scores_of_all_cases_are_certain_and_a_single_look_at_noisy_ones_tells_nothing() -> None:
    for values, of in (({"": FIVE}, None), ({"": [1.0]}, None), ({"a": FIVE}, 1), (CASES, 5)):
        one = mean_of(values, 0, chance(of, exact=True))
        assert (one.se, one.margin) == (0.0, 0.0)
    failing = mean_of({"": FIVE}, 1, chance(exact=True, failures=1, floor=0.0, top=4.0))
    assert failing.margin is not None and failing.margin > 0.5
    for values, known in (
        ({"": [1.0]}, chance(within=1.0)),
        ({"": [1.0]}, chance(repeats=5)),  # equal ones
        ({"a": [1.0, 2.0]}, chance(3, exact=True)),
    ):
        one = mean_of(values, 0, known)
        assert (one.se, one.margin) == (None, None)


@pytest.mark.parametrize("exact", [None, False])
@pytest.mark.parametrize("of", [None, 1, 2, 10])
@pytest.mark.parametrize("value", [0.0, 1.0])
@pytest.mark.parametrize("repeats", [0, 3, 30])
@pytest.mark.parametrize("span", [0.0, 1.0])
def test_equal_scores_of_pass_or_fail_are_never_certain(
    exact: bool | None, of: int | None, value: float, repeats: int, span: float
) -> None:
    """Nor where all of the run agree and no bounds tell how far the next may be: then nothing is known of the error."""
    values = {"": [value] * 2} if of is None else {"a": [value] * 2} if of == 1 else {"a": [value], "b": [value]}
    one = mean_of(values, 0, chance(of, within=0.0, repeats=repeats, exact=exact, span=span, agreement=1.0))
    gain, error = mean_difference(values, values, chance(of, repeats=repeats, exact=exact, span=span, agreement=1.0))
    for margin in (one.margin, one.new_margin, error.margin):
        assert margin is None if not span else margin is not None and margin > 0.02
    assert (one.mean, gain) == (value, 0.0)


def test_the_flip_that_equal_scores_leave_possible_shrinks_with_their_number() -> None:
    margins = [mean_of({"": [1.0] * many}, 0, chance(span=1.0)).margin or 0.0 for many in (2, 8, 32, 128)]
    assert margins == sorted(margins, reverse=True) and 0 < margins[-1] < 0.05
    assert margins[1] == pytest.approx(t(7) * (flip(8) / 8) ** 0.5)


@pytest.mark.parametrize(("passed", "end"), [(18, 0.698966), (19, 0.763869), (2, 0.301034), (1, 0.236131)])
@pytest.mark.parametrize("span", [1.0, 100.0])
def test_the_margin_of_a_pass_rate_reaches_the_farther_end_of_wilsons_interval(
    passed: int, end: float, span: float
) -> None:
    """Of 20 cases, all of the split; the ends are those of Wilson's interval without continuity correction."""
    values = {str(case): [span * (case < passed)] for case in range(20)}
    one = mean_of(values, 0, chance(20, span=span))
    wilson = abs(passed / 20 - end) * span
    assert one.margin == pytest.approx(wilson * t(19) / t(1e9), rel=1e-5)
    assert one.new_margin == pytest.approx(one.margin)


def test_scores_between_the_ends_are_no_pass_rate() -> None:
    values = {str(case): [1.0] for case in range(18)} | {"x": [0.0], "y": [0.5]}
    own = 20 * (18 / 20 + 0.25 / 20 - (18.5 / 20) ** 2) / 19
    assert mean_of(values, 0, chance(20, span=1.0)).se == pytest.approx((own / 20) ** 0.5)


SCORES = st.sampled_from([0.0, 1.0, 0.5, 0.25, 3.0])
DATA = st.dictionaries(st.sampled_from("abcdefgh"), st.lists(SCORES, min_size=1, max_size=3), min_size=1)


@given(
    DATA,
    st.integers(0, 4),
    st.sampled_from([None, True, False]),
    st.integers(0, 12),
    st.sampled_from([0.0, 0.01, 4.0]),
    st.sampled_from([0.0, 1.0]),
    st.sampled_from([0.0, 0.5, 1.0]),
)
def test_new_cases_are_never_more_certain_than_these(
    values: Values, more: int, exact: bool | None, repeats: int, squares: float, span: float, agreement: float
) -> None:
    known = chance(
        len(values) + more,
        within=squares,
        repeats=repeats,
        squares=squares if repeats else 0.0,
        exact=exact,
        span=span,
        agreement=agreement,
    )
    one = mean_of(values, 0, known)
    if one.margin is None or one.new_margin is None:
        assert one.new_margin is None
    else:
        assert one.new_margin >= one.margin * (1 - 1e-9)


# Differences.


@pytest.mark.parametrize(("of", "case"), [(None, ""), (1, "a")])
def test_without_a_choice_of_cases_two_independent_samples_are_compared(of: int | None, case: str) -> None:
    other = [1.0, 1.0, 1.0, 3.0]  # squares of 3
    gain, error = mean_difference({case: FIVE}, {case: other}, chance(of))
    degrees = welch((2.5 / 5, 4), (1 / 4, 3))
    assert (gain, error) == (0.5, pytest.approx((0.75**0.5, t(degrees) * 0.75**0.5)))
    gain, error = mean_difference({case: FIVE}, {case: other}, chance(of, repeats=6, squares=30.0))
    parts = ((10 + 30) / 10 / 5, 4 + 6), ((3 + 30) / 9 / 4, 3 + 6)
    assert error.se == pytest.approx(sum(part for part, _ in parts) ** 0.5)
    assert error.margin == pytest.approx(t(welch(*parts)) * (error.se or 0.0))
    assert mean_difference({case: FIVE}, {case: [5.0]}, chance(of)) == (-3.0, (None, None))
    assert mean_difference({case: [5.0]}, {case: FIVE}, chance(of)) == (3.0, (None, None))


ONE = {"a": [1.0], "b": [2.0], "c": [3.0]}


@pytest.mark.parametrize(
    ("other", "known", "gain", "parts"),
    [
        # The differences are 0.5 and 1, with squares of 0.125; noise counts twice: once in each score.
        ({"b": [1.5], "c": [2.0], "d": [9.0]}, chance(10), 0.75, [(0.8 * 0.125 / 2, 1), (0.2 * 0.125 / 2, 1)]),
        (
            {"b": [1.5], "c": [2.0]},
            chance(10, within=99.0, repeats=6, squares=3.0),
            0.75,
            [(0.8 * 0.125 / 2, 1), (0.2 * 0.125 / 2, 6)],
        ),
        (
            {"b": [1.5], "c": [2.0]},
            chance(10, repeats=6, squares=0.3),
            0.75,
            [(0.8 * 0.125 / 2, 1), (0.2 * 0.1 / 2, 6)],
        ),
        # Equal differences do not prove that all are: a share of the noise stays possible.
        (
            {"a": [0.5], "b": [1.5], "c": [2.5]},
            chance(10, repeats=6, squares=3.0),
            0.5,
            [(0.7 * 2 * 0.5 / 4 / 3, 2), (0.3 * 2 * 0.5 / 4 / 3, 6)],
        ),
        (
            ONE,
            chance(10, span=1.0),
            0.0,
            [(0.7 * 2 * flip(3) / 3, 2), (0.3 * 2 * flip(3) / 3, 2)],
        ),
    ],
)
def test_a_difference_is_judged_on_shared_cases(
    other: Values, known: Chance, gain: float, parts: list[tuple[float, float]]
) -> None:
    found, error = mean_difference(ONE, other, known)
    variance = sum(part for part, _ in parts)
    assert found == gain and error.se == pytest.approx(variance**0.5)
    assert error.margin == pytest.approx(t(welch(*parts)) * variance**0.5, rel=1e-5)


def test_without_shared_cases_a_difference_has_no_interval() -> None:
    assert mean_difference(ONE, {"d": [0.0, 1.0], "e": [3.5]}, chance(10)) == (0.0, (None, None))
    third = {"a": [1.0], "b": [3.0], "c": [1.0]}
    assert mean_difference(ONE, third, chance(3, exact=True)) == (pytest.approx(1 / 3), (0.0, 0.0))


# By trial.


def covers(draw: Callable[[Random], tuple[dict[str, list[float]], Chance, float]], runs: int = 1000) -> float:
    held = 0
    for seed in range(runs):
        values, known, truth = draw(Random(seed))
        one = mean_of(values, 0, known)
        held += one.margin is not None and abs(one.mean - truth) <= one.margin
    return held / runs


@pytest.mark.slow
@pytest.mark.parametrize("repeats", [12, 120])
@pytest.mark.parametrize(("noise", "cases"), [(0.0, 10), (0.3, 10), (0.3, 60), (0.0, 95), (0.3, 100), (0.05, 100)])
def test_intervals_hold_the_mean_of_the_split_95_times_in_100(noise: float, cases: int, repeats: int) -> None:
    """More often where repeats are fewer than cases: noise is then taken to be as large as it can be."""

    def draw(rng: Random) -> tuple[dict[str, list[float]], Chance, float]:
        levels = [rng.gauss(0, 0.5) for _ in range(100)]
        squares = sum(rng.gauss(0, noise) ** 2 for _ in range(repeats))
        picked = rng.sample(range(100), cases)
        values = {str(i): [levels[i] + rng.gauss(0, noise)] for i in picked}
        return values, chance(100, repeats=repeats, squares=squares, exact=noise == 0), fmean(levels)

    assert 0.93 <= covers(draw) <= (1.0 if noise and repeats < cases - 1 else 0.99)


def test_a_few_equal_scores_are_no_certainty() -> None:
    def draw(rng: Random) -> tuple[dict[str, list[float]], Chance, float]:
        values = {"": [float(rng.random() < 0.8) for _ in range(8)]}
        return values, chance(span=1.0), 0.8

    assert covers(draw) >= 0.93


def test_a_difference_on_shared_cases_does_not_pay_for_their_spread() -> None:
    rng = Random(1)
    levels = [rng.gauss(0, 5) for _ in range(10)]
    one = {str(i): [level + 0.3 + rng.gauss(0, 0.05)] for i, level in enumerate(levels)}
    other = {str(i): [level + rng.gauss(0, 0.05)] for i, level in enumerate(levels)}
    gain, error = mean_difference(one, other, chance(100, within=25.0))
    assert gain == pytest.approx(0.3, abs=0.1) and error.margin is not None and error.margin < 0.15


def test_quantiles_of_students_t() -> None:
    assert [round(t_quantile_95(df), 3) for df in (0.5, 1, 5, 30, float("inf"))] == [12.706, 12.706, 2.571, 2.042, 1.96]
    for degrees in (1.3, 2, 2.7, 8, 1e3, 1e6):
        assert t_quantile_95(degrees) == pytest.approx(t(degrees), rel=2e-6 if degrees < 2 else 1e-7)


def test_a_run_with_flaky_candidates_is_less_sure_of_one_that_did_not_fail() -> None:
    values = {"": [0.95, 0.94, 0.96, 0.95, 0.97, 0.93]}
    steady = mean_of(values, 0, chance(failed=0.2))
    flaky = mean_of(values, 0, chance(failed=0.2, floor=0.0, top=0.97))
    assert steady.margin is not None and flaky.margin is not None
    assert steady.margin < 0.02 < 0.17 < flaky.margin  # one failure in five is still likely


def test_a_sample_of_cases_without_a_failure_does_not_prove_that_no_case_fails() -> None:
    """Three of 40 cases fail for the candidate; a run whose candidates fail now and then knows they may."""
    draws, told, trials = Random(5), 0, 2000
    true = (37 * 0.8 + 3 * 0.0) / 40
    for _ in range(trials):
        picked = draws.sample(range(40), 11)
        values = {str(n): [0.0 if n < 3 else 0.8 + draws.gauss(0.0, 0.05)] for n in picked}
        failures = sum(n < 3 for n in picked)
        found = mean_of(values, failures, chance(of=40, repeats=8, squares=0.02, failures=failures, floor=0.0, top=0.8))
        told += found.margin is not None and abs(found.mean - true) <= found.margin
    assert told / trials > 0.93


LEVELS = (1.0, 2.0, 4.0, 8.0)


def spreads_at(levels: Sequence[float], deviations: Sequence[float], sign: float = 1.0) -> Floats:
    """Five repeats of a candidate at each level: that far below it, at it, and above it."""
    rows = [
        spread_of([sign * (level + part * deviation) for part in (-1.0, -1.0, 0.0, 1.0, 1.0)])
        for level, deviation in zip(levels, deviations)
    ]
    return np.array(rows)


def pooled(spreads: Floats) -> PooledNoise:
    return PooledNoise(None, repeats=int(spreads[:, 2].sum()), squares=float(spreads[:, 1].sum()))


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("scale", [1.0, 1e-150, 1e140])
def test_noise_that_grows_with_the_score_is_larger_at_the_level_of_the_best(sign: float, scale: float) -> None:
    """Deviations of a quarter of the level: at 20 the variance of one evaluation is about 5²."""
    levels = [scale * level for level in LEVELS]
    spreads = spreads_at(levels, [0.25 * level for level in levels], sign)
    noise = pooled(spreads)
    above = noise_at_level(noise, spreads, 20.0 * scale)
    assert above.squares / above.repeats == pytest.approx((5.0 * scale) ** 2, rel=1e-3)
    assert above._replace(squares=noise.squares) == noise


def test_noise_that_is_alike_at_all_levels_stays_what_it_is() -> None:
    spreads = spreads_at(LEVELS, [0.25] * 4)
    assert noise_at_level(pooled(spreads), spreads, 20.0).squares == pytest.approx(pooled(spreads).squares, rel=0.02)


def test_noise_below_most_of_the_run_is_never_taken_to_be_less() -> None:
    spreads = spreads_at(LEVELS, [0.25 * level for level in LEVELS])
    assert noise_at_level(pooled(spreads), spreads, 0.1) == pooled(spreads)


def test_repeats_that_do_not_tell_the_laws_apart_count_for_both() -> None:
    spreads = spreads_at([4.0, 4.0], [1.0, 1.0])
    noise, twice = pooled(spreads), noise_at_level(pooled(spreads), spreads, 8.0)
    assert twice.squares == pytest.approx(0.5 * noise.squares + 0.5 * 4.0 * noise.squares)


@pytest.mark.parametrize("levels", [(-1.0, 2.0, 4.0), (0.0, 2.0, 4.0)])
def test_scores_of_both_signs_have_no_level(levels: Sequence[float]) -> None:
    spreads = spreads_at(levels, [0.1, 0.2, 0.4])
    assert noise_at_level(pooled(spreads), spreads, 9.0) == pooled(spreads)


@pytest.mark.parametrize("squares", [0.0, float("inf")])
def test_without_a_spread_there_is_nothing_to_scale(squares: float) -> None:
    spreads = np.array([[1.0, squares, 3.0]])
    assert noise_at_level(pooled(spreads), spreads, 9.0) == pooled(spreads)
    assert noise_at_level(PooledNoise(None), np.zeros((0, 3)), 9.0) == PooledNoise(None)


def test_a_lucky_low_spread_does_not_narrow_the_margin_of_the_best() -> None:
    """Noise of a quarter of the score in the search; the best one's fresh scores happen to be close."""
    evidence, fresh = Evidence(Task("t")), (15.0, 15.5, 15.5, 16.0)
    for level in (*LEVELS, 16.0):
        one = Candidate.of({"program": f"x = {level}"})
        for value in (0.75 * level, 0.75 * level, level, 1.25 * level, 1.25 * level):
            evidence.observe(one, Observation(one.id, Status.OK, value), SEARCH)
    for value in fresh:
        evidence.observe(one, Observation(one.id, Status.OK, value), FINAL)
    verdict = evidence.verdict
    found, pooled_only = (
        verdict.fresh_mean(one.id),
        mean_of({"": fresh}, 0, Chance(evidence.account.pooled_noise(), None, False)),
    )
    assert found is not None and found.se is not None and pooled_only.se is not None
    assert pooled_only.se < 1.0 < 1.3 < found.se < 2.0
    low = evidence.account.id_at(0)
    evidence.observe(Candidate.of({"program": "x = 1.0"}), Observation(low, Status.OK, 1.0), FINAL)
    gain, error = verdict.estimate_gain(one.id, low)[:2]
    assert gain == 14.5 and error.se is not None and error.se > found.se
