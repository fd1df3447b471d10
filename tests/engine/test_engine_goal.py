"""A score at which a search ends: believed only after a second look, and the same on resume."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import pytest

from culmen.core.candidate import Candidate
from culmen.core.errors import UserError
from culmen.core.evaluation import Case
from culmen.core.event import EvaluateRequest, at_least
from culmen.core.task import Evaluator, Objective
from culmen.core.usage import Budget
from culmen.engine.driver import replay_journal
from culmen.engine.search import Search
from culmen.extensions.agents.cato import Cato
from culmen.run.request import parse_stop_score
from culmen.store.journal import MemoryJournal
from culmen.strategies import catalog
from culmen.testing.landscape import Landscape, landscape_program, task
from culmen.testing.strategy_kit import outcome
from culmen.testing.virtual import simulate

from .worlds import TASK, Script

BUDGET = Budget(evaluations=400)
PLAIN = task(deterministic=True)
NOISY = task()
EXACT = msgspec.structs.replace(PLAIN, evaluator=Evaluator(verifier="/v.py"))


@dataclass(frozen=True)
class Verified(Landscape):
    """The verifier takes away the part of a claim above `most`."""

    most: float = 1.0

    def perform(self, effect, rng):
        seconds, seen = super().perform(effect, rng)
        if isinstance(effect.request, EvaluateRequest) and effect.request.certify and seen.ok:
            value = min(seen.score, self.most)
            seen = msgspec.structs.replace(seen, strict=value == seen.score, certified=value)
        return seconds, seen


def run(about, world, stop_at, name="sequential", seed=2, **options):
    return simulate(
        catalog.make_strategy(name, {}), about, world, BUDGET, seed=seed, stop_at=stop_at, **options
    )


def test_the_search_ends_when_the_score_is_reached_and_costs_nothing_more():
    end = run(PLAIN, Landscape(), 0.5, seed=4)
    assert end.search.reason == "target" and end.verdict.score >= 0.5
    assert end.search.evidence.account.evaluations < 200
    assert run(PLAIN, Landscape(), None).search.reason == "evaluations"
    assert run(PLAIN, Landscape(), 1.5).search.reason != "target"  # nothing scores that much


def test_a_seed_may_be_enough():
    end = run(msgspec.structs.replace(PLAIN, seeds=(landscape_program(0.6),)), Landscape(), 0.5)
    assert end.search.reason == "target"


def test_scores_that_should_fall():
    falling = msgspec.structs.replace(PLAIN, objective=Objective(direction="min"))
    assert run(falling, Landscape(), 0.0).search.reason == "target"  # the seed scores 0
    assert run(falling, Landscape(), -1.0).search.reason != "target"


def test_the_verifier_has_the_last_word():
    end = run(EXACT, Verified(), 0.5)
    assert end.search.reason == "target" and end.verdict.certified >= 0.5
    assert run(EXACT, Verified(most=0.4), 0.5).search.reason != "target"
    assert run(EXACT, Verified(most=0.5), 0.5).search.reason == "target"


def test_a_lucky_score_is_not_believed():
    """The best there is lies below the goal; single scores of it often lie above."""
    low = Landscape(sigma=0.3, bound=0.3, failure=Landscape().failure)
    ends = [run(NOISY, low, 0.8, "polca", seed).search.reason for seed in (1, 3, 4)]
    assert "target" not in ends
    assert run(NOISY, Landscape(sigma=0.1), 0.5, "polca").search.reason == "target"


def test_all_training_cases_count():
    """With three cases a strategy that looks at one at a time claims early.

    All cases are asked before it ends.
    """
    cases = msgspec.structs.replace(PLAIN, cases=tuple(Case(str(n)) for n in range(3)))
    end = run(cases, Landscape(), 0.5, "polca")
    assert end.search.reason == "target"
    assert any(
        tally.count >= 3 and tally.mean >= 0.5 for tally in end.search.evidence.account.tallies()
    )


@dataclass(frozen=True)
class Again:
    """Evaluates one candidate so often, on the first training case."""

    times: int

    async def search(self, lab):
        for _ in range(self.times):
            await lab.evaluate(Candidate.of({"x": "a"}), (lab.task.split("train") or (None,))[:1])


def looked(told, times, about=TASK, evaluations=60):
    """The reason for the end of a search that should reach a mean of 1, and its evaluations.

    The scores come one after the other.
    """
    end = simulate(
        Again(times),
        about,
        Script({"0.0": [0.0], "a": told}),
        Budget(evaluations=evaluations),
        stop_at=1.0,
        trial=False,
    )
    return end.search.reason, end.search.evidence.account.evaluations


def test_a_claim_is_checked_by_one_evaluation_and_again_after_twice_as_many():
    assert looked([1.2, 1.0], 5) == ("target", 2)
    assert looked([0.9], 5) == ("strategy_done", 5)  # never claimed
    assert looked([2.0, 0.9, 0.0], 3) == (
        "strategy_done",
        4,
    )  # the mean is enough, the look by itself is not
    told = [
        1.2,
        0.5,
        1.5,
        1.5,
        0.1,
        0.0,
    ]  # the second and the fifth are looks: with three, the mean was above 1 as well
    assert [looked(told, times) for times in (2, 3, 4)] == [("strategy_done", n) for n in (3, 5, 6)]
    verified = msgspec.structs.replace(TASK, evaluator=Evaluator(verifier="/v.py"))
    assert looked([2.0], 9, verified) == (
        "strategy_done",
        10,
    )  # what the verifier refused once is not asked again


def test_what_failed_claims_nothing_and_a_look_that_fails_on_a_case_reaches_nothing():
    one = msgspec.structs.replace(TASK, cases=(Case("a"),))
    assert looked([None, 2.0], 4, one, evaluations=9) == (
        "strategy_done",
        4,
    )  # too few for the engine's own looks
    assert looked([2.0], 4, one, evaluations=9) == ("target", 2)
    cases = msgspec.structs.replace(TASK, cases=tuple(Case(str(n)) for n in range(3)))
    assert looked([2.0], 1, cases) == ("target", 4)
    assert looked([2.0, 2.0, None, 2.0], 1, cases, evaluations=9) == ("strategy_done", 4)
    assert looked([4.0, 0.5, 0.5, 0.5], 1, cases) == ("strategy_done", 4)


def test_a_look_is_made_where_the_budget_holds_all_of_it():
    assert looked([2.0], 1, evaluations=2) == ("target", 2)
    cases = msgspec.structs.replace(TASK, cases=tuple(Case(str(n)) for n in range(3)))
    assert looked([2.0], 1, cases, evaluations=4) == ("target", 4)
    assert looked([2.0], 1, cases, evaluations=3) == ("strategy_done", 1)


@pytest.mark.parametrize("about", [PLAIN, NOISY, EXACT])
def test_killed_anywhere_and_resumed_it_ends_at_the_same_place(about):
    world = Verified(sigma=0.05 if about is NOISY else 0.0)
    options = {"seed": 3, "workers": 3, "order": "request", "stop_at": 0.5}
    strategy = catalog.make_strategy("polca", {})
    whole = simulate(strategy, about, world, BUDGET, **options)
    assert whole.search.reason == "target"
    for point in range(1, whole.performed, max(1, whole.performed // 8)):
        journal = MemoryJournal()
        simulate(strategy, about, world, BUDGET, kill_after=point, journal=journal, **options)
        resumed = simulate(strategy, about, world, BUDGET, journal=journal, **options)
        assert outcome(journal) == outcome(whole.journal) and resumed.verdict == whole.verdict
    again = Search(strategy, about, BUDGET, 3, 3, stop_at=0.5)
    replay_journal(again, whole.journal.read(), at_least)
    assert again.reason == "target" and again.result_so_far == whole.verdict


def test_what_can_be_asked_for():
    aimed = msgspec.structs.replace(PLAIN, objective=Objective(target=0.9))
    assert [parse_stop_score(aimed, text) for text in (None, "none", "target", "0.25", 3)] == [
        None,
        None,
        0.9,
        0.25,
        3.0,
    ]
    for about, text in ((PLAIN, "target"), (aimed, "soon"), (aimed, "nan")):
        with pytest.raises(UserError):
            parse_stop_score(about, text)


def test_a_strategy_that_puts_things_in_order_ends_by_itself():
    assert catalog.ending_at(Cato(), 0.5) == (Cato(threshold=0.5), None)
    assert catalog.ending_at(Cato(threshold=0.5), 0.5) == (Cato(threshold=0.5), None)
    polca = catalog.make_strategy("polca", {})
    assert catalog.ending_at(polca, 0.5) == (polca, 0.5) and catalog.ending_at(polca, None) == (
        polca,
        None,
    )
    with pytest.raises(UserError):
        catalog.ending_at(Cato(threshold=0.9), 0.5)
