"""What all sessions of a run share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from culmen.agents.sandbox.confinement import Way
from culmen.agents.sandbox.layout import Layout
from culmen.agents.sandbox.metered import Meter
from culmen.agents.sandbox.settings import Settings
from culmen.agents.sandbox.view import View
from culmen.core.errors import IsolationError
from culmen.core.task import Task


@dataclass
class Place:
    """`going` says whether the search goes on, `unconfined` why agents that should be confined cannot be, here."""

    layout: Layout
    task: Task
    settings: Settings
    way: Way
    view: View
    meter: Meter
    going: Callable[[], bool]
    unconfined: IsolationError | None = None

    @property
    def hidden(self) -> tuple[str, ...]:
        """What no agent may see, wherever it lies."""
        evaluator = self.task.evaluator
        files = [path for path in (evaluator.path, evaluator.verifier) if path]
        folders = list(dict.fromkeys(str(Path(path).parent) for path in files))
        beside = [str(Path(folder) / name) for folder in folders for name in evaluator.files]
        return (str(self.layout.run), *folders, *files, *beside)

    @property
    def part(self) -> str:
        """The task's only part, "" if it has several or none is known."""
        names = {name for seed in self.task.seeds for name in seed}
        return names.pop() if len(names) == 1 else ""
