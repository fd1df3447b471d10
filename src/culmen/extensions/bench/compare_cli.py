"""Verbs that compare runs: analyze, compare."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from culmen.cli.screen import Answer, Screen
from culmen.cli.verbs import INTERRUPTED, VerbTable, find_run
from culmen.core.errors import UserError, missing_extra
from culmen.core.json import JsonObject
from culmen.extensions.bench.cli import (
    Models,
    RunModel,
    RunWorkers,
    Untimed,
    check_suite,
    print_progress,
    run_suite,
    score_together,
    suite_settings,
)
from culmen.extensions.bench.markup import Latex, Markdown, MarkupScreen, chosen_notation
from culmen.extensions.bench.score_table import (
    MEANS,
    estimate_text,
    run_count,
    short_number,
    show_scores,
)
from culmen.report.figures import count_text, dollars_text, number_text

if TYPE_CHECKING:
    from culmen.core.usage import Budget
    from culmen.extensions.bench.analyses import Rows, Table
    from culmen.extensions.bench.analyze import Group
    from culmen.extensions.bench.compare import (
        Comparison,
        Overall,
        StrategyFigures,
        StrategyPair,
        TaskComparison,
        UnfinishedRun,
    )
    from culmen.extensions.bench.records import Axis
    from culmen.extensions.bench.suite import Suite

SEEDS = 6  # fewer pairs cannot tell two strategies apart on one task
BUDGET = "evaluations=200"

Width = Annotated[
    int | None,
    typer.Option(
        "--k",
        min=2,
        help="Use only requests for this number of candidates.",
        show_default="the most frequent number",
    ),
]


def analyze(
    screen: Screen,
    run: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RUN...", help="Run folders, or names under ./runs. Default: the latest run."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write tables (CSV) and plots of replies (PNG) here."),
    ] = None,
    k: Width = None,
    latex: Latex = False,
    markdown: Markdown = False,
) -> Answer:
    """Show gains by requests, archive and budget: medians and quartiles over runs.

    Runs of the same settings form one group. Tables: best so far against evaluations, dollars and
    seconds, filling of the grid, replies cut to their first m candidates, candidates by their place
    in the reply, improvement by distance and width, width over time.
    """
    from culmen.extensions.bench import analyze as analysis
    from culmen.extensions.bench.analyze import write_analyses
    from culmen.strategies.catalog import names_by_path

    notation = chosen_notation(latex, markdown)
    paths = [find_run(name) for name in dict.fromkeys(run or [None])]
    groups = analysis.analyze_runs(paths, names_by_path(), k)
    files, remark = ([], "") if out is None else write_analyses(groups, out)
    data: JsonObject = {
        "groups": groups,
        "files": [str(file) for file in files],
        "remark": remark,
    }

    def show(screen: Screen) -> None:
        screen = MarkupScreen(notation) if notation else screen
        _show_groups(screen, groups)
        if out is None:
            names = " ".join(name for group in groups for name in group.runs)
            screen.print_next_steps(
                (f"culmen compare analyze {names} --out analysis", "all rows as CSV, and plots")
            )
            return
        screen.print_line()
        screen.print_line(f"Wrote {count_text(len(files), 'file')} into {out}.")
        if remark:
            screen.print_note(remark)

    return Answer(data, show)


_COUNTS = (
    "runs",
    "barrier",
    "times",
    "requests",
    "candidates",
    "evaluations",
    "m",
    "k",
    "decile",
    "rank",
)
_PAGE = 5  # rows of a series
_STEPS = ("best_by_evaluation_steps", "best_by_proposal_steps", "best_by_proposals")
_LONG = ("width_by_island", "rank_profile", *_STEPS)  # in the files only
_CHOSEN = {  # columns of tables that have more than fit
    "training": (
        "barrier",
        "alpha",
        "reward",
        "failed",
        "entropy",
        "grad_norm",
        "kl",
        "gap_max",
        "skipped",
        "alarmed",
    ),
}


def _show_groups(screen: Screen, groups: Sequence[Group]) -> None:
    """Print the part of every table that fits on a screen."""
    if any(len(group.runs) > 1 for group in groups):
        screen.print_line("Median over runs (first to third quartile).", style="dim")
    for group in groups:
        scores = f", scores {group.trust}" if group.trust else ""
        screen.print_rule(f"{group.label}, {count_text(len(group.runs), 'run')}{scores}")
        if group.unfinished:
            screen.print_note(f"Not finished: {', '.join(group.unfinished)}.")
        for table in group.tables:
            if table.skipped and table.name not in _STEPS:
                screen.print_line(f"{table.title}: skipped, {table.skipped}", style="dim")
            elif table.name not in _LONG:
                _show_table(screen, table, several=len(group.runs) > 1)


def _show_table(screen: Screen, table: Table, several: bool) -> None:
    screen.print_line()
    screen.print_heading(table.title)
    for note in table.notes:
        screen.print_line(note, style="dim")
    rows = _select_rows(table)
    known = [name for name in rows[0] if not name.endswith(("_q1", "_q3"))]
    columns = [name for name in _CHOSEN.get(table.name, known) if name in known]
    cells = [[_table_cell(row, name, several) for name in columns] for row in rows]
    headings = [name.replace("_", " ") for name in columns]
    screen.print_table(headings, cells, right=columns)


def _select_rows(table: Table) -> Rows:
    """The rows of a table to print: all rows of a short one, some at equal steps of a series.

    The last row of a series is included. Of tables by tier only the rows of all tiers together are
    taken.
    """
    rows = [row for row in table.rows if row.get("tier", "all") == "all"]
    if "k" in rows[0] and "decile" in rows[0]:
        return _thirds_by_k(rows)
    step = -(-len(rows) // _PAGE)
    return rows if len(rows) <= 2 * _PAGE else rows[::-1][::step][::-1]


def _thirds_by_k(rows: Rows) -> Rows:
    """Near, middle and far thirds of every K; the files have the table by deciles."""
    from culmen.extensions.bench.analyses import mean_of_known

    thirds = {"near (1-3)": range(1, 4), "middle (4-7)": range(4, 8), "far (8-10)": range(8, 11)}
    thirds_by_k: Rows = []
    for k in sorted({row["k"] for row in rows}):
        for name, deciles in thirds.items():
            chosen = [row for row in rows if row["k"] == k and row["decile"] in deciles]
            if chosen:
                means = {
                    column: mean_of_known(row[column] for row in chosen)
                    for column in ("improve", "best_gain")
                }
                thirds_by_k.append(
                    {
                        "k": k,
                        "deciles": name,
                        **means,
                        "requests": sum(row["requests"] for row in chosen),
                    }
                )
    return thirds_by_k


def _table_cell(row: JsonObject, name: str, several: bool) -> str:
    value = row[name]
    if value is None or isinstance(value, str):
        return value or "-"
    if name in _COUNTS:
        return f"{value:,}"
    low, high = row.get(f"{name}_q1"), row.get(f"{name}_q3")
    if not several or low is None or high is None:
        return number_text(float(f"{value:.5g}"))
    return f"{short_number(value)} ({short_number(low)} to {short_number(high)})"


def compare(
    screen: Screen,
    run: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RUN...", help="Run folders, names under ./runs, or folders of runs."
        ),
    ] = None,
    tasks: Annotated[
        str | None,
        typer.Option(
            metavar="A,B", help="Make the runs: task folders, folders of them, or built-in tasks."
        ),
    ] = None,
    strategies: Annotated[
        str | None,
        typer.Option(
            metavar="A,B",
            help=(
                "Strategies of the runs to make, with settings: polca(epsilon=off), "
                "polca(preset=paper)."
            ),
        ),
    ] = None,
    suite: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Make the runs of a paper's suite: turboevolve, polca, pacevolve or cato.",
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(min=1, help="Runs of each strategy on each task.", show_default=str(SEEDS)),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(metavar="NAME=N,...", help="Budget of each run.", show_default=BUDGET),
    ] = None,
    model: RunModel = "offline",
    models: Models = None,
    workers: RunWorkers = None,
    untimed: Untimed = False,
    agent: Annotated[
        str | None, typer.Option(metavar="NAME", help="Agent of the strategies that have one.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder for the new runs.", show_default="runs/compare"),
    ] = None,
    axis: Annotated[
        str,
        typer.Option(
            metavar="AXIS",
            help="Also count in evaluation_steps, proposal_steps, proposals or seconds.",
        ),
    ] = "evaluations",
    together: Annotated[
        bool,
        typer.Option(
            "--score",
            help=(
                "Evaluate the returned programs afresh, all on the same full split; the scores "
                "are kept."
            ),
        ),
    ] = False,
    repeats: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="With --score: evaluations of each program on each case.",
            show_default="by the task",
        ),
    ] = None,
    score_budget: Annotated[
        str | None,
        typer.Option(
            metavar="NAME=N,...",
            help="With --score: limits, as evaluations=N, dollars=N or seconds=N.",
        ),
    ] = None,
    latex: Latex = False,
    markdown: Markdown = False,
) -> Answer:
    """Compare strategies: which is better, and how surely.

    Also whether the data suffice. Takes existing runs, or makes new ones with --tasks and
    --strategies, or --suite. After an interruption, the same command continues.
    """
    from culmen.extensions.bench import compare as comparing
    from culmen.extensions.bench.records import read_all
    from culmen.extensions.bench.suite import small_budget_notes
    from culmen.strategies.catalog import names_by_path

    making = (tasks, strategies, suite, seeds, budget, models, workers, out, untimed or None, agent)
    along = _parse_axis(axis)
    both = bool(run) and any(option is not None for option in making)
    _check_asked(both)
    notation = chosen_notation(latex, markdown)
    limit = None if score_budget is None else _parse_budget(score_budget)
    done, written = True, dict[Path, str]()
    if run:
        paths = _find_runs(run)
    else:
        chosen = _comparison_suite(
            suite,
            suite_settings(
                tasks, strategies, seeds, budget, model, models, workers, untimed, agent
            ),
        )
        for note in small_budget_notes(chosen):
            print_progress(screen, note)
        outcomes, done = run_suite(screen, chosen, out or Path("runs") / chosen.name)
        written = {Path(each.run): each.strategy for each in outcomes}
        paths = list(written)
    scored = score_together(screen, paths, repeats, limit) if together or repeats or limit else []
    runs_read, left_out = read_all(paths, written)
    names = names_by_path()
    comparison = comparing.compare_runs(runs_read, names, left_out, along)
    data: JsonObject = {
        "complete": done,
        "runs": [str(path) for path in paths],
        "left_out": left_out,
    }
    data |= msgspec.to_builtins(comparison) | {"scored": scored}
    named = run or [str(out or Path("runs") / (suite or "compare"))]
    again = f"culmen compare {' '.join(named)} --score"

    def show(screen: Screen) -> None:
        screen = MarkupScreen(notation) if notation else screen
        _show_comparison(screen, comparison, done)
        if any(part.worth_scoring for part in comparison.tasks):
            screen.print_next_steps(
                (again, "the returned programs, scored afresh on the same cases")
            )

    return Answer(data, show, 0 if done else INTERRUPTED)


def _parse_budget(text: str) -> Budget:
    from culmen.core.usage import Budget

    return Budget.parse(text)


def _parse_axis(name: str) -> Axis:
    from culmen.extensions.bench.records import AXES

    for axis in AXES:
        if axis == name.replace("-", "_"):
            return axis
    raise UserError(
        f"there is no axis '{name}'", where="--axis", fix=f"use one of {', '.join(AXES)}"
    )


def _check_asked(both: bool) -> None:
    """Raise `UserError` for impossible requests before any run is made.

    `both` is True if runs are given and others are to be made.
    """
    if both:
        raise UserError(
            "runs are given, and options to make new ones",
            where="culmen compare",
            fix="give one or the other",
        )
    if find_spec("scipy") is None:
        raise missing_extra("a comparison", "scipy", "compare", "culmen compare")


def _find_runs(names: list[str]) -> list[Path]:
    """The runs named, and those in the folders named, without duplicates."""
    from culmen.extensions.bench.records import find_runs

    paths = [
        path
        for name in names
        for path in (find_runs(Path(name)) if Path(name).is_dir() else [find_run(name)])
    ]
    return list({path.resolve(): path for path in paths}.values())


def _comparison_suite(name: str | None, settings: JsonObject) -> Suite:
    """The suite of this name with these settings, or one of the named tasks and strategies."""
    from culmen.core.usage import Budget
    from culmen.extensions.bench.suite import SUITES, Suite

    if name is None and ("tasks" not in settings or "strategies" not in settings):
        fix = "culmen compare RUN RUN, or culmen compare --tasks A,B --strategies X,Y"
        raise UserError("there is nothing to compare", where="culmen compare", fix=fix)
    if name is not None and name not in SUITES:
        fix = f"use one of {', '.join(SUITES)}"
        raise UserError(f"there is no suite '{name}'", where="--suite", fix=fix)
    start = SUITES[name] if name else Suite("compare", (), (), tuple(range(SEEDS)))
    suite = msgspec.structs.replace(start, **{"budget": Budget.parse(BUDGET), **settings})
    check_suite(suite)
    return suite


_BEST_OF = (0, 1, 2, 4, 9)  # best of 1, 2, 3, 5, 10


def _show_comparison(screen: Screen, comparison: Comparison, done: bool) -> None:
    """Print a comparison: task by task, then over tasks, then in sentences."""
    screen.print_line(
        f"Figures with {comparison.confidence:.0%} bootstrap intervals over runs.", style="dim"
    )
    for part in comparison.tasks:
        _show_task(screen, part, comparison.axis)
        _show_scaled(screen, part.rows)
        _show_pairs(screen, part.pairs)
    if comparison.overall is not None:
        _show_overall(screen, comparison.overall)
    _show_unfinished(screen, comparison.unfinished)
    for remark in comparison.remarks:
        screen.print_note(remark)
    if not done:
        screen.print_note("Interrupted: run the same command again to continue.")


def _show_unfinished(screen: Screen, runs: Sequence[UnfinishedRun]) -> None:
    """Print the runs that no figure counts, with how far they came."""
    if not runs:
        return
    screen.print_rule("not finished, and not counted")
    cells = [[each.strategy, each.task, str(each.seed), each.state, each.came] for each in runs]
    screen.print_table(["strategy", "task", "seed", "state", "came to"], cells, right=["seed"])


def _show_task(screen: Screen, part: TaskComparison, axis: Axis) -> None:
    scale, aim = part.scale, part.target
    way = "maximise" if part.direction == "max" else "minimise"
    screen.print_rule(f"{part.task}, {way}, {part.basis}")
    show_scores(screen, part)
    if aim.score is not None:
        screen.print_line(f"To {number_text(aim.score)}, {aim.origin}:")
        heads = ["strategy", "reached", "evaluations", "per success", "dollars", "per success "]
        further = axis not in ("evaluations", "dollars")
        heads += [axis.replace("_", " "), "per success  "] if further else []
        screen.print_table(heads, [_reach_row(row, further) for row in part.rows], right=heads[1:])
    screen.print_line(
        f"Common scale: 0 is {number_text(scale.start)} ({scale.start_from}), 1 is "
        f"{number_text(scale.reference)} "
        f"({scale.reference_from})."
    )


def _show_overall(screen: Screen, overall: Overall) -> None:
    tasks = count_text(len(overall.tasks), "task")
    screen.print_rule(f"over {tasks} on the common scale: {', '.join(overall.tasks)}")
    cells = [
        [
            row.strategy,
            run_count(row),
            *map(estimate_text, (row.mean, row.median, row.iqm)),
        ]
        for row in overall.rows
    ]
    screen.print_table(["strategy", "runs", *MEANS], cells, right=["runs"])
    _show_scaled(screen, overall.rows)
    _show_pairs(screen, overall.pairs)


def _show_scaled(screen: Screen, rows: Sequence[StrategyFigures]) -> None:
    """Expected best of n runs on the common scale."""
    longest = max(len(row.best_of) for row in rows)
    marks = sorted({index for index in (*_BEST_OF, longest - 1) if index < longest})
    screen.print_line("On the common scale: IQM, and expected best of n runs:")
    heads = ["strategy", "IQM", *(f"best of {index + 1}" for index in marks)]
    cells = [
        [
            row.strategy,
            estimate_text(row.normalised),
            *(
                short_number(row.best_of[index]) if index < len(row.best_of) else "-"
                for index in marks
            ),
        ]
        for row in rows
    ]
    screen.print_table(heads, cells)


def _show_pairs(screen: Screen, pairs: Sequence[StrategyPair]) -> None:
    """Print one sentence for each pair of strategies, those with a clear winner first."""
    for pair in sorted(pairs, key=lambda pair: not pair.apart):
        screen.print_line(pair.sentence, style="bold" if pair.apart else "")


def _reach_row(row: StrategyFigures, further: bool) -> list[str]:
    reach = row.reach
    assert reach is not None
    counts = [short_number(value) for value in (reach.evaluations, reach.expected_evaluations)]
    money = [
        "-" if value is None else dollars_text(value)
        for value in (reach.dollars, reach.expected_dollars)
    ]
    steps = (
        [short_number(value) for value in (reach.steps, reach.expected_steps)] if further else []
    )
    return [row.strategy, f"{reach.reached} of {row.runs}", *counts, *money, *steps]


VERBS = VerbTable(
    "Look at a run",
    groups={"compare": ("", {"": compare, "analyze": analyze})},
)
