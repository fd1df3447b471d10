"""Check of a winner against the tolerances of its evaluator, for tasks without a verifier.

A search exploits an evaluator's tolerance: points moved outside by just its 1e-6 score more than
the best honest ones (CATO, Section 5). So the same output is scored again by copies of the
evaluator with smaller tolerances, and beside it other programs, the initial one and candidates
with lower scores: a tolerance can be distinguished from a threshold of the problem only if one of
them then scores better.
"""

from __future__ import annotations

import shutil
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from culmen.core.candidate import Candidate
from culmen.core.errors import IsolationError, TaskError
from culmen.core.evaluation import Case, Observation, Sign, Status
from culmen.core.ports import Backend
from culmen.core.task import NO_TOLERANCE, NOT_PUSHED, Task
from culmen.core.usage import Usage
from culmen.evaluate.integrity.signs import GAP, make_sign
from culmen.extensions.audit import sandbox, tolerances
from culmen.extensions.audit.copies import tightened_sources

TENTH = 0.1  # factor by which tolerances shrink
# results that depend on the output rather than on time
_REFUSED = (Status.OK, Status.INVALID, Status.ERROR, Status.REJECTED)


class _Looked(NamedTuple):
    """Result of a check: in words, and as a sign if there is one."""

    text: str
    sign: Sign | None = None


class TightenedEvaluator:
    """Checker of observations of a task's candidates.

    `make` builds a backend for a copy of the task.
    """

    def __init__(self, task: Task, make: sandbox.Make) -> None:
        self._task, self._make = task, make
        self._backends: dict[float, Backend] = {}
        self._open = AsyncExitStack()
        self._used = 0
        self._sources: dict[str, str] | None = None

    async def check(
        self,
        candidate: Candidate,
        case: Case | None,
        seed: int,
        seen: Observation,
        most: int,
        rivals: tuple[Candidate, ...] = (),
    ) -> Observation:
        """The observation with the result of the check.

        Artifact `tolerance` holds the result in words; a sign is added if the score rests on a
        tolerance. Takes at most `most` evaluations, and one of each rival, which are added to the
        observation's usage.
        """
        self._used = 0
        if not seen.ok or most < 1:
            return seen
        try:
            finding = await self._tolerance_finding(candidate, case, seed, seen, most, rivals)
        except (TaskError, IsolationError, OSError) as error:
            finding = _Looked(
                f"not checked: the evaluator with smaller tolerances does not load ({error})"
            )
        signs = seen.signs if finding.sign is None else (*seen.signs, finding.sign)
        usage = seen.usage + Usage(evaluations=self._used)
        tightened = {**seen.artifacts, "tolerance": finding.text}
        return replace(seen, signs=signs, usage=usage, artifacts=tightened)

    async def close(self) -> None:
        """Close the backends and remove the copies."""
        await self._open.aclose()
        self._backends.clear()

    async def _tolerance_finding(
        self,
        candidate: Candidate,
        case: Case | None,
        seed: int,
        observation: Observation,
        maximum: int,
        rivals: tuple[Candidate, ...],
    ) -> _Looked:
        lines = self._tolerance_lines()
        if not lines:
            return _Looked(NO_TOLERANCE)
        tightened = await self._evaluate_tightened(0.0, candidate, case, seed, observation)
        if tightened.status not in _REFUSED:
            ended = f"the evaluation ended as {tightened.status.value}"
            return _Looked(f"not checked: with smaller tolerances {ended}")
        if not self._has_fallen(observation, tightened):
            words = "held: the score stays the same without the tolerances that the text shows"
            return _Looked(f"{words}; {NOT_PUSHED}")
        listed = ", ".join(lines)
        if maximum > 1:
            tightened = await self._evaluate_tightened(TENTH, candidate, case, seed, observation)
        if maximum > 1 and not self._has_fallen(observation, tightened):
            text = f"scores as much with a tenth of the tolerance, less without it: {listed}"
            return _Looked(f"rounding: {text}", make_sign("leans", text))
        share = "a tenth" if maximum > 1 else "nothing"
        text = f"{_result_words(tightened)} with {share} of the tolerance: {listed}"
        rivals = (*self._initial_program(), *rivals) if maximum > 2 else ()
        better = await self._better_rival(rivals, tightened, case, seed)
        if better is None:
            why = "; none of the others does better there, so it may be a threshold"
            text = f"{text}{why if rivals else ''}"
            return _Looked(f"doubtful: {text}", make_sign("leans", text))
        text = f"{text}; {better} does better there"
        return _Looked(f"used: {text}", make_sign("forgiven", text))

    def _initial_program(self) -> tuple[Candidate, ...]:
        return tuple(Candidate.of(parts) for parts in self._task.seeds[:1])

    async def _better_rival(
        self,
        rivals: tuple[Candidate, ...],
        tightened: Observation,
        case: Case | None,
        seed: int,
    ) -> str | None:
        """The first rival that scores better than this with a tenth of the tolerances, if any."""
        reward = self._task.objective.reward
        initial = self._initial_program()
        for rival in rivals:
            other = await self._evaluate_tightened(TENTH, rival, case, seed, tightened)
            if other.score is not None and (
                tightened.score is None or reward(other.score) > reward(tightened.score)
            ):
                return "the initial program" if rival in initial else rival.id
        return None

    def _has_fallen(self, observation: Observation, tightened: Observation) -> bool:
        if tightened.score is None or observation.score is None:
            return True
        reward = self._task.objective.reward
        return reward(observation.score) - reward(tightened.score) > GAP * max(
            abs(observation.score), abs(tightened.score)
        )

    def _tolerance_lines(self) -> list[str]:
        """`evaluator.py:13: text` of the first lines with a tolerance."""
        if self._sources is None:
            self._sources = tolerances.evaluator_sources(self._task)
        lines = {file: text.splitlines() for file, text in self._sources.items()}
        return [
            f"{file}:{line}: {lines[file][line - 1].strip()}"
            # lines of the evaluator that a finding names
            for file, line in tolerances.tolerance_lines(self._sources)[:4]
        ]

    async def _evaluate_tightened(
        self,
        share: float,
        candidate: Candidate,
        case: Case | None,
        seed: int,
        observation: Observation,
    ) -> Observation:
        if share not in self._backends:
            self._backends[share] = await self._start_backend(share, observation.seconds)
        self._used += 1
        return await self._backends[share].evaluate(candidate, case, seed)

    async def _start_backend(self, share: float, seconds: float) -> Backend:
        """A backend on a copy of the task's folder with smaller tolerances."""
        folder, missing = sandbox.copy_task_folder(self._task, "")
        if folder is None:
            raise OSError(missing)
        self._open.callback(shutil.rmtree, folder.parent, ignore_errors=True)
        for name, text in tightened_sources(self._sources or {}, share).items():
            Path(folder / name).write_text(text, encoding="utf-8")
        task = sandbox.relocated_task(self._task, folder)
        backend = self._make(sandbox.limited_task(task, sandbox.attack_seconds(seconds)))
        self._open.push_async_callback(backend.close)
        await backend.start()
        return backend


def _result_words(observation: Observation) -> str:
    """The result of an evaluation in words."""
    return (
        f"scores {observation.score!r}"
        if observation.ok
        else f"refused ({(observation.reason or observation.status.value).replace('_', ' ')})"
    )
