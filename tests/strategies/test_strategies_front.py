"""Several objectives: the default strategy, the final choice, kills, failures.

Also strategies that know one score.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from bench.truth.worlds import FrontWorld

from culmen.core.brief import Brief
from culmen.core.evaluation import Observation
from culmen.core.event import EvaluateRequest, ProposeRequest
from culmen.core.result import RunResult
from culmen.core.usage import Budget
from culmen.evidence.front import hypervolume
from culmen.store.journal import MemoryJournal
from culmen.strategies.catalog import make_strategy
from culmen.strategies.pedigree import PedigreeSearch
from culmen.testing.virtual import Simulation, simulate

NOISY = FrontWorld(noise=0.03)


def search(
    world: FrontWorld, evaluations: int = 150, seed: int = 1, workers: int = 2, **more: object
) -> Simulation:
    budget = Budget(evaluations=evaluations)
    return simulate(
        PedigreeSearch(), world.task(), world, budget, seed=seed, workers=workers, **more
    )  # type: ignore[arg-type]


def chosen(done: Simulation) -> RunResult:
    assert done.verdict is not None
    return done.verdict


def true_volume(world: FrontWorld, done: Simulation) -> float:
    truth = [world.truth(done.search.lab.find(point.id)) for point in chosen(done).front]
    return hypervolume(np.array(truth), np.zeros(2))


def test_it_reports_a_front_that_is_far_beyond_the_initial_program_and_spread_out() -> None:
    world = FrontWorld(noise=0.0)
    done = search(world, 200)
    start = hypervolume(np.array([world.truth(done.search.lab.seeds[0])]), np.zeros(2))
    assert true_volume(world, done) > 20 * start
    places = [world.truth(done.search.lab.find(point.id)) for point in chosen(done).front]
    assert len(places) >= 4 and max(a for a, _ in places) > 2 * min(a for a, _ in places)


def test_every_reported_member_is_confirmed_on_fresh_evaluations_within_the_budget() -> None:
    done = search(NOISY)
    verdict = chosen(done)
    entries = (event.entry for event in done.journal.read())
    fresh = [
        e.result
        for e in entries
        if e.body.get("phase") == "final" and isinstance(e.result, Observation)
    ]
    assert verdict.confirmed and verdict.id in {point.id for point in verdict.front}
    for point in verdict.front:
        assert point.confirmed and point.count >= 2 and set(point.margins) == {"accuracy", "speed"}
        assert sum(seen.candidate == point.id for seen in fresh) == point.count
    assert done.search.ledger.spent.evaluations <= 150


@pytest.mark.slow
def test_what_is_reported_is_near_the_truth() -> None:
    gaps: list[float] = []
    for seed in range(4):
        done = search(NOISY, seed=seed)
        for point in chosen(done).front:
            truth = NOISY.truth(done.search.lab.find(point.id))
            gaps.append(point.metrics["accuracy"] - truth[0])
    assert abs(sum(gaps) / len(gaps)) < 0.02


def test_no_member_is_beaten_by_another_beyond_noise() -> None:
    for seed in range(4):
        points = chosen(search(FrontWorld(noise=0.0), 120, seed)).front
        pairs = [(p.metrics["accuracy"], -p.metrics["speed"]) for p in points]
        assert not any(a[0] >= b[0] and a[1] >= b[1] for a in pairs for b in pairs if a is not b)


@pytest.mark.slow
@pytest.mark.parametrize("kill", [1, 17, 60, 135])
def test_a_killed_search_goes_on_as_if_nothing_had_happened(kill: int) -> None:
    whole = search(NOISY, workers=4, order="request")
    journal = MemoryJournal()
    assert search(NOISY, workers=4, kill_after=kill, journal=journal, order="request").killed
    resumed = search(NOISY, workers=4, journal=journal, order="request")
    assert msgspec.to_builtins(resumed.verdict) == msgspec.to_builtins(whole.verdict)


def test_candidates_that_fail_and_evaluations_that_lack_a_metric_count_as_failures() -> None:
    world = replace(NOISY, flaky=0.1, blank=0.1)
    done = search(world, 200)
    assert true_volume(world, done) > 0.05
    assert all(np.isfinite(list(point.metrics.values())).all() for point in chosen(done).front)


def test_a_constraint_is_held_by_what_is_reported() -> None:
    world = FrontWorld(noise=0.02, constraints=("accuracy >= 0.3",))
    done = search(world, 200)
    front = chosen(done).front
    assert front and all(point.feasible and point.metrics["accuracy"] >= 0.3 for point in front)
    assert NOISY.truth(done.search.lab.seeds[0])[0] < 0.3


def test_metrics_of_very_different_scales_are_searched_alike() -> None:
    """Speed is in thousandths; here it is a billion times as large."""

    class Large(FrontWorld):
        def _seen(self, request, draws):
            told = super()._seen(request, draws)
            return msgspec.structs.replace(
                told, metrics={**told.metrics, "speed": told.metrics["speed"] * 2.0**30}
            )

    worlds = FrontWorld(noise=0.03), Large(noise=0.03)
    small, large = (search(world, 200) for world in worlds)
    assert 0.5 < true_volume(worlds[0], small) / true_volume(worlds[1], large) < 2.0


def test_requests_tell_the_weighting_and_the_trade_offs_known() -> None:
    briefs: list[Brief] = []

    class Watched(FrontWorld):
        def perform(self, effect, rng):
            if isinstance(effect.request, ProposeRequest):
                briefs.append(effect.request.brief)
            return super().perform(effect, rng)

    search(Watched(noise=0.03), 60)
    assert all("weighs the objectives so: accuracy" in brief.context for brief in briefs)
    assert len({brief.context for brief in briefs}) > len(briefs) / 2
    assert any(brief.inspirations for brief in briefs)


@pytest.mark.parametrize("name", ["polca", "openevolve", "gepa", "best_of_n"])
def test_a_strategy_that_knows_one_score_searches_and_a_front_is_reported(name: str) -> None:
    done = simulate(
        make_strategy(name, {}), NOISY.task(), NOISY, Budget(evaluations=80), seed=1, workers=2
    )
    assert chosen(done).front and all(point.confirmed for point in chosen(done).front)


def test_a_user_who_stops_still_gets_a_confirmed_front_and_tiny_budgets_an_unconfirmed_one() -> (
    None
):
    done = search(NOISY, 8)
    assert chosen(done).front and not any(point.confirmed for point in chosen(done).front)


def test_noise_is_learnt_by_repeats_and_exact_metrics_are_not_repeated() -> None:
    asked: list[str] = []

    class Counted(FrontWorld):
        def perform(self, effect, rng):
            if isinstance(effect.request, EvaluateRequest):
                asked.append(effect.request.candidate.id)
            return super().perform(effect, rng)

    search(Counted(noise=0.0), 120)
    assert len(asked) - len(set(asked)) < 30
