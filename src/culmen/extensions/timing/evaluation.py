"""Evaluations with the metric `speedup`: a reference runs jailed beside the program.

Both run on the same core, one of those that this process may use.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import ClassVar

import msgspec

from culmen.core.candidate import Candidate
from culmen.core.evaluation import Case
from culmen.core.json import JsonObject
from culmen.core.task import Evaluator, Task
from culmen.jail import outcome
from culmen.jail.evaluation import JailedEvaluation
from culmen.jail.fork_server import Jail
from culmen.jail.outcome import EvaluationOutcome
from culmen.jail.scorer_pool import ScorerPool

_TIMED = "culmen.extensions.timing.timed"


class TimedEvaluation(JailedEvaluation):
    """One evaluation of a program, and of the reference beside it."""

    def __init__(
        self,
        task: Task,
        jail: Jail,
        candidate: Candidate,
        case: Case | None,
        seed: int,
        built: Mapping[str, bytes] | None = None,
    ) -> None:
        super().__init__(task, jail, candidate, case, seed, built=built)
        self._slot = 0
        reference = Candidate.of(reference_parts(task.evaluator))
        name = os.path.basename(task.evaluator.path)
        own = msgspec.structs.replace(task.evaluator, module=name, entry="reference")
        rival_task = msgspec.structs.replace(task, evaluator=own)
        self._rival = JailedEvaluation(rival_task, jail, reference, case, seed)

    def close(self) -> None:
        """As without a reference, whose child is killed first."""
        self._rival.close()
        super().close()

    async def perform(self, slot: int, judges: ScorerPool) -> EvaluationOutcome | bytes:
        """As without a reference, which is started first."""
        self._slot = slot
        if failure := await self._rival.start(slot):
            text = f"the reference's process was not started: {failure}"
            return outcome.lost_outcome("jail_error", text)
        return await super().perform(slot, judges)

    def _driven_channels(self) -> tuple[socket.socket, ...]:
        return (self.channel, self._rival.channel)

    def _judge_facts(self) -> JsonObject:
        return {"core": core_of_slot(self._slot), "allowed": self.allowed}


def reference_parts(evaluator: Evaluator) -> dict[str, str]:
    """The program of the reference: the evaluator's file and the Python files beside it."""
    folder = os.path.dirname(evaluator.path)
    # an audit's copy of a task lists no files
    listed = evaluator.files or os.listdir(folder)
    names = {os.path.basename(evaluator.path), *(n for n in listed if n.endswith(".py"))}
    parts = {}
    for name in sorted(names):
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            parts[name] = file.read()
    return parts


def core_of_slot(slot: int) -> int:
    """The core for the evaluation of this number, -1 if the system cannot hold it there."""
    if not hasattr(os, "sched_getaffinity"):
        return -1
    cores = sorted(os.sched_getaffinity(0))
    return cores[slot % len(cores)]


class Speedup:
    """See `jail.spoken.ProgramMeasure`."""

    judge = "culmen.extensions.timing.speedup"
    functions: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "generate": ("case", "seed"),
        "reference": ("input",),
        "check": ("input", "output"),
    }
    jail_function = f"{_TIMED}:run_timed"
    jail_modules = ("msgspec", _TIMED)
    jail_sources = ("culmen.extensions.timing",)
    evaluation = TimedEvaluation


SPEEDUP = Speedup()
