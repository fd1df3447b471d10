"""Real backends on real processes, one event loop per group of tests."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest

from culmen.core.candidate import Candidate
from culmen.core.evaluation import Case, Observation
from culmen.core.task import Evaluator, Limits, Task
from culmen.evaluate.local import LocalBackend
from culmen.jail import procfs
from culmen.jail.fork_server import MARK, Jail, JailFailed

LIMITS = Limits(
    seconds=1.5, memory_mb=256, processes=24, files_mb=16, output_kb=256, scorer_seconds=10.0
)


@cache
def available(level: str) -> str:
    """ "" if a jail of this level starts here, else why not."""

    async def attempt() -> str:
        jail = Jail(level)
        try:
            await jail.start()
            return ""
        except JailFailed as error:
            return str(error)
        finally:
            await jail.close()

    return asyncio.run(attempt())


def need(level: str) -> None:
    """Skip where the machine lacks the mechanism."""
    why = available(level)
    if why:
        pytest.skip(f"level {level} cannot be had here: {why}")


class Ground:
    """A backend with its loop, and things around it that candidates must not touch."""

    def __init__(self, task: Task, level: str, workers: int = 2) -> None:
        self.task = task
        self.runner = asyncio.Runner()
        self.backend = LocalBackend(task, workers, level=level)
        self.level = self.runner.run(self.backend.start())

    def evaluate(
        self, *programs: str | dict[str, str], case: Case | None = None, seed: int = 1
    ) -> list[Observation]:
        """All programs at once."""

        async def work() -> list[Observation]:
            candidates = [
                Candidate.of({"program.py": p} if isinstance(p, str) else p) for p in programs
            ]
            return list(
                await asyncio.gather(*(self.backend.evaluate(c, case, seed) for c in candidates))
            )

        return self.runner.run(work())

    def one(
        self, program: str | dict[str, str], case: Case | None = None, seed: int = 1
    ) -> Observation:
        """One program."""
        return self.evaluate(program, case=case, seed=seed)[0]

    def processes(self) -> list[int]:
        """Everything that descends from the fork-server, without itself and its wrapper."""
        jail = self.backend._jail
        if jail is None or jail._process is None:
            return []
        keep = {jail._process.pid}
        if self.level == "namespaces":  # bubblewrap first, the fork-server is its child
            keep |= set(procfs.child_pids(jail._process.pid))
        return [
            pid
            for pid in procfs.marked_pids(f"{MARK}={os.path.basename(jail.scratch)}")
            if pid not in keep
        ]

    def close(self) -> None:
        self.runner.run(self.backend.close())
        self.runner.close()


class Grounds:
    """Makes grounds from an evaluator's source text.

    `shared` ones are kept for the same source and settings.
    """

    def __init__(self, folders: pytest.TempPathFactory, *, shared: bool) -> None:
        self.folders, self.shared = folders, shared
        self.made: dict[str, Ground] = {}

    def __call__(
        self,
        source: str,
        level: str = "namespaces",
        limits: Limits = LIMITS,
        workers: int = 2,
        beside: dict[str, str] | None = None,
        seeds: tuple[dict[str, str], ...] = (),
        **evaluator: Any,
    ) -> Ground:
        if level not in ("container", "portable"):
            need(level)
        key = repr(
            (
                source,
                level,
                limits,
                workers,
                beside,
                seeds,
                evaluator,
                None if self.shared else len(self.made),
            )
        )
        if key not in self.made:
            folder = self.folders.mktemp("ground")
            for name, text in {"evaluator.py": source, **(beside or {})}.items():
                (folder / name).write_text(text)
            spec = Evaluator(path=str(folder / "evaluator.py"), digest="d" * 8, **evaluator)
            self.made[key] = Ground(
                Task("test", evaluator=spec, seeds=seeds, limits=limits), level, workers
            )
        return self.made[key]

    def close(self) -> None:
        for ground in self.made.values():
            ground.close()


@pytest.fixture
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Grounds]:
    """Fresh backends, for tests that break them."""
    grounds = Grounds(tmp_path_factory, shared=False)
    yield grounds
    grounds.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Grounds]:
    """Backends that serve the whole module: starting one takes longer than most tests."""
    grounds = Grounds(tmp_path_factory, shared=True)
    yield grounds
    grounds.close()


def wait_until(true: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Poll; the deadline is only there to fail."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if true():
            return True
        time.sleep(0.01)
    return true()


def texts(observation: Observation) -> str:
    """Everything an observation holds in words and numbers, as one text."""
    return json.dumps([observation.feedback, observation.artifacts, observation.metrics])
