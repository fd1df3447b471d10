"""Runs whose every figure is known by hand.

The strategy writes the notes it is given, on a virtual clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from culmen.core.brief import Brief, Proposal
from culmen.core.candidate import Candidate, Origin
from culmen.core.evaluation import Observation, Status
from culmen.core.event import Effect, EvaluateRequest, ProposeRequest, Result
from culmen.core.ports import Lab
from culmen.core.task import Objective, Task
from culmen.core.usage import Budget, Usage
from culmen.store.database import RunMeta
from culmen.store.journal import SqlJournal
from culmen.testing.virtual import simulate


def program(
    score: float | None, serial: int = 0, parents: tuple[str, ...] = (), rank: int = 0
) -> Candidate:
    """A candidate that scores this; None fails."""
    return Candidate.of({"program": f"{score}\n{serial}"}, parents, Origin("told", rank=rank))


class Told:
    """A world with evaluations of one second that give the score in the text.

    A request costs a dollar and gives `replies`.
    """

    def __init__(self, replies: list[list[float | None]] | None = None, unpriced: int = 0) -> None:
        self._replies, self._unpriced = list(replies or []), unpriced

    def perform(self, effect: Effect, rng: Random) -> tuple[float, Result]:
        if isinstance(effect.request, EvaluateRequest):
            candidate = effect.request.candidate
            text = candidate.parts["program"].partition("\n")[0]
            if text == "None":
                return 1.0, Observation(candidate.id, Status.ERROR, reason="told")
            return 1.0, Observation(candidate.id, Status.OK, float(text), trust="verified")
        assert isinstance(effect.request, ProposeRequest)
        parent = effect.request.brief.parent
        assert parent is not None
        scores = self._replies.pop(0)
        children = [
            program(score, effect.key * 100 + i, (parent.id,), i) for i, score in enumerate(scores)
        ]
        usage = Usage(calls=1, dollars=0.0 if self._unpriced else 1.0, unpriced=self._unpriced)
        return 1.0, Proposal(tuple(children), model="told", usage=usage)


@dataclass(frozen=True)
class Noting:
    """Evaluates `scores` one after another and leaves the notes that belong behind each."""

    scores: tuple[float | None, ...] = (0.0,)
    notes: tuple[tuple[dict[str, Any], ...], ...] = ()

    async def search(self, lab: Lab) -> None:
        for place, score in enumerate(self.scores):
            await lab.evaluate(program(score, place))
            for note in self.notes[place] if place < len(self.notes) else ():
                lab.note(
                    note.get("kind", "event"),
                    **{name: value for name, value in note.items() if name != "kind"},
                )


@dataclass(frozen=True)
class Asking:
    """Evaluates the seed, asks about it `times`, and evaluates what comes."""

    times: int = 1

    async def search(self, lab: Lab) -> None:
        await lab.evaluate(lab.seeds[0])
        for _ in range(self.times):
            answer = await lab.propose(Brief(lab.seeds[0], k=3))
            for child in answer.candidates:
                await lab.evaluate(child)


def run(
    folder: Path,
    strategy: Any,
    world: Any = None,
    *,
    direction: str = "max",
    name: str = "run",
    workers: int = 1,
    **config: Any,
) -> Path:
    """A finished run in `folder`; the last evaluation is the engine's own look at its choice."""
    parts = dict(program(1.0).parts)
    task = Task("told", objective=Objective(direction), seeds=(parts,), deterministic=True)  # pyright: ignore
    budget = Budget(evaluations=60)
    path = {"path": f"tests.extensions.bench.worlds:{type(strategy).__name__}", "config": config}
    meta = RunMeta(name, task, path, models={"default": "told"}, budget=budget)
    with SqlJournal.create(folder / name, meta) as journal:
        simulate(
            strategy, task, world or Told(), budget, workers=workers, journal=journal, trial=False
        )
    return folder / name


def note(
    gains: list[float | None],
    *,
    k: int | None = None,
    shown: tuple[float, ...] = (),
    far: float = 0.0,
    **more: Any,
) -> dict[str, Any]:
    """The note of one request.

    A parent of reward 1 in cell (0, 0), children with these gains (None: failed) in cells
    as far away as their rank, inspirations with the rewards `shown`, all of them at feature `far`.
    """
    children = [
        {"id": str(rank), "rank": rank, "status": "error"}
        if gain is None
        else {
            "id": str(rank),
            "rank": rank,
            "status": "ok",
            "reward": 1.0 + gain,
            "cell": [0, rank + 1],
        }
        for rank, gain in enumerate(gains)
    ]
    return {
        "island": 0,
        "turn": 1,
        "k": len(gains) if k is None else k,
        "next_k": 5,
        "cells": 1,
        "parent": {"id": "p", "reward": 1.0, "cell": [0, 0], "features": [0.0]},
        "inspirations": [{"id": "i", "reward": reward, "features": [far]} for reward in shown],
        "candidates": children,
        **more,
    }
