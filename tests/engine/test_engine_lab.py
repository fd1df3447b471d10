"""The lab: the request of each call, its seed and note, and the count of turns.

Also how much fits into the budget.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgspec
import pytest

from culmen.core.brief import Brief, HumanInput, Proposal
from culmen.core.candidate import Candidate
from culmen.core.errors import UserError
from culmen.core.evaluation import Case
from culmen.core.event import (
    WAIT,
    Custom,
    CustomRequest,
    EmbedRequest,
    EvaluateRequest,
    ProposeRequest,
    Request,
    TrustChecks,
    WriteRequest,
    at_least,
)
from culmen.core.task import Evaluator, Task
from culmen.core.usage import Budget
from culmen.engine import lab as labs
from culmen.engine.lab import TurnCounter, pack_vectors, unpack_vectors
from culmen.testing.virtual import Simulation, simulate

from .worlds import EXACT, TASK, Does, Hill

ONE, TWO = Candidate.of({"x": "1"}), Candidate.of({"x": "2"})
CASES = msgspec.structs.replace(TASK, cases=(Case("a"), Case("b"), Case("c")))
VERIFIED = msgspec.structs.replace(TASK, evaluator=Evaluator(verifier="/v.py"))


@dataclass
class Asked(Hill):
    """The hill; remembers what it was asked, and lets time pass."""

    requests: list[Request] = field(default_factory=list)

    def perform(self, effect, rng: Random):
        self.requests.append(effect.request)
        if isinstance(effect.request, CustomRequest):
            return float(effect.request.payload.get("seconds", 0.1)), Custom()
        if isinstance(effect.request, EmbedRequest):
            return 0.1, pack_vectors(
                [[0.5, float(c.text)] for c in effect.request.candidates], "two numbers"
            )
        return super().perform(effect, rng)


def during(
    search: Callable[[Any], Awaitable[None]], task: Task = TASK, **options: Any
) -> tuple[Simulation, Asked]:
    world, budget = Asked(), options.pop("budget", Budget(evaluations=60, final=0.0))
    return simulate(Does(search), task, world, budget, seed=3, trial=False, **options), world


def notes(run: Simulation) -> list[tuple[str, list[str]]]:
    """Kinds of the notes, and the candidates that came with them."""
    entries = [event.entry for event in run.journal.read() if event.entry.kind == "note"]
    return [
        (e.body["note"], [c.text for c in getattr(e.result, "candidates", ())]) for e in entries
    ]


# What is asked for.


def test_random_seeds_follow_from_the_run_the_request_and_how_often_it_was_made() -> None:
    """Other seeds than these, and no journal of an earlier version could be resumed."""

    async def search(lab) -> None:
        await lab.evaluate(ONE, [None], repeats=2)
        await lab.evaluate(TWO, [None])
        await lab.write("critic", n=1)
        await lab.write("critic", n=1)
        await lab.effect("train", step=1)

    seeds = [request.seed for request in during(search)[1].requests[:6]]  # pyright: ignore[reportAttributeAccessIssue]
    assert seeds == [830332427, 1968723251, 372014195, 1190076824, 1569059316, 931622173]


def test_an_exact_evaluation_has_one_seed_for_each_case_whoever_is_evaluated() -> None:
    async def search(lab) -> None:
        await lab.evaluate(ONE, [None])
        await lab.evaluate(TWO, [None])

    first, second = during(search, EXACT)[1].requests[:2]
    assert first.seed == second.seed  # pyright: ignore[reportAttributeAccessIssue]


def test_a_verifier_is_asked_where_there_is_one_and_it_is_wanted() -> None:
    async def search(lab) -> None:
        await lab.evaluate(ONE, [None])
        await lab.evaluate(ONE, [None], certify=True)
        await lab.evaluate_afresh(ONE, [None])

    for task, certified in ((TASK, [False, False, False]), (VERIFIED, [False, True, True])):
        asked = [r for r in during(search, task)[1].requests if isinstance(r, EvaluateRequest)][:3]
        assert [request.certify for request in asked] == certified


def test_a_look_is_an_evaluation_that_nobody_waits_for() -> None:
    async def search(lab) -> None:
        lab.request_evaluation(ONE, lab.task.cases[1])
        await lab.evaluate(TWO, [None], repeats=2)

    run, world = during(search, CASES)
    first = world.requests[0]
    assert isinstance(first, EvaluateRequest) and (first.candidate, first.case) == (ONE, Case("b"))
    assert run.search.evidence.account.tally(ONE.id) is not None


def test_checks_are_allowed_in_the_first_evaluation_of_a_finalist() -> None:
    rollouts = []

    async def search(lab) -> None:
        for cases, checks in ((lab.task.cases, 2), (lab.task.cases[:1], 0), ((), 2)):
            rollouts.append(
                await lab.evaluate_afresh(ONE, cases, TrustChecks(checks) if checks else None)
            )

    asked = [r for r in during(search, CASES)[1].requests if isinstance(r, EvaluateRequest)][:4]
    assert [(request.case and request.case.id, request.checks) for request in asked] == [
        ("a", 2),
        ("b", 0),
        ("c", 0),
        ("a", 0),
    ]
    assert [len(rollout.observations) for rollout in rollouts] == [3, 1, 0]


def test_vectors_are_asked_for_once_and_none_for_nobody() -> None:
    seen = []

    async def search(lab) -> None:
        seen.extend([await lab.embed([]), lab.embedder, await lab.embed([ONE, TWO]), lab.embedder])

    world = during(search)[1]
    assert seen == [(), "", ((0.5, 1.0), (0.5, 2.0)), "two numbers"]
    assert sum(isinstance(request, EmbedRequest) for request in world.requests) == 1


def test_no_rows_are_no_vectors() -> None:
    assert (
        pack_vectors([], "e").count,
        pack_vectors([], "e").width,
        unpack_vectors(pack_vectors([], "e")),
    ) == (
        0,
        0,
        (),
    )
    assert unpack_vectors(pack_vectors([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], "e")) == (
        (1.0, 2.0, 3.0),
        (4.0, 5.0, 6.0),
    )


def test_time_limits_are_effects_and_without_a_limit_there_is_none() -> None:
    ends = []

    async def search(lab) -> None:
        async def nap(seconds: float) -> float:
            await lab.effect("nap", seconds=seconds)
            return seconds

        ends.extend(
            [
                await lab.within(5.0),
                await lab.within(None, nap(9.0)),
                await lab.within(5.0, nap(1.0), nap(9.0)),
            ]
        )

    asked = [
        r for r in during(search)[1].requests if isinstance(r, CustomRequest) and r.kind == WAIT
    ]
    assert ends == [[], [9.0], [1.0, None]]
    assert asked == [CustomRequest(WAIT, {"seconds": 5.0}, 0)]


# What is noted.


class Maker:
    """A proposer that makes a candidate without a model, and asks one for another."""

    async def propose(self, lab, brief: Brief) -> Proposal:
        answer = await lab.ask(brief)
        return Proposal((TWO, *answer.candidates))


def test_a_candidate_is_noted_once_if_neither_the_task_nor_a_model_told_of_it() -> None:
    async def search(lab) -> None:
        for _ in range(2):
            proposal = await lab.propose(
                Brief(lab.seeds[0])
            )  # nobody evaluates its first candidate
            await lab.evaluate(proposal.candidates[1], [None])
            await lab.evaluate(lab.seeds[0], [None])
            await lab.evaluate(ONE, [None])
        lab.note("over", n=1)

    assert notes(during(search, proposer=Maker())[0]) == [
        ("candidates", ["2"]),
        ("candidates", ["1"]),
        ("over", []),
    ]


# What there is room for.


def test_what_fits_is_told_of_the_very_request_that_would_be_made_next() -> None:
    """Its seed too: a provider's estimate may look at the prompt, which a seed may shape."""
    estimated: list[Request] = []
    foreseen: list[Request] = []

    def estimate(request: Request):
        estimated.append(request)
        return at_least(request)

    async def search(lab) -> None:
        for _ in range(2):
            for ask in (lambda: lab.ask(Brief(lab.seeds[0])), lambda: lab.write("critic", n=1)):
                fits = (
                    lab.lacks(role="critic", n=1)
                    if len(foreseen) % 2
                    else lab.lacks(brief=Brief(lab.seeds[0]))
                )
                assert not fits
                foreseen.append(estimated[-1])
                await ask()

    world = during(search, estimate=estimate)[1]
    assert foreseen == [r for r in world.requests if isinstance(r, ProposeRequest | WriteRequest)]


def test_the_budget_without_room_is_named_and_what_waits_counts() -> None:
    told = []

    async def search(lab) -> None:
        async def look() -> None:
            told.extend(
                [
                    lab.lacks(evaluations=1),
                    lab.lacks(evaluations=2),
                    lab.lacks(),
                    lab.lacks(role="critic"),
                ]
            )
            told.extend([lab.lacks(evaluations=1, brief=Brief(ONE)), lab.lacks(brief=Brief(ONE))])

        await lab.gather(lab.evaluate(ONE, [None]), look())

    during(search, budget=Budget(evaluations=2, calls=1, final=0.0))
    assert told == ["", "evaluations", "", "", "", ""]
    told.clear()
    during(search, budget=Budget(evaluations=1, calls=0, final=0.0))
    assert told == ["evaluations", "evaluations", "", "calls", "evaluations", "calls"]


def test_only_a_row_of_known_answers_without_an_effect_is_spinning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(labs, "_STALL", 3)

    def again(times: int) -> Callable[[Any], Awaitable[None]]:
        async def search(lab) -> None:
            for n in range(4):
                fresh = Candidate.of({"x": str(n)})
                for _ in range(1 + times):
                    await lab.evaluate(fresh, [None])

        return search

    assert during(again(3), EXACT)[0].search.reason == "strategy_done"
    with pytest.raises(UserError, match="known already"):
        during(again(4), EXACT)


# What a person hands in.


def test_a_persons_candidates_are_handed_out_once_and_evaluated_on_the_cases_there_is_room_for() -> (
    None
):
    handed: list[Any] = []

    async def search(lab) -> None:
        for told in (HumanInput(candidate=ONE), HumanInput("a hint"), HumanInput(candidate=TWO)):
            await lab.take_input(told)
            handed.append([candidate.text for candidate in lab.handed()])
        handed.append(lab.handed())
        await lab.evaluate(TWO, [None])

    run, world = during(search, CASES, budget=Budget(evaluations=6, final=0.0))
    assert handed == [["1"], [], ["2"], ()]
    asked = [
        (r.candidate.text, r.case and r.case.id)
        for r in world.requests
        if isinstance(r, EvaluateRequest)
    ]
    assert asked[:6] == [(text, case) for text in "12" for case in "abc"]
    assert notes(run) == []  # the person's entry has them
    short = during(search, CASES, budget=Budget(evaluations=4, final=0.0))[1]
    asked = [
        (r.candidate.text, r.case and r.case.id)
        for r in short.requests
        if isinstance(r, EvaluateRequest)
    ]
    assert asked[:4] == [("1", "a"), ("1", "b"), ("1", "c"), ("2", "a")]


def test_a_candidate_that_comes_when_nothing_is_left_is_heard_and_not_evaluated() -> None:
    heard = []

    async def search(lab) -> None:
        await lab.evaluate(ONE, [None])
        await lab.take_input(HumanInput(candidate=TWO))
        heard.extend(lab.inbox())

    run, _ = during(search, budget=Budget(evaluations=1, final=0.0))
    assert (
        heard == [HumanInput(candidate=TWO)] and run.search.evidence.account.tally(TWO.id) is None
    )


# Turns.


def test_proposals_asked_for_with_nothing_delivered_between_them_are_one_turn() -> None:
    turns = TurnCounter()
    turns.count_proposal_request()
    turns.count_proposal_request()
    turns.count_proposal()
    assert turns.finished_count == 0  # one is still under way
    turns.count_proposal()
    assert turns.finished_count == 1
    turns.note_delivery()
    turns.count_proposal_request()
    assert turns.finished_count == 1
    turns.count_proposal()
    assert turns.finished_count == 2


def test_ten_turns_are_enough_and_small_budgets_or_searches_without_proposals_expect_none() -> None:
    assert TurnCounter().few_turns_note(1000, 1000) is None
    turns = TurnCounter()
    turns.count_proposal_request()
    assert turns.few_turns_note(300, 280) == {"turns": 0, "evaluations": 280, "needed": 3000}
    turns.count_proposal()
    for _ in range(8):
        turns.note_delivery()
        turns.count_proposal_request()
        turns.count_proposal()
    assert turns.few_turns_note(100, 96) == {"turns": 9, "evaluations": 96, "needed": 112}
    assert turns.few_turns_note(99, 96) is turns.few_turns_note(None, 96) is None
    turns.note_delivery()
    turns.count_proposal_request()
    turns.count_proposal()
    assert turns.finished_count == 10 and turns.few_turns_note(100, 96) is None


def test_a_search_tells_how_few_its_turns_were() -> None:
    async def search(lab) -> None:
        await lab.gather(*(lab.propose(Brief(lab.seeds[0])) for _ in range(3)))
        await lab.propose(Brief(lab.seeds[0]))
        while True:
            await lab.evaluate(ONE, [None])

    def notes(budget: Budget) -> list:
        found = during(search, budget=budget)[0].journal.read()
        return [e.entry.body for e in found if e.entry.body.get("note") == "few_turns"]

    (few,) = notes(Budget(evaluations=100))
    assert (few["turns"], few["needed"]) == (2, 500)
    assert not notes(
        Budget(evaluations=100, final=0.5)
    )  # made to measure, as a fork that `next` names
