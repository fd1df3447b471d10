"""The reserve of the final choice: what telling the gain takes, in every budget."""

from __future__ import annotations

import math
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from bench.truth.hazards import hazard_world

from culmen.core.candidate import Candidate
from culmen.core.evaluation import Observation, Status
from culmen.core.event import EvaluateRequest
from culmen.core.task import Evaluator, Task
from culmen.core.usage import Budget, Usage
from culmen.engine.ledger import CHECKS, LARGEST_SHARE, Ledger
from culmen.engine.reserve import (
    FACTOR,
    LeaderControl,
    Reserve,
    ReservePlanner,
    evaluations_to_tell,
)
from culmen.evidence.evidence import Evidence
from culmen.evidence.intervals import t_quantile_95
from culmen.strategies import catalog
from culmen.testing.virtual import Simulation, simulate


def test_a_gain_of_twelve_tenths_of_the_noise_takes_eleven_evaluations_of_each() -> None:
    assert pytest.approx(2.80, abs=0.01) == FACTOR
    assert evaluations_to_tell(1.2, 1.0) == pytest.approx(10.9, abs=0.1)
    assert evaluations_to_tell(-0.6, 1.0) == 4 * evaluations_to_tell(1.2, 1.0)


class Timed:
    """A world whose evaluations say how long they took, and cost a given sum."""

    def __init__(self, name: str, seed: int, seconds: float, cost: Usage | None = None) -> None:
        world = hazard_world(name, seed)
        self.world = replace(world, evaluate_seconds=seconds, propose_seconds=seconds / 10)
        self.cost, self.seconds = cost, seconds

    def task(self) -> Task:
        return self.world.task()

    def perform(self, effect, rng):
        seconds, result = self.world.perform(effect, rng)
        if isinstance(effect.request, EvaluateRequest) and isinstance(result, Observation):
            seconds = self.seconds
            more = {"usage": self.cost, "asked": ("model",)} if self.cost else {}
            result = msgspec.structs.replace(result, seconds=seconds, **more)
        return seconds, result


def run(
    name: str, budget: Budget, seconds: float = 0.05, seed: int = 3, method: str = "pedigree"
) -> Simulation:
    world = Timed(name, seed, seconds)
    strategy = catalog.make_strategy(method)
    return simulate(strategy, world.task(), world, budget, seed=seed, workers=2)


def final_evaluations(end: Simulation) -> int:
    account = end.search.evidence.account
    return sum(len(seen) for part in (account.looks, account.fresh) for seen in part.values())


GAIN = "one gain of 1.2 sd"


def test_the_reserve_follows_the_gain_and_is_noted() -> None:
    end = run(GAIN, Budget(evaluations=300, calls=6000))
    made = final_evaluations(end)
    assert 16 < made <= LARGEST_SHARE * 300
    notes = [e.entry.body for e in end.journal.read() if e.entry.body.get("note") == "reserve"]
    assert len(notes) == 1 and notes[0]["evaluations"] >= made > 16
    assert notes[0]["of"] == 300 and notes[0]["gain"] > 0 < notes[0]["noise"]
    assert end.verdict is not None and end.verdict.gain is not None


def test_a_strategy_that_repeats_nothing_learns_the_noise_and_keeps_a_reserve() -> None:
    """Without pairs it kept the least share, and a quarter of the gains were beyond noise."""
    end = run(GAIN, Budget(evaluations=150, calls=3000), method="turboevolve")
    account = end.search.evidence.account
    assert account.repeated.squares > 0 and final_evaluations(end) >= 0.15 * 150
    assert end.verdict is not None and end.verdict.gain is not None


def test_pairs_are_of_the_initial_program_and_the_best_other_one_whichever_leads() -> None:
    task = Task("noisy", seeds=({"text": "first"},))
    (initial,), other = task.initial_candidates(), Candidate.of({"text": "second"})
    evidence = Evidence(task)
    control = LeaderControl(evidence)
    for at in range(40):
        candidate, score = (initial, 1.0) if at % 2 else (other, 0.5)
        seen = Observation(candidate.id, Status.OK, score + 0.01 * at, seed=at)
        evidence.observe(candidate, seen)
    assert evidence.ranking.best_ids(1) == [initial.id]
    assert control.next_pair() == (initial.id, other.id)
    assert control.next_pair() == ()


def test_a_run_without_noise_keeps_no_more_than_before() -> None:
    end = run("exact", Budget(evaluations=300, calls=6000))
    assert final_evaluations(end) == 2 and end.search.evidence.account.made > 295


def test_a_search_that_ended_early_leaves_what_its_choice_does_not_need() -> None:
    """It evaluated the winner and the initial program until all evaluations were spent."""
    end = run(GAIN, Budget(evaluations=5000, calls=60))
    assert end.verdict is not None and end.verdict.gain is not None
    assert 200 <= final_evaluations(end) <= LARGEST_SHARE * 5000
    assert end.search.evidence.account.made < 2200


def test_a_share_that_is_named_is_kept_as_named() -> None:
    end = run(GAIN, Budget(evaluations=200, calls=4000, final=0.1))
    assert final_evaluations(end) <= 20


@pytest.mark.parametrize(
    "budget",
    [
        Budget(seconds=10.0),
        Budget(evaluations=1500, seconds=10.0),
        Budget(evaluations=410, seconds=10.0),
    ],
)
def test_the_budget_that_ends_first_keeps_time_for_the_final_choice(budget: Budget) -> None:
    """About 400 evaluations of 50 ms by two workers; before, the clock ended the race."""
    end = run(GAIN, budget)
    assert end.verdict is not None and end.verdict.confirmed and end.verdict.initial is not None
    assert end.verdict.count >= 10 and end.verdict.initial.count >= 10
    assert end.search.reason == "seconds" and end.seconds <= 10.0 + 0.1
    made = end.search.evidence.account.made
    assert final_evaluations(end) <= (LARGEST_SHARE + 0.05) * made  # in the time that is kept


def test_time_is_kept_for_as_many_evaluations_as_are_planned() -> None:
    ledger = Ledger(Budget(evaluations=1000, seconds=100.0), 40, workers=2)
    assert ledger.kept_seconds == 10.0 and ledger.seconds_each == 0.0
    for key in range(10):
        ledger.reserve(key, Usage(evaluations=1))
        ledger.elapsed += 2.0
        ledger.settle(key, Usage(evaluations=1))
    assert ledger.seconds_each == 1.0 and ledger.kept_seconds == LARGEST_SHARE * 100.0
    assert ledger.expected_evaluations == 50.0
    ledger.set_reserve(20)
    assert ledger.kept_seconds == 24.0


def test_a_reserve_grows_only_by_what_is_neither_spent_nor_in_flight() -> None:
    ledger = Ledger(Budget(evaluations=10), 2)
    ledger.reserve(1, Usage(evaluations=6))
    ledger.set_reserve(8)
    assert ledger.budget_left("evaluations") == 0.0
    assert not ledger.exceeded_budget(Usage(evaluations=6))
    ledger.set_reserve(1)
    assert ledger.budget_left("evaluations") == 3.0


def test_money_is_kept_for_the_final_choice_where_evaluations_cost_it() -> None:
    ledger = Ledger(Budget(dollars=1.0), 30)
    ledger.learn_cost(Usage(evaluations=1, dollars=0.01))
    assert ledger.budget_left("dollars") == pytest.approx(0.7)
    ledger.set_reserve(100)
    assert ledger.budget_left("dollars") == pytest.approx(1 - LARGEST_SHARE)
    ledger.set_reserve(0)
    assert ledger.budget_left("dollars") == pytest.approx(0.9)


def planned(tolerances: bool) -> Reserve:
    """The plan of a run whose best is 0.2 ahead, at a noise of 0.1."""
    evaluator = Evaluator(path="evaluator.py", tolerances=tolerances)
    task = Task("noisy", seeds=({"text": "first"},), evaluator=evaluator)
    (initial,), other = task.initial_candidates(), Candidate.of({"text": "second"})
    budget, evidence = Budget(evaluations=200), Evidence(task)
    for at in range(60):
        candidate, score = (other, 0.7) if at % 2 else (initial, 0.5)
        around = 0.1 if at % 4 < 2 else -0.1
        evidence.observe(candidate, Observation(candidate.id, Status.OK, score + around, seed=at))
    return ReservePlanner(budget, task, evidence).update(150, 200.0)


def test_a_reserve_tells_the_gain_it_is_planned_for_in_nine_of_ten_runs() -> None:
    """With 0.8, and without what tests of a tolerance take, five evaluations of each were left."""
    plan = planned(tolerances=False)
    assert plan.gain > 0 and plan.evaluations > plan.least
    each = int(0.75 * plan.evaluations / 2)
    draws, told = np.random.default_rng(0), 0
    for _ in range(1000):
        pairs = draws.normal(plan.gain, math.sqrt(2) * plan.noise, each)
        error = pairs.std(ddof=1) / math.sqrt(each)
        told += pairs.mean() > t_quantile_95(each - 1) * error
    assert 0.88 <= told / 1000 <= 0.94
    assert planned(tolerances=True).evaluations == plan.evaluations + CHECKS
