"""What was evaluated, without keeping it: names in memory, texts and observations on a shelf."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from culmen.core.candidate import Candidate
from culmen.core.compact import Numbers, name_of
from culmen.core.evaluation import Observation
from culmen.core.event import Effect, EvaluateRequest
from culmen.core.ports import Shelf
from culmen.core.task import Task
from culmen.engine.loop import Future
from culmen.engine.marks import mark


class Recall:
    """Answers what a search asks of its past. `futures` are those of the effects that are not finished, by key."""

    def __init__(self, task: Task, shelf: Shelf, futures: Mapping[int, Future[Any]]) -> None:
        self._deterministic, self._shelf, self._futures = task.deterministic, shelf, futures
        self._seeds = {candidate.id: candidate for candidate in task.candidates()}
        self._keys = Numbers()  # of the evaluations that need not be made twice, by mark

    def issued(self, effect: Effect) -> None:
        """This effect was asked for."""
        if self._deterministic and isinstance(effect.request, EvaluateRequest):
            self._keys.put(name_of(effect.mark), effect.key)

    def delivered(self, mark: str, candidate: Candidate, observation: Observation) -> None:
        """This evaluation was finished."""
        self._shelf.keep(mark, candidate, observation)

    def future(self, request: EvaluateRequest) -> Future[Any] | None:
        """The future of a deterministic evaluation that was asked for before; None if none was."""
        asked = mark(request)
        key = self._keys.get(name_of(asked))
        if key < 0 or key in self._futures:
            return self._futures.get(key)
        future = Future[Any]()
        future.resolve(self._shelf.observation(request.candidate.id, asked))
        return future

    def find(self, id: str) -> Candidate:
        """A candidate that was evaluated."""
        return self._seeds.get(id) or self._shelf.candidate(id)


class MemoryShelf:
    """The shelf where there is no journal to look things up in (a simulation, a rehearsal): keeps everything."""

    def __init__(self) -> None:
        self._candidates: dict[str, Candidate] = {}
        self._observations: dict[str, Observation] = {}

    def keep(self, mark: str, candidate: Candidate, observation: Observation) -> None:
        """An evaluation with this mark was delivered."""
        self._candidates.setdefault(candidate.id, candidate)
        self._observations.setdefault(mark, observation)

    def candidate(self, id: str) -> Candidate:
        """The candidate with this id."""
        return self._candidates[id]

    def observation(self, candidate: str, mark: str) -> Observation:
        """The first observation under this mark."""
        return self._observations[mark]
