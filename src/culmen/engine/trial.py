"""The trial of a search: an initial program scores before anything that costs money starts.

The strategy's own first evaluations serve if it makes any; if it would ask a model first, the
engine asks for the evaluation of an initial program itself. If all of them fail, the search ends. A
task without an initial program cannot be tried so: its search ends if its first evaluations all
fail alike.
"""

from __future__ import annotations

from typing import NamedTuple

from culmen.core.candidate import Candidate
from culmen.core.evaluation import CHANCE_LOOKS, Case, Observation
from culmen.core.event import (
    WAIT,
    CustomRequest,
    EvaluateRequest,
    ProposeRequest,
    Request,
    WriteRequest,
)
from culmen.core.task import Task

# failed evaluations, at least, before initial programs are given up: `CHANCE_LOOKS` where
# each may be chance, fewer if all would be the same
LOOKS = 3
# evaluations that fail alike, from the first one on, of a task without an initial program
ALIKE = 10
# reasons of a search's end; `report.sentences` has the words
INITIAL_FAILS, ALWAYS_FAILS = "initial_fails", "always_fails"


class TrialLook(NamedTuple):
    """An evaluation that the engine asks for itself."""

    candidate: Candidate
    case: Case | None


class Trial:
    """Counts evaluations until the first score.

    `passed`: nothing is held back any more; `fault`: the reason to end.
    """

    def __init__(self, task: Task, wanted: bool = True) -> None:
        self._initial = {candidate.id: candidate for candidate in task.starting_candidates()}
        self._cases = task.split("train") or (None,)
        self._once, self._looks = task.is_evaluated_once, LOOKS
        if self._once:
            self._looks = min(LOOKS, len(self._cases))
        self._left = dict(self._initial)  # not evaluated yet
        self._failed = self._under_way = 0
        self._kinds: list[str] = []
        self.passed, self.fault = not wanted, ""

    def holds_back(self, request: Request) -> bool:
        """True if a request must wait until an initial program has scored.

        Requests to models and agents, and all custom effects except timers, wait.
        """
        if self.passed or not self._initial:
            return False
        if isinstance(request, CustomRequest):
            return request.kind != WAIT
        return isinstance(request, ProposeRequest | WriteRequest)

    def count_request(self, request: Request) -> None:
        """Count a request for an effect."""
        if (
            not self.passed
            and isinstance(request, EvaluateRequest)
            and request.candidate.id in self._initial
        ):
            self._left.pop(request.candidate.id, None)
            self._under_way += 1

    def count_evaluation(self, candidate: Candidate, observation: Observation) -> None:
        """Count a finished evaluation."""
        if self.passed:
            return
        if observation.ok:
            self.passed = True
        elif candidate.id in self._initial:
            self._failed, self._under_way = self._failed + 1, self._under_way - 1
            if observation.may_be_chance and not self._once:
                self._looks = CHANCE_LOOKS
        elif not self._initial:
            self._kinds.append(observation.failure_kind)
            if len(self._kinds) >= ALIKE:
                self.passed, self.fault = True, ALWAYS_FAILS if len(set(self._kinds)) == 1 else ""

    def next_trial_look(self, idle: bool) -> TrialLook | None:
        """The next evaluation to ask for.

        None while the strategy's own are under way, or if there is none (see `fault`). `idle`: the
        strategy waits for nothing else.
        """
        if self.passed or self._under_way or not self._initial or not (idle or self._failed):
            return None
        if not self._left and self._failed >= self._looks:
            self.passed, self.fault = True, INITIAL_FAILS
            return None
        candidate = next(iter(self._left.values()), next(iter(self._initial.values())))
        return TrialLook(candidate, self._cases[self._failed % len(self._cases)])
