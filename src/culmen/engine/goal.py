"""The score at which a search may end: who claims to have reached it is looked at again before it is believed."""

from __future__ import annotations

from culmen.core.candidate import Candidate
from culmen.core.evaluation import Rollout
from culmen.core.ports import Lab
from culmen.core.task import Task
from culmen.engine.record import Record


class Goal:
    """`level` is a score in the task's own direction. `reached` says that one candidate is as good on all training
    cases: by the word of the task's verifier where it has one, else by the mean of everything measured of it."""

    def __init__(self, task: Task, level: float, record: Record) -> None:
        self._task, self._level, self._record = task, task.objective.reward(level), record
        self._looks: dict[str, int] = {}  # of which candidates how many evaluations were known at the last look
        self.reached = False

    def claimed(self, candidate: Candidate) -> bool:
        """Whether this one seems to be good enough and is worth a look. Where scores are noisy, one that was looked at
        in vain is worth another when twice as much is known of it."""
        tally = self._record.tally(candidate.id)
        if self.reached or tally is None or tally.barred or tally.failures or not tally.count:
            return False
        seen = self._looks.get(candidate.id, 0)
        again = seen == 0 or (not self._exact and not self._task.deterministic and tally.count >= 2 * seen)
        return again and tally.mean >= self._level

    async def look(self, lab: Lab, candidate: Candidate) -> None:
        """Measure it on all training cases. What a deterministic task without a verifier said already is not asked
        again; where the budget has no room nothing is."""
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
