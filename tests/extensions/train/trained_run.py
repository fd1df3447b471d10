"""A run with an advisor in training that kills itself.

python -m tests.extensions.train.trained_run FOLDER KILL [POLICY]

It goes on with the run in FOLDER/run (or makes it) on the task in FOLDER/task. KILL is "", or an
entry's kind and effect with a number, as in `done evaluate 5`: it kills itself with SIGKILL as soon
as that many of them are durable in this session. POLICY is a language model as a file, instead of
the tiny one: then two islands, and short replies; `stale` is the tiny one with barriers that do not
wait for each other.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable
from pathlib import Path

from culmen.core.event import Event
from culmen.core.usage import Budget
from culmen.extensions.train.plus_plus import PacevolvePlusPlus
from culmen.run.study import Study
from culmen.store.database import FILE
from culmen.strategies.pacevolve.pacevolve import Pacevolve


class Killer:
    """Ends the process, without a word."""

    def __init__(self, when: str) -> None:
        self._kind, self._effect, number = when.split() if when else ("", "", "0")
        self._left = int(number)

    def see(self, events: Iterable[Event]) -> None:
        for event in events:
            self._left -= (event.entry.kind, event.entry.effect) == (self._kind, self._effect)
            if self._kind and self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


def strategy(policy: str) -> PacevolvePlusPlus:
    """Drawn one at a time, a reply is the same whatever was lost beside it."""
    if policy == "stale":
        return PacevolvePlusPlus(Pacevolve(islands=3), barriers=4, objective="dr_grpo", staleness=1)
    if not policy:
        return PacevolvePlusPlus(Pacevolve(islands=3), barriers=4, objective="dr_grpo")
    small = {"policy": policy, "most": 12, "rank": 8, "roles": ("generate", "select")}
    return PacevolvePlusPlus(
        Pacevolve(islands=2), barriers=2, objective="dr_grpo", rate=1e-3, **small
    )


def main(folder: Path, when: str, policy: str = "") -> None:
    """Create or resume, and run."""
    import torch

    torch.set_num_threads(1)
    path, observers = folder / "run", (Killer(when),)
    if (path / FILE).is_file():
        study = Study.resume(path, observers=observers)
    else:
        study = Study.create(
            folder / "task",
            strategy(policy),
            budget=Budget(evaluations=6, calls=8)
            if policy not in ("", "stale")
            else Budget(evaluations=16, final=0.01),
            workers=1,
            random_seed=4,
            run_dir=path,
            observers=observers,
        )
    study.run()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
