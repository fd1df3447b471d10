"""The end of a search: stopping at a confirmed score, and the final choice.

Finalists are evaluated again, from a reserve. One half of it picks the winner by sequential halving; the other half,
spent on the winner alone, gives the reported score: it took no part in the choice, so it has no selection bias
(winner's curse).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from culmen.core.candidate import Candidate
from culmen.core.evaluation import Case, Observation, Rollout, Status, reaches, weakest
from culmen.core.ports import Lab
from culmen.core.task import Task
from culmen.engine.lab import EngineLab
from culmen.engine.ledger import once
from culmen.engine.record import CandidateTally, Scoreboard

_FINALISTS = 8
_UNBUDGETED = 24  # evaluations for the final choice where no evaluations budget says how many were kept


class FinalChoice(msgspec.Struct, frozen=True, omit_defaults=True):
    """The candidate a run reports.

    `score` is the mean over `count` fresh evaluations (all made after the choice), with standard error `se`;
    `search_score` over `search_count` is what the search believed. Without fresh ones `score` is the search's mean and
    `confirmed` is False. `trust` is the level of the weakest of these evaluations (`core.trust`). `verified`:
    confirmed, at least at that level, and where the task has a verifier every output passed it as given. `split` names
    the cases the fresh evaluations used.

    `certified` is the worst of the values the verifier certified, of the outputs or of their strictly feasible repairs
    (None: there is no verifier, or it did not accept all outputs). `strict`: all passed as given; None: not asked.
    """

    id: str
    score: float
    count: int
    se: float | None = None
    search_score: float | None = None
    search_count: int = 0
    confirmed: bool = False
    verified: bool = False
    failures: int = 0
    split: str = ""
    finalists: tuple[str, ...] = ()
    certified: float | None = None
    strict: bool | None = None
    trust: str = ""


class Finale:
    """Runs the final choice on a lab; `verdict` is valid at any time, from what is known so far."""

    def __init__(self, task: Task, record: Scoreboard, evaluations: float) -> None:
        self._task, self._record = task, record
        noise = record.noise()
        self._noisy = not task.deterministic and noise.within != 0
        kept = _UNBUDGETED if evaluations == float("inf") else int(evaluations)
        self._kept = kept if self._noisy else min(kept, 3 * once(task))
        self._field = record.ranking(_FINALISTS)
        self._chosen: CandidateTally | None = None
        self._fresh: list[Observation] = []
        self._finalists: tuple[str, ...] = ()
        self._split = next((s for s in ("test", "val", "train") if task.split(s)), "")

    async def run(self, lab: EngineLab) -> None:
        """Pick the winner, then confirm it."""
        field = self._field
        if not field or self._kept < 1:
            return
        if self._task.evaluator.verifier:
            await self._certify(lab, field)
        elif self._noisy:
            await self._halving(lab, field)
        else:
            await self._recheck(lab, field)

    def verdict(self) -> FinalChoice | None:
        """The choice so far; None if nothing ever scored."""
        chosen = self._record.tally(self._chosen.id) if self._chosen else next(iter(self._record.ranking(1)), None)
        if chosen is None:
            return None
        before = next((t for t in self._field if t.id == chosen.id), chosen)  # only finalists were looked at again
        scores = [o.score for o in self._fresh if o.score is not None]
        failures = sum(1 for o in self._fresh if not o.ok and o.status is not Status.LOST)
        confirmed = bool(scores) and not failures
        strict = None if all(o.strict is None for o in self._fresh) else all(o.strict for o in self._fresh if o.ok)
        score = sum(scores) / len(scores) if scores else self._task.objective.score(chosen.mean)
        vouched = None if failures else certified(self._task, self._fresh)
        trust = weakest(o.trust for o in self._fresh if o.ok) if scores else chosen.trust
        trust = "verified" if trust == "certified" and vouched is None else trust
        return FinalChoice(
            id=chosen.id,
            score=score,
            count=len(scores) if scores else chosen.count,
            se=_standard_error(scores),
            search_score=self._task.objective.score(before.mean),
            search_count=before.count,
            confirmed=confirmed,
            verified=confirmed and strict is not False and reaches(trust, "verified"),
            failures=failures,
            split=self._split if scores else "",
            finalists=self._finalists,
            certified=vouched,
            strict=strict,
            trust=trust,
        )

    async def _halving(self, lab: EngineLab, field: list[CandidateTally]) -> None:
        """Sequential halving over the finalists with half of what is kept; the rest confirms the winner."""
        choosing = self._kept // 2
        while len(field) > 1 and choosing // (3 * len(field)) == 0 and len(field) > 2:
            field = field[:-1]  # fewer finalists, rather than one or two noisy looks at each
        self._finalists = tuple(t.id for t in field)
        rounds = max(1, (len(field) - 1).bit_length())
        while len(field) > 1 and choosing >= len(field):
            each = max(1, choosing // rounds // len(field))
            await lab.gather(*(lab.evaluate_afresh(lab.find(t.id), self._cases(lab, each)) for t in field))
            choosing, rounds = choosing - each * len(field), max(1, rounds - 1)
            names = {t.id for t in field}
            field = self._record.ranking((len(field) + 1) // 2, names)
        await self._confirm(lab, field[0], self._kept - self._kept // 2)

    async def _recheck(self, lab: EngineLab, field: list[CandidateTally]) -> None:
        """Without noise one evaluation suffices: the first finalist that confirms its score wins."""
        times = min(once(self._task), self._kept)
        field = field[: self._kept // times]
        self._finalists = tuple(t.id for t in field)
        for tally in field:
            await self._confirm(lab, tally, times)
            if self._fresh and all(o.ok for o in self._fresh):
                return
        self._chosen, self._fresh = None, []

    async def _certify(self, lab: EngineLab, field: list[CandidateTally]) -> None:
        """With a verifier, the finalist with the best certified value wins.

        Luck plays no part: a certified value belongs to an output that exists. Accepted finalists come before the
        others, which keep the order of the search.
        """
        times = once(self._task)
        field = field[: max(1, self._kept // times)]
        self._finalists = tuple(t.id for t in field)
        cases = self._cases(lab, min(times, self._kept), self._split)
        best: tuple[int, float, int] = (2, 0.0, 0)

        async def look(place: int) -> None:
            nonlocal best
            roll = await lab.evaluate_afresh(lab.find(field[place].id), cases)
            seen = (*self._standing(roll), place)
            if seen < best:
                best, self._chosen, self._fresh = seen, field[place], list(roll.observations)

        # Side by side where time may end it, else one after another: perhaps the first will do.
        together = lab.workers if lab.left("seconds") < float("inf") else 1
        for first in range(0, len(field), together):
            value = certified(self._task, self._fresh)
            if value is not None and self._task.objective.reward(value) >= field[first].mean:
                return  # those that follow were never seen to do better
            await lab.gather(*(look(place) for place in range(first, min(first + together, len(field)))))

    def _standing(self, roll: Rollout) -> tuple[int, float]:
        """Certified ones by value, then those that scored, then those that failed; lower is better."""
        value = certified(self._task, roll.observations)
        if value is not None:
            return 0, -self._task.objective.reward(value)
        return (1, 0.0) if all(o.ok for o in roll.observations) else (2, 0.0)

    async def _confirm(self, lab: EngineLab, tally: CandidateTally, times: int) -> None:
        self._chosen, self._fresh = tally, []
        cases = self._cases(lab, times, self._split)
        rollout = await lab.evaluate_afresh(lab.find(tally.id), cases)
        self._fresh = list(rollout.observations)

    def _cases(self, lab: EngineLab, times: int, split: str = "") -> Sequence[Case | None]:
        """`times` cases: the hold-out's in turn, else train cases; None each without a data set."""
        pool: Sequence[Any] = self._task.split(split or ("val" if self._task.split("val") else "train"))
        if not pool:
            return [None] * times
        start = lab.rng.randrange(len(pool))
        return [pool[(start + i) % len(pool)] for i in range(times)]


def soon(task: Task) -> int:
    """Number of evaluations of the final choice after a person stopped the search."""
    return max(_UNBUDGETED, once(task))


def certified(task: Task, observations: Sequence[Observation]) -> float | None:
    """The worst certified value; None if any of the observations has none."""
    values = [o.certified for o in observations if o.status is not Status.LOST]
    if not values or any(value is None for value in values):
        return None
    return min((value for value in values if value is not None), key=task.objective.reward)


def _standard_error(scores: list[float]) -> float | None:
    if len(scores) < 2:
        return None
    mean = sum(scores) / len(scores)
    return (sum((s - mean) ** 2 for s in scores) / (len(scores) - 1) / len(scores)) ** 0.5


class Goal:
    """The score at which the search ends: `level`, in the task's own direction. `reached`: one candidate is as good on
    all training cases, by the task's verifier if there is one, else by the mean of its observations."""

    def __init__(self, task: Task, level: float, record: Scoreboard) -> None:
        self._task, self._level, self._record = task, task.objective.reward(level), record
        self._looks: dict[str, int] = {}  # of which candidates how many evaluations were known at the last look
        self.reached = False

    def claimed(self, candidate: Candidate) -> bool:
        """Whether this candidate seems good enough to be checked. With noisy scores, one that failed the check is
        checked again once it has twice as many observations."""
        tally = self._record.tally(candidate.id)
        if self.reached or tally is None or tally.barred or tally.failures or not tally.count:
            return False
        seen = self._looks.get(candidate.id, 0)
        again = seen == 0 or (not self._exact and not self._task.deterministic and tally.count >= 2 * seen)
        return again and tally.mean >= self._level

    async def look(self, lab: Lab, candidate: Candidate) -> None:
        """Evaluate the candidate on all training cases, or on none if the budget has no room. Known results of a
        deterministic task without a verifier are reused."""
        seen = self._looks.get(candidate.id, 0)
        self._looks[candidate.id] = self._count(candidate)
        if lab.lacks(evaluations=len(self._task.split("train")) or 1):
            self._looks[candidate.id] = seen
            return
        rollout = await lab.evaluate(candidate, certify=True)
        self._looks[candidate.id] = self._count(candidate)
        tally = self._record.tally(candidate.id)
        held = tally is not None and not tally.barred and self._holds(rollout, tally.mean)
        self.reached = self.reached or held

    def _count(self, candidate: Candidate) -> int:
        tally = self._record.tally(candidate.id)
        return 0 if tally is None else tally.count

    @property
    def _exact(self) -> bool:
        return bool(self._task.evaluator.verifier)

    def _holds(self, rollout: Rollout, mean: float) -> bool:
        rewards = [reward for reward in rollout.rewards if reward is not None]
        if len(rewards) < len(rollout.observations) or not rewards:
            return False
        if self._exact:
            vouched = all(one.certified is not None for one in rollout.observations)
            return vouched and min(rewards) >= self._level
        return mean >= self._level and sum(rewards) / len(rewards) >= self._level
