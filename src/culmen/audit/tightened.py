"""Check of a winner against the tolerances of its evaluator, for tasks without a verifier.

A search exploits an evaluator's tolerance: points moved outside by just its 1e-6 score more than
the best honest ones (CATO, Section 5). So the same output is scored again by copies of the
evaluator with smaller tolerances, and beside it an honest program, the initial one: only where the
initial program still scores can a tolerance be distinguished from a threshold of the problem.
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
from culmen.evaluate.integrity.signs import GAP, make_sign

TENTH = 0.1
# seconds for an evaluation: a constant, plus a multiple of the first; least seconds of a scorer
_MARGIN, _TIMES, _SCORER = 5.0, 10.0, 20.0
# results that depend on the output rather than on time
_REFUSED = (Status.OK, Status.INVALID, Status.ERROR, Status.REJECTED)
Make = Callable[[Task], Backend]


class _Looked(NamedTuple):
    """Result of a check: in words, and as a sign if there is one."""

    text: str
    sign: Sign | None = None


class TightenedEvaluator:
    """Checker of observations of a task's candidates.

    `make` builds a backend for a copy of the task.
    """

    def __init__(self, task: Task, make: Make) -> None:
        self._task, self._make = task, make
        self._backends: dict[float, Backend] = {}
        self._open = AsyncExitStack()
        self._used = 0
        self._sources: dict[str, str] | None = None

    async def check(
        self, candidate: Candidate, case: Case | None, seed: int, seen: Observation, most: int
    ) -> Observation:
        """The observation with the result of the check.

        Artifact `tolerance` holds the result in words; a sign is added if the score rests on a
        tolerance. Takes at most `most` evaluations, which are added to the observation's usage.
        """
        self._used = 0
        if not seen.ok or most < 1:
            return seen
        try:
            found = await self._tolerance_finding(candidate, case, seed, seen, most)
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

    async def _tolerance_finding(
        self, candidate: Candidate, case: Case | None, seed: int, seen: Observation, most: int
    ) -> _Looked:
        places = self._tolerance_places()
        if not places:
            return _Looked(NO_TOLERANCE)
        told = await self._evaluate_tightened(0.0, candidate, case, seed, seen)
        if told.status not in _REFUSED:
            return _Looked(
                f"not checked: with smaller tolerances the evaluation ended as {told.status.value}"
            )
        if not self._has_fallen(seen, told):
            return _Looked("held: the score stays the same without the evaluator's tolerances")
        lines = ", ".join(places)
        if most > 1:
            told = await self._evaluate_tightened(TENTH, candidate, case, seed, seen)
        if most > 1 and not self._has_fallen(seen, told):
            text = f"scores as much with a tenth of the tolerance, less without it: {lines}"
            return _Looked(f"rounding: {text}", make_sign("leans", text))
        text = f"{_result_words(told)} with {'a tenth' if most > 1 else 'nothing'} of the tolerance: {lines}"
        if most < 3 or not await self._is_initial_better(told, case, seed, seen):
            why = (
                ""
                if most < 3
                else "; the initial program does no better there, so it may be a threshold"
            )
            return _Looked(f"doubtful: {text}{why}", make_sign("leans", text))
        return _Looked(f"used: {text}", make_sign("forgiven", text))

    async def _is_initial_better(
        self, told: Observation, case: Case | None, seed: int, seen: Observation
    ) -> bool:
        """True if the initial program scores better than this with a tenth of the tolerances."""
        if not self._task.seeds:
            return False
        other = await self._evaluate_tightened(
            TENTH, Candidate.of(self._task.seeds[0]), case, seed, seen
        )
        reward = self._task.objective.reward
        if not other.ok or other.score is None:
            return False
        return not told.ok or told.score is None or reward(other.score) > reward(told.score)

    def _has_fallen(self, seen: Observation, told: Observation) -> bool:
        if told.score is None or seen.score is None:
            return True
        reward = self._task.objective.reward
        return reward(seen.score) - reward(told.score) > GAP * max(abs(seen.score), abs(told.score))

    def _tolerance_places(self) -> list[str]:
        """`evaluator.py:13: text` of every line with a tolerance."""
        if self._sources is None:
            self._sources = locate.evaluator_sources(self._task)
        return [
            f"{each.file}:{each.line}: {each.text}"
            for each in locate.evaluator_lines("tolerance", self._sources)
        ]

    async def _evaluate_tightened(
        self, share: float, candidate: Candidate, case: Case | None, seed: int, seen: Observation
    ) -> Observation:
        if share not in self._backends:
            self._backends[share] = await self._start_backend(share, seen.seconds)
        self._used += 1
        return await self._backends[share].evaluate(candidate, case, seed)

    async def _start_backend(self, share: float, seconds: float) -> Backend:
        """A backend on a copy of the task's folder with smaller tolerances."""
        place, missing = sandbox.copy_task_folder(self._task, "")
        if place is None:
            raise OSError(missing)
        self._open.callback(shutil.rmtree, place.parent, ignore_errors=True)
        for name, text in locate.tightened_sources(self._sources or {}, share).items():
            Path(place / name).write_text(text, encoding="utf-8")
        limits, task = self._task.limits, sandbox.relocated_task(self._task, place)
        least = min(limits.seconds, _MARGIN + _TIMES * seconds)
        scorer = min(limits.scorer_seconds, max(least, _SCORER))
        limits = msgspec.structs.replace(limits, seconds=least, scorer_seconds=scorer)
        backend = self._make(msgspec.structs.replace(task, limits=limits))
        self._open.push_async_callback(backend.close)
        await backend.start()
        return backend


def _result_words(told: Observation) -> str:
    """The result of an evaluation in words."""
    return (
        f"scores {told.score!r}"
        if told.ok
        else f"refused ({(told.reason or told.status.value).replace('_', ' ')})"
    )
