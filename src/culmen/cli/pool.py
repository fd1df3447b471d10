"""Verbs about pools: pool build, pool show, pool merge."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from culmen.cli.screen import Answer, Screen
from culmen.cli.verbs import verb

PANEL = "Keep a run"

Out = Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The file to write.")]
Licence = Annotated[str, typer.Option(metavar="NAME", help="Under which its texts may be used, e.g. CC-BY-4.0.")]


def add_to(app: typer.Typer) -> None:
    """Declare the verbs of this group, below `culmen pool`."""
    group = typer.Typer(help="Files of candidates to start a search from: culmen run TASK --pool FILE.")
    for function in (build, show, merge):
        verb(group, PANEL)(function)
    app.add_typer(group, name="pool", rich_help_panel=PANEL, no_args_is_help=True)


def build(
    screen: Screen,
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Run folders, or names under ./runs.")],
    out: Out,
    best: Annotated[int, typer.Option(min=1, help="Candidates of each run, at most.")] = 50,
    licence: Licence = "",
) -> Answer:
    """Collect the best candidates of runs of one task into a file."""
    from culmen.cli.runs import find
    from culmen.run import pool as pools

    return _written(pools.build([find(run) for run in runs], best, licence), out)


def show(
    screen: Screen,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A pool.")],
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Candidates shown.")] = 20,
) -> Answer:
    """Say what is in a pool: its task, licence, sources and candidates. Scores are what the file claims."""
    from culmen.observe.figures import count
    from culmen.run import pool as pools

    data = pools.summary(pools.load(file))

    def show(screen: Screen) -> None:
        screen.heading(data["task"], f"{count(len(data['candidates']), 'candidate')}, {data['direction']}imise")
        screen.line(f"licence: {data['licence'] or 'none stated'}")
        screen.line(f"sources: {', '.join(source['run'] for source in data['sources']) or 'none stated'}")
        columns = ["id", "claimed score", "evaluations", "from", "model", "characters"]
        screen.table(columns, [_row(row) for row in data["candidates"][:limit]])
        screen.next_steps((f"culmen run TASK --strategy turboevolve --pool {file}", "start from them"))

    return Answer(data, show)


def merge(
    screen: Screen,
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Pools of one task.")],
    out: Out,
    licence: Licence = "",
) -> Answer:
    """Make one pool of several; equal candidates once."""
    from culmen.run import pool as pools

    return _written(pools.merge([pools.load(file) for file in files], licence), out)


def _written(pool: Any, out: Path) -> Answer:
    from culmen.observe.figures import count
    from culmen.run import pool as pools

    pools.save(pool, out)
    data = {"out": str(out), "task": pool.task, "candidates": len(pool.members), "licence": pool.licence}

    def show(screen: Screen) -> None:
        screen.line(f"wrote {count(len(pool.members), 'candidate')} to {out}")
        screen.next_steps((f"culmen pool show {out}", "look at it"))

    return Answer(data, show)


def _row(row: dict[str, Any]) -> list[str]:
    score = "" if row["claimed_score"] is None else f"{row['claimed_score']:.10g}"
    return [row["id"], score, str(row["count"]), row["run"], row["model"], str(row["characters"])]
