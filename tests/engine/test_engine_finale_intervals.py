"""What evaluations made after the choice say: means, their 95 % intervals, and differences, by hand and by trial."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from statistics import fmean

import pytest
import scipy.stats

from culmen.engine.finale import Spread, difference, fresh_mean, t95
from culmen.engine.record import RewardNoise

Values = Mapping[str, Sequence[float]]


def spread(
    of: int | None = None,
    within: float | None = None,
    repeats: int = 0,
    squares: float = 0.0,
    failed: float = 0.0,
    failures: int = 0,
    floor: float | None = None,
    exact: bool = False,
) -> Spread:
    """What is known of chance: nothing, but for what is said."""
    noise = RewardNoise(within, 0.0, 1.0, repeats=repeats, squares=squares, failed=failed)
    return Spread(noise, of, exact, failures, floor)


def t(degrees: float) -> float:
    return float(scipy.stats.t.ppf(0.975, degrees))


FIVE = [0.0, 1.0, 2.0, 3.0, 4.0]  # squares of 10 around their mean
CASES = {str(n): [value] for n, value in enumerate(FIVE)}


@pytest.mark.parametrize(
    ("values", "known", "variance", "degrees"),
    [
        ({"": FIVE}, spread(), 2.5 / 5, 4),
        ({"": FIVE}, spread(within=1.0), 2.5 / 5, 4),  # the run's would make it smaller
        ({"": FIVE}, spread(within=5.0), (10 + 4 * 5.0) / 8 / 5, 8),
        ({"": FIVE}, spread(within=2.5), 2.5 / 5, 4),
        ({"": FIVE}, spread(within=5.0, repeats=6, squares=30.0), (10 + 4 * 5.0) / 8 / 5, 8),
        ({"a": FIVE}, spread(of=1), 2.5 / 5, 4),  # one case: no choice of cases
    ],
)
def test_single_evaluations_have_their_own_spread_or_with_the_runs_if_that_is_larger(
    values: Values, known: Spread, variance: float, degrees: float
) -> None:
    """The run's counts as four degrees of freedom."""
    one = fresh_mean(values, 2, known)
    assert (one.mean, one.count, one.failures, one.cases) == (2.0, 5, 2, len(values) if known.of else 0)
    assert one.se == pytest.approx(variance**0.5) and one.margin == pytest.approx(t(degrees) * variance**0.5)


@pytest.mark.parametrize(
    ("failures", "failed", "share"), [(0, 0.0, 1 / 10), (0, 0.25, 2 / 10), (2, 0.0, 3 / 10), (2, 0.25, 4 / 10)]
)
def test_what_may_fail_spreads_by_the_chance_to_fail(failures: int, failed: float, share: float) -> None:
    """Of four evaluations: two pseudo-observations, one of them a failure, and four at the run's share."""
    one = fresh_mean({"": [1.0, 1.0, 0.0, 0.0]}, failures, spread(None, 2.0, 0, 0.0, failed, failures, floor=-2.0))
    squares = 1.0 + 4 * (2.0 + share * (1 - share) * 3.0**2)
    assert one.se == pytest.approx((squares / 7 / 4) ** 0.5) and one.margin == pytest.approx(t(7) * (one.se or 0.0))


def welch(*parts: tuple[float, float]) -> float:
    return sum(part for part, _ in parts) ** 2 / sum(part**2 / degrees for part, degrees in parts)


PAIRS = {"a": [0.0, 2.0], "b": [4.0, 6.0]}  # case means 1 and 5; squares of 2 inside each


@pytest.mark.parametrize(
    ("values", "known", "parts"),
    [
        (CASES, spread(10, exact=True), [(0.5 * 2.5 / 5, 4)]),  # half of the cases were left out
        (CASES, spread(10), [(0.5 * 2.5 / 5, 4), (0.5 * 2.5 / 5, 4)]),  # all of the spread may be noise
        (CASES, spread(10, repeats=6, squares=3.0), [(0.5 * 2.5 / 5, 4), (0.5 * 0.5 / 5, 6)]),
        (CASES, spread(10, repeats=2, squares=9.0), [(0.5 * 2.5 / 5, 4), (0.5 * 2.5 / 5, 2)]),  # no more than in all
        (CASES, spread(5, repeats=6, squares=3.0), [(0.5 / 5, 6)]),  # the whole split: noise alone
        (CASES, spread(5, repeats=3), [(2.5 / 7 / 5, 3)]),  # three equal repeats: perhaps little noise
        (PAIRS, spread(4), [(0.5 * 8 / 2, 1), (0.5 * 1 / 2, 2)]),  # 4 squares, 2 degrees, 2 of each case
        (PAIRS, spread(4, repeats=2, squares=4.0), [(0.5 * 8 / 2, 1), (0.5 * 1 / 2, 4)]),
        ({"a": [1.0] * 2, "b": [5.0] * 2}, spread(4), [(0.5 * 8 / 2, 1), (0.5 * 8 / 5 / 2, 2)]),
        ({"a": [0.0, 2.0], "b": [1.0]}, spread(4, within=3.0), [(0.5 * 2.4 / 2, 5), (0.5 * 4 / 3 / 2, 1)]),
    ],
)
def test_a_sample_of_cases_in_two_stages(values: Values, known: Spread, parts: list[tuple[float, float]]) -> None:
    """The spread of cases weighs with the share of the split that was left out, noise with the rest."""
    one, variance = fresh_mean(values, 0, known), sum(part for part, _ in parts)
    assert (one.mean, one.cases) == (fmean(map(fmean, values.values())), len(values))
    assert one.se == pytest.approx(variance**0.5)
    assert one.margin == pytest.approx(t(welch(*parts)) * variance**0.5, rel=1e-5)


def test_what_is_exact_and_whole_is_certain_and_what_was_seen_once_tells_nothing() -> None:
    for values, of in (({"": FIVE}, None), ({"a": FIVE}, 1), (CASES, 5)):
        one = fresh_mean(values, 0, spread(of, exact=True))
        assert (one.se, one.margin) == (0.0, 0.0)
    for values, known in (({"": [1.0]}, spread(within=1.0)), ({"a": [1.0, 2.0]}, spread(3, exact=True))):
        one = fresh_mean(values, 0, known)
        assert (one.se, one.margin) == (None, None)


# Differences.


@pytest.mark.parametrize(("of", "case"), [(None, ""), (1, "a")])
def test_without_a_choice_of_cases_two_independent_samples_are_compared(of: int | None, case: str) -> None:
    other = [1.0, 1.0, 1.0, 3.0]  # variance 1
    gain, margin = difference({case: FIVE}, {case: other}, spread(of))
    degrees = welch((2.5 / 5, 4 + 4), (1 / 4, 3 + 4))
    assert (gain, margin) == (0.5, pytest.approx(t(degrees) * 0.75**0.5))
    assert difference({case: FIVE}, {case: [5.0]}, spread(of)) == (-3.0, None)
    assert difference({case: [5.0]}, {case: FIVE}, spread(of)) == (3.0, None)


ONE = {"a": [1.0], "b": [2.0], "c": [3.0]}


@pytest.mark.parametrize(
    ("other", "known", "gain", "parts"),
    [
        # The differences are 0.5 and 1, with squares of 0.125; noise counts twice: once in each score.
        ({"b": [1.5], "c": [2.0], "d": [9.0]}, spread(10), 0.75, [(0.8 * 0.125 / 2, 1), (0.2 * 0.125 / 2, 1)]),
        (
            {"b": [1.5], "c": [2.0]},
            spread(10, within=99.0, repeats=6, squares=3.0),
            0.75,
            [(0.8 * 4.125 / 5 / 2, 5), (0.2 * 4.125 / 5 / 2, 6)],
        ),
        (
            {"b": [1.5], "c": [2.0]},
            spread(10, repeats=6, squares=0.3),
            0.75,
            [(0.8 * 0.125 / 2, 1), (0.2 * 0.1 / 2, 6)],
        ),
        # Equal differences: of the spread of cases, unless they are none at all.
        (
            {"a": [0.5], "b": [1.5], "c": [2.5]},
            spread(10, within=3.0),
            0.5,
            [(0.7 * 4 * 3.0 / 6 / 3, 6), (0.3 * 4 * 3.0 / 6 / 3, 6)],
        ),
        (ONE, spread(10, 3.0, 6, 3.0), 0.0, [(0.7 * 4 * 1.0 / 6 / 3, 6), (0.3 * 4 * 1.0 / 6 / 3, 6)]),
    ],
)
def test_a_difference_is_judged_on_shared_cases(
    other: Values, known: Spread, gain: float, parts: list[tuple[float, float]]
) -> None:
    found, margin = difference(ONE, other, known)
    variance = sum(part for part, _ in parts)
    assert (found, margin) == (gain, pytest.approx(t(welch(*parts)) * variance**0.5, rel=1e-5))


def test_without_shared_cases_a_difference_has_no_interval() -> None:
    assert difference(ONE, {"d": [0.0, 1.0], "e": [3.5]}, spread(10)) == (0.0, None)
    assert difference(ONE, {"a": [1.0], "b": [3.0], "c": [1.0]}, spread(3, exact=True)) == (pytest.approx(1 / 3), 0.0)


# By trial.


def covers(draw: Callable[[Random], tuple[dict[str, list[float]], Spread, float]], runs: int = 1000) -> float:
    held = 0
    for seed in range(runs):
        values, known, truth = draw(Random(seed))
        one = fresh_mean(values, 0, known)
        held += one.margin is not None and abs(one.mean - truth) <= one.margin
    return held / runs


@pytest.mark.parametrize(("noise", "cases"), [(0.0, 10), (0.3, 10), (0.3, 60), (0.0, 95), (0.3, 100), (0.05, 100)])
def test_intervals_hold_the_mean_of_the_split_95_times_in_100(noise: float, cases: int) -> None:
    def draw(rng: Random) -> tuple[dict[str, list[float]], Spread, float]:
        levels = [rng.gauss(0, 0.5) for _ in range(100)]
        repeats = sum(rng.gauss(0, noise) ** 2 for _ in range(12))
        picked = rng.sample(range(100), cases)
        values = {str(i): [levels[i] + rng.gauss(0, noise)] for i in picked}
        known = RewardNoise(0.25 + noise**2, 0.0, 1.0, 0.0, 12, repeats)
        return values, Spread(known, 100, noise == 0), fmean(levels)

    assert 0.93 <= covers(draw) <= 0.99


def test_a_few_equal_scores_are_no_certainty() -> None:
    def draw(rng: Random) -> tuple[dict[str, list[float]], Spread, float]:
        values = {"": [float(rng.random() < 0.8) for _ in range(8)]}
        return values, Spread(RewardNoise(0.2, 0.0, 0.1), None, False), 0.8

    assert covers(draw) >= 0.93


def test_a_difference_on_shared_cases_does_not_pay_for_their_spread() -> None:
    rng = Random(1)
    levels = [rng.gauss(0, 5) for _ in range(10)]
    one = {str(i): [level + 0.3 + rng.gauss(0, 0.05)] for i, level in enumerate(levels)}
    other = {str(i): [level + rng.gauss(0, 0.05)] for i, level in enumerate(levels)}
    gain, margin = difference(one, other, Spread(RewardNoise(25.0, 0.0, 1.0), 100, False))
    assert gain == pytest.approx(0.3, abs=0.1) and margin is not None and margin < 0.15


def test_quantiles_of_students_t() -> None:
    assert [round(t95(df), 3) for df in (0.5, 1, 5, 30, float("inf"))] == [12.706, 12.706, 2.571, 2.042, 1.96]
    for degrees in (1.3, 2, 2.7, 8, 1e3, 1e6):
        assert t95(degrees) == pytest.approx(t(degrees), rel=2e-6 if degrees < 2 else 1e-7)


def test_a_run_with_flaky_candidates_is_less_sure_of_one_that_did_not_fail() -> None:
    known = RewardNoise(0.002, 0.5, 0.1, failed=0.2)
    values = {"": [0.95, 0.94, 0.96, 0.95, 0.97, 0.93]}
    steady = fresh_mean(values, 0, Spread(known, None, False))
    flaky = fresh_mean(values, 0, Spread(known, None, False, 0, 0.0))
    assert steady.margin is not None and flaky.margin is not None
    assert steady.margin < 0.1 < 0.19 < flaky.margin  # one failure in five is still likely
