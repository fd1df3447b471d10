"""The verb that says which strategy is better: compare, over runs that exist or over runs that it makes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from culmen.cli.screen import Answer, Screen
from culmen.cli.verbs import verb
from culmen.core.errors import UserError

if TYPE_CHECKING:
    from culmen.bench.suite import Suite

PANEL = "Compare runs"
INTERRUPTED = 130
SEEDS = 6  # fewer pairs cannot tell two strategies apart on one task
BUDGET = "evaluations=200"


def add_to(app: typer.Typer) -> None:
    """Declare the verb."""
    verb(app, PANEL)(compare)


def compare(
    screen: Screen,
    run: Annotated[
        list[str] | None, typer.Argument(metavar="RUN...", help="Run folders, names under ./runs, or folders of runs.")
    ] = None,
    tasks: Annotated[
        str | None, typer.Option(metavar="A,B", help="Make the runs: task folders or built-in tasks.")
    ] = None,
    strategies: Annotated[str | None, typer.Option(metavar="A,B", help="Of the runs to make.")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Per strategy and task.", show_default=str(SEEDS))] = None,
    budget: Annotated[str | None, typer.Option(metavar="NAME=N,...", help="Of every run.", show_default=BUDGET)] = None,
    model: Annotated[str, typer.Option(help="Of every run to make.")] = "offline",
    models: Annotated[Path | None, typer.Option(metavar="FILE", help="Providers, models and prices.")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Evaluations at once.")] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where made runs lie.", show_default="runs/compare")
    ] = None,
) -> Answer:
    """Which strategy is better, how surely, and whether the data can tell.

    Over runs that exist, or over new ones, made with --tasks and --strategies. Cut off, the same command goes on.
    """
    from culmen.cli import comparisons, runs
    from culmen.report import compare as comparing
    from culmen.report.compare_read import entries, find
    from culmen.strategies.catalog import CATALOG

    making = (tasks, strategies, seeds, budget, models, workers, out)
    if run and any(option is not None for option in making):
        raise UserError(
            "runs are given, and others are to be made", where="culmen compare", fix="give one or the other"
        )
    done = True
    if run:
        paths = [path for name in run for path in (find(Path(name)) if Path(name).is_dir() else [runs.find(name)])]
    else:
        suite = _suite(tasks, strategies, seeds, budget, model, models, workers)
        paths, done = _make(screen, suite, out or Path("runs/compare"))
    unique = {path.resolve(): path for path in paths}
    made = comparing.compare(entries(list(unique.values())), {path: name for name, path in CATALOG.items()})
    data: dict[str, Any] = {"complete": done, "runs": [str(path) for path in unique.values()]}
    data |= msgspec.to_builtins(made)
    return Answer(data, lambda screen: comparisons.show(screen, made, done), 0 if done else INTERRUPTED)


def _suite(
    tasks: str | None,
    strategies: str | None,
    seeds: int | None,
    budget: str | None,
    model: str,
    models: Path | None,
    workers: int | None,
) -> Suite:
    from culmen.bench.suite import Suite
    from culmen.cli.benches import names
    from culmen.core.usage import Budget

    chosen, against = names(tasks), names(strategies)
    if chosen is None or against is None:
        fix = "culmen compare RUN RUN, or culmen compare --tasks A,B --strategies X,Y"
        raise UserError("there is nothing to compare", where="culmen compare", fix=fix)
    limits = Budget.parse(budget or BUDGET)
    file = None if models is None else str(models.resolve())
    number = tuple(range(seeds or SEEDS))
    return Suite(
        "compare", chosen, against, number, model=model, models_file=file, workers=workers, plain=0.0, budget=limits
    )


def _make(screen: Screen, suite: Suite, folder: Path) -> tuple[list[Path], bool]:
    """Run what is not finished; the folders of all cells there are, and whether they are all finished."""
    from culmen.bench.suite import perform
    from culmen.cli import benches

    outcomes: list[Any] = []
    for outcome in perform(suite, folder):
        outcomes.append(outcome)
        benches.progress(screen, suite, outcome, len(outcomes))
    return [Path(each.run) for each in outcomes], benches.complete(suite, outcomes)
