"""Answers that report their own failure, read outside of a run as in one."""

from __future__ import annotations

from culmen.core.answers import settle_answer
from culmen.core.candidate import Candidate
from culmen.core.evaluation import Case, Observation
from culmen.core.ports import Backend
from culmen.core.task import Task


class SettlingBackend(Backend):
    """A backend whose answers are failures if they report one (`core.answers`)."""

    def __init__(self, backend: Backend, task: Task) -> None:
        self._backend, self._objective = backend, task.objective
        self._lowest: float | None = None  # reward of an answer that does not say so

    async def evaluate(self, candidate: Candidate, case: Case | None, seed: int) -> Observation:
        """The observation, as a failure if its answer reports one."""
        seen = await self._backend.evaluate(candidate, case, seed)
        if seen.score is not None and seen.refusal is None:
            reward = self._objective.reward(seen.score)
            self._lowest = reward if self._lowest is None else min(reward, self._lowest)
        return settle_answer(candidate, seen, self._objective, self._lowest)

    async def start(self) -> str:
        """As the backend itself."""
        return await self._backend.start()

    async def close(self) -> None:
        """As the backend itself."""
        await self._backend.close()

    async def vary_processes(self, hash_seed: int) -> tuple[str, ...]:
        """As the backend itself."""
        return await self._backend.vary_processes(hash_seed)
