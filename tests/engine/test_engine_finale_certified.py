"""The final choice with a verifier or a doubtful evaluator.

Permitted verdicts, and when they are looked at again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgspec
import pytest

from culmen.core.brief import Text
from culmen.core.candidate import Candidate
from culmen.core.evaluation import Case, Observation, Status
from culmen.core.event import Effect, EvaluateRequest, Result
from culmen.core.result import RunResult
from culmen.core.task import NO_TOLERANCE, Evaluator, Objective, Task
from culmen.core.usage import Budget
from culmen.engine.finale import evaluations_after_stop
from culmen.evidence.account import Fact
from culmen.evidence.verdict import worst_certified
from culmen.testing.virtual import simulate

from .worlds import EXACT, TASK

VERIFIED = msgspec.structs.replace(EXACT, evaluator=Evaluator(verifier="/verify.py"))
TOLERANT = Evaluator(tolerances=True)


@dataclass
class Told:
    """Scores by text, and further fields of an evaluation.

    `more` is for all evaluations of a text, `later` for all except the first; `after` counts those
    of the final choice.
    """

    scores: dict[str, float]
    more: dict[str, dict[str, Any]] = field(default_factory=dict)
    after: list[str] = field(default_factory=list)
    later: dict[str, dict[str, Any]] = field(default_factory=dict)

    def perform(self, effect: Effect, rng: Random) -> tuple[float, Result]:
        request = effect.request
        if not isinstance(request, EvaluateRequest):
            return 0.1, Text("nothing")
        text, case = request.candidate.text, request.case.id if request.case else ""
        later = self.later.get(text, {}) if text in self.after else {}
        self.after.append(text)
        told = {"status": Status.OK, "score": self.scores[text], "trust": "verified"}
        told |= {**self.more.get(text, {}), **later}
        return 1.0, Observation(request.candidate.id, case=case, **told)


@dataclass(frozen=True)
class Looks:
    """Evaluates these texts once each, and ends."""

    texts: tuple[str, ...]

    async def search(self, lab: Any) -> None:
        for text in self.texts:
            await lab.evaluate(Candidate.of({"x": text}), lab.minibatch(1))


def chosen(
    task: Task, world: Told, budget: Budget | None = None, workers: int = 1
) -> tuple[str, RunResult]:
    """The text of the winner, and the verdict.

    `world.after` then holds the final choice's evaluations alone.
    """
    texts = tuple(text for text in world.scores if text != "0.0")
    run = simulate(Looks(texts), task, world, budget or Budget(evaluations=100), workers=workers)
    assert run.verdict is not None
    phases = [
        e.entry.body.get("phase")
        for e in run.journal.read()
        if e.entry.effect == "evaluate" and e.entry.kind == "done"
    ]
    world.after = [
        text for text, phase in zip(world.after, phases, strict=True) if phase == "final"
    ]
    return run.search.lab.find(run.verdict.id).text, run.verdict


def test_the_best_certified_value_wins_and_what_was_accepted_comes_before_what_was_not() -> None:
    scores = {"0.0": 0.1, "1": 0.9, "2": 0.8, "3": 0.7}
    more = {
        "1": {"certified": None},
        "2": {"certified": 0.5, "strict": True},
        "3": {"certified": 0.6, "strict": False},
    }
    world = Told(scores, {"0.0": {"certified": 0.1}, **more})
    text, verdict = chosen(VERIFIED, world)
    assert (text, verdict.certified, verdict.strict, verdict.verified) == ("3", 0.6, False, False)
    assert world.after.count("1") == world.after.count("2") == world.after.count("0.0") == 1
    world.more["3"] = {"certified": None}
    world.after = []
    text, verdict = chosen(VERIFIED, world)
    assert (text, verdict.certified, verdict.strict, verdict.verified) == ("2", 0.5, True, True)


def test_of_losses_the_smallest_certified_one_wins() -> None:
    task = msgspec.structs.replace(VERIFIED, objective=Objective(direction="min"))
    more = {"1": {"certified": 0.6}, "2": {"certified": 0.4}, "0.0": {"certified": 0.9}}
    text, verdict = chosen(task, Told({"0.0": 0.9, "1": 0.2, "2": 0.3}, more))
    assert (text, verdict.certified) == ("2", 0.4)


@pytest.mark.parametrize(("seconds", "looked"), [(None, 0), (1000.0, 1)])
def test_a_certified_value_as_good_as_the_score_of_the_next_ends_the_choice(
    seconds: float | None, looked: int
) -> None:
    """If time may end it, as many as there are workers are looked at side by side."""
    world = Told(
        {"0.0": 0.1, "1": 0.9, "2": 0.8, "3": 0.7},
        {"1": {"certified": 0.8}, "2": {"certified": 0.7}},
    )
    text, _ = chosen(VERIFIED, world, Budget(evaluations=100, seconds=seconds), workers=2)
    assert text == "1" and (world.after.count("2"), world.after.count("3")) == (looked, 0)


@pytest.mark.parametrize(("kept", "looked"), [(10, "5"), (29, "5"), (30, "54"), (40, "543")])
def test_as_many_finalists_are_certified_as_there_is_room_for_beside_the_initial_program(
    kept: int, looked: str
) -> None:
    """Each on all ten test cases.

    Of 40 evaluations three finalists get ten each, and the initial program, too.
    """
    cases = tuple(
        Case(f"{split}{n}", n, split=split)
        for split, n in (("train", 1), ("test", 10))
        for n in range(n)
    )
    world = Told({"0.0": 0.1, "1": 0.5, "2": 0.6, "3": 0.7, "4": 0.8, "5": 0.9})
    _, verdict = chosen(
        msgspec.structs.replace(VERIFIED, cases=cases), world, Budget(evaluations=5 + kept)
    )
    assert [text for text in "54321" if world.after.count(text)] == list(looked)
    assert verdict.initial is not None and verdict.initial.count == world.after.count("0.0") == min(
        10, kept // 2
    )


def test_a_certified_loss_comes_before_a_score_that_was_not_accepted_and_that_before_a_failure() -> (
    None
):
    task = msgspec.structs.replace(VERIFIED, objective=Objective(direction="min"))
    world = Told({"0.0": 0.9, "1": 0.1, "2": 0.2, "3": 0.3}, {"3": {"certified": 0.4}})
    assert chosen(task, world)[0] == "3"
    world = Told(
        {"0.0": 0.9, "1": 0.1, "2": 0.2, "3": 0.3},
        later={"1": {"status": Status.ERROR, "score": None}},
    )
    assert chosen(task, world)[0] == "2"


def test_what_cheats_before_the_verifier_is_out() -> None:
    barred = {"status": Status.REJECTED, "score": None, "reason": "integrity_admits"}
    world = Told({"0.0": 0.1, "1": 0.9, "2": 0.8}, {"1": {"certified": 0.95}}, later={"1": barred})
    assert chosen(VERIFIED, world)[0] == "2"


def test_the_trust_of_a_verdict_is_that_of_its_fresh_evaluations() -> None:
    world = Told({"0.0": 0.1, "1": 0.9}, later={"1": {"trust": "self-reported"}})
    _, verdict = chosen(EXACT, world)
    assert (verdict.trust, verdict.verified, verdict.confirmed) == ("self-reported", False, True)


def test_where_nothing_was_accepted_the_order_of_the_search_stays() -> None:
    text, verdict = chosen(VERIFIED, Told({"0.0": 0.1, "1": 0.9, "2": 0.8}))
    assert text == "1" and verdict.certified is None and verdict.strict is None


@pytest.mark.parametrize(
    ("told", "verified", "trust"),
    [
        ({}, True, "verified"),
        ({"trust": "certified"}, True, "verified"),  # nobody certified anything
        ({"trust": "certified", "certified": 0.9}, True, "certified"),
        ({"trust": "self-reported"}, False, "self-reported"),
        ({"strict": False}, False, "verified"),
    ],
)
def test_a_verdict_is_verified_at_the_trust_of_its_evaluations(
    told: dict[str, Any], verified: bool, trust: str
) -> None:
    _, verdict = chosen(EXACT, Told({"0.0": 0.1, "1": 0.9}, {"1": told}))
    assert (verdict.verified, verdict.trust, verdict.confirmed) == (verified, trust, True)


@pytest.mark.parametrize(
    ("said", "verified"),
    [("held", True), ("rounding", True), ("used 0.1 of it", False), ("held, not used", True)],
)
def test_a_score_that_used_a_tolerance_is_not_verified(said: str, verified: bool) -> None:
    task = msgspec.structs.replace(EXACT, evaluator=TOLERANT)
    _, verdict = chosen(
        task, Told({"0.0": 0.1, "1": 0.9}, {"1": {"artifacts": {"tolerance": said}}})
    )
    assert (verdict.tolerance, verdict.verified) == (said, verified)
    strictly = msgspec.structs.replace(EXACT, evaluator=Evaluator(tolerances=False))
    assert chosen(strictly, Told({"0.0": 0.1, "1": 0.9}))[1].tolerance == NO_TOLERANCE


def test_a_verdict_without_fresh_evaluations_says_so() -> None:
    _, verdict = chosen(EXACT, Told({"0.0": 0.1, "1": 0.9}), Budget(evaluations=1))
    assert (
        not verdict.confirmed
        and not verdict.verified
        and (verdict.score, verdict.count) == (0.9, 1)
    )
    assert (verdict.cases, verdict.of, verdict.failures, verdict.split, verdict.tolerance) == (
        0,
        0,
        0,
        "",
        "",
    )


def test_the_worst_certified_value_counts_and_one_that_is_missing_takes_all() -> None:
    def seen(reward: float | None) -> Fact:
        return Fact("a", (), "", 1.0, vouched=reward)

    assert (
        worst_certified([seen(0.5), seen(0.3)]) == 0.3
        and worst_certified([seen(-0.5), seen(-0.3)]) == -0.5
    )
    assert worst_certified([seen(0.5), seen(None)]) is None and worst_certified([]) is None


def test_after_a_stop_the_final_choice_takes_24_evaluations_or_twice_a_data_set() -> None:
    cases = tuple(Case(str(n), n) for n in range(20))
    assert (
        evaluations_after_stop(TASK) == 24
        and evaluations_after_stop(msgspec.structs.replace(TASK, cases=cases)) == 40
    )
    assert evaluations_after_stop(msgspec.structs.replace(TASK, cases=cases[:11])) == 24
