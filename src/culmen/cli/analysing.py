"""Verbs that compare runs: analyze, bench."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from culmen.cli.screen import Answer, Screen
from culmen.cli.verbs import verb

if TYPE_CHECKING:
    from culmen.report.analyze import Group

PANEL = "Compare runs"

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
    for function in (analyze,):
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
