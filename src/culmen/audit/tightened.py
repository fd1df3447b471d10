"""The check of a winner against the tolerances of its evaluator, where no exact verifier can be
asked.

A search finds what an evaluator forgives: points moved outside by just its 1e-6 score more than the
best honest ones (CATO, Section 5). So the same output is scored again by copies of the evaluator
whose tolerances are smaller, and an honest program, the initial one, beside it: only what it still
passes can be told from a threshold of the problem.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

import msgspec

from culmen.audit import locate, sandbox
from culmen.core.candidate import Candidate
from culmen.core.errors import IsolationError, TaskError
from culmen.core.evaluation import Case, Observation, Sign, Status
from culmen.core.ports import Backend
from culmen.core.task import NO_TOLERANCE, Task
from culmen.core.usage import Usage
from culmen.evaluate.integrity.signs import GAP, sign

TENTH = 0.1
# seconds for an evaluation: a constant, a multiple of the first; a scorer's
_MARGIN, _TIMES, _SCORER = 5.0, 10.0, 20.0
# what tells of an output, rather than of time
_REFUSED = (Status.OK, Status.INVALID, Status.ERROR, Status.REJECTED)
Make = Callable[[Task], Backend]


class _Looked(NamedTuple):
    """What a check found: in words, and perhaps as a sign."""

    text: str
    sign: Sign | None = None


class TightenedEvaluator:
    """Checks observations of a task's candidates; `make` gives a backend for a copy of the task."""

    def __init__(self, task: Task, make: Make) -> None:
        self._task, self._make = task, make
        self._backends: dict[float, Backend] = {}
        self._open = AsyncExitStack()
        self._used = 0
        self._sources: dict[str, str] | None = None

    async def check(
        self, candidate: Candidate, case: Case | None, seed: int, seen: Observation, most: int
    ) -> Observation:
        """The observation with what the check found: artifact `tolerance` says it in words, a sign
        is added where the score rests on a tolerance. Takes at most `most` evaluations, which the
        observation's usage tells."""
        self._used = 0
        if not seen.ok or most < 1:
            return seen
        try:
            found = await self._look(candidate, case, seed, seen, most)
        except (TaskError, IsolationError, OSError) as error:
            found = _Looked(
                f"not checked: the evaluator with smaller tolerances does not load ({error})"
            )
        signs = seen.signs if found.sign is None else (*seen.signs, found.sign)
        usage = seen.usage + Usage(evaluations=self._used)
        told = {**seen.artifacts, "tolerance": found.text}
        return msgspec.structs.replace(seen, signs=signs, usage=usage, artifacts=told)

    async def close(self) -> None:
        """Close the backends and remove the copies."""
        await self._open.aclose()
        self._backends.clear()

    async def _look(
        self, candidate: Candidate, case: Case | None, seed: int, seen: Observation, most: int
    ) -> _Looked:
        places = self._places()
        if not places:
            return _Looked(NO_TOLERANCE)
        told = await self._score(0.0, candidate, case, seed, seen)
        if told.status not in _REFUSED:
            return _Looked(
                f"not checked: with smaller tolerances the evaluation ended as {told.status.value}"
            )
        if not self._falls(seen, told):
            return _Looked("held: the score stays the same without the evaluator's tolerances")
        lines = ", ".join(places)
        if most > 1:
            told = await self._score(TENTH, candidate, case, seed, seen)
        if most > 1 and not self._falls(seen, told):
            text = f"scores as much with a tenth of the tolerance, less without it: {lines}"
            return _Looked(f"rounding: {text}", sign("leans", text))
        text = (
            f"{_words(told)} with {'a tenth' if most > 1 else 'nothing'} of the tolerance: {lines}"
        )
        if most < 3 or not await self._honest(told, case, seed, seen):
            why = (
                ""
                if most < 3
                else "; the initial program does no better there, so it may be a threshold"
            )
            return _Looked(f"doubtful: {text}{why}", sign("leans", text))
        return _Looked(f"used: {text}", sign("forgiven", text))

    async def _honest(
        self, told: Observation, case: Case | None, seed: int, seen: Observation
    ) -> bool:
        """Whether the initial program does better than this under a tenth of the tolerances."""
        if not self._task.seeds:
            return False
        other = await self._score(TENTH, Candidate.of(self._task.seeds[0]), case, seed, seen)
        reward = self._task.objective.reward
        if not other.ok or other.score is None:
            return False
        return not told.ok or told.score is None or reward(other.score) > reward(told.score)

    def _falls(self, seen: Observation, told: Observation) -> bool:
        if told.score is None or seen.score is None:
            return True
        reward = self._task.objective.reward
        return reward(seen.score) - reward(told.score) > GAP * max(abs(seen.score), abs(told.score))

    def _places(self) -> list[str]:
        """`evaluator.py:13: text` of every line with a tolerance."""
        if self._sources is None:
            self._sources = locate.sources(self._task)
        return [
            f"{each.file}:{each.line}: {each.text}"
            for each in locate.places("tolerance", self._sources)
        ]

    async def _score(
        self, share: float, candidate: Candidate, case: Case | None, seed: int, seen: Observation
    ) -> Observation:
        if share not in self._backends:
            self._backends[share] = await self._begin(share, seen.seconds)
        self._used += 1
        return await self._backends[share].evaluate(candidate, case, seed)

    async def _begin(self, share: float, seconds: float) -> Backend:
        """A backend on a copy of the task's folder with smaller tolerances."""
        place, missing = sandbox.copy(self._task, "")
        if place is None:
            raise OSError(missing)
        self._open.callback(shutil.rmtree, place.parent, ignore_errors=True)
        for name, text in locate.all_tightened(self._sources or {}, share).items():
            Path(place / name).write_text(text, encoding="utf-8")
        limits, task = self._task.limits, sandbox.moved(self._task, place)
        least = min(limits.seconds, _MARGIN + _TIMES * seconds)
        scorer = min(limits.scorer_seconds, max(least, _SCORER))
        limits = msgspec.structs.replace(limits, seconds=least, scorer_seconds=scorer)
        backend = self._make(msgspec.structs.replace(task, limits=limits))
        self._open.push_async_callback(backend.close)
        await backend.start()
        return backend


def _words(told: Observation) -> str:
    """What becomes of the score."""
    return (
        f"scores {told.score!r}"
        if told.ok
        else f"refused ({(told.reason or told.status.value).replace('_', ' ')})"
    )
