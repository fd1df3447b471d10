"""What `culmen bench` takes and prints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from culmen.cli.screen import Screen
from culmen.core.errors import UserError
from culmen.core.usage import Budget
from culmen.observe.figures import count, duration, joined

_COUNTS = ("requests", "calls", "proposals", "evaluations")

if TYPE_CHECKING:
    from culmen.bench.plain import Level
    from culmen.bench.suite import Outcome, Suite
    from culmen.report.analyze_table import Rows


def settle(
    name: str,
    tasks: str | None,
    strategies: str | None,
    seeds: int | None,
    budget: str | None,
    model: str,
    models: Path | None,
    workers: int | None,
    plain: float,
    untimed: bool,
) -> Suite:
    """The suite with what the command line changes of it; raises `UserError` for what there is not."""
    from culmen.bench.suite import SUITES

    if name not in SUITES:
        raise UserError(f"there is no bench '{name}'", where="culmen bench", fix=f"use one of {', '.join(SUITES)}")
    changes: dict[str, Any] = {
        "tasks": names(tasks),
        "strategies": names(strategies),
        "seeds": None if seeds is None else tuple(range(seeds)),
        "budget": None if budget is None else Budget.parse(budget),
        "models_file": None if models is None else str(models.resolve()),
        "workers": workers,
    }
    given = {field: value for field, value in changes.items() if value is not None}
    suite = msgspec.structs.replace(SUITES[name], model=model, plain=plain, timed=not untimed, **given)
    check(suite)
    return suite


def check(suite: Suite) -> None:
    """Raise `UserError` for a strategy that there is not, and for cells that would never end: before any is begun."""
    from culmen.run import inputs
    from culmen.strategies import catalog

    for strategy in suite.strategies:
        inputs.check_ends(catalog.make(strategy), suite.model, suite.budget, {})


def complete(suite: Suite, outcomes: Sequence[Outcome]) -> bool:
    """Whether every cell is there and finished."""
    return len(outcomes) == _size(suite) and all(each.state == "finished" for each in outcomes)


def progress(screen: Screen, suite: Suite, outcome: Outcome, place: int) -> None:
    """One line per cell on standard error."""
    if screen.as_json:
        return
    from culmen.bench.summary import score

    certified = "" if outcome.certified is None else f"certified {score(outcome.certified)}"
    facts = [score(outcome.score), certified, count(outcome.evaluations, "evaluation"), duration(outcome.seconds)]
    name = f"{outcome.task} {outcome.strategy} seed {outcome.seed}"
    screen.err.print(f"[{place}/{_size(suite)}] {name}: {joined(facts)}", markup=False, soft_wrap=True)


def show(screen: Screen, rows: Rows, levels: Sequence[Level], out: Path, done: bool) -> None:
    """The summary, task by task."""
    from culmen.bench.summary import score, whole

    for task in dict.fromkeys(row["task"] for row in rows):
        chosen = [row for row in rows if row["task"] == task]
        screen.line()
        screen.heading(task, "maximise" if chosen[0]["direction"] == "max" else "minimise")
        cells = [
            [
                row["strategy"],
                str(row["runs"]),
                *(score(row[name]) for name in ("best", "median", "q1", "q3", "certified")),
                *(whole(row[name]) for name in _COUNTS),
            ]
            for row in chosen
        ]
        heads = ["strategy", "runs", "best", "median", "q1", "q3", "certified", *_COUNTS]
        screen.table(heads, cells, right=" ".join(heads[1:]))
        for level in (level for level in levels if level.task == task):
            screen.line(f"plain optimiser, two processes of {level.seconds:g} s: certified {score(level.value)}")
    screen.line()
    screen.line(f"{'Complete' if done else 'Cut off: the same command goes on'}. Tables and runs lie in {out}.")
    screen.next_steps((f"culmen analyze {out}/*/*/seed-*", "how these runs went"))


def names(text: str | None) -> tuple[str, ...] | None:
    """What a list with commas names; raises `UserError` for an empty one."""
    if text is None:
        return None
    found = tuple(piece.strip() for piece in text.split(",") if piece.strip())
    if not found:
        raise UserError("an empty list", where=f"'{text}'", fix="name some, separated by commas")
    return found


def _size(suite: Suite) -> int:
    return len(suite.tasks) * len(suite.strategies) * len(suite.seeds)
