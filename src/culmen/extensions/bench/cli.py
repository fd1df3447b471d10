"""Runs of strategies on tasks at equal budgets, made and scored for `culmen compare`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from culmen.cli.screen import Screen
from culmen.core.errors import UserError
from culmen.core.json import JsonObject
from culmen.report.figures import count_text, duration_text, join_nonempty, score_with_margin

if TYPE_CHECKING:
    from culmen.core.usage import Budget
    from culmen.extensions.bench.suite import CellResult, Suite

RunModel = Annotated[str, typer.Option(help="Model of each run.")]
Models = Annotated[Path | None, typer.Option(metavar="FILE", help="Providers, models and prices.")]
RunWorkers = Annotated[int | None, typer.Option(min=1, help="Evaluations at once.")]
Untimed = Annotated[
    bool, typer.Option("--untimed", help="Leave out the timed loops that the offline model writes.")
]


def suite_settings(
    tasks: str | None,
    strategies: str | None,
    seeds: int | None,
    budget: str | None,
    model: str,
    models: Path | None,
    workers: int | None,
    untimed: bool,
    agent: str | None,
) -> JsonObject:
    """The fields of a `Suite` that the command line names; UserError for illegal values."""
    from culmen.core.usage import Budget

    settings = {
        "tasks": _parse_names(tasks),
        "strategies": _parse_names(strategies),
        "seeds": None if seeds is None else tuple(range(seeds)),
        "budget": None if budget is None else Budget.parse(budget),
        "models_file": None if models is None else str(models.resolve()),
        "workers": workers,
        "agent": agent,
    }
    return {
        "model": model,
        "timed": not untimed,
        **{name: value for name, value in settings.items() if value is not None},
    }


def _parse_names(text: str | None) -> tuple[str, ...] | None:
    """The names in a list with commas; raises `UserError` for an empty list."""
    if text is None:
        return None
    from culmen.strategies.catalog import split_top_level

    names = tuple(dict.fromkeys(split_top_level(text)))
    if not names:
        raise UserError("an empty list", where=f"'{text}'", fix="name some, separated by commas")
    return names


def check_suite(suite: Suite) -> None:
    """Raise `UserError` before any run is started.

    For an unknown strategy, an endless run, and a package that is missing.
    """
    from culmen.core.options import RunOptions
    from culmen.extensions.bench.suite import Contender, check_packages, tasks_of
    from culmen.run import pools
    from culmen.run.options import RunObjects
    from culmen.run.plan import check_ends

    options = RunOptions(model=suite.model, budget=suite.budget)
    for task, strategy in product(tasks_of(suite).values(), suite.strategies):
        contender = Contender.from_text(strategy, task, suite.agent, suite.model)
        check_ends(contender.strategy, options, RunObjects())
        if contender.pool:
            pools.load_pool(contender.pool)
    check_packages(suite)


def run_suite(screen: Screen, suite: Suite, folder: Path) -> tuple[list[CellResult], bool]:
    """Make the missing runs; all results, and True if all have finished.

    Prints one line for each to standard error.
    """
    from culmen.extensions.bench.suite import run_cells, suite_cells

    size = len(suite_cells(suite, folder))
    outcomes: list[CellResult] = []
    for each in run_cells(suite, folder):
        outcomes.append(each)
        if screen.as_json:
            continue
        certified = "" if each.certified is None else f"certified {each.certified:.8g}"
        exact = "-" if each.score is None else f"{each.score:.8g}"
        facts = [
            "" if each.state == "finished" else each.state,
            score_with_margin(each.score, each.margin) if each.margin else exact,
            certified,
            count_text(each.evaluations, "evaluation"),
            duration_text(each.seconds),
        ]
        name = f"{each.label} {each.strategy} seed {each.seed}"
        screen.err.print(
            f"[{len(outcomes)}/{size}] {name}: {join_nonempty(facts)}", markup=False, soft_wrap=True
        )
    return outcomes, len(outcomes) == size and all(each.state == "finished" for each in outcomes)


def score_together(
    screen: Screen, runs: Sequence[Path], repeats: int | None = None, budget: Budget | None = None
) -> list[JsonObject]:
    """Evaluate the results of these runs on the same cases, where that is missing.

    Returns the work done, by task. Prints the number of evaluations to standard error before the
    first one.
    """
    from culmen.extensions.bench.score import plan_runs_by_task, score_runs

    documents: list[JsonObject] = []
    for planned in plan_runs_by_task(runs, repeats=repeats, budget=budget):
        plan = planned.plan
        where = f"{count_text(len(plan.cases), f'{plan.split} case')}" if plan.split else "the task"
        times = "once" if plan.repeats == 1 else f"{plan.repeats} times each"
        what = (
            f"{plan.task.name}: {count_text(len(plan.candidates), 'program')} on {where}, {times}"
        )
        print_progress(screen, f"{what}: {count_text(len(plan.missing), 'evaluation')} to be made")
        done = score_runs(planned, budget, told=progress_printer(screen))
        if done.left:
            left = f"{plan.task.name}: {count_text(done.left, 'evaluation')} left"
            print_progress(screen, f"{left}; run the same command again to continue")
        if done.isolation not in ("", planned.meta.isolation):
            print_progress(
                screen,
                f"{plan.task.name}: scored at isolation {done.isolation}, its runs at "
                f"{planned.meta.isolation}",
            )
        split = {
            "split": plan.split,
            "cases": len(plan.cases) if plan.split else 0,
            "repeats": plan.repeats,
        }
        documents.append(
            {
                "task": plan.task.name,
                "programs": len(plan.candidates),
                **split,
                **msgspec.to_builtins(done),
            }
        )
    return documents


def print_progress(screen: Screen, text: str) -> None:
    """Print a line to standard error, none with `--json`."""
    if not screen.as_json:
        screen.err.print(text, markup=False, soft_wrap=True)


def progress_printer(screen: Screen) -> Callable[[int, int], None]:
    """A callback that prints progress at every tenth."""

    def print_tenth(done: int, of: int) -> None:
        if done == of or done * 10 // of > (done - 1) * 10 // of:
            print_progress(screen, f"[{done}/{of}]")

    return print_tenth
