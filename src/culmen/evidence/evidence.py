"""Evidence: the one instance a run that knows what was observed and says what follows from it.

The engine feeds it while the run lives; a reader of the journal feeds another with the same facts
and gets the same answers.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from culmen.core.candidate import Candidate, key_of
from culmen.core.evaluation import Observation, Status
from culmen.core.result import RunResult
from culmen.core.task import Task
from culmen.evidence.account import CHOICE, FINAL, SEARCH, Account, Fact, fact_of
from culmen.evidence.failures import CANARIES, SECOND_LOOKS
from culmen.evidence.front import FrontModel
from culmen.evidence.front_verdict import FrontVerdict
from culmen.evidence.ranking import Ranking
from culmen.evidence.verdict import Verdict

if TYPE_CHECKING:
    from culmen.evidence.pedigree import StepLaw, ValueModel

__all__ = ["CHOICE", "FINAL", "SEARCH", "Evidence", "Inquiry", "Look"]


class Evidence:
    """What is known of one run: the account, the ranking over it, and the verdict."""

    def __init__(self, task: Task, prior: StepLaw | None = None) -> None:
        goals = task.objective
        self.task = task
        self.account = Account(task, prior)
        self.ranking = Ranking(self.account)
        self.front = (
            FrontModel(goals.metrics, goals.constraints, task.deterministic)
            if goals.metrics
            else None
        )
        self.verdict = (
            Verdict(self.ranking) if self.front is None else FrontVerdict(self.ranking, self.front)
        )

    def observe(
        self, candidate: Candidate, observation: Observation, purpose: str = SEARCH
    ) -> None:
        """Count one finished evaluation."""
        self.enter(fact_of(self.task, candidate, observation, purpose))

    def enter(self, fact: Fact) -> None:
        """Count one evaluation that is known as a fact."""
        self.account.observe(fact)
        if self.front is not None and fact.purpose == SEARCH:
            self.front.observe(fact)
        elif self.front is not None and fact.barred:
            self.front.bar(fact.candidate)

    def bar(self, candidate: str) -> None:
        """Exclude a candidate that was rejected for its integrity from being the best."""
        self.account.bar(candidate)
        if self.front is not None:
            self.front.bar(candidate)

    @property
    def model(self) -> ValueModel:
        """The value model of the search, however long it is; for strategies that decide by it."""
        found = self.account.model(longest=None)
        assert found is not None, "a model without a limit"
        return found

    def result(self) -> RunResult | None:
        """The result of the run as it stands; None if nothing has scored."""
        return self.verdict.result()

    def leader(self) -> str | None:
        """The candidate that the run would report now; None if nothing has scored."""
        found = self.result() if self.account.fresh or self.account.looks else None
        return self.ranking.leader() if found is None else found.id


PROMISING = 0.2
"""Share of the evaluations that goes into promising candidates where candidates fail at times."""

FAILED_EACH = 4
"""Failed evaluations for each look at a promising candidate before any was seen to fail at
times.
"""

FEW_TRIALS = 3
"""Evaluations below which a promising candidate is looked at again there."""


class Look(NamedTuple):
    """An evaluation that would tell whose failure was seen."""

    candidate: str
    case: str


class Inquiry:
    """Decides which evaluations the engine makes to learn of failures, few and bounded.

    Second looks at candidates that failed tell if failures are intermittent; looks at the initial
    program tell an outage, or a faulty evaluator, from faulty candidates; candidates that failed by
    no fault of their own are evaluated again.
    """

    def __init__(self, evidence: Evidence, evaluations: int | None) -> None:
        self._evidence, self._account = evidence, evidence.account
        room = 10**9 if evaluations is None else evaluations
        self._second = min(SECOND_LOOKS, room // 20)
        self._doubts = self._canaries = min(CANARIES, room // 20)
        self._again = room // 10
        self._looked: set[tuple[str, str]] = set()
        self._failed = self._pending = self._spent = 0
        self._flying: dict[
            tuple[str, str], int
        ] = {}  # promising candidates looked at, and their trials then

    def after(self, candidate: Candidate, observation: Observation) -> list[Look]:
        """Looks worth making after this evaluation of the search."""
        if self._evidence.task.deterministic or observation.barred:
            return []
        self._failed += not observation.ok and is_repeatable(observation)
        found = [
            *self._second_look(candidate, observation),
            *self._canary(),
            *self._repeats(observation),
        ]
        return found or self._promising()

    def _second_look(self, candidate: Candidate, observation: Observation) -> list[Look]:
        pair = candidate.id, observation.case
        initial = key_of(candidate.id) in self._account.judge.initial_keys
        if observation.ok or initial or not self._second or pair in self._looked:
            return []
        tally = self._account.tally(candidate.id)
        if self._account.is_flaky or tally is None or not is_repeatable(observation):
            return []
        self._second -= 1
        self._looked.add(pair)
        return [Look(*pair)]

    def _promising(self) -> list[Look]:
        """Where candidates fail at times, or may, another look at one that may be the best and was
        seen once or twice: no leader is believed on one success."""
        account = self._account
        if self._evidence.task.cases or self._spent >= self._allowance:
            return []
        self._flying = {
            pair: made for pair, made in self._flying.items() if made == self._made(pair[0])
        }
        beliefs, rows = self._evidence.ranking.beliefs, account.rows
        if not beliefs.known.any():
            return []
        trials = rows["count"] + rows["failures"]
        reach = np.where(
            beliefs.known & (trials < FEW_TRIALS), beliefs.worth + beliefs.worth_sd, -np.inf
        )
        for place in np.argsort(-reach, kind="stable")[:FEW_TRIALS].tolist():
            pair = account.name(place), ""
            if reach[place] < beliefs.worth[beliefs.known].max():
                return []
            if pair not in self._flying:
                self._flying[pair] = self._made(pair[0])
                self._spent += 1
                return [Look(*pair)]
        return []

    @property
    def _allowance(self) -> float:
        """Looks at promising candidates that may be made by now."""
        if self._account.is_flaky:
            return PROMISING * self._account.evaluations
        return min(self._doubts, self._failed // FAILED_EACH)

    def _made(self, candidate: str) -> int:
        tally = self._account.tally(candidate)
        return 0 if tally is None else tally.count + tally.failures

    def _canary(self) -> list[Look]:
        """A look at the initial program while an outage is suspected, or a kind of failures
        strikes many candidates."""
        judge = self._account.judge
        initial = self._evidence.ranking.initial()
        if initial is None or not self._canaries or judge.is_outage:
            return []
        doubtful = judge.suspects_outage or judge.is_doubtful
        if not doubtful or self._pending > self._account.made:
            return []
        self._canaries -= 1
        self._pending = self._account.made + 3  # until its result has come
        cases = self._evidence.task.split("train")
        return [Look(initial, cases[0].id if cases else "")]

    def _repeats(self, observation: Observation) -> list[Look]:
        """Candidates whose failures turned out to be nobody's, once each."""
        if not observation.ok or not self._again:
            return []
        found: list[Look] = []
        for place in sorted(self._account.judge.excuses_by_place()):
            tally = self._account.tally_at(place)
            pair = tally.id, observation.case
            if tally.count or tally.barred or pair in self._looked or not self._again:
                continue
            self._again -= 1
            self._looked.add(pair)
            found.append(Look(*pair))
        return found


_PERMANENT = re.compile(r"\b(Syntax|Indentation|Name|Import|ModuleNotFound|Attribute|Type)Error\b")


def is_repeatable(observation: Observation) -> bool:
    """True for a failure that might not occur again: no error that the text always makes."""
    if observation.status not in (Status.ERROR, Status.TIMEOUT, Status.INVALID):
        return False
    return not _PERMANENT.search(observation.last_words)
