"""Nothing is paid for before an initial program has scored.

This holds for every strategy, resumed or not, with any number of workers.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from culmen.core.brief import Brief, Proposal
from culmen.core.candidate import Candidate
from culmen.core.evaluation import Observation, Status
from culmen.core.event import CustomRequest, EvaluateRequest, ProposeRequest, WriteRequest
from culmen.core.usage import Budget
from culmen.engine.search import ALIKE, LOOKS
from culmen.store.journal import MemoryJournal
from culmen.strategies import catalog
from culmen.testing.landscape import Landscape, task
from culmen.testing.strategy_kit import outcome
from culmen.testing.virtual import simulate

BUDGET = Budget(evaluations=40)
PAID = ProposeRequest | WriteRequest | CustomRequest


class Failing(Landscape):
    """A landscape on which the requests that `fails` picks fail."""

    def __init__(self, fails, feedback="KeyError: 'x'"):
        super().__init__(sigma=0.1)
        self.fails, self.feedback, self.asked = fails, feedback, []

    def perform(self, effect, rng):
        self.asked.append(effect.request)
        request = effect.request
        if isinstance(request, EvaluateRequest) and self.fails(request, len(self.asked)):
            text = (
                self.feedback if isinstance(self.feedback, str) else self.feedback(len(self.asked))
            )
            return 1.0, Observation(
                request.candidate.id, Status.ERROR, feedback=text, seed=request.seed
            )
        return super().perform(effect, rng)


def ready(name):
    return catalog.make_strategy(name, {})


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize(
    "name", ["pedigree", "polca", "best_of_n", "gepa", "turboevolve", "pacevolve", "map_elites"]
)
def test_nothing_is_asked_of_a_model_where_the_initial_program_fails(name, workers):
    world = Failing(lambda request, _: True)
    run = simulate(ready(name), task(), world, BUDGET, seed=1, workers=workers)
    assert run.search.reason == "initial_fails" and run.search.is_done and run.verdict is None
    assert not [request for request in world.asked if isinstance(request, PAID)]
    assert len([r for r in world.asked if isinstance(r, EvaluateRequest)]) < 10


@pytest.mark.parametrize("name", ["pedigree", "polca", "best_of_n", "gepa", "turboevolve"])
def test_the_first_score_comes_before_the_first_model_call_and_a_resumed_run_is_the_same(name):
    whole = simulate(
        ready(name), task(), Landscape(sigma=0.1), BUDGET, seed=2, workers=4, order="request"
    )
    kinds = [e.entry.effect for e in whole.journal.read() if e.entry.kind == "done"]
    assert kinds.index("evaluate") < kinds.index("propose")
    for point in (1, 2, 5):
        journal = MemoryJournal()
        for kill in (point, None):
            simulate(
                ready(name),
                task(),
                Landscape(sigma=0.1),
                BUDGET,
                seed=2,
                workers=4,
                order="request",
                journal=journal,
                kill_after=kill,
            )
        assert outcome(journal) == outcome(whole.journal)


@dataclass(frozen=True)
class Proposing:
    """Asks a model at once and evaluates no initial program."""

    async def search(self, lab):
        async def lane():
            while True:
                for candidate in (
                    await lab.propose(Brief(lab.seeds[0] if lab.seeds else None))
                ).candidates:
                    await lab.evaluate(candidate)

        await lab.gather(*(lane() for _ in range(3)))


@pytest.mark.parametrize("workers", [1, 3])
def test_the_engine_asks_where_the_strategy_does_not(workers):
    world = Failing(lambda *_: False)
    run = simulate(Proposing(), task(), world, BUDGET, seed=1, workers=workers, order="request")
    assert isinstance(world.asked[0], EvaluateRequest) and isinstance(
        world.asked[1], ProposeRequest
    )
    journal = MemoryJournal()
    for kill in (1, 4, None):
        simulate(
            Proposing(),
            task(),
            Failing(lambda *_: False),
            BUDGET,
            seed=1,
            workers=workers,
            order="request",
            journal=journal,
            kill_after=kill,
        )
    assert outcome(journal) == outcome(run.journal)


def test_an_initial_program_is_given_up_after_three_failures():
    run = simulate(Proposing(), task(), Failing(lambda *_: True), BUDGET, seed=1)
    assert (
        run.search.reason == "initial_fails" and run.search.ledger.spent.evaluations == LOOKS == 3
    )


def test_one_failure_of_a_flaky_evaluator_ends_nothing():
    world = Failing(lambda _, asked: asked < 3)
    run = simulate(Proposing(), task(), world, BUDGET, seed=1)
    assert run.search.reason == "evaluations"


def test_of_several_initial_programs_one_has_to_score():
    bad = Candidate.of(task(seeds=(0.1, 0.5)).seeds[0])
    world = Failing(lambda request, _: request.candidate.id == bad.id)
    run = simulate(Proposing(), task(seeds=(0.1, 0.5)), world, BUDGET, seed=1)
    assert run.search.reason == "evaluations"
    world = Failing(lambda *_: True)
    run = simulate(Proposing(), task(seeds=(0.1, 0.5)), world, BUDGET, seed=1)
    assert run.search.reason == "initial_fails"
    assert len({request.candidate.id for request in world.asked}) == 2


def test_without_an_initial_program_the_search_ends_where_the_first_evaluations_all_fail_alike():
    alike = simulate(
        Proposing(),
        task(seeds=()),
        Failing(lambda *_: True, lambda n: f"line {n}: boom"),
        BUDGET,
        seed=1,
    )
    assert alike.search.reason == "always_fails"
    assert alike.search.ledger.spent.evaluations == ALIKE == 10
    words = "abcdefghijklmnopqrstuvwxyz"
    apart = Failing(lambda *_: True, lambda n: f"boom {words[n % 26]}")
    assert (
        simulate(Proposing(), task(seeds=()), apart, BUDGET, seed=1).search.reason == "evaluations"
    )


def test_a_run_may_be_told_to_search_all_the_same():
    seed = task().initial_candidates()[0]
    world = Failing(lambda request, _: request.candidate.id == seed.id)
    run = simulate(Proposing(), task(), world, BUDGET, seed=1, trial=False)
    assert run.search.reason == "evaluations" and run.verdict is not None
    assert any(isinstance(e.entry.result, Proposal) for e in run.journal.read())
