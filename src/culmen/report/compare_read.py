"""Runs as a comparison needs them: what each came to, on what scale, under which budget."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from culmen.core.errors import CulmenError, UserError
from culmen.core.task import Objective
from culmen.core.usage import Budget
from culmen.report.analyze_record import Moment, read
from culmen.store import views
from culmen.store.address import FILE, POINTER
from culmen.store.meta import RunMeta


class Entry(msgspec.Struct, frozen=True):
    """One run. `score` and `certified` are those of its best (None: nothing scored, nothing vouched for); `strict` is
    None where no verifier was asked. `moments` tell the best so far after every evaluation."""

    run: str
    task: str
    digest: str
    objective: Objective
    strategy: str
    config: dict[str, Any]
    model: str
    seed: int
    state: str
    score: float | None
    certified: float | None
    strict: bool | None
    trust: str
    evaluations: int
    dollars: float
    unpriced: int
    seconds: float
    budget: Budget
    moments: tuple[Moment, ...] = ()

    @property
    def contender(self) -> str:
        """What is compared: strategy, settings and model, whatever the task."""
        return json.dumps([self.strategy, self.config, self.model], sort_keys=True, default=str)


def entry(run: Path | str) -> Entry:
    """Read one run; raises `UserError` where there is none."""
    return of(views.status(run), views.meta(run), read(run).moments)


def of(now: views.RunStatus, about: RunMeta, moments: Iterable[Moment]) -> Entry:
    """The same for a run whose best so far is known already."""
    best = now.best
    return Entry(
        run=now.run,
        task=now.task,
        digest=about.task.digest,
        objective=about.task.objective,
        strategy=str(about.strategy.get("path", "")),
        config=about.strategy.get("config") or {},
        model=str(about.extra.get("model") or about.models.get("default", "")),
        seed=now.seed,
        state=now.state,
        score=None if best is None else best.score,
        certified=None if best is None else best.certified,
        strict=None if best is None else best.strict,
        trust="" if best is None else best.trust,
        evaluations=now.evaluations,
        dollars=now.usage.dollars,
        unpriced=now.usage.unpriced,
        seconds=now.elapsed_seconds,
        budget=now.budget,
        moments=tuple(moments),
    )


def find(place: Path) -> list[Path]:
    """The run at a place, or all below a folder, by name; raises `UserError` where there is none."""
    found: list[Path] = []
    for folder, below, files in os.walk(place):
        if FILE in files or POINTER in files:
            found.append(Path(folder))
            below.clear()  # what a run keeps is its own
        below.sort()
    if not found:
        raise UserError("there is no run here", where=str(place), fix="culmen status --all")
    return found


class LeftOut(msgspec.Struct, frozen=True):
    """A run that cannot be read, and why."""

    run: str
    why: str


def readable(runs: Sequence[Path]) -> tuple[list[Entry], list[LeftOut]]:
    """Some runs, and those among them that cannot be read; raises the first one's error where none can."""
    found: list[Entry] = []
    left_out: list[LeftOut] = []
    first: CulmenError | None = None
    for run in runs:
        try:
            found.append(entry(run))
        except CulmenError as error:
            first = first or error
            left_out.append(LeftOut(str(run), error.what if isinstance(error, UserError) else str(error)))
    if first is not None and not found:
        raise first
    return found, left_out
