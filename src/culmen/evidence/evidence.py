"""Evidence: the one instance in a run that holds the observations and draws conclusions.

The engine feeds it while the run lives; a reader of the journal feeds another with the same facts
and gets the same answers.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from culmen.core.candidate import Candidate, key_of
from culmen.core.errors import UserError
from culmen.core.evaluation import Observation
from culmen.core.ports import Lab
from culmen.core.result import RunResult
from culmen.core.task import Task
from culmen.evidence.account import (
    CHOICE,
    FINAL,
    SEARCH,
    Account,
    Fact,
    declared_exact,
    fact_of,
)
from culmen.evidence.failures import CANARIES, PROOFS, SECOND_LOOKS
from culmen.evidence.front import FrontModel, FrontVerdict
from culmen.evidence.ranking import Ranking
from culmen.evidence.verdict import Verdict

if TYPE_CHECKING:
    from culmen.evidence.pedigree import StepLaw, ValueModel

__all__ = ["CHOICE", "FINAL", "SEARCH", "Evidence", "FailureAttribution", "Look", "evidence_of"]


class Evidence:
    """The evidence of one run: the account, the ranking over it, and the verdict."""

    def __init__(self, task: Task, prior: StepLaw | None = None) -> None:
        goals = task.objective
        self.task = task
        self.account = Account(task, prior)
        self.ranking = Ranking(self.account)
        self.front = (
            FrontModel(goals.metrics, goals.constraints, declared_exact(task))
            if goals.metrics
            else None
        )
        self.verdict = (
            Verdict(self.ranking) if self.front is None else FrontVerdict(self.ranking, self.front)
        )
        self._independent: list[str] = []  # candidates whose score needs no tolerance

    def observe(
        self, candidate: Candidate, observation: Observation, purpose: str = SEARCH
    ) -> None:
        """Count one finished evaluation, and those that were made to examine it."""
        self.account.further += observation.usage.evaluations
        self.observe_fact(fact_of(self.task, candidate, observation, purpose))

    def observe_fact(self, fact: Fact) -> None:
        """Count one evaluation given as a fact."""
        self.account.observe(fact)
        if fact.tolerance.startswith(("held", "rounding")):
            self._independent.append(fact.candidate)
        if self.front is not None and fact.purpose == SEARCH:
            self.front.observe(fact)
        elif self.front is not None and fact.barred:
            self.front.bar_candidate(fact.candidate)

    def bar_candidate(self, candidate: str) -> None:
        """Exclude a candidate that was rejected for its integrity from being the best."""
        self.account.bar_candidate(candidate)
        if self.front is not None:
            self.front.bar_candidate(candidate)

    def tolerance_rivals(self, most: int, name: str = "") -> list[str]:
        """Candidates to score beside one that may rest on a tolerance of the evaluator.

        The best one whose score is known to need none; else at most `most` candidates from the
        best to the worst, at ranks that grow by a factor. With `name`, all score less than it.
        """
        tally = self.account.tally(name) if name else None
        level = math.inf if tally is None else tally.mean

        def is_below(other: str) -> bool:
            row = self.account.tally(other)
            return row is not None and bool(row.count) and not row.barred and row.mean < level

        known = [other for other in self._independent if is_below(other)]
        if known:
            return [max(known, key=lambda other: self.account.tally(other).mean)]  # pyright: ignore[reportOptionalMemberAccess]
        ranked = [other for other in self.ranking.best_ids(len(self.account)) if is_below(other)]
        count = min(most, len(ranked))
        places = [round(len(ranked) ** ((place + 1) / count)) - 1 for place in range(count)]
        return [ranked[place] for place in dict.fromkeys(places)]

    def neighbours_below(self, name: str, gain: float) -> tuple[str, ...]:
        """Two candidates that score a little less than this: the least of them, and the next.

        `gain` is the largest difference, as a share of the score.
        """
        own = self.account.tally(name)
        if own is None:
            return ()
        level = own.mean - gain * abs(own.mean)
        ranked = self.ranking.best_ids(len(self.account))
        means = {other: self.account.tally(other) for other in ranked}
        close = [
            other
            for other, row in means.items()
            if row is not None and row.count and not row.barred and level <= row.mean < own.mean
        ]
        return tuple(dict.fromkeys([*close[-1:], *close[:1]]))

    @property
    def model(self) -> ValueModel:
        """The value model of the search, of any length; for strategies that decide by it."""
        value_model = self.account.value_model(longest=None)
        assert value_model is not None, "a model without a limit"
        return value_model

    def result(self) -> RunResult | None:
        """The result of the run at present; None without a score."""
        return self.verdict.result()

    def leader(self) -> str | None:
        """The candidate that the run would report now; None without a score."""
        result = self.result() if self.account.fresh or self.account.looks else None
        return self.ranking.leader() if result is None else result.id


def evidence_of(lab: Lab) -> Evidence:
    """The evidence of a lab's run; UserError if the lab has other statistics than an `Evidence`."""
    if isinstance(lab.evidence, Evidence):
        return lab.evidence
    raise UserError(
        f"the evidence of this lab is a {type(lab.evidence).__name__}",
        where="lab.evidence",
        fix="give the lab a culmen.evidence.evidence.Evidence of its task",
    )


PROMISING = 0.2
"""Share of the evaluations spent on promising candidates if candidates fail at times."""

FAILED_EACH = 4
"""Failed evaluations for each look at a promising candidate.

It holds until one was seen to fail at times.
"""

FEW_TRIALS = 3
"""Evaluations below which a promising candidate is evaluated again."""


class Look(NamedTuple):
    """An evaluation that would help to attribute a failure."""

    candidate: str
    case: str


class FailureAttribution:
    """Decides on the evaluations that the engine makes to attribute failures, few and bounded.

    Second looks at candidates that failed show if failures are intermittent; looks at the initial
    program distinguish an outage, or a faulty evaluator, from faulty candidates; candidates that
    failed by no fault of their own are evaluated again.
    """

    def __init__(self, evidence: Evidence, evaluations: int | None) -> None:
        self._evidence, self._account = evidence, evidence.account
        limit = 10**9 if evaluations is None else evaluations
        self._second = min(SECOND_LOOKS, limit // 10)
        self._doubts = self._canaries = min(CANARIES, limit // 20)
        self._proofs, self._again = min(PROOFS, limit // 4), limit // 10
        self._looked: set[tuple[str, str]] = set()
        self._failed = self._pending = self._spent = 0
        # trials of promising candidates at the time of their look
        self._flying: dict[tuple[str, str], int] = {}

    def looks_after(self, candidate: Candidate, observation: Observation) -> list[Look]:
        """Looks worth making after this evaluation of the search."""
        if self._evidence.task.is_evaluated_once or observation.bars_candidate:
            return []
        self._failed += not observation.ok and observation.is_repeatable
        looks = [
            *self._second_look(candidate, observation),
            *self._canary_look(),
            *self._excused_looks(observation),
        ]
        return looks or self._promising_looks()

    def _second_look(self, candidate: Candidate, observation: Observation) -> list[Look]:
        pair = candidate.id, observation.case
        initial = key_of(candidate.id) in self._account.judge.initial_keys
        if observation.ok or initial or not self._second or pair in self._looked:
            return []
        tally = self._account.tally(candidate.id)
        if tally is None or not observation.is_repeatable:
            return []
        if self._account.is_flaky and not self._account.judge.lacks_proof(observation.failure_kind):
            return []
        self._second -= 1
        self._looked.add(pair)
        return [Look(*pair)]

    def _promising_looks(self) -> list[Look]:
        """Another look at a possible leader that was evaluated once or twice.

        If candidates fail at times, or may, no leader is believed on one success.
        """
        account = self._account
        if self._evidence.task.cases or self._spent >= self._promising_allowance:
            return []
        self._flying = {
            pair: trials_before
            for pair, trials_before in self._flying.items()
            if trials_before == self._trial_count(pair[0])
        }
        beliefs, rows = self._evidence.ranking.beliefs, account.rows
        if not beliefs.known.any():
            return []
        trials = rows["count"] + rows["failures"]
        reach = np.where(
            beliefs.known & (trials < FEW_TRIALS), beliefs.worth + beliefs.worth_sd, -np.inf
        )
        for number in np.argsort(-reach, kind="stable")[:FEW_TRIALS].tolist():
            pair = account.id_at(number), ""
            if reach[number] < beliefs.worth[beliefs.known].max():
                return []
            if pair not in self._flying:
                self._flying[pair] = self._trial_count(pair[0])
                self._spent += 1
                return [Look(*pair)]
        return []

    @property
    def _promising_allowance(self) -> float:
        """Number of looks at promising candidates allowed by now."""
        if self._account.is_flaky:
            return PROMISING * self._account.evaluations
        return min(self._doubts, self._failed // FAILED_EACH)

    def _trial_count(self, candidate: str) -> int:
        tally = self._account.tally(candidate)
        return 0 if tally is None else tally.count + tally.failures

    def _canary_look(self) -> list[Look]:
        """A look at the initial program if failures may be the evaluator's.

        That is while an outage is suspected, or a kind of failures strikes many candidates.
        """
        judge = self._account.judge
        doubtful = judge.suspects_outage or judge.is_doubtful
        is_doubt = bool(self._canaries) and doubtful
        is_proof = bool(self._proofs) and judge.lacks_initial
        if judge.is_outage or not (is_doubt or is_proof):
            return []
        initial = self._evidence.ranking.best_initial()
        if initial is None or self._pending > self._account.made:
            return []
        self._canaries, self._proofs = self._canaries - is_doubt, self._proofs - (not is_doubt)
        self._pending = self._account.made + (3 if is_doubt else 2)  # until its result has come
        cases = self._evidence.task.split("train")
        return [Look(initial, cases[0].id if cases else "")]

    def _excused_looks(self, observation: Observation) -> list[Look]:
        """Candidates whose failures were excused, once each."""
        if not observation.ok or not self._again:
            return []
        looks: list[Look] = []
        for number in sorted(self._account.judge.excuses_by_number()):
            tally = self._account.tally_at(number)
            pair = tally.id, observation.case
            if tally.count or tally.barred or pair in self._looked or not self._again:
                continue
            self._again -= 1
            self._looked.add(pair)
            looks.append(Look(*pair))
        return looks
