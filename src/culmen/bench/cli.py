"""`culmen bench`: strategies on tasks at equal budgets, and the capacity of one driver.

The capacity is the number of evaluations that a driver serves at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from culmen.cli.screen import Answer, Screen
from culmen.core.errors import UserError
from culmen.core.json import JsonObject
from culmen.observe.figures import count_text, duration_text, join_nonempty

if TYPE_CHECKING:
    from culmen.bench.analyses import Rows
    from culmen.bench.baselines import Level
    from culmen.bench.scale import BackendFigure, Figure
    from culmen.bench.suite import CellResult, Suite
    from culmen.core.usage import Budget

INTERRUPTED = 130
_COUNTS = ("requests", "calls", "proposals", "evaluations")
_REAL = 400  # evaluations of each measurement of a real backend
_EXAMPLES = (1.0, 10.0, 60.0, 600.0)  # seconds of an evaluation

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
Picks = Annotated[
    int,
    typer.Option(
        min=0,
        metavar="N",
        help="Evaluate N times the programs that other rules would report; 0: none.",
    ),
]


def bench(
    screen: Screen,
    suite: Annotated[str, typer.Argument(metavar="SUITE", help="turboevolve, polca, or scale.")],
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
    plain: Annotated[
        float,
        typer.Option(
            min=0.0,
            metavar="SECONDS",
            help="Time of the tasks' plain optimisers; 0: leave them out.",
        ),
    ] = 60.0,
    untimed: Untimed = False,
    picks: Picks = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder for runs and tables.", show_default="runs/bench-SUITE"
        ),
    ] = None,
    at_once: Annotated[
        str | None,
        typer.Option(
            metavar="N,...", help="For scale: evaluations at once.", show_default="10 to 100,000"
        ),
    ] = None,
    real: Annotated[
        bool, typer.Option("--real", help="For scale: measure this machine's backends, too.")
    ] = False,
) -> Answer:
    """Run each strategy on each task with several random seeds, under the same budget.

    After an interruption, the same command continues: finished runs are reused. The suite scale
    measures something else: how many evaluations one driver serves at once, on a virtual clock.
    """
    if suite == "scale":
        return _bench_scale(screen, strategies, at_once, real)
    from culmen.bench import shares
    from culmen.bench.picks import pick_rows as pick_table
    from culmen.bench.suite import (
        SUITES,
        baseline_levels,
        suite_picks,
        summary_rows,
        with_common_scores,
        write_results,
    )

    if suite not in SUITES:
        raise UserError(
            f"there is no bench '{suite}'",
            where="culmen bench",
            fix=f"use one of {', '.join(SUITES)}",
        )
    settings = suite_settings(tasks, strategies, seeds, budget, model, models, workers, untimed)
    chosen = msgspec.structs.replace(SUITES[suite], plain=plain, picks=picks, **settings)
    check_suite(chosen)
    folder = out or Path("runs") / f"bench-{suite}"
    plain_levels = list(baseline_levels(chosen, folder))
    outcomes, done = run_suite(screen, chosen, folder)
    scored, why_not = _score_by_itself(screen, chosen, outcomes)
    outcomes = with_common_scores(outcomes) if scored else outcomes
    shared = shares.share_rows(outcomes)
    picked = pick_table(list(suite_picks(chosen, outcomes)))
    files = write_results(chosen, outcomes, plain_levels, folder, picked)
    rows = summary_rows(outcomes)
    data: JsonObject = {
        "suite": chosen,
        "complete": done,
        "summary": rows,
        "plain": plain_levels,
    }
    data |= {
        "shares": shared,
        "remarks": shares.share_remarks(outcomes, shared),
        "picks": picked,
        "scored": scored,
        "cells": outcomes,
        "files": [str(file) for file in files],
    }

    def show(screen: Screen) -> None:
        _show_summary(screen, rows, plain_levels)
        _show_shares(screen, shared, data["remarks"])
        _show_picks(screen, picked)
        if why_not:
            screen.print_note(why_not)
        screen.print_line()
        outcome = "Complete" if done else "Interrupted: run the same command again to continue"
        screen.print_line(f"{outcome}. Tables and runs are in {folder}.")
        screen.print_next_steps((f"culmen analyze {folder}/*/*/seed-*", "how these runs went"))

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
    """Raise `UserError` for an unknown strategy or an endless run, before any run is started."""
    from culmen.bench.suite import Contender, tasks_of
    from culmen.core.options import RunOptions
    from culmen.run import pools
    from culmen.run.options import RunObjects
    from culmen.run.plan import check_ends

    options = RunOptions(model=suite.model, budget=suite.budget)
    for task, strategy in product(tasks_of(suite).values(), suite.strategies):
        contender = Contender.from_text(strategy, task)
        check_ends(contender.strategy, options, RunObjects())
        if contender.pool:
            pools.load_pool(contender.pool)


def run_suite(screen: Screen, suite: Suite, folder: Path) -> tuple[list[CellResult], bool]:
    """Make the missing runs; all results, and True if all have finished.

    Prints one line for each to standard error.
    """
    from culmen.bench.suite import run_cells, score_digits, suite_cells

    size = len(suite_cells(suite, folder))
    outcomes: list[CellResult] = []
    for each in run_cells(suite, folder):
        outcomes.append(each)
        if screen.as_json:
            continue
        certified = "" if each.certified is None else f"certified {score_digits(each.certified)}"
        facts = [
            score_digits(each.score),
            certified,
            count_text(each.evaluations, "evaluation"),
            duration_text(each.seconds),
        ]
        name = f"{each.task} {each.strategy} seed {each.seed}"
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
    from culmen.bench.score import plan_runs_by_task, score_runs

    documents: list[JsonObject] = []
    for planned in plan_runs_by_task(runs, repeats=repeats, budget=budget):
        plan = planned.plan
        where = f"{count_text(len(plan.cases), f'{plan.split} case')}" if plan.split else "the task"
        times = "once" if plan.repeats == 1 else f"{plan.repeats} times each"
        what = (
            f"{plan.task.name}: {count_text(len(plan.candidates), 'program')} on {where}, {times}"
        )
        _print_progress(screen, f"{what}: {count_text(len(plan.missing), 'evaluation')} to be made")
        done = score_runs(planned, budget, told=_progress_printer(screen))
        if done.left:
            left = f"{plan.task.name}: {count_text(done.left, 'evaluation')} left"
            _print_progress(screen, f"{left}; run the same command again to continue")
        if done.isolation not in ("", planned.meta.isolation):
            _print_progress(
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
    from culmen.bench.suite import sampled_results
    from culmen.core.usage import Budget

    runs = [Path(each.run) for each in sampled_results(outcomes)]
    limits = {name: getattr(suite.budget, name) for name in ("evaluations", "dollars", "seconds")}
    try:
        return score_together(screen, runs, budget=Budget(**limits)), ""
    except UserError as error:
        return (
            [],
            f"Not scored together: {error.what} ({error.where}). culmen compare --score does it.",
        )


def _print_progress(screen: Screen, text: str) -> None:
    if not screen.as_json:
        screen.err.print(text, markup=False, soft_wrap=True)


def _progress_printer(screen: Screen) -> Callable[[int, int], None]:
    """A callback that prints progress at every tenth."""

    def print_tenth(done: int, of: int) -> None:
        if done == of or done * 10 // of > (done - 1) * 10 // of:
            _print_progress(screen, f"[{done}/{of}]")

    return print_tenth


def _show_shares(screen: Screen, rows: Rows, remarks: Sequence[str]) -> None:
    """Print the share of the tasks solved, and fast_p."""
    from culmen.bench import shares

    if rows:
        screen.print_line()
        screen.print_heading(
            "Over tasks",
            "share solved; share correct and more than p times as fast; 95% intervals over random "
            "seeds",
        )
        heads, cells = shares.wide_table(rows)
        screen.print_table(heads, cells, right=heads[1:])
    for remark in remarks:
        screen.print_note(remark)


def _show_picks(screen: Screen, rows: Rows) -> None:
    """Print the picks of each rule, and their fresh scores."""
    from culmen.bench.picks import plus_minus

    for task, strategy in dict.fromkeys((row["task"], row["strategy"]) for row in rows):
        screen.print_line()
        screen.print_heading(
            task, f"programs that each rule would report of {strategy}'s runs, evaluated afresh"
        )
        cells = [
            [
                f"{row['share']:.0%}",
                row["rule"],
                str(row["runs"]),
                plus_minus(row["mean"], row["se"]),
                plus_minus(row["difference"], row["difference_se"]),
            ]
            for row in rows
            if (row["task"], row["strategy"]) == (task, strategy)
        ]
        screen.print_table(
            ["observations", "rule", "runs", "score", "minus the empirical mean's"], cells
        )


def _show_summary(screen: Screen, rows: Rows, levels: Sequence[Level]) -> None:
    """Print the summary, task by task."""
    from culmen.bench.suite import count_digits, score_digits

    for task in dict.fromkeys(row["task"] for row in rows):
        chosen = [row for row in rows if row["task"] == task]
        screen.print_line()
        screen.print_heading(task, "maximise" if chosen[0]["direction"] == "max" else "minimise")
        cells = [
            [
                row["strategy"],
                str(row["runs"]),
                *(
                    score_digits(row[name])
                    for name in ("best", "median", "q1", "q3", "together", "certified")
                ),
                *(count_digits(row[name]) for name in _COUNTS),
            ]
            for row in chosen
        ]
        heads = [
            "strategy",
            "runs",
            "best",
            "median",
            "q1",
            "q3",
            "together",
            "certified",
            *_COUNTS,
        ]
        screen.print_table(heads, cells, right=heads[1:])
        for level in (level for level in levels if level.task == task):
            screen.print_line(
                f"plain optimiser, two processes of {level.seconds:g} s: certified "
                f"{score_digits(level.value)}"
            )


def _bench_scale(screen: Screen, strategy: str | None, at_once: str | None, real: bool) -> Answer:
    """Measure the number of evaluations that one driver serves at once, and its limit."""
    from culmen.bench import scale
    from culmen.strategies import catalog

    chosen = catalog.make_strategy(strategy or "best_of_n", {})
    figures: list[Figure] = []
    for workers in _worker_counts(at_once) or scale.LEVELS:
        figures.append(scale.measure_driver(chosen, workers))
        if not screen.as_json:
            now = figures[-1]
            text = (
                f"{workers} at once: {now.driver_ms:.2f} ms each, workers busy "
                f"{now.workers_busy:.1%}"
            )
            screen.err.print(text, markup=False)
    measured = list(_measure_backends()) if real else []
    saturation = {
        f"{s:g} s": round(scale.saturating_workers(figures, s))
        for s in (*_EXAMPLES, scale.mean_seconds())
    }
    data: JsonObject = {
        "simulated": [
            {**msgspec.to_builtins(each), "bound": each.limiting_resource} for each in figures
        ],
        "saturates_at": saturation,
        "measured": msgspec.to_builtins(measured),
    }
    return Answer(data, lambda screen: _show_scale(screen, figures, measured, saturation))


def _worker_counts(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    try:
        counts = tuple(int(piece) for piece in text.split(","))
    except ValueError:
        counts = (0,)
    if min(counts) < 1:
        raise UserError(
            f"cannot read '{text}'", where="--at-once", fix="write --at-once 10,100,1000"
        )
    return counts


def _measure_backends() -> Iterator[BackendFigure]:
    from culmen.bench.scale import has_ray, measure_backend, ray_nodes
    from culmen.evaluate.backends import BackendChoice

    for workers in (1, 2):
        yield measure_backend("local", BackendChoice(), workers, _REAL)
    if not has_ray():
        return
    with ray_nodes(3, 2) as address:
        for workers in (1, 6):
            yield measure_backend(
                "ray, 3 nodes", BackendChoice("ray", address=address), workers, _REAL
            )


def _show_scale(
    screen: Screen, figures: list[Figure], measured: list[BackendFigure], saturation: dict[str, int]
) -> None:
    from culmen.bench import scale

    screen.print_line(
        f"Simulated workers, real driver: evaluations of {scale.MEDIAN:g} s (median, "
        "log-normal, mean "
        f"{scale.mean_seconds():.0f} s), 4.5 % fail, 1 % take ten times as long."
    )
    heads = [
        "at once",
        "evaluations",
        "a second",
        "driver ms",
        "commit ms",
        "batch",
        "driver busy",
        "workers busy",
    ]
    heads += ["model calls", "peak MB", "bound by"]
    cells = [
        [
            f"{each.workers}",
            f"{each.evaluations}",
            f"{each.per_second:.2f}",
            f"{each.driver_ms:.2f}",
            f"{each.commit_ms:.1f}",
            f"{each.batch:.1f}",
            f"{each.driver_busy:.1%}",
            f"{each.workers_busy:.1%}",
            f"{each.calls}",
            f"{each.peak_mb:.0f}",
            each.limiting_resource,
        ]
        for each in figures
    ]
    screen.print_table(heads, cells, right=heads[:-1])
    named = ", ".join(f"{number} of {seconds}" for seconds, number in saturation.items())
    screen.print_line(f"At that cost the driver is busy all the time with {named} at once.")
    if not measured:
        screen.print_next_steps(
            ("culmen bench scale --real", "measure this machine's backends, too")
        )
        return
    screen.print_line()
    screen.print_line("Backends of this machine, with programs that take no time:")
    heads = [
        "backend",
        "at once",
        "evaluations",
        "a second",
        "round trip ms",
        "driver ms",
        "start s",
        "not ok",
    ]
    cells = [
        [
            each.backend,
            f"{each.workers}",
            f"{each.evaluations}",
            f"{each.per_second:.1f}",
            f"{each.round_trip_ms:.1f}",
            f"{each.driver_ms:.2f}",
            f"{each.seconds:.1f}",
            f"{each.lost}",
        ]
        for each in measured
    ]
    screen.print_table(heads, cells, right=heads[1:])
    if not any(each.backend.startswith("ray") for each in measured):
        screen.print_line("Ray is not installed, so it is not measured: pip install 'culmen[ray]'")
