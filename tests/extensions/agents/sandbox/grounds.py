"""Real sessions on real processes: a world with its loop, and agents.

The agents are small Python programs.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from culmen.core.errors import IsolationError
from culmen.core.event import Custom, CustomRequest
from culmen.core.task import Evaluator, Task
from culmen.extensions.agents.messages import (
    REPLIES,
    AnswerExperiments,
    Commit,
    Committed,
    Ended,
    EndSession,
    Experiment,
    ExperimentRow,
    Open,
    Opened,
    Wait,
    Waited,
    from_plain_data,
    to_plain_data,
)
from culmen.extensions.agents.sandbox import confinement
from culmen.extensions.agents.sandbox.confinement import MARK, session_mark
from culmen.extensions.agents.sandbox.settings import SandboxSettings
from culmen.extensions.agents.sandbox.world import SessionWorld
from culmen.jail import procfs

PYTHON = f"cmd: {sys.executable} {{prompt_file}}"  # the prompt is the program
PATIENCE = 120.0  # seconds; only there to fail
S = TypeVar("S", bound=msgspec.Struct)

ASK = """
import json, subprocess, sys

def ask(*words):
    done = subprocess.run([sys.executable, "run_experiments.py", *words], capture_output=True, text=True)
    assert done.returncode in (0, 3), done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]

def propose(name, text):
    with open(f"candidates/{open('.agent').read().strip()}/{name}", "w") as file:
        file.write(text)
    return file.name
"""


@cache
def unconfined() -> str:
    """The reason why agents cannot be confined here, "" if they can."""
    try:
        confinement.choose_method(SandboxSettings())
    except IsolationError as error:
        return str(error)
    return ""


def need_confinement() -> None:
    """Skip where the machine lacks the mechanism."""
    if unconfined():
        pytest.skip(f"agents cannot be confined here: {unconfined()}")


class Ground:
    """A world of sessions in a run folder.

    It can be left like a process that was killed, and entered again.
    """

    def __init__(
        self,
        run: Path,
        task: Task | None = None,
        settings: SandboxSettings | None = None,
        **options: Any,
    ) -> None:
        self.run_folder = run
        self.task = task or Task("test", seeds=({"main.py": "x = 0\n"},), evaluator=Evaluator())
        self.settings, self.options = settings or SandboxSettings(), options
        self.answers: list[Mapping[str, Any]] = []
        self.enter()

    def enter(self) -> None:
        """A fresh process's world, as far as memory goes."""
        self.runner = asyncio.Runner()
        self.world = SessionWorld(
            self.run_folder,
            self.task,
            self.settings,
            **{"history": lambda: list(self.answers), **self.options},
        )

    def leave(self) -> None:
        """End it in an orderly way."""
        self.runner.run(self.world.close())
        self.runner.close()

    async def do(self, request: msgspec.Struct) -> Custom:
        """One effect."""
        return await self.world.perform(
            CustomRequest(REPLIES[type(request)][0], to_plain_data(request), 0)
        )

    def now(self, request: msgspec.Struct) -> Any:
        """One effect, its result as the struct that goes with it."""
        done = self.runner.run(asyncio.wait_for(self.do(request), PATIENCE))
        if isinstance(request, AnswerExperiments):
            self.answers.append(to_plain_data(request))
        return from_plain_data(done.data, REPLIES[type(request)][1])

    def open(self, program: str, agent: int = 0, **more: Any) -> Opened:
        """Open a session whose program is this text; one that is no text is opened as `kind`."""
        options: dict[str, Any] = {"kind": PYTHON, "texts": {"TASK.md": "Be good.\n"}, **more}
        opened = self.now(Open(agent, prompt=program, **options))
        assert not opened.fault, opened.fault
        return opened

    def serve(
        self,
        agent: int = 0,
        score: Callable[[Experiment], float | None] = lambda one: float(len(one.path)),
        first: int = 1,
        seen: int = 0,
    ) -> tuple[Waited, list[Experiment]]:
        """Answer what it asks until it ends; returns its end and all it asked for."""
        asked: list[Experiment] = []
        nth = first
        while True:
            waited: Waited = self.now(Wait(agent, seen + len(asked), nth))
            nth += 1
            asked += waited.experiments
            if waited.experiments:
                self.answer(agent, waited.experiments, score)
            if waited.ended:
                return waited, asked

    def answer(
        self,
        agent: int,
        experiments: Iterable[Experiment],
        score: Callable[[Experiment], float | None],
    ) -> None:
        """Write results."""
        rows, parts = [], {}
        for one in experiments:
            candidate = f"c-{one.ticket}" if not one.fault else ""
            status = "refused" if one.fault else "ok"
            rows.append(
                ExperimentRow(
                    len(self.answers),
                    agent,
                    one.ticket,
                    candidate,
                    one.path,
                    score=None if one.fault else score(one),
                    status=status,
                    reason=one.fault,
                    note=one.note,
                )
            )
            if candidate:
                parts[candidate] = dict(one.parts)
        self.now(AnswerExperiments(agent, tuple(rows), parts))

    def finish(self, agent: int = 0, reason: str = "finished") -> tuple[Ended, Committed]:
        """End and commit."""
        ended = self.now(EndSession(agent, reason))
        return ended, self.now(Commit(agent, f"Agent {agent}", {"Experiments": "1"}))

    def processes(self, agent: int = 0) -> list[int]:
        """The processes of a session that still live."""
        return procfs.marked_pids(f"{MARK}={session_mark(self.run_folder, agent)}\0")

    def git(self, *words: str) -> str:
        """Ask the shared repository."""
        from culmen.extensions.agents.sandbox.repository import run_git

        return run_git(self.run_folder / "control" / "repo.git", *words).decode()

    def tree(self, agent: int = 0) -> Path:
        """A work tree from outside."""
        return self.run_folder / "work" / f"a{agent:02d}" / "tree"


def everything(folder: Path) -> dict[str, bytes]:
    """All files below, links not followed."""
    found: dict[str, bytes] = {}
    for here, _, names in os.walk(folder):
        for name in names:
            path = Path(here) / name
            if path.is_file() and not path.is_symlink():
                found[str(path.relative_to(folder))] = path.read_bytes()
    return found
