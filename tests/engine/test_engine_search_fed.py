"""The search fed by hand: what each entry makes it ask for, keep back and end with."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from culmen.core.admissions import ADMISSION
from culmen.core.brief import Brief, Proposal, Text, no_budget
from culmen.core.candidate import Candidate
from culmen.core.errors import JournalMismatch
from culmen.core.evaluation import BARRED, Case, Observation, RoleUsage, Status
from culmen.core.event import (
    WAIT,
    Custom,
    Effect,
    Entry,
    EvaluateRequest,
    ProposeRequest,
    Result,
    TrustChecks,
    at_least,
)
from culmen.core.task import Evaluator, Objective, Task
from culmen.core.usage import Budget, Usage
from culmen.engine.loop import Future
from culmen.engine.search import Search
from culmen.testing.virtual import simulate

from .worlds import EXACT, TASK, Does, Hill

ONE, TWO = Candidate.of({"x": "1"}), Candidate.of({"x": "2"})
TOLERANT = msgspec.structs.replace(
    TASK, evaluator=Evaluator(path="/e.py"), objective=Objective("min")
)
Strategy = Callable[[Any], Awaitable[Any]]


class Hand:
    """A search, and the effects that it asked for last."""

    def __init__(
        self, does: Strategy, task: Task = TASK, budget: Budget | None = None, **options: Any
    ) -> None:
        budget = budget or Budget(evaluations=50, final=0.2)
        self.search = Search(Does(does), task, budget, 1, **{"trial": False, **options})
        self.asked = self.search.start()

    def done(self, effect: Effect, result: Result, elapsed: float = 0.0) -> list[Effect]:
        entry = Entry("done", effect.key, effect.mark, effect.kind, result=result, elapsed=elapsed)
        self.asked = self.search.feed(entry)
        return self.asked

    def score(self, score: float | None, effect: Effect | None = None, **more: Any) -> list[Effect]:
        """The first of the effects asked for last, or this one, has this score; None: it failed."""
        effect = effect or self.asked[0]
        assert isinstance(effect.request, EvaluateRequest)
        status = more.pop("status", Status.ERROR if score is None else Status.OK)
        return self.done(effect, Observation(effect.request.candidate.id, status, score, **more))

    def stop(self) -> list[Effect]:
        self.asked = self.search.feed(Entry("stop", body={"reason": "user"}))
        return self.asked

    @property
    def request(self) -> EvaluateRequest:
        request = self.asked[0].request
        assert isinstance(request, EvaluateRequest)
        return request


def cost(calls: int) -> dict[str, Any]:
    """The usage of an evaluation that asked a model, as fields of its result."""
    usage = Usage(calls=calls)
    return {"usage": usage, "asked": (RoleUsage("judge", "m", calls, usage),)}


async def over_and_over(lab) -> None:
    while True:
        await lab.evaluate(ONE, [None])


def many(times: int) -> Strategy:
    """A strategy that makes `times` evaluations at once."""

    async def search(lab) -> None:
        await lab.gather(*(lab.evaluate(ONE, [None]) for _ in range(times)))

    return search


def test_effects_and_notes_are_numbered_from_one_as_in_every_journal() -> None:
    async def search(lab) -> None:
        lab.note("begun")
        await lab.evaluate(ONE, [None], repeats=2)

    hand = Hand(search)
    assert [effect.key for effect in hand.asked] == [1, 2]
    notes = [(entry.key, entry.body["note"], entry.effect) for entry in hand.search.outbox]
    assert notes == [(1, "begun", ""), (2, "candidates", "candidates")]
    assert hand.search.lab.workers == 1


def test_every_effect_that_finished_is_shown() -> None:
    hand, seen = Hand(many(3)), []
    hand.search.watch = lambda effect: seen.append(effect.key)
    for effect in list(hand.asked):
        hand.score(1.0, effect)
    assert seen == [1, 2, 3]


def test_a_reservation_ends_with_its_effect() -> None:
    hand = Hand(over_and_over)
    owner = hand.search.reservations
    assert asyncio.run(owner.open_reservation(1, Usage(calls=1))) == ""
    hand.score(1.0)
    assert owner.release(1) is None


# The end of a phase.


def test_what_was_under_way_at_the_end_of_the_search_is_paid_for_once_and_not_looked_at() -> None:
    hand = Hand(many(2))
    first, late = hand.asked
    hand.score(1.0, first)
    hand.stop()
    hand.score(9.0, late)
    assert (hand.search.ledger.spent.evaluations, hand.search.evidence.account.evaluations) == (
        2,
        1,
    )
    with pytest.raises(JournalMismatch):
        hand.score(9.0, late)


def test_what_waited_for_room_is_not_asked_for_in_the_final_choice() -> None:
    hand = Hand(many(100))
    assert len(hand.asked) == 40
    hand.score(1.0)
    asked = hand.stop()
    assert asked and {effect.key for effect in asked} == set(hand.search.in_flight)
    assert all(effect.key > 100 for effect in asked)


def test_what_waited_stays_behind_also_where_the_final_choice_has_to_wait_for_room_itself() -> None:
    """Late results take the room; then those of the final choice cost less than was feared."""
    hand = Hand(many(100), budget=Budget(evaluations=50, calls=130, final=0.2))
    late = hand.asked[1:34]
    hand.score(1.0, **cost(3))
    waiting = list(hand.stop())
    for effect in late:
        waiting += hand.score(1.0, effect, **cost(3))
    while waiting:
        assert waiting[0].key > 100
        waiting += hand.score(1.0, waiting.pop(0), **cost(1))
    assert hand.search.is_done and hand.search.ledger.spent.evaluations == 50


@pytest.mark.parametrize(
    "leave", [Hand.stop, lambda hand: hand.search.close()], ids=["stopped", "closed"]
)
def test_the_coroutines_of_a_strategy_end_with_the_search_before_the_final_choice_begins(
    leave: Callable[[Hand], Any],
) -> None:
    ended = []

    async def search(lab) -> None:
        try:
            await over_and_over(lab)
        finally:
            ended.append(hand.search.phase)

    hand = Hand(search)
    hand.score(1.0)
    leave(hand)
    assert ended == ["search"]


def test_a_strategy_that_waits_for_nothing_or_does_nothing_is_over_and_nothing_is_evaluated_for_it() -> (
    None
):
    async def stuck(lab) -> None:
        await Future()

    async def idle(lab) -> None:
        pass

    for search, reason in ((stuck, "strategy_waits_for_nothing"), (idle, "strategy_done")):
        hand = Hand(search)
        assert hand.asked == [] and hand.search.is_done and hand.search.reason == reason


def test_no_initial_program_is_tried_once_the_search_was_stopped() -> None:
    hand = Hand(over_and_over, trial=True)
    assert hand.stop() == [] and hand.search.is_done and hand.search.result_so_far is None


def test_what_is_asked_for_as_the_search_ends_does_not_start() -> None:
    """The score that ends it also makes the strategy ask for more."""

    async def search(lab) -> None:
        for n in range(9):
            await lab.evaluate(Candidate.of({"x": str(n)}), [None])

    hand = Hand(search, EXACT, stop_at=0.5)
    asked = hand.score(0.75)
    assert (hand.search.phase, hand.search.reason) == ("final", "target")
    assert asked and {effect.key for effect in asked} == set(hand.search.in_flight)


@pytest.mark.parametrize(
    ("budget", "slowest", "deadline"),
    [
        (Budget(seconds=100.0), 0.0, 90.0),
        (Budget(seconds=100.0), 7.0, 90.0),
        (Budget(seconds=100.0), 20.0, 75.0),  # once more and a quarter
        (Budget(seconds=100.0), 70.0, 50.0),  # never more than half
        (Budget(seconds=100.0, final=0.3), 20.0, 70.0),
        (Budget(evaluations=9), 20.0, float("inf")),
    ],
)
def test_the_search_leaves_time_to_confirm_a_winner_that_is_slow(
    budget: Budget, slowest: float, deadline: float
) -> None:
    hand = Hand(over_and_over, budget=budget)
    hand.score(1.0, seconds=slowest)
    assert hand.search.deadline == pytest.approx(deadline)
    hand.stop()
    assert hand.search.deadline == (budget.seconds or float("inf"))


# What comes to nothing.


def answered(hand: Hand, result: Result) -> int:
    """Answer everything except evaluations, which score, until the search is over.

    Returns how many answers that took.
    """
    for times in range(5000):
        if hand.search.phase != "search":
            return times
        evaluation = isinstance(hand.asked[0].request, EvaluateRequest)
        hand.score(1.0) if evaluation else hand.done(hand.asked[0], result)
    raise AssertionError("it goes on")


EMPTY = Proposal(fault="empty", usage=Usage(calls=1))
PROSE = Text("words", usage=Usage(calls=1))
ASKS: list[tuple[str, Callable[[Any], Awaitable[Any]], Result, int]] = [
    ("ask", lambda lab: lab.ask(Brief(ONE)), EMPTY, 60),
    ("write", lambda lab: lab.write("critic"), PROSE, 1000),
    ("effect", lambda lab: lab.effect("rest"), Custom(), 1000),
]


@pytest.mark.parametrize(
    ("ask", "answer", "most"), [each[1:] for each in ASKS], ids=[each[0] for each in ASKS]
)
def test_only_so_many_requests_in_a_row_may_come_to_nothing(
    ask: Callable[[Any], Awaitable[Any]], answer: Result, most: int
) -> None:
    async def forever(lab) -> None:
        while True:
            await ask(lab)

    async def evaluating(lab) -> str:
        for _ in range(3):
            for _ in range(most):
                await ask(lab)
            await lab.evaluate(ONE, [None])
        return "enough"

    hand = Hand(forever)
    assert answered(hand, answer) == most + 1 and hand.search.reason == "nothing_new"
    hand = Hand(evaluating)
    assert answered(hand, answer) == 3 * (most + 1) and hand.search.reason == "enough"


def test_what_was_found_before_a_search_that_came_to_nothing_is_confirmed() -> None:
    async def search(lab) -> None:
        await lab.evaluate(ONE, [None], repeats=2)
        while True:
            await lab.ask(Brief(ONE))

    hand = Hand(search)
    for effect in list(hand.asked):
        hand.score(1.0, effect)
    assert answered(hand, EMPTY) == 61  # evaluations begin the count anew
    waiting = list(hand.asked)
    while waiting:
        waiting += hand.score(1.0, waiting.pop(0))
    assert hand.search.is_done and hand.search.reason == "nothing_new"
    assert hand.search.result_so_far is not None and hand.search.result_so_far.confirmed


# What there is room for.


def test_what_had_no_room_is_asked_for_as_soon_as_others_cost_less_than_feared() -> None:
    async def search(lab) -> None:
        await lab.gather(*(lab.ask(Brief(ONE)) for _ in range(10)))

    def estimate(request: Any) -> Usage:
        return (
            Usage(calls=1, dollars=0.5)
            if isinstance(request, ProposeRequest)
            else at_least(request)
        )

    world = Hill()
    run = simulate(Does(search), TASK, world, Budget(dollars=1.2), estimate=estimate, trial=False)
    assert world.calls == 10 and run.search.reason == "strategy_done"


def test_once_evaluations_ask_models_each_counts_as_the_dearest_so_far_and_proposals_do_not() -> (
    None
):
    async def search(lab) -> None:
        await lab.evaluate(ONE, [None])
        await lab.gather(*(lab.evaluate(TWO, [None]) for _ in range(5)), lab.ask(Brief(ONE)))

    hand = Hand(search, budget=Budget(calls=10, final=0.0))
    asked = hand.score(1.0, **cost(3))
    assert [effect.kind for effect in asked] == ["evaluate", "evaluate", "propose"]


def kept(scores: list[tuple[int, float | None]], task: Task = TASK) -> list[int]:
    """Evaluations kept for the final choice before each score, and after the last.

    The scores are those of numbered candidates.
    """

    async def search(lab) -> None:
        for number, _ in scores:
            await lab.evaluate(Candidate.of({"x": str(number)}), [None])
        await over_and_over(lab)

    hand, found = Hand(search, task, Budget(evaluations=1000)), []
    for made, (number, score) in enumerate([*scores, (0, None)]):
        under_way = len(hand.search.in_flight)
        found.append(1000 - made - under_way - int(hand.search.ledger.budget_left("evaluations")))
        if made < len(scores):
            asked = next(e for e in hand.asked if e.request.candidate.text == str(number))  # pyright: ignore[reportAttributeAccessIssue]
            hand.score(score, asked)
    return found


FIVE = [(number, float(number)) for number in range(5)]


def test_less_is_kept_once_repeats_prove_exactness_and_thrice_as_much_once_what_scored_fails() -> (
    None
):
    assert kept([*FIVE, *FIVE[:3]]) == [*[40] * 8, 3]
    assert kept([*FIVE, *FIVE[:3], (3, None)]) == [*[40] * 8, 3, 120]


@pytest.mark.parametrize(
    "scores",
    [
        [*FIVE, *FIVE[:2]],  # too few repeats
        [*FIVE, FIVE[0], FIVE[0], FIVE[0]],  # of one candidate alone
        [*FIVE[:2] * 5],  # pass or fail
        [
            *FIVE,
            (5, 4.0),
            (4, 4.0),
            (5, 4.0),
            (4, 4.0),
            (0, 0.0),
        ],  # equal repeats that other candidates explain
        [*FIVE, *FIVE[:3], (3, 3.5)],  # a repeat that differs
    ],
)
def test_nothing_less_proves_exactness(scores: list[tuple[int, float | None]]) -> None:
    assert kept(scores)[-1] == 40


@pytest.mark.parametrize(
    ("status", "reason", "ends"),
    [
        (Status.LOST, no_budget("calls"), "calls"),
        (Status.LOST, "worker", ""),
        (Status.ERROR, no_budget("calls"), ""),
    ],
)
def test_an_evaluation_that_no_budget_held_ends_the_search(
    status: Status, reason: str, ends: str
) -> None:
    """A candidate's failure does not, whatever its reason."""
    hand = Hand(over_and_over)
    hand.score(1.0)
    hand.score(None, status=status, reason=reason)
    assert hand.search.reason == ends


# Integrity.


@pytest.mark.parametrize(
    ("integrity", "ends"), [("warn", ""), ("reject", ""), ("stop", "integrity")]
)
def test_a_candidate_rejected_for_its_integrity_ends_a_search_that_is_to_stop_for_it(
    integrity: str, ends: str
) -> None:
    hand = Hand(over_and_over, integrity=integrity)
    hand.score(1.0)
    hand.score(None, status=Status.REJECTED, reason="memory_limit")
    assert hand.search.reason == ""
    hand.score(None, status=Status.REJECTED, reason=BARRED + "frames")
    assert hand.search.reason == ends


def test_a_finalist_rejected_for_its_integrity_is_told_as_the_reason_and_the_others_are_still_looked_at() -> (
    None
):
    async def search(lab) -> None:
        await lab.gather(lab.evaluate(ONE, [None]), lab.evaluate(TWO, [None]))

    hand = Hand(search, integrity="stop")
    for effect in list(hand.asked):
        hand.score(float(effect.key), effect)
    assert hand.search.phase == "final" and hand.search.reason == "strategy_done"
    waiting = list(hand.asked)
    cheat = next(effect for effect in waiting if effect.request.candidate == TWO)  # pyright: ignore[reportAttributeAccessIssue]
    waiting.remove(cheat)
    waiting += hand.score(None, cheat, status=Status.REJECTED, reason=BARRED + "frames")
    assert hand.search.reason == "integrity" and not hand.search.is_done
    while waiting:
        effect = waiting.pop(0)
        waiting += hand.score(float(effect.request.candidate.text), effect)  # pyright: ignore[reportAttributeAccessIssue]
    verdict = hand.search.result_so_far
    assert (
        hand.search.is_done
        and verdict is not None
        and (verdict.id, verdict.confirmed) == (ONE.id, True)
    )
    assert verdict.initial is not None and verdict.gain == 1.0 and not verdict.kept_initial


@pytest.mark.parametrize(
    ("integrity", "kind", "barred", "ends"),
    [
        ("warn", ADMISSION, False, ""),
        ("reject", ADMISSION, True, ""),
        ("stop", ADMISSION, True, "integrity"),
        ("stop", "thought", False, ""),
    ],
)
def test_who_admits_to_play_the_evaluator_is_barred_where_that_counts(
    integrity: str, kind: str, barred: bool, ends: str
) -> None:
    async def search(lab) -> None:
        await lab.evaluate(ONE, [None])
        lab.note(kind, candidates=[ONE.id], evidence="I exploit the tolerance.")
        await over_and_over(lab)

    hand = Hand(search, integrity=integrity)
    hand.score(1.0)
    tally = hand.search.evidence.account.tally(ONE.id)
    assert tally is not None and tally.barred == barred and hand.search.reason == ends


def looked_into(task: Task, integrity: str) -> list[tuple[int, float | None]]:
    """Checks of five evaluations.

    The third asks for its own checks, and the last is the final choice's.
    """

    async def search(lab) -> None:
        await lab.evaluate(ONE, [None])
        await lab.evaluate(TWO, [None])
        await lab.evaluate_afresh(TWO, [None], TrustChecks(checks=1))
        await over_and_over(lab)

    hand, seen = Hand(search, task, integrity=integrity), []
    for score in (2.0, 1.0, 3.0, 1.5):
        seen.append((hand.request.checks, hand.request.above))
        hand.score(score)
    hand.stop()
    return [*seen, (0, next(effect.request.above for effect in hand.asked))]  # pyright: ignore[reportAttributeAccessIssue]


def test_a_new_leader_is_looked_into_where_its_score_may_rest_on_a_tolerance_and_that_counts() -> (
    None
):
    """Lower is better: a score below the best so far is looked into, three times at most."""
    own = [(0, None), (0, None), (1, None), (0, None), (0, None)]
    assert looked_into(TOLERANT, "reject") == [(0, None), (3, 2.0), (1, None), (3, 1.0), (0, None)]
    assert looked_into(TOLERANT, "warn") == own
    assert looked_into(msgspec.structs.replace(TOLERANT, evaluator=Evaluator()), "stop") == own


# The trial.


class Failing(Hill):
    """All evaluations fail; which ones were asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, str | None]] = []

    def observe(self, request, rng):
        self.asked.append((request.candidate.text, request.case and request.case.id))
        return Observation(request.candidate.id, Status.ERROR, seed=request.seed)


@pytest.mark.parametrize(
    ("task", "cases", "own", "looks"),
    [
        (EXACT, "", 0, [("0.0", None)]),
        (EXACT, "ab", 0, [("0.0", "a"), ("0.0", "b")]),
        (EXACT, "abcd", 0, [("0.0", "a"), ("0.0", "b"), ("0.0", "c")]),
        (TASK, "", 0, [("0.0", None)] * 3),
        (TASK, "ab", 0, [("0.0", "a"), ("0.0", "b"), ("0.0", "a")]),
        (TASK, "", 1, [("0.0", None)] * 3),
        (TASK, "", 5, [("0.0", None)] * 5),
        (
            msgspec.structs.replace(TASK, seeds=({"x": "5"}, {"x": "6"})),
            "",
            0,
            [("5", None), ("6", None), ("5", None)],
        ),
    ],
)
def test_an_initial_program_is_given_up_after_three_failures_or_as_many_as_may_differ(
    task: Task, cases: str, own: int, looks: list[tuple[str, str | None]]
) -> None:
    """Those that the strategy asks for itself count."""

    async def search(lab) -> None:
        if own:
            await lab.evaluate(lab.seeds[0], [None], repeats=own)
        await lab.ask(Brief(lab.seeds[0]))

    world = Failing()
    run = simulate(
        Does(search),
        msgspec.structs.replace(task, cases=tuple(map(Case, cases))),
        world,
        Budget(calls=9),
    )
    assert world.asked == looks and run.search.reason == "initial_fails"


def test_time_passes_before_the_initial_program_has_scored_but_nothing_else_begins() -> None:
    async def search(lab) -> None:
        await lab.within(5.0, lab.effect("train"))

    hand = Hand(search, trial=True)
    clock, look = hand.asked
    assert (clock.kind, look.kind) == (WAIT, "evaluate")
    assert [effect.kind for effect in hand.score(1.0, look)] == ["train"]
