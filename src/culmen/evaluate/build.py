"""Compiled candidates: `[evaluator] build`, run once a candidate in the jail."""

from __future__ import annotations

import asyncio
import shutil
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from culmen.core.candidate import Candidate
from culmen.core.errors import TaskError
from culmen.core.evaluation import Status
from culmen.core.task import Task
from culmen.jail import wire
from culmen.jail.evaluation import BUILD, JailedEvaluation
from culmen.jail.fork_server import SEARCH_PATH, Jail
from culmen.jail.outcome import EvaluationOutcome
from culmen.jail.scorer_pool import ScorerPool

KEPT = 32  # candidates whose built files are kept in memory

DEBIAN_PACKAGES = {
    "g++": "g++",
    "gcc": "gcc",
    "cc": "gcc",
    "clang": "clang",
    "clang++": "clang",
    "rustc": "rustc",
    "go": "golang-go",
    "node": "nodejs",
}
"""Packages of Debian by the program that they bring."""

Built = Mapping[str, bytes] | EvaluationOutcome
"""Built files by name, or the outcome of a candidate that does not compile."""


def require_compiler(task: Task, levels: Sequence[str]) -> None:
    """Raise `TaskError` if a program that the task runs is not where candidates may use it.

    A container brings its own.
    """
    if tuple(levels) == ("container",):
        return
    words = (task.evaluator.build[0], *task.evaluator.command[:1])
    for word in words:
        if "/" in word or "{" in word or shutil.which(word, path=SEARCH_PATH):
            continue
        package = DEBIAN_PACKAGES.get(word)
        raise TaskError(
            f"the program '{word}' that candidates need is not installed in {SEARCH_PATH}",
            where=str(Path(task.root or ".") / "task.toml"),
            fix=f"apt install {package}" if package else f"install {word}, or correct build",
        )


class CandidateBuilds:
    """Builds each candidate once, whatever the number of its evaluations; keeps the latest."""

    def __init__(self, task: Task, judges: ScorerPool) -> None:
        self._task, self._judges = task, judges
        self._built: OrderedDict[str, Mapping[str, bytes] | EvaluationOutcome] = OrderedDict()
        self._locks: dict[str, asyncio.Lock] = {}

    async def files_of(self, jail: Jail, candidate: Candidate, seed: int, slot: int) -> Built:
        """The candidate's built files."""
        lock = self._locks.setdefault(candidate.digest, asyncio.Lock())
        async with lock:
            built = self._built.get(candidate.digest)
            if built is None:
                built = await self._build(jail, candidate, seed, slot)
                if not (isinstance(built, EvaluationOutcome) and built.status is Status.LOST):
                    self._built[candidate.digest] = built
            else:
                self._built.move_to_end(candidate.digest)
            while len(self._built) > KEPT:
                self._built.popitem(last=False)
        self._locks.pop(candidate.digest, None)
        return built

    async def _build(self, jail: Jail, candidate: Candidate, seed: int, slot: int) -> Built:
        with JailedEvaluation(self._task, jail, candidate, None, seed, BUILD) as run:
            result = await run.perform(slot, self._judges)
        if isinstance(result, EvaluationOutcome):
            said = "" if result.reason == "build" else "while it was compiled: "
            return replace(result, feedback=f"{said}{result.feedback}", seconds=run.seconds)
        try:
            files = wire.decode(result)
        except wire.WireError:
            return EvaluationOutcome(Status.REJECTED, "bad_frame", feedback="an invalid build")
        return files
