"""`culmen compare bench`: strategies on tasks at equal budgets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from culmen.cli.screen import Answer, Screen
from culmen.cli.verbs import INTERRUPTED
from culmen.core.errors import UserError
from culmen.core.json import JsonObject
from culmen.extensions.bench.score_table import show_scores
from culmen.report.figures import count_text, duration_text, join_nonempty, score_with_margin

if TYPE_CHECKING:
    from culmen.core.usage import Budget
    from culmen.extensions.bench.analyses import Rows
    from culmen.extensions.bench.compare import TaskComparison
    from culmen.extensions.bench.suite import CellResult, Suite

_COUNTS = ("requests", "calls", "proposals", "evaluations")

RunBudget = Annotated[
    str | None,
    typer.Option(
        metavar="NAME=N,...", help="Budget of each run: evaluations, dollars, seconds, ..."
    ),
]
RunModel = Annotated[str, typer.Option(help="Model of each run.")]
Models = Annotated[Path | None, typer.Option(metavar="FILE", help="Providers, models and prices.")]
RunWorkers = Annotated[int | None, typer.Option(min=1, help="Evaluations at once.")]
Untimed = Annotated[
    bool, typer.Option("--untimed", help="Leave out the timed loops that the offline model writes.")
]


def bench(
    screen: Screen,
    suite: Annotated[
        str, typer.Argument(metavar="SUITE", help="turboevolve, polca, pacevolve or cato.")
    ],
    tasks: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="Task folders, folders of them, or built-in tasks."),
    ] = None,
    strategies: Annotated[
        str | None,
        typer.Option(
            metavar="A,B",
            help="Names, with settings: polca(epsilon=off), polca(preset=paper), polca(pool=FILE).",
        ),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Runs of each strategy on each task.")
    ] = None,
    budget: RunBudget = None,
    model: RunModel = "offline",
    models: Models = None,
    workers: RunWorkers = None,
    untimed: Untimed = False,
    agent: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Agent of the strategies that have one (cato). See: doctor.",
            show_default="offline; builtin with a model",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder for runs and tables.", show_default="runs/bench-SUITE"
        ),
    ] = None,
) -> Answer:
    """Run each strategy on each task with several random seeds, under the same budget.

    After an interruption, the same command continues: finished runs are reused.
    """
    from culmen.extensions.bench.suite import (
        SUITES,
        draw_results,
        small_budget_notes,
        suite_cells,
        summary_rows,
        with_common_scores,
        write_results,
    )

    if suite not in SUITES:
        raise UserError(
            f"there is no bench '{suite}'",
            where="culmen compare bench",
            fix=f"use one of {', '.join(SUITES)}",
        )
    settings = suite_settings(tasks, strategies, seeds, budget, model, models, workers, untimed)
    chosen = msgspec.structs.replace(SUITES[suite], **settings, agent=agent)
    check_suite(chosen)
    for note in small_budget_notes(chosen):
        print_progress(screen, note)
    folder = out or Path("runs") / f"bench-{suite}"
    outcomes, done = run_suite(screen, chosen, folder)
    scored, why_not = _score_by_itself(screen, chosen, outcomes)
    outcomes = with_common_scores(outcomes) if scored else outcomes
    files = write_results(chosen, outcomes, folder)
    plots, no_plots = draw_results(suite_cells(chosen, folder), folder)
    rows, parts = summary_rows(outcomes), _task_scores(outcomes)
    data: JsonObject = {
        "suite": chosen,
        "complete": done,
        "summary": rows,
        "scored": scored,
        "cells": outcomes,
        "files": [str(file) for file in (*files, *plots)],
    }

    def show(screen: Screen) -> None:
        _show_summary(screen, rows, parts)
        for note in filter(None, (why_not, no_plots)):
            screen.print_note(note)
        screen.print_line()
        outcome = "Complete" if done else "Interrupted: run the same command again to continue"
        screen.print_line(f"{outcome}. Tables and runs are in {folder}.")
        screen.print_next_steps(
            (f"culmen compare analyze {folder}/*/*/seed-*", "how these runs went")
        )

    return Answer(data, show, 0 if done else INTERRUPTED)


def suite_settings(
    tasks: str | None,
    strategies: str | None,
    seeds: int | None,
    budget: str | None,
    model: str,
    models: Path | None,
    workers: int | None,
    untimed: bool,
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
    from culmen.extensions.bench.suite import run_cells, score_digits, suite_cells

    size = len(suite_cells(suite, folder))
    outcomes: list[CellResult] = []
    for each in run_cells(suite, folder):
        outcomes.append(each)
        if screen.as_json:
            continue
        certified = "" if each.certified is None else f"certified {score_digits(each.certified)}"
        facts = [
            "" if each.state == "finished" else each.state,
            score_with_margin(each.score, each.margin) if each.margin else score_digits(each.score),
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


def _score_by_itself(
    screen: Screen, suite: Suite, outcomes: Sequence[CellResult]
) -> tuple[list[JsonObject], str]:
    """Score the results together that were measured on a sample of the cases.

    Nothing is scored if that takes more than one run may spend. Returns the work done, by task, and
    the reason if there is none.
    """
    from culmen.core.usage import Budget
    from culmen.extensions.bench.suite import sampled_results

    runs = [Path(each.run) for each in sampled_results(outcomes)]
    limits = {name: getattr(suite.budget, name) for name in ("evaluations", "dollars", "seconds")}
    try:
        return score_together(screen, runs, budget=Budget(**limits)), ""
    except UserError as error:
        return (
            [],
            f"Not scored together: {error.what} ({error.where}). culmen compare --score does it.",
        )


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


def _task_scores(outcomes: Sequence[CellResult]) -> dict[str, TaskComparison]:
    """The scores of the finished runs by task, as `culmen compare` has them."""
    from culmen.extensions.bench.compare import compare_runs
    from culmen.extensions.bench.records import read_all
    from culmen.strategies.catalog import names_by_path

    written = {Path(each.run): each.strategy for each in outcomes if each.state == "finished"}
    if not written:
        return {}
    runs, left_out = read_all(list(written), written)
    return {part.task: part for part in compare_runs(runs, names_by_path(), left_out).tasks}


def _show_summary(screen: Screen, rows: Rows, parts: dict[str, TaskComparison]) -> None:
    """Print the summary, task by task: scores, then what they took, then metrics."""
    from culmen.extensions.bench.suite import count_digits, score_digits

    for task in dict.fromkeys(row["task"] for row in rows):
        chosen = [row for row in rows if row["task"] == task]
        screen.print_line()
        screen.print_heading(task, "maximise" if chosen[0]["direction"] == "max" else "minimise")
        if task in parts:
            show_scores(screen, parts[task])
        if _is_known(chosen, "certified"):
            proven = [[row["strategy"], score_digits(row["certified"])] for row in chosen]
            screen.print_table(["strategy", "best certified"], proven, right=["best certified"])
        counts = [name for name in _COUNTS if _is_known(chosen, name)]
        means = [[row["strategy"], *(count_digits(row[name]) for name in counts)] for row in chosen]
        screen.print_table(["means per run", *counts], means, right=counts)
        metrics = list(dict.fromkeys(name for row in chosen for name in row["metrics"]))
        for begin in range(0, len(metrics), _ACROSS):
            names = metrics[begin : begin + _ACROSS]
            values = [
                [row["strategy"], *(score_digits(row["metrics"].get(name)) for name in names)]
                for row in chosen
            ]
            screen.print_table(["metrics", *names], values, right=names)
        left = [f"{row['strategy']} {each}" for row in chosen for each in row["unfinished"]]
        if left:
            screen.print_note(f"Not finished, and not counted: {join_nonempty(left, '; ')}.")


_ACROSS = 4  # metrics side by side


def _is_known(rows: Rows, name: str) -> bool:
    return any(row[name] is not None for row in rows)
