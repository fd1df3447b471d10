"""Means of evaluations made after the choice, their 95 % intervals, and differences.

By hand and by trial.
"""

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
from culmen.core.spread import spread_of
from culmen.core.task import Task
from culmen.evidence.account import FINAL, SEARCH, PooledNoise
from culmen.evidence.evidence import Evidence
from culmen.evidence.intervals import (
    Chance,
    mean_difference,
    mean_of,
    t_quantile_95,
)
from culmen.evidence.noise import NoiseLaw
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
    few: bool = False,
) -> Chance:
    """Chance of which nothing is known, except the values that are given."""
    noise = PooledNoise(within, 0.0, 0.0, repeats, squares, agreement, failed)
    return Chance(noise, of, exact, failures, floor, top, span, few)


def t(degrees: float) -> float:
    stats = pytest.importorskip("scipy.stats", reason="scipy is not installed")
    return float(stats.t.ppf(0.975, degrees))


FIVE = [0.0, 1.0, 2.0, 3.0, 4.0]  # squares of 10 around their mean
CASES = {str(n): [value] for n, value in enumerate(FIVE)}


@pytest.mark.parametrize(
    ("values", "known", "variance", "degrees"),
    [
        ({"": FIVE}, chance(), 2.5 / 5, 4),
        (
            {"": FIVE},
            chance(within=99.0),
            2.5 / 5,
            4,
        ),  # the spread of other candidates' cases is none of this one's
        ({"": FIVE}, chance(repeats=6, squares=30.0), (10 + 6 * 5.0) / 10 / 5, 10),
        (
            {"": FIVE},
            chance(repeats=20, squares=100.0),
            (10 + 8 * 5.0) / 12 / 5,
            12,
        ),  # eight of them at most
        ({"": FIVE}, chance(repeats=6, squares=6 * 0.29), (10 + 6 * 0.29) / 10 / 5, 10),
        (
            {"": FIVE},
            chance(repeats=6, squares=6 * 0.26),
            2.5 / 5,
            4,
        ),  # above the 99 % quantile of F, 9.15 times that of the run: its own
        (
            {"": [1.0]},
            chance(repeats=6, squares=3.0),
            0.5,
            6,
        ),  # one evaluation: the noise of the run
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
    assert one.se == pytest.approx(variance**0.5) and one.margin == pytest.approx(
        t(degrees) * variance**0.5
    )
    assert one.new_margin == one.margin


@pytest.mark.parametrize(
    ("failures", "failed", "share"),
    [(0, 0.0, 1 / 10), (0, 0.25, 2 / 10), (2, 0.0, 3 / 10), (2, 0.25, 4 / 10)],
)
def test_evaluations_that_may_fail_spread_by_the_chance_to_fail(
    failures: int, failed: float, share: float
) -> None:
    """Of four evaluations.

    Two pseudo-observations, one of them a failure, and four at the run's share.
    """
    known = chance(None, 2.0, 0, 0.0, failed, failures, floor=-2.0, top=1.0)
    one = mean_of({"": [1.0, 1.0, 0.0, 0.0]}, failures, known)
    squares = 1.0 + 2 * share * (1 - share) * 3.0**2
    assert one.se == pytest.approx((squares / 5 / 4) ** 0.5) and one.margin == pytest.approx(
        t(5) * (one.se or 0.0)
    )


def welch(*parts: tuple[float, float]) -> float:
    return sum(part for part, _ in parts) ** 2 / sum(part**2 / degrees for part, degrees in parts)


def flip(many: int) -> float:
    """Variance of a flip of which `many` came out alike.

    1.96 standard errors are Wilson's z²/(n + z²).
    """
    z = t(1e9)
    return many * (z / (many + z**2)) ** 2


PAIRS = {"a": [0.0, 2.0], "b": [4.0, 6.0]}  # case means 1 and 5; squares of 2 inside each
FEW = {"a": [0.0], "b": [0.0], "c": [1.0], "d": [1.0]}  # half of the pairs agree
EQUAL = {"a": [1.0] * 2, "b": [5.0] * 2}


@pytest.mark.parametrize(
    ("values", "known", "parts"),
    [
        (CASES, chance(10, exact=True), [(0.5 * 2.5 / 5, 4)]),  # half of the cases were left out
        (
            CASES,
            chance(10),
            [(0.5 * 2.5 / 5, 4), (0.5 * 2.5 / 5, 4)],
        ),  # all of the spread may be noise
        (CASES, chance(10, repeats=6, squares=3.0), [(0.5 * 2.5 / 5, 4), (0.5 * 0.5 / 5, 6)]),
        (
            CASES,
            chance(10, repeats=6, squares=99.0),
            [(0.5 * 2.5 / 5, 4), (0.5 * 2.5 / 5, 6)],
        ),  # no more than in all
        (
            CASES,
            chance(10, repeats=2, squares=0.2),
            [(0.5 * 2.5 / 5, 4), (0.5 * 2.5 / 5, 4)],
        ),  # fewer than the cases
        (CASES, chance(5, repeats=6, squares=3.0), [(0.5 / 5, 6)]),  # the whole split: noise alone
        (FEW, chance(4, repeats=4, agreement=0.6), [(1 / 3 / 4, 3)]),  # that they agree may be luck
        (
            PAIRS,
            chance(4),
            [(0.5 * 8 / 2, 1), (0.5 * 1 / 2, 2)],
        ),  # 4 squares, 2 degrees, 2 of each case
        (PAIRS, chance(4, repeats=2, squares=4.0), [(0.5 * 8 / 2, 1), (0.5 * 1 / 2, 4)]),
        (EQUAL, chance(4), [(0.5 * 8 / 2, 1)]),  # no noise was seen
        (
            {"a": [0.0, 2.0], "b": [1.0]},
            chance(4, within=3.0),
            [(0.5 * 1.0 / 2, 1), (0.5 * 1.0 / 2, 1)],
        ),
        (
            {"a": [1.0], "b": [1.0]},
            chance(4, span=3.0, exact=True),
            [(0.5 * 9 * flip(2) / 2, 1)],
        ),  # another may differ
        (
            {"a": [1.0], "b": [1.0]},
            chance(4, span=3.0),
            [(0.5 * 9 * flip(2) / 2, 1), (0.5 * 9 * flip(2) / 2, 1)],
        ),
    ],
)
def test_a_sample_of_cases_in_two_stages(
    values: Values, known: Chance, parts: list[tuple[float, float]]
) -> None:
    """The spread of cases weighs with the share of the split that was left out.

    Noise weighs with the rest.
    """
    one, variance = mean_of(values, 0, known), sum(part for part, _ in parts)
    assert (one.mean, one.cases) == (fmean(map(fmean, values.values())), len(values))
    assert one.se == pytest.approx(variance**0.5)
    assert one.margin == pytest.approx(t(welch(*parts)) * variance**0.5, rel=1e-5)


@pytest.mark.parametrize(
    ("values", "known", "doubt"),
    [
        (CASES, chance(5, repeats=3), 2.5 / 4 / 5),
        (CASES, chance(5, repeats=9), 2.5 / 10 / 5),
        (FEW, chance(4, repeats=5, agreement=0.6), 1 / 3 / 6 / 4),
        (FEW, chance(4, repeats=4, agreement=0.4), 1 / 3 / 5 / 4),
    ],
)
def test_on_a_whole_split_equal_repeats_give_a_doubt_and_no_margin(
    values: Values, known: Chance, doubt: float
) -> None:
    one = mean_of(values, 0, known)
    assert (one.se, one.margin) == (None, None) and one.new_margin is not None
    moved = {case: [value + 1.0 for value in each] for case, each in values.items()}
    gain, error = mean_difference(moved, {case: [0.0] for case in values}, known)
    assert gain == pytest.approx(one.mean + 1.0)
    assert (error.se, error.margin) == (None, None) and error.doubt == pytest.approx(doubt**0.5)


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


def test_exact_scores_of_all_cases_are_certain_and_a_single_look_at_noisy_ones_tells_nothing() -> (
    None
):
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
    """Nor where all of the run agree and no bounds show how far the next may be.

    Then nothing is known of the error.
    """
    values = (
        {"": [value] * 2}
        if of is None
        else {"a": [value] * 2}
        if of == 1
        else {"a": [value], "b": [value]}
    )
    known = chance(of, within=0.0, repeats=repeats, exact=exact, span=span, agreement=1.0, few=True)
    one = mean_of(values, 0, known)
    gain, error = mean_difference(values, values, known)
    for margin in (one.margin, one.new_margin, error.margin):
        if span and of not in (None, 1):
            assert margin is not None and margin > 0.02  # other cases may fail
        else:
            assert margin is None
    assert (one.mean, gain) == (value, 0.0)
    assert (error.doubt or 0.0) > 0.02 if span else error.doubt is None


def test_the_flip_that_equal_scores_leave_possible_shrinks_with_their_number() -> None:
    """It is a doubt, and no margin: none was seen."""
    doubts = list[float]()
    for many in (2, 8, 32, 128):
        equal = {"": [1.0] * many}
        error = mean_difference(equal, equal, chance(span=1.0, few=True))[1]
        assert (error.se, error.margin) == (None, None)
        doubts.append(error.doubt or 0.0)
    assert doubts == sorted(doubts, reverse=True) and 0 < doubts[-1] < 0.03
    assert doubts[1] == pytest.approx((2 * flip(8) / 8) ** 0.5)


@pytest.mark.parametrize("repeats", [0, 6])
@pytest.mark.parametrize("value", [2.54, 3.0])
def test_equal_scores_that_are_not_few_valued_have_no_margin_whatever_the_noise_of_others(
    repeats: int, value: float
) -> None:
    one = mean_of({"": [value] * 7}, 0, chance(repeats=repeats, squares=9.0 * repeats, span=0.0))
    assert (one.se, one.margin) == (None, None)


@pytest.mark.parametrize("squares", [1e2, 1e4, 1e8])
def test_from_five_evaluations_on_an_interval_is_at_most_half_as_wide_again_as_its_own(
    squares: float,
) -> None:
    """However large the noise of the run is."""
    own = t(4) * (2.5 / 5) ** 0.5
    wide = mean_of({"": FIVE}, 0, chance(repeats=8, squares=8 * squares))
    assert wide.margin == pytest.approx(1.5 * own)
    four = mean_of({"": FIVE[:4]}, 0, chance(repeats=8, squares=8 * squares)).margin
    assert four is not None and four > 1.5 * own


@pytest.mark.parametrize(
    ("passed", "end"), [(18, 0.698966), (19, 0.763869), (2, 0.301034), (1, 0.236131)]
)
@pytest.mark.parametrize("span", [1.0, 100.0])
def test_the_margin_of_a_pass_rate_reaches_the_farther_end_of_wilsons_interval(
    passed: int, end: float, span: float
) -> None:
    """Of 20 cases, all of the split.

    The ends are those of Wilson's interval without continuity correction.
    """
    values = {str(case): [span * (case < passed)] for case in range(20)}
    one = mean_of(values, 0, chance(20, span=span))
    wilson = abs(passed / 20 - end) * span
    assert one.margin == pytest.approx(wilson * t(19) / t(1e9), rel=1e-5)
    assert one.new_margin == pytest.approx(one.margin)


def test_few_pairs_that_differ_are_little_evidence_of_a_gain() -> None:
    """Three flips of twenty, all one way: by Agresti and Min (2005), 3 / 22 less 1.96 errors.

    With equal pass rates a gain is claimed in at most 5 % of trials, also at high rates.
    """
    one = {str(n): [1.0] for n in range(20)}
    other = {name: [0.0 if int(name) < 3 else 1.0] for name in one}
    gain, error = mean_difference(one, other, chance(20, span=1.0, few=True))
    lower = 3 / 22 - 1.96 * (4 - 9 / 22) ** 0.5 / 22
    assert gain == pytest.approx(0.15) and error.se == pytest.approx(
        (0.15 - lower) / 1.96, rel=1e-3
    )
    for rate in (0.5, 0.9, 0.97):
        draws, told, trials = Random(7), 0, 2000
        for _ in range(trials):
            flips = [{name: [float(draws.random() < rate)] for name in one} for _ in range(2)]
            gain, error = mean_difference(*flips, chance(20, span=1.0, few=True))
            told += error.margin is not None and abs(gain) > error.margin
        assert told / trials <= 0.05


def test_scores_between_the_ends_are_no_pass_rate() -> None:
    values = {str(case): [1.0] for case in range(18)} | {"x": [0.0], "y": [0.5]}
    own = 20 * (18 / 20 + 0.25 / 20 - (18.5 / 20) ** 2) / 19
    assert mean_of(values, 0, chance(20, span=1.0)).se == pytest.approx((own / 20) ** 0.5)


SCORES = st.sampled_from([0.0, 1.0, 0.5, 0.25, 3.0])
DATA = st.dictionaries(
    st.sampled_from("abcdefgh"), st.lists(SCORES, min_size=1, max_size=3), min_size=1
)


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
    values: Values,
    more: int,
    exact: bool | None,
    repeats: int,
    squares: float,
    span: float,
    agreement: float,
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
    if one.margin is not None:
        assert one.new_margin is None or one.new_margin >= one.margin * (1 - 1e-9)


# Differences.


@pytest.mark.parametrize(("of", "case"), [(None, ""), (1, "a")])
def test_without_a_choice_of_cases_two_independent_samples_are_compared(
    of: int | None, case: str
) -> None:
    other = [1.0, 1.0, 1.0, 3.0]  # squares of 3
    gain, error = mean_difference({case: FIVE}, {case: other}, chance(of))
    degrees = welch((2.5 / 5, 4), (1 / 4, 3))
    assert (gain, error[:2]) == (0.5, pytest.approx((0.75**0.5, t(degrees) * 0.75**0.5)))
    gain, error = mean_difference({case: FIVE}, {case: other}, chance(of, repeats=6, squares=30.0))
    parts = ((10 + 30) / 10 / 5, 4 + 6), ((3 + 30) / 9 / 4, 3 + 6)
    assert error.se == pytest.approx(sum(part for part, _ in parts) ** 0.5)
    assert error.margin == pytest.approx(t(welch(*parts)) * (error.se or 0.0))
    none = (None, None, None)
    assert mean_difference({case: FIVE}, {case: [5.0]}, chance(of)) == (-3.0, none)
    assert mean_difference({case: [5.0]}, {case: FIVE}, chance(of)) == (3.0, none)


ONE = {"a": [1.0], "b": [2.0], "c": [3.0]}


@pytest.mark.parametrize(
    ("other", "known", "gain", "parts"),
    [
        # The differences are 0.5 and 1, with squares of 0.125; noise counts twice: once in each
        # score.
        (
            {"b": [1.5], "c": [2.0], "d": [9.0]},
            chance(10),
            0.75,
            [(0.8 * 0.125 / 2, 1), (0.2 * 0.125 / 2, 1)],
        ),
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
    gain, error = mean_difference(ONE, {"d": [0.0, 1.0], "e": [3.5]}, chance(10))
    assert (gain, *error[:2]) == (0.0, None, None)
    third = {"a": [1.0], "b": [3.0], "c": [1.0]}
    gain, error = mean_difference(ONE, third, chance(3, exact=True))
    assert (gain, *error) == (pytest.approx(1 / 3), 0.0, 0.0, 0.0)


# By trial.


def covers(
    draw: Callable[[Random], tuple[dict[str, list[float]], Chance, float]], runs: int = 1000
) -> float:
    held = 0
    for seed in range(runs):
        values, known, truth = draw(Random(seed))
        one = mean_of(values, 0, known)
        held += one.margin is not None and abs(one.mean - truth) <= one.margin
    return held / runs


@pytest.mark.slow
@pytest.mark.parametrize("repeats", [12, 120])
@pytest.mark.parametrize(
    ("noise", "cases"), [(0.0, 10), (0.3, 10), (0.3, 60), (0.0, 95), (0.3, 100), (0.05, 100)]
)
def test_intervals_hold_the_mean_of_the_split_95_times_in_100(
    noise: float, cases: int, repeats: int
) -> None:
    """More often where repeats are fewer than cases.

    Noise is then taken to be as large as it can be.
    """

    def draw(rng: Random) -> tuple[dict[str, list[float]], Chance, float]:
        levels = [rng.gauss(0, 0.5) for _ in range(100)]
        squares = sum(rng.gauss(0, noise) ** 2 for _ in range(repeats))
        picked = rng.sample(range(100), cases)
        values = {str(i): [levels[i] + rng.gauss(0, noise)] for i in picked}
        return (
            values,
            chance(100, repeats=repeats, squares=squares, exact=noise == 0),
            fmean(levels),
        )

    assert 0.93 <= covers(draw) <= (1.0 if noise and repeats < cases - 1 else 0.99)


def test_a_few_equal_scores_are_no_certainty() -> None:
    """Eight flips: the interval holds the rate, unless all came out alike; then there is none."""
    held, given = 0, 0
    for seed in range(1000):
        rng = Random(seed)
        values = [float(rng.random() < 0.8) for _ in range(8)]
        one = mean_of({"": values}, 0, chance(span=1.0, few=True))
        assert (one.margin is None) == (len(set(values)) == 1)
        given += one.margin is not None
        held += one.margin is not None and abs(one.mean - 0.8) <= one.margin
    assert held / given >= 0.93


def test_a_difference_on_shared_cases_does_not_pay_for_their_spread() -> None:
    rng = Random(1)
    levels = [rng.gauss(0, 5) for _ in range(10)]
    one = {str(i): [level + 0.3 + rng.gauss(0, 0.05)] for i, level in enumerate(levels)}
    other = {str(i): [level + rng.gauss(0, 0.05)] for i, level in enumerate(levels)}
    gain, error = mean_difference(one, other, chance(100, within=25.0))
    assert gain == pytest.approx(0.3, abs=0.1) and error.margin is not None and error.margin < 0.15


def test_quantiles_of_students_t() -> None:
    assert [round(t_quantile_95(df), 3) for df in (0.5, 1, 5, 30, float("inf"))] == [
        12.706,
        12.706,
        2.571,
        2.042,
        1.96,
    ]
    for degrees in (1.3, 2, 2.7, 8, 1e3, 1e6):
        assert t_quantile_95(degrees) == pytest.approx(
            t(degrees), rel=2e-6 if degrees < 2 else 1e-7
        )


def test_a_run_with_flaky_candidates_is_less_sure_of_one_that_did_not_fail() -> None:
    values = {"": [0.95, 0.94, 0.96, 0.95, 0.97, 0.93]}
    steady = mean_of(values, 0, chance(failed=0.2))
    flaky = mean_of(values, 0, chance(failed=0.2, floor=0.0, top=0.97))
    assert steady.margin is not None and flaky.margin is not None
    assert steady.margin < 0.02 < 0.17 < flaky.margin  # one failure in five is still likely


def test_the_failures_of_others_do_not_widen_the_margin_of_a_kind_that_never_fails() -> None:
    """Two of forty failed once; the margin of twelve steady values was 1.8 times its own."""
    evidence, rng, made = (
        Evidence(Task("noisy", seeds=({"text": "first"},))),
        Random(2),
        list[float](),
    )
    known = [Candidate.of({"text": f"{each}"}) for each in range(40)]
    for at, candidate in enumerate([*known, *known]):
        status = Status.ERROR if at in (3, 7) else Status.OK
        score = None if status is Status.ERROR else 0.8 + 0.1 * rng.random() - 0.4 * (at % 40 < 9)
        evidence.observe(candidate, Observation(candidate.id, status, score, seed=at))
    for at in range(12):
        made.append(0.9 + 0.05 * rng.gauss(0, 1))
        seen = Observation(known[20].id, Status.OK, made[-1], seed=100 + at)
        evidence.observe(known[20], seen, FINAL)
    assert evidence.account.is_flaky
    found, own = evidence.verdict.fresh_mean(known[20].id), spread_of(made)[1] / 11 / 12
    assert found is not None and found.margin is not None
    assert found.margin < 1.5 * t_quantile_95(11) * own**0.5


def test_a_sample_of_cases_without_a_failure_does_not_prove_that_no_case_fails() -> None:
    """Three of 40 cases fail for the candidate.

    A run whose candidates fail now and then knows they may.
    """
    draws, told, trials = Random(5), 0, 2000
    true = (37 * 0.8 + 3 * 0.0) / 40
    for _ in range(trials):
        picked = draws.sample(range(40), 11)
        values = {str(n): [0.0 if n < 3 else 0.8 + draws.gauss(0.0, 0.05)] for n in picked}
        failures = sum(n < 3 for n in picked)
        found = mean_of(
            values,
            failures,
            chance(of=40, repeats=8, squares=0.02, failures=failures, floor=0.0, top=0.8),
        )
        told += found.margin is not None and abs(found.mean - true) <= found.margin
    assert told / trials > 0.93


LEVELS = (1.0, 2.0, 4.0, 8.0)


def spreads_at(levels: Sequence[float], deviations: Sequence[float], times: int = 1) -> Floats:
    """Repeats of a candidate at each level: that far below it, at it, and above it."""
    rows = [
        spread_of([level + part * deviation for part in (-1.0, -1.0, 0.0, 1.0, 1.0) * times])
        for level, deviation in zip(levels, deviations)
    ]
    return np.array(rows).reshape(-1, 3)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("scale", [1.0, 1e-150, 1e140])
@pytest.mark.parametrize("level", [1.0, 2.0, 8.0, 16.0])
def test_noise_that_is_a_share_of_the_score_is_known_at_every_level(
    sign: float, scale: float, level: float
) -> None:
    """Deviations of a quarter of the level, less and more than where most repeats were made."""
    levels = [sign * scale * each for each in LEVELS]
    spreads = spreads_at(levels, [0.25 * each for each in levels], 4)
    law = NoiseLaw(spreads, levels)
    deviation = law.variance_at(sign * scale * level) ** 0.5
    assert 0.7 < deviation / (0.25 * scale * level) < 1.4
    assert law.degrees == 4 * 19


def test_noise_far_from_where_it_was_learnt_is_known_with_fewer_degrees() -> None:
    law = NoiseLaw(spreads_at([1.0, 1.2, 1.4], [0.25] * 3, 4), [1.0])
    near, far, farther = (law.estimate_at(level)[1] for level in (1.2, 4.0, 16.0))
    assert 0.9 * law.degrees < near <= law.degrees
    assert 10.0 > far > farther > 1.0


def test_noise_that_is_alike_at_all_levels_stays_what_it_is() -> None:
    law = NoiseLaw(spreads_at(LEVELS, [0.25] * 4, 4), LEVELS)
    (_, squares, degrees), *_ = spreads_at([1.0], [0.25], 4)
    for level in LEVELS:
        assert law.variance_at(level) == pytest.approx(squares / degrees, rel=0.1)


@pytest.mark.parametrize("leader", [8.8, -8.8])
@pytest.mark.parametrize("wild", [0.0, 2.0, 60.0])
def test_hopeless_candidates_tell_nothing_of_the_leader(leader: float, wild: float) -> None:
    """Thirty deviations away and more, many of them, whatever their own noise is."""
    near = spreads_at([leader, 1.7 * leader], [3.0, 5.0])
    far = spreads_at([leader * each for each in (12, 18, 25, 30, 40)], [wild] * 5, 4)
    alone, among = (NoiseLaw(each, [leader]) for each in (near, np.vstack([far, near])))
    assert among.degrees == alone.degrees == 8.0
    assert among.variance_at(leader) == alone.variance_at(leader)
    assert 2.5 < among.variance_at(leader) ** 0.5 < 5.0


def test_one_candidate_of_extraordinary_spread_has_a_bounded_influence() -> None:
    usual = spreads_at([1.0] * 20, [0.1] * 20)
    wild = spreads_at([1.0], [3.0])
    plain = NoiseLaw(usual, [1.0]).variance_at(1.0)
    assert plain < NoiseLaw(np.vstack([usual, wild]), [1.0]).variance_at(1.0) < 4.0 * plain


@pytest.mark.parametrize("levels", [(-1.0, 2.0, 4.0), (0.0, 2.0, 4.0)])
def test_noise_is_known_of_scores_of_both_signs(levels: Sequence[float]) -> None:
    law = NoiseLaw(spreads_at(levels, [0.2] * 3), [2.0])
    assert 0.1 < law.variance_at(2.0) ** 0.5 < 0.4


@pytest.mark.parametrize("offset", [0.1, 1e6, -1e9])
def test_errors_of_arithmetic_are_no_noise(offset: float) -> None:
    equal = [offset, offset * (1 + 2e-16), offset * (1 - 2e-16)]
    assert spread_of(equal)[1] == 0.0
    law = NoiseLaw(np.array([[offset, 1e-32 * offset**2, 5.0]]), [offset])
    assert law.variance_at(offset) == 0.0


def test_without_a_spread_there_is_no_noise() -> None:
    for spreads in (np.zeros((0, 3)), np.array([[1.0, 0.0, 3.0]])):
        assert NoiseLaw(spreads, [9.0]).variance_at(9.0) == 0.0


def test_a_lucky_low_spread_does_not_narrow_the_margin_of_the_best() -> None:
    """Noise of a quarter of the score in the search.

    The best one's fresh scores happen to be close.
    """
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
    assert pooled_only.se < 1.0 < 1.2 < found.se < 2.0
    low = evidence.account.id_at(0)
    evidence.observe(Candidate.of({"program": "x = 1.0"}), Observation(low, Status.OK, 1.0), FINAL)
    gain, error = verdict.estimate_gain(one.id, low)[:2]
    assert gain == 14.5 and error.se is not None and error.se > found.se


def test_differences_of_cases_are_exact_only_if_scores_agree_too_often_for_luck() -> None:
    """Five equal repeats at a pass rate of 0.9 hid the noise of gains of 0.1 to 0.3."""
    one = {f"{n}": [float(n > 1)] for n in range(20)}
    other = {f"{n}": [float(n not in (3, 4, 5, 6))] for n in range(20)}
    few, many = (
        chance(20, repeats=repeats, agreement=0.82)._replace(span=1.0, few=True)
        for repeats in (5, 16)
    )
    gain, error = mean_difference(one, other, few)
    assert gain == pytest.approx(0.1) and error.margin is not None and error.margin > gain
    assert mean_difference(one, other, many)[1].margin is None
