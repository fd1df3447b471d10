"""The engine's own looks: whose failures it saw, and which candidates fail at times."""

from __future__ import annotations

from culmen.core.candidate import Candidate
from culmen.core.evaluation import Observation, Status
from culmen.core.task import Task
from culmen.evidence.evidence import FAILED_EACH, FEW_TRIALS, Evidence, FailureAttribution, Look

TASK = Task("hill", seeds=({"x": "initial"},))


def child(number: int) -> Candidate:
    return Candidate.of({"x": f"child {number}"}, (TASK.initial_candidates()[0].id,))


class Looks:
    """A run that makes every look the inquiry asks for: failing ones fail again, others score."""

    def __init__(self, evaluations: int, words: str) -> None:
        self.evidence, self._words = Evidence(TASK), words
        self.inquiry = FailureAttribution(self.evidence, evaluations)
        self.made: list[Look] = []

    def see(self, candidate: Candidate, score: float | None) -> None:
        status, feedback = (Status.OK, "") if score is not None else (Status.ERROR, self._words)
        seen = Observation(candidate.id, status, score, feedback=feedback)
        self.evidence.observe(candidate, seen)
        self.made += self.inquiry.looks_after(candidate, seen)

    def leaders(self) -> int:
        """Looks at the best."""
        return sum(look.candidate == child(0).id for look in self.made)


def test_where_many_fail_the_leader_is_looked_at_though_none_was_seen_to_fail_at_times() -> None:
    run = Looks(100, "RuntimeError: boom")
    run.see(child(0), 1.0)
    for number in range(1, FAILED_EACH):
        run.see(child(number), None)
    assert run.leaders() == 0
    run.see(child(FAILED_EACH), None)
    run.see(child(FAILED_EACH + 1), 0.5)
    assert run.leaders() == 1


def test_errors_that_a_text_always_makes_are_no_reason_to_doubt_the_leader() -> None:
    run = Looks(100, "NameError: name 'x' is not defined")
    run.see(child(0), 1.0)
    for number in range(1, 3 * FAILED_EACH):
        run.see(child(number), None)
    assert not run.leaders()


def test_without_a_score_there_is_no_leader_to_look_at() -> None:
    run = Looks(100, "RuntimeError: boom")
    for number in range(3 * FAILED_EACH):
        run.see(child(number), None)
    failed = {child(number).id for number in range(3 * FAILED_EACH)}
    assert {look.candidate for look in run.made} <= failed | {TASK.initial_candidates()[0].id}


def test_a_leader_that_was_seen_often_enough_is_not_looked_at_again() -> None:
    run = Looks(100, "RuntimeError: boom")
    for _ in range(FEW_TRIALS):
        run.see(child(0), 1.0)
    for number in range(1, 3 * FAILED_EACH):
        run.see(child(number), None)
    assert not run.leaders()
