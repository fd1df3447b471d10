"""A run of a task with a verifier, in a process that kills itself.

python -m tests.strategies.verified_run FOLDER KILL

It goes on with the run in FOLDER/run (or makes it) on the task in FOLDER/task, and kills itself
with SIGKILL as soon as KILL further effects are durable; with KILL = 0 it runs to its end.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
from collections.abc import Iterable
from pathlib import Path

from culmen.core.event import Event
from culmen.core.usage import Budget
from culmen.run.study import Study
from culmen.store.database import FILE
from culmen.strategies.island_loops import Fixed
from culmen.strategies.turboevolve import TurboEvolve
from culmen.testing.scripted import ScriptedModel


class Killer:
    """Ends the process, without a word, at an effect's boundary."""

    def __init__(self, effects: int) -> None:
        self._left = effects

    def see(self, events: Iterable[Event]) -> None:
        for event in events:
            self._left -= event.entry.kind == "done"
            if event.entry.kind == "done" and self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


def reply(call) -> str:
    """Two programs that follow from the prompt alone."""
    draw = int.from_bytes(hashlib.sha256(call.prompt.encode()).digest()[:4], "big")
    programs = [f"def run():\n    return {(draw >> shift) % 1800 / 100}\n" for shift in (0, 12)]
    return json.dumps(
        {"responses": [{"code": program, "probability": 0.5} for program in programs]}
    )


def main(folder: Path, kill: int) -> None:
    """Create or resume, and run."""
    parts = {"model": ScriptedModel(reply), "observers": (Killer(kill),)}
    path = folder / "run"
    if (path / FILE).is_file():
        study = Study.resume(path, **parts)
    else:
        strategy = TurboEvolve(islands=1, width=Fixed(2), features=("complexity",))
        study = Study.create(
            folder / "task",
            strategy,
            budget=Budget(evaluations=12),
            workers=1,
            random_seed=4,
            run_dir=path,
            **parts,
        )
    study.run()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
