"""Drift: pairs of evaluations side by side, and a change of all scores that is reported."""

from __future__ import annotations

from random import Random
from statistics import fmean

import pytest
from bench.truth.hazards import hazard_world

from culmen.core.result import RunResult
from culmen.core.spread import spread_of
from culmen.core.usage import Budget
from culmen.evidence.intervals import bounded_variance, pool_with_run, t_quantile_95
from culmen.evidence.noise import DriftWatch, pair_differences
from culmen.report.sentences import result_sentence
from culmen.strategies import catalog
from culmen.testing.virtual import simulate


def differences(one: list[tuple[int, float]], other: list[tuple[int, float]]) -> list[float]:
    return pair_differences(one, other, lambda seen: seen[0], lambda seen: seen[1])


def test_evaluations_are_paired_with_the_latest_one_of_the_other() -> None:
    one, other = [(1, 1.0), (4, 2.0), (5, 3.0)], [(2, 0.5), (3, 1.0), (6, 2.5)]
    assert differences(one, other) == [0.5, 1.0, 0.5]
    assert differences(one, [(0, 100.0), *other]) == [0.5, 1.0, 0.5]  # beside one that fell
    assert differences(one, []) == []
    assert sorted(differences(one[1:], [(0, 9.0), (1, 9.0), (3, 1.0), (6, 2.5)])) == [0.5, 1.0]


@pytest.mark.parametrize("drift", [0.0, 0.2, -0.2])
def test_pairs_in_random_order_are_fair_whatever_the_drift(drift: float) -> None:
    """Both are equal; each of 12 rounds is in random order."""
    gains, claims = [], 0
    for seed in range(400):
        rng, at = Random(seed), 0
        one, other = list[tuple[int, float]](), list[tuple[int, float]]()
        for _ in range(12):
            for which in rng.sample([one, other], 2):
                at += 1
                which.append((at, drift * at + rng.gauss(0, 1)))
        pairs = differences(one, other)
        variance, degrees = pool_with_run(*spread_of(pairs)[1:], 0.0, 0.0)
        assert len(pairs) == 12 and degrees == 11.0
        gains.append(fmean(pairs))
        claims += abs(fmean(pairs)) > 2.2 * (variance / 12) ** 0.5
    assert abs(fmean(gains)) < 0.07 and 0.02 < claims / 400 < 0.09


def test_a_pair_counts_with_what_the_run_knows_unless_it_deviates_far_more() -> None:
    assert pool_with_run(2.0, 1.0, 4.0, 8.0) == pytest.approx(((2 + 32) / 9, 9.0))
    assert pool_with_run(200.0, 1.0, 4.0, 8.0) == pytest.approx((200.0, 1.0))


@pytest.mark.parametrize(
    ("degrees", "known", "quantile"),  # of Fisher's F, 99 %
    [(1.0, 8.0, 11.26), (1.0, 40.0, 7.31), (7.0, 8.0, 6.18), (7.0, 40.0, 3.12), (19.0, 40.0, 2.39)],
)
def test_a_spread_stands_alone_from_the_quantile_of_its_degrees(
    degrees: float, known: float, quantile: float
) -> None:
    """At four times the run's, luck of two evaluations did that in one case of fourteen."""
    below, above = (degrees * quantile * by for by in (0.95, 1.05))
    assert pool_with_run(below, degrees, 1.0, known)[1] == degrees + 8.0
    assert pool_with_run(above, degrees, 1.0, known) == pytest.approx((above / degrees, degrees))


def test_a_margin_of_eight_pairs_comes_from_them_however_noisy_the_run() -> None:
    own = 7 * 0.038**2  # their t interval is 0.032 wide; the run's noise made 0.11 of it
    variance, degrees = bounded_variance(own, 7.0, 0.2**2, 40.0)
    assert t_quantile_95(degrees) * (variance / 8) ** 0.5 == pytest.approx(1.5 * 0.0318, rel=0.01)
    assert pool_with_run(own, 7.0, 0.2**2, 40.0)[0] > 4 * variance


def test_a_drift_is_a_slope_that_noise_does_not_explain() -> None:
    rng, still, rising = Random(5), DriftWatch(), DriftWatch()
    for at in range(1, 21):
        noise = rng.gauss(0, 1)
        still.observe(1, "", at, noise)
        rising.observe(1, "", at, 0.5 * at + noise)
    assert still.line is None
    assert rising.line is not None and rising.line.slope == pytest.approx(0.5, abs=0.15)
    apart = DriftWatch()  # of two initial programs, each is compared with itself
    for at in range(1, 21):
        apart.observe(at > 10, "", at, 10.0 * (at > 10) + rng.gauss(0, 1))
    assert apart.line is None


@pytest.mark.parametrize("drift", [0.1, -0.3])
def test_equal_programs_under_drift_leave_the_initial_one_in_place_and_the_drift_is_said(
    drift: float,
) -> None:
    """Before, a rising drift replaced the initial program in every second run."""
    kept, found = 0, list[RunResult]()
    for seed in range(4):
        world = hazard_world(f"all equal, drift {drift:+g}", seed, 150)
        strategy, budget = catalog.make_strategy("pedigree"), Budget(evaluations=150, calls=3000)
        end = simulate(strategy, world.task(), world, budget, seed=seed, workers=4)
        assert end.verdict is not None
        kept, found = kept + end.verdict.kept_initial, [*found, end.verdict]
    assert kept >= 3
    assert all(each.drift == pytest.approx(1.5 * drift, rel=0.3) for each in found)
    verb = "rose" if drift > 0 else "fell"
    assert f"scores {verb} by 0." in result_sentence(found[0])
