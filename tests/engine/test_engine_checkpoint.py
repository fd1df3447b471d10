"""Checkpoints: a search that goes on from one is the search that never stopped."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import pytest
from bench.truth import worlds
from bench.truth.worlds import FrontWorld

from culmen.core.event import Effect, Entry, EvaluateRequest, Result
from culmen.core.ports import Lab
from culmen.core.usage import Budget
from culmen.engine.lab import _STORED as LAB_STORED
from culmen.engine.loop import CheckpointBarrier, pack_state
from culmen.engine.search import _STORED, Search
from culmen.strategies import catalog
from culmen.testing.landscape import Landscape, task
from culmen.testing.strategy_kit import ROUGH, StoredStates, check_checkpoints
from culmen.testing.virtual import simulate

STRATEGIES = [
    *("pedigree", "best_of_n", "map_elites", "puct", "gepa", "polca", "beam", "sequential"),
    *("turboevolve", "openevolve"),
]
RUN = Budget(evaluations=160)


@pytest.mark.slow
@pytest.mark.parametrize("name", STRATEGIES)
def test_a_search_that_goes_on_from_a_checkpoint_is_the_same(name: str) -> None:
    strategy = catalog.make_strategy(name)
    # its turns of up to seven evaluations on each of five islands are rarely at rest together
    budget = Budget(evaluations=480) if name == "turboevolve" else RUN
    least = 1 if name == "turboevolve" else 2
    assert check_checkpoints(strategy, task(), Landscape(sigma=0.2), budget, every=30) >= 2
    assert check_checkpoints(strategy, task(), ROUGH, budget, every=30, trial=False) >= least


@pytest.mark.parametrize("name", ["pedigree", "best_of_n"])
def test_so_is_one_with_many_workers(name: str) -> None:
    strategy = catalog.make_strategy(name)
    assert check_checkpoints(strategy, task(), Landscape(sigma=0.1), RUN, every=40, workers=8) >= 1


def test_one_worker_is_at_rest_after_each_turn() -> None:
    strategy = catalog.make_strategy("pedigree")
    assert check_checkpoints(strategy, task(), Landscape(sigma=0.1), every=10, workers=1) >= 6


@dataclass(frozen=True)
class Hanging(Landscape):
    """A world in which one evaluation of twenty takes as long as a thousand others."""

    def perform(self, effect: Effect, rng: Random) -> tuple[float, Result]:
        seconds, result = super().perform(effect, rng)
        slow = isinstance(effect.request, EvaluateRequest) and rng.random() < 0.05
        return (1000 * seconds if slow else seconds), result


def test_lanes_do_not_wait_long_for_one_that_hangs() -> None:
    """Three lanes work on beside a hung evaluation; without patience they would wait for it."""

    def seconds(every: int) -> tuple[float, int]:
        stored = StoredStates()
        run = simulate(
            *(catalog.make_strategy("pedigree"), task(), Hanging(sigma=0.1), RUN),
            seed=5,
            workers=4,
            checkpoints=stored,
            every=every,
        )
        return run.seconds, len(stored.states)

    (without, none), (with_checkpoints, _) = seconds(0), seconds(20)
    assert none == 0
    assert with_checkpoints < 2.5 * without


def test_every_member_is_stored_or_follows_from_the_settings() -> None:
    """A new member of a search or its lab is named here: stored by a checkpoint or not."""
    search = Search(
        catalog.make_strategy("pedigree"), task(), RUN, 1, barrier=CheckpointBarrier(10)
    )
    settings = {"task", "budget", "observations", "watch", "save", "lab", "reservations", "reason"}
    follows = {
        *(
            "_strategy",
            "_stops_at_gaming",
            "_checks_tolerance",
            "_bars_admitted",
            "_cases",
            "_estimate",
            "_cache",
        ),
        *("_root", "budget_queue"),
    }
    empty = {"phase", "in_flight", "_futures", "_admitted", "_finale", "_loop"}
    assert set(vars(search)) == set(_STORED) | settings | follows | empty
    assert set(vars(search.budget_queue)) == {"_ledger", "_estimate"} | {
        "waiting",
        "closing",
        "_fresh",
        "_refused",
        "_shortened",  # of requests under way
    }
    ports = {"_issue", "_remembered", "_find", "_remark", "_short", "_informed", "_hold_lane"}
    given = {"task", "workers", "seeds", "restored", "_loop", "_seed", "_train"}
    assert set(vars(search.lab)) == set(LAB_STORED) | ports | given


def test_no_checkpoint_is_due_before_a_thousand_completions_or_a_hundred_of_each_worker() -> None:
    def first_due(workers: int) -> int:
        barrier = CheckpointBarrier(1000, workers)
        while not barrier.is_due:
            barrier.completions += 1
        return barrier.completions

    assert (first_due(1), first_due(8), first_due(64)) == (1000, 1000, 6400)
    never = CheckpointBarrier()
    never.completions = 10**9
    assert not never.is_due


@dataclass(frozen=True)
class Closure:
    """A strategy whose state cannot be stored."""

    async def search(self, lab: Lab) -> None:
        state: Callable[[], int] = lambda: 1  # noqa: E731
        while True:
            await lab.checkpoint(state)
            await lab.evaluate(lab.seeds[0])


def test_a_state_that_cannot_be_stored_is_an_error_of_the_store_alone() -> None:
    search = Search(Closure(), task(), RUN, 1, barrier=CheckpointBarrier(2))
    failed: list[Exception] = []

    def save(state: object) -> None:
        with pytest.raises((AttributeError, TypeError, pickle.PicklingError)) as caught:
            pack_state(state, search.anchors)  # pyright: ignore[reportArgumentType]
        failed.append(caught.value)

    search.save = save
    world, effects = Landscape(sigma=0.1), search.start()
    for _ in range(5):
        (effect,) = effects
        _, result = world.perform(effect, Random(1))
        effects = search.feed(Entry("done", effect.key, effect.mark, effect.kind, result=result))
    assert failed and effects


@pytest.mark.slow
@pytest.mark.parametrize("name", ["data set", "0/1 scores", "broken children"])
def test_so_is_one_on_a_data_set_and_one_whose_candidates_fail(name: str) -> None:
    world = worlds.FAMILY[name]
    for strategy in ("pedigree", "best_of_n"):
        searched = catalog.make_strategy(strategy)
        assert check_checkpoints(searched, world.task(), world, RUN, every=20) >= 1


@pytest.mark.slow
def test_so_is_one_with_two_objectives() -> None:
    world = FrontWorld()
    assert check_checkpoints(catalog.make_strategy("pedigree"), world.task(), world, RUN) >= 3


class _Shared:
    """The shared part of two lanes: their evaluations by lane."""

    def __init__(self, lab: Lab) -> None:
        self.lab, self.made = lab, [0, 0]


@dataclass(frozen=True)
class OneEnds:
    """Two lanes, of which one ends after three evaluations."""

    async def search(self, lab: Lab) -> None:
        shared = lab.restored
        if not isinstance(shared, _Shared):
            shared = _Shared(lab)
        await lab.gather(*(self.run_lane(shared, lane) for lane in range(2)))

    async def run_lane(self, shared: _Shared, lane: int) -> None:
        most = 3 if lane == 0 and sum(shared.made) < 8 else 10**6
        for _ in range(most):
            await shared.lab.checkpoint(shared)
            await shared.lab.evaluate(shared.lab.seeds[0], [None])
            shared.made[lane] += 1


def test_once_a_lane_has_ended_nothing_is_stored() -> None:
    """A search that begins with a checkpoint begins all its lanes, also one that had ended."""
    assert check_checkpoints(OneEnds(), task(), Landscape(sigma=0.1), every=12, workers=2) == 0
