"""Verbs that compare runs: analyze, bench."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from culmen.cli.screen import Answer, Screen
from culmen.cli.verbs import verb

if TYPE_CHECKING:
    from culmen.bench.suite import Outcome
    from culmen.report.analyze import Group

PANEL = "Compare runs"
INTERRUPTED = 130

Runs = Annotated[
    list[str] | None,
    typer.Argument(metavar="RUN...", help="Run folders, or names under ./runs. Default: the latest run."),
]
Out = Annotated[Path | None, typer.Option(metavar="DIR", help="Write tables (CSV) and plots (PNG) here.")]
Width = Annotated[
    int | None,
    typer.Option("--k", min=2, help="Look at requests for so many candidates.", show_default="the most asked for"),
]


def add_to(app: typer.Typer) -> None:
    """Declare the verbs of this group."""
    for function in (analyze, bench):
        verb(app, PANEL)(function)


def analyze(screen: Screen, run: Runs = None, out: Out = None, k: Width = None) -> Answer:
    """What came of requests, archive and budget: medians and quartiles over runs of the same settings.

    Best so far against evaluations, dollars and seconds, filling of the grid, replies cut to their first m candidates,
    candidates by their place in the reply, improvement by distance and width, width over time.
    """
    from culmen.cli import analyses, runs
    from culmen.report.analyze import analyze as made
    from culmen.report.analyze_write import write
    from culmen.strategies.catalog import CATALOG

    paths = [runs.find(name) for name in dict.fromkeys(run or [None])]
    groups = made(paths, {path: name for name, path in CATALOG.items()}, k)
    files, remark = ([], "") if out is None else write(groups, out)
    data: dict[str, Any] = {"groups": groups, "files": [str(file) for file in files], "remark": remark}

    def show(screen: Screen) -> None:
        analyses.show(screen, groups)
        _written(screen, groups, out, files, remark)

    return Answer(data, show)


def _written(screen: Screen, groups: list[Group], out: Path | None, files: list[Path], remark: str) -> None:
    from culmen.observe.figures import count

    if out is None:
        names = " ".join(run for group in groups for run in group.runs)
        screen.next_steps((f"culmen analyze {names} --out analysis", "all rows as CSV, and plots"))
        return
    screen.line()
    screen.line(f"Wrote {count(len(files), 'file')} into {out}.")
    if remark:
        screen.note(remark)


def bench(
    screen: Screen,
    suite: Annotated[str, typer.Argument(metavar="SUITE", help="Which bench: turboevolve, or scale.")],
    tasks: Annotated[str | None, typer.Option(metavar="A,B", help="Task folders or built-in tasks.")] = None,
    strategies: Annotated[str | None, typer.Option(metavar="A,B", help="See: culmen strategies.")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Runs of each strategy on each task.")] = None,
    budget: Annotated[
        str | None, typer.Option(metavar="NAME=N,...", help="Of every run: evaluations, dollars, seconds, ...")
    ] = None,
    model: Annotated[str, typer.Option(help="Of every run.")] = "offline",
    models: Annotated[Path | None, typer.Option(metavar="FILE", help="Providers, models and prices.")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Evaluations at once.")] = None,
    plain: Annotated[
        float, typer.Option(min=0.0, metavar="SECONDS", help="Of the tasks' plain optimisers; 0 leaves them out.")
    ] = 60.0,
    untimed: Annotated[
        bool, typer.Option("--untimed", help="Without the loops that the offline model writes.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where runs and tables lie.", show_default="runs/bench-SUITE")
    ] = None,
    at_once: Annotated[
        str | None, typer.Option(metavar="N,...", help="Of scale: evaluations at once.", show_default="10 to 100,000")
    ] = None,
    real: Annotated[bool, typer.Option("--real", help="Of scale: measure this machine's backends, too.")] = False,
) -> Answer:
    """Run every strategy on every task with several seeds, under the same budget.

    The same command goes on where it was cut off: finished runs are reused. The bench scale is another: how many
    evaluations at once one driver serves, on a virtual clock.
    """
    if suite == "scale":
        from culmen.cli import scaling

        return scaling.bench(screen, strategies, at_once, real)
    from culmen.bench.suite import levels, perform
    from culmen.bench.summary import summary, write
    from culmen.cli import benches

    chosen = benches.settle(suite, tasks, strategies, seeds, budget, model, models, workers, plain, untimed)
    folder = out or Path("runs") / f"bench-{suite}"
    outcomes: list[Outcome] = []
    known = list(levels(chosen, folder))
    for outcome in perform(chosen, folder):
        outcomes.append(outcome)
        benches.progress(screen, chosen, outcome, len(outcomes))
    files = write(chosen, outcomes, known, folder)
    done = benches.complete(chosen, outcomes)
    rows = summary(outcomes)
    data: dict[str, Any] = {"suite": chosen, "complete": done, "summary": rows, "plain": known, "cells": outcomes}
    data["files"] = [str(file) for file in files]
    return Answer(data, lambda screen: benches.show(screen, rows, known, folder, done), 0 if done else INTERRUPTED)
