"""Messages of a person to a running search: hints, candidates, and the end of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

import msgspec
import pytest

from culmen.core.brief import Brief, Proposal
from culmen.core.candidate import Candidate, Origin
from culmen.core.evaluation import Case
from culmen.core.event import Effect, Entry, ProposeRequest, Result, at_least
from culmen.core.usage import Budget
from culmen.engine.driver import replay_journal
from culmen.engine.search import Search
from culmen.store.journal import MemoryJournal
from culmen.strategies import catalog
from culmen.testing.landscape import Landscape, landscape_program, task, written_reward
from culmen.testing.strategy_kit import outcome
from culmen.testing.virtual import simulate

BUDGET = Budget(evaluations=60)
OWN = Candidate.of(landscape_program(0.97, 424242), (), Origin("person"))


def hint(text: str, name: str = "1") -> Entry:
    return Entry("tell", body={"tell": "hint", "id": name, "text": text})


def handed(candidate: Candidate = OWN, name: str = "2") -> Entry:
    body = {"tell": "candidate", "id": name}
    return Entry("tell", effect="candidates", body=body, result=Proposal(candidates=(candidate,)))


def stopped(name: str = "3") -> Entry:
    return Entry("stop", body={"reason": "user", "id": name})


@dataclass
class Listening:
    """A landscape that remembers the briefs it was asked with."""

    world: Landscape = field(default_factory=lambda: Landscape(sigma=0.1))
    briefs: list[Brief] = field(default_factory=list)

    def perform(self, effect: Effect, rng: Random) -> tuple[float, Result]:
        if isinstance(effect.request, ProposeRequest):
            self.briefs.append(effect.request.brief)
        return self.world.perform(effect, rng)


def test_every_request_after_a_hint_carries_it_and_none_before():
    world = Listening()
    strategy = catalog.make_strategy("polca", {})
    simulate(
        strategy, task(), world, BUDGET, seed=1, workers=2, told=[(20, hint("try smaller steps"))]
    )
    carried = ["try smaller steps" in brief.context for brief in world.briefs]
    assert True in carried and False in carried
    assert carried == sorted(carried)


def test_hints_stand_before_what_the_strategy_says_in_their_order():
    world = Listening()
    strategy = catalog.make_strategy("polca", {"summarizer": "summarizer(every=0)"})
    told = [(10, hint("first", "a")), (11, hint("second", "b"))]
    simulate(strategy, task(), world, BUDGET, seed=1, workers=2, told=told)
    context = world.briefs[-1].context
    assert (
        context.index("first") < context.index("second") < context.index("climb")
    )  # the landscape's summary


def test_a_candidate_that_a_person_hands_in_is_evaluated_and_may_win():
    run = simulate(
        catalog.make_strategy("sequential", {}),
        task(),
        Landscape(sigma=0.05),
        BUDGET,
        seed=1,
        told=[(5, handed())],
    )
    assert run.search.evidence.account.tally(OWN.id)
    assert run.verdict is not None
    assert (
        written_reward(run.search.lab.find(run.verdict.id)) >= 0.97
    )  # it wins, or what came of it
    without = simulate(
        catalog.make_strategy("sequential", {}), task(), Landscape(sigma=0.05), BUDGET, seed=1
    )
    assert not without.search.evidence.account.tally(OWN.id)


@pytest.mark.parametrize(
    "name", ["polca", "turboevolve", "map_elites", "gepa", "puct", "pacevolve"]
)
def test_strategies_take_such_a_candidate_up_like_a_models(name: str):
    """Children of it are proposed: it is far better than anything else."""
    budget = Budget(evaluations=200)
    run = simulate(
        catalog.make_strategy(name, {}),
        task(),
        Landscape(),
        budget,
        seed=1,
        workers=2,
        told=[(5, handed())],
    )
    made = [
        c
        for e in run.journal.read()
        if isinstance(e.entry.result, Proposal)
        for c in e.entry.result.candidates
    ]
    assert any(OWN.id in candidate.parents for candidate in made)


def test_the_lab_shows_all_that_was_told_in_order():
    seen: list[tuple[str, ...]] = []

    @dataclass(frozen=True)
    class Reading:
        async def search(self, lab) -> None:
            while True:
                answer = await lab.propose(Brief(lab.seeds[0]))
                await lab.evaluate(answer.candidates[0])
                seen.append(tuple(told.hint or told.candidate.id for told in lab.inbox()))

    told = [(3, hint("one", "a")), (6, handed(name="b")), (9, hint("two", "c"))]
    simulate(Reading(), task(), Landscape(), Budget(evaluations=20), seed=1, told=told)
    assert seen[0] == () and seen[-1] == ("one", OWN.id, "two")
    assert all(later[: len(now)] == now for now, later in pairwise(seen))


def test_a_stop_ends_the_search_and_makes_a_final_choice_that_does_not_take_long():
    budget = Budget(evaluations=5000)
    run = simulate(
        catalog.make_strategy("polca", {}),
        task(),
        Landscape(sigma=0.1),
        budget,
        seed=1,
        told=[(40, stopped())],
    )
    assert run.search.is_done and run.search.reason == "user"
    assert run.verdict is not None and run.verdict.confirmed
    assert run.search.ledger.spent.evaluations <= 40 + 24 + 2  # two were in flight


def test_what_comes_after_the_search_has_ended_changes_nothing():
    told = [(15, stopped()), (16, handed()), (17, hint("too late", "4"))]
    run = simulate(
        catalog.make_strategy("polca", {}), task(), Landscape(sigma=0.1), BUDGET, seed=1, told=told
    )
    without = simulate(
        catalog.make_strategy("polca", {}),
        task(),
        Landscape(sigma=0.1),
        BUDGET,
        seed=1,
        told=told[:1],
    )
    assert run.verdict == without.verdict and not run.search.evidence.account.tally(OWN.id)


def test_a_candidate_gets_no_more_cases_than_the_budget_has_room_for():
    @dataclass(frozen=True)
    class Slow:
        async def search(self, lab) -> None:
            while True:
                await lab.evaluate(lab.seeds[0], lab.minibatch(1))

    cases = tuple(Case(str(n)) for n in range(20))
    about = msgspec.structs.replace(task(), cases=cases)
    run = simulate(Slow(), about, Landscape(), Budget(evaluations=9), seed=1, told=[(4, handed())])
    tally = run.search.evidence.account.tally(OWN.id)
    assert tally.count == 4  # one of the seed's was in flight already
    assert run.search.ledger.spent.evaluations == 9


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["polca", "turboevolve", "map_elites", "gepa", "puct", "best_of_n", "beam", "pacevolve"]
)
def test_killed_anywhere_and_resumed_a_run_that_was_told_things_is_the_same(name: str):
    told = [(7, hint("smaller steps")), (15, handed()), (44, stopped())]
    strategy = catalog.make_strategy(name, {})
    world = Landscape(sigma=0.1)
    whole = simulate(strategy, task(), world, BUDGET, seed=3, workers=3, order="request", told=told)
    expected = record(whole.journal)
    assert sum(entry.kind in ("tell", "stop") for entry in expected) == 3
    for point in range(1, whole.performed, max(1, whole.performed // 12)):
        journal = MemoryJournal()
        options = {"seed": 3, "workers": 3, "order": "request", "journal": journal, "told": told}
        simulate(strategy, task(), world, BUDGET, kill_after=point, **options)
        resumed = simulate(strategy, task(), world, BUDGET, **options)
        assert outcome(journal) == outcome(whole.journal), f"killed after {point}"
        assert resumed.verdict == whole.verdict
        again = Search(strategy, task(), BUDGET, 3, 3)
        replay_journal(again, journal.read(), at_least)
        assert again.result_so_far == whole.verdict


def record(journal: MemoryJournal) -> list[Entry]:
    entries = [msgspec.structs.replace(event.entry, elapsed=0.0) for event in journal.read()]
    return [entry for entry in entries if entry.kind in ("done", "note", "stop", "tell")]
