"""The verb that says which strategy is better: compare, over runs that exist or over runs that it makes."""

from __future__ import annotations

import importlib.util
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
    untimed: Annotated[
        bool, typer.Option("--untimed", help="Without the loops that the offline model writes.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where made runs lie.", show_default="runs/compare")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Draw best so far and profiles into it (SVG; extra 'plots').")
    ] = None,
) -> Answer:
    """Which strategy is better, how surely, and whether the data can tell.

    Over runs that exist, or over new ones, made with --tasks and --strategies. Cut off, the same command goes on.
    """
    from culmen.cli import comparisons
    from culmen.report import compare as comparing
    from culmen.report.compare_read import readable
    from culmen.strategies.catalog import CATALOG

    making = (tasks, strategies, seeds, budget, models, workers, out, untimed or None)
    if run and any(option is not None for option in making):
        raise UserError(
            "runs are given, and others are to be made", where="culmen compare", fix="give one or the other"
        )
    if plot is not None and importlib.util.find_spec("matplotlib") is None:
        raise UserError("plots need matplotlib", where="--plot", fix="pip install 'culmen[plots]'")
    done = True
    if run:
        paths = _given(run)
    else:
        suite = _suite(tasks, strategies, seeds, budget, model, models, workers, untimed)
        paths, done = _make(screen, suite, out or Path("runs/compare"))
    found, left_out = readable(paths)
    names = {path: name for name, path in CATALOG.items()}
    made = comparing.compare(found, names, left_out)
    data: dict[str, Any] = {"complete": done, "runs": [str(path) for path in paths], "left_out": left_out}
    data |= msgspec.to_builtins(made) | {"files": []}
    if plot is not None:
        from culmen.report.compare_plots import draw

        data["files"] = [str(file) for file in draw(made, comparing.contenders(found, names), plot)]
    return Answer(data, lambda screen: comparisons.show(screen, made, done, data["files"]), 0 if done else INTERRUPTED)


def _given(names: list[str]) -> list[Path]:
    """The runs that are named, and those in folders that are, each once."""
    from culmen.cli import runs
    from culmen.report.compare_read import find

    paths = [path for name in names for path in (find(Path(name)) if Path(name).is_dir() else [runs.find(name)])]
    return list({path.resolve(): path for path in paths}.values())


def _suite(
    tasks: str | None,
    strategies: str | None,
    seeds: int | None,
    budget: str | None,
    model: str,
    models: Path | None,
    workers: int | None,
    untimed: bool,
) -> Suite:
    from culmen.bench.suite import Suite
    from culmen.cli.benches import check, names
    from culmen.core.usage import Budget

    chosen, against = names(tasks), names(strategies)
    if chosen is None or against is None:
        fix = "culmen compare RUN RUN, or culmen compare --tasks A,B --strategies X,Y"
        raise UserError("there is nothing to compare", where="culmen compare", fix=fix)
    limits = Budget.parse(budget or BUDGET)
    file = None if models is None else str(models.resolve())
    number = tuple(range(seeds or SEEDS))
    settings: dict[str, Any] = {"model": model, "models_file": file, "workers": workers, "timed": not untimed}
    suite = Suite("compare", chosen, against, number, plain=0.0, budget=limits, **settings)
    check(suite)
    return suite


def _make(screen: Screen, suite: Suite, folder: Path) -> tuple[list[Path], bool]:
    """Run what is not finished; the folders of all cells there are, and whether they are all finished."""
    from culmen.bench.suite import perform
    from culmen.cli import benches

    outcomes: list[Any] = []
    for outcome in perform(suite, folder):
        outcomes.append(outcome)
        benches.progress(screen, suite, outcome, len(outcomes))
    return [Path(each.run) for each in outcomes], benches.complete(suite, outcomes)
