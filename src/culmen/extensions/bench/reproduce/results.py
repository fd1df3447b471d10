"""Results of a place: a table beside the printed one, and the panels of a plot."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from statistics import fmean, stdev

import msgspec

from culmen.core.json import JsonObject
from culmen.core.result import RunResult
from culmen.extensions.bench import shares
from culmen.extensions.bench.analyses import Rows, Table
from culmen.extensions.bench.analyze import all_analyses
from culmen.extensions.bench.measure import measure_candidates
from culmen.extensions.bench.measure_cli import score_text
from culmen.extensions.bench.picks import SHARES as PICK_SHARES
from culmen.extensions.bench.picks import evaluate_picks, pick_rows
from culmen.extensions.bench.records import Moment, read_run
from culmen.extensions.bench.reproduce.places import PaperPlace
from culmen.extensions.bench.reproduce.running import Experimenter, Made, Report
from culmen.report.figures import count_text, dollars_text
from culmen.store import views

CHECKPOINTS = 8
"""Points of a course at which the leader is measured."""


class Series(msgspec.Struct, frozen=True):
    """A line or a row of bars: mean and standard error at each x (None: one run).

    `aside` is true for a second line of the same method.
    """

    label: str
    x: tuple[float | str, ...]
    y: tuple[float, ...]
    error: tuple[float | None, ...] = ()
    aside: bool = False


def make_series(
    label: str, points: Sequence[tuple[float | str, float, float | None]], aside: bool = False
) -> Series:
    """The series of (x, mean, standard error)."""
    x, y, error = zip(*points) if points else ((), (), ())
    return Series(label, x, y, error, aside)


class Panel(msgspec.Struct, frozen=True):
    """One panel of a plot with the paper's axes; `levels` are horizontal lines by label.

    `printed` holds the paper's values, (x, value) by the label of the series, `absent` the words in
    place of the bar or line of a method that has none.
    """

    title: str
    across: str
    upward: str
    series: tuple[Series, ...]
    levels: Mapping[str, float] = {}
    bars: bool = False
    printed: Mapping[str, tuple[tuple[float | str, float], ...]] = {}
    absent: Mapping[str, str] = {}


class PlaceResult(msgspec.Struct, frozen=True):
    """The result of a place: a table, panels or analyses for a plot, and remarks."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    panels: tuple[Panel, ...] = ()
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()


TOY = "toy size, {runs}, scripted models: shows nothing about a method"
"""Words in the picture of a rehearsal."""

Runs = dict[str, list[Made]]
"""Finished runs by experiment."""


class PlaceEvidence(msgspec.Struct, frozen=True):
    """All that an analysis reads: the place, its experiments, and their runs."""

    place: PaperPlace
    experimenters: dict[str, Experimenter]
    runs: Runs
    report: Report

    def every_run(self) -> list[Made]:
        """The runs of all experiments that the place shows."""
        chosen, tasks = self.place.contenders, self.place.tasks
        return [
            run
            for runs in self.runs.values()
            for run in runs
            if (not chosen or run.contender in chosen)
            and (not tasks or run.cell.task.startswith(tasks))
        ]

    def by_contender(self) -> dict[str, list[Made]]:
        """The same by contender, in the order of the record."""
        order = [name for each in self.experimenters.values() for name in each.plan.contenders]
        runs = self.every_run()
        groups = {name: [run for run in runs if run.contender == name] for name in order}
        return {name: group for name, group in groups.items() if group}

    def by_task(self) -> dict[str, dict[str, list[Made]]]:
        """The same by task, then by contender."""
        groups = self.by_contender()
        return {
            task: {
                label: own
                for label, runs in groups.items()
                if (own := [run for run in runs if run.cell.task == task])
            }
            for task in dict.fromkeys(run.cell.task for run in self.every_run())
        }

    def label_of(self, task: str) -> str:
        """A task's name for tables: made-up data are named."""
        return next(run.cell.label for run in self.every_run() if run.cell.task == task)

    def experimenter_of(self, run: Made) -> Experimenter:
        """The experiment that a run belongs to."""
        name = next(name for name, runs in self.runs.items() if run in runs)
        return self.experimenters[name]

    @property
    def scale(self) -> str:
        """Words below the title: runs of each method on a task; of a rehearsal, what it lacks."""
        counts = Counter((run.contender, run.cell.task) for run in self.every_run())
        runs = f"{count_text(max(counts.values(), default=0), 'run')} of each method"
        makers = list(self.experimenters.values())
        if not makers[0].conditions.toy:
            return runs
        swaps = [maker.substitution.removeprefix("at toy size ") for maker in makers]
        return f"{TOY.format(runs=runs)}\n{'; '.join(dict.fromkeys(filter(None, swaps)))}"

    @property
    def repeats(self) -> int:
        """Evaluations on each case of a final measurement; one at toy size."""
        toy = next(iter(self.experimenters.values())).conditions.toy
        return 1 if toy else self.place.repeats

    def beside_printed(self, label: str) -> tuple[str, ...]:
        """The paper's figures of a contender, or of `TASK CONTENDER`."""
        printed = self.place.printed.get(label, ())
        return *printed, *("-",) * (len(self.place.printed_heads) - len(printed))

    def reported_by_others(self, task: str) -> list[tuple[str, str]]:
        """(method, figure) of other papers' methods on a task."""
        pairs = [(label.split(" ", 1), text) for label, text in self.place.reported.items()]
        return [(label[1], text) for label, text in pairs if task == label[0]]

    def in_paper_unit(self, task: str, score: float | None) -> float | None:
        """A score of a task in the paper's unit."""
        return math.sqrt(score) if score is not None and task in self.place.square_roots else score


def printed_marks(
    names: Sequence[float | str], texts: Sequence[str]
) -> tuple[tuple[float | str, float], ...]:
    """(name, value) of printed figures such as `0.888 ± .023` and `$10.99`; blanks left out."""
    pairs = zip(names, (text.split(" ")[0].lstrip("$") for text in texts))
    return tuple((name, float(text)) for name, text in pairs if text not in ("-", "—"))


def mean_with_error(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and standard error; the error is None for one value."""
    error = stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
    return fmean(values), error


def mean_text(values: Sequence[float], digits: int = 4) -> str:
    """`0.575 ± 0.021`, mean and standard error; "-" without values."""
    if not values:
        return "-"
    return error_text(*mean_with_error(values), f".{digits}g")


def error_text(mean: float, error: float | None, form: str) -> str:
    """`0.575 ± 0.021`, or the mean alone."""
    return f"{mean:{form}}" + ("" if error is None else f" ± {error:.2g}")


def final_table(given: PlaceEvidence) -> PlaceResult:
    """Best program of each contender, measured afresh on columns of cases (POLCA, Table 1)."""
    best = {label: _best_run(runs) for label, runs in given.by_contender().items()}
    maker = given.experimenter_of(next(iter(best.values())))
    measured = maker.measure_runs(list(best.values()), "test", given.repeats, given.report)
    columns = given.place.columns
    first = next(iter(best.values()))
    rows = [("initial program", _column_scores(given, first, "seed"))]
    rows += [(label, _column_scores(given, run, "best")) for label, run in best.items()]
    heads = ("method", *(column.name for column in columns), *given.place.printed_heads)
    table = tuple(
        (label, *(text for text, _ in cells), *given.beside_printed(label)) for label, cells in rows
    )
    names = tuple(column.name for column in columns)
    bars = tuple(Series(label, names, tuple(score for _, score in cells)) for label, cells in rows)
    made = sum(each.made for each in measured.values())
    marks = {label: printed_marks(names, given.beside_printed(label)) for label, _ in rows}
    panel = Panel("", "cases", "pass@1", bars, bars=True, printed=marks)
    times = "1 trial" if given.repeats == 1 else f"{given.repeats} trials"
    note = f"{times} a case, {made} evaluations; ± is half a 95 % interval."
    return PlaceResult(heads, table, (panel,), notes=(note,))


def _column_scores(given: PlaceEvidence, run: Made, word: str) -> list[tuple[str, float]]:
    """Text and score of a program on each column's cases."""
    maker, found = given.experimenter_of(run), list[tuple[str, float]]()
    whole = maker.measurement(run, (word,), "test", given.repeats)
    for column in given.place.columns:
        cases = whole.plan.cases[column.first : column.last]
        part = msgspec.structs.replace(whole, plan=whole.plan._replace(cases=cases))
        made = measure_candidates(part)
        row = made.rows[0]
        wide = row.margin is not None and row.margin > 1
        text = f"{row.score:.2f}" if wide and row.score is not None else score_text(row, made)
        found.append((text, math.nan if row.score is None else row.score))
    return found


def _best_run(runs: Sequence[Made]) -> Made:
    """The run whose reported program has the best score by its own search."""
    is_max = runs[0].cell.direction == "max"
    sign = 1 if is_max else -1
    return max(runs, key=lambda run: -math.inf if run.cell.score is None else sign * run.cell.score)


def course_of_best(given: PlaceEvidence) -> PlaceResult:
    """Best so far against an axis: mean and standard error over runs (POLCA, Figures 2 and 3)."""
    panels: list[Panel] = []
    rows: list[tuple[str, ...]] = []
    for task, groups in given.by_task().items():
        lines = [
            course_line(given, label, runs, aside)
            for aside in (False, True)[: 1 + (given.place.repeats > 1)]
            for label, runs in groups.items()
        ]
        known = tuple(line for line in lines if line.y)
        free = _uncounted_methods(given, groups)
        name = given.label_of(task)
        levels = _initial_levels(given, task)
        drawn = [line for line in known if line.label not in free]
        absent = dict.fromkeys(sorted(free), NOT_COUNTED)
        panels += [
            msgspec.structs.replace(panel, absent=absent)
            for panel in _panels_by_pool(name, axis_text(given.place.axis), drawn, levels)
        ]
        for line in known:
            text = error_text(line.y[-1], line.error[-1], ".6g")
            half = line.y[len(line.y) // 2]
            mark = NOT_COUNTED if line.label in free else f"{line.x[-1]:.3g}"
            shown = f"{line.label}{LEADER if line.aside else ''}"
            printed = given.beside_printed(line.label)
            rows.append((name, shown, f"{half:.6g}", text, mark, *printed))
    heads = ("task", "method", "half-way", "end", axis_text(given.place.axis))
    notes = (HIGHEST,) if given.place.repeats > 1 else ()
    notes += (UNCOUNTED,) if any(NOT_COUNTED in row for row in rows) else ()
    return PlaceResult(
        (*heads, *given.place.printed_heads), tuple(rows), tuple(panels), notes=notes
    )


def _uncounted_methods(given: PlaceEvidence, groups: Mapping[str, Sequence[Made]]) -> set[str]:
    """Methods without a place on an axis of dollars, since no cost of theirs is known."""
    if given.place.axis != "dollars":
        return set()
    return {label for label, runs in groups.items() if not any(map(is_cost_counted, runs))}


LEADER = ", leader of the moment"
"""Mark of the second line of a method: its leader's score, which may fall."""

HIGHEST = (
    "As in the paper a line is the highest score attained so far, by fresh measurements of each "
    "leader; of noisy ones that is a lucky one. The second line of a method is the leader of the "
    "moment."
)
"""Remark on courses whose leaders are measured afresh."""


def _panels_by_pool(
    name: str, across: str, lines: Sequence[Series], levels: Mapping[str, float]
) -> list[Panel]:
    """One panel, or one for each pool if methods are called `POOL: METHOD`."""
    pools = dict.fromkeys(line.label.partition(": ")[0] for line in lines if ": " in line.label)
    if not pools:
        return [Panel(name, across, "score", tuple(lines), levels)]
    return [
        Panel(
            f"{name}, {pool}",
            across,
            "score",
            tuple(line for line in lines if line.label.startswith(f"{pool}: ")),
            {label: level for label, level in levels.items() if label.endswith(pool)},
        )
        for pool in pools
    ]


def axis_text(axis: str) -> str:
    """An axis in words."""
    words = {"evaluations": "metric calls", "dollars": "dollars"}
    return words.get(axis, axis.replace("_", " "))


def _initial_levels(given: PlaceEvidence, task: str) -> dict[str, float]:
    """The best initial program of a pool, for warm starts (TurboEvolve, Figure 3)."""
    if given.place.measure != "initial best":
        return {}
    levels: dict[str, float] = {}
    for label, runs in given.by_contender().items():
        pool = label.partition(": ")[0]
        for run in runs:
            stated = list(views.run_meta(run.path).task.stated.values())
            if run.cell.task == task and stated:
                choose = max if run.cell.direction == "max" else min
                levels.setdefault(f"initial best, {pool}", choose(stated))
    return levels


def course_line(
    given: PlaceEvidence, label: str, runs: Sequence[Made], aside: bool = False
) -> Series:
    """Mean and standard error over runs of a score at equal shares of the axis.

    It is the highest score attained by leaders so far, or (`aside`) that of the leader alone.
    """
    axis = given.place.axis
    courses = [_leader_course(given, run, axis) for run in runs]
    if given.place.repeats > 1 and not aside:
        courses = [
            _highest_so_far(course, run.cell.direction) for course, run in zip(courses, runs)
        ]
    end = max((each[-1][0] for each in courses if each), default=0.0)
    marks = [end * step / CHECKPOINTS for step in range(1, CHECKPOINTS + 1)]
    if axis not in ("dollars", "seconds"):
        marks = sorted({float(max(1, round(mark))) for mark in marks})
    found = [
        (mark, [v for each in courses if (v := _value_at(each, mark)) is not None])
        for mark in marks
    ]
    known = [(mark, *mean_with_error(values)) for mark, values in found if values]
    return make_series(label, known, aside)


def _highest_so_far(
    course: Sequence[tuple[float, float]], direction: str
) -> list[tuple[float, float]]:
    """The best value up to each point."""
    best = accumulate((value for _, value in course), max if direction == "max" else min)
    return [(at, value) for (at, _), value in zip(course, best)]


def _value_at(course: Sequence[tuple[float, float]], mark: float) -> float | None:
    count = bisect_right(course, mark, key=lambda pair: pair[0])
    return course[count - 1][1] if count else None


def _leader_course(given: PlaceEvidence, run: Made, axis: str) -> list[tuple[float, float]]:
    """Axis and score of the leader along one run.

    With a final protocol (`repeats` > 1) leaders at the checkpoints are measured afresh.
    """
    moments = [each for each in read_run(run.path).moments if each.best is not None]
    whole = [(float(getattr(each, axis)), float(each.best or 0.0)) for each in moments]
    if given.place.repeats == 1 or not moments:
        return whole
    last = getattr(moments[-1], axis)
    chosen: list[Moment] = []
    for step in range(1, CHECKPOINTS + 1):
        past = [each for each in moments if getattr(each, axis) <= last * step / CHECKPOINTS]
        chosen += past[-1:]
    maker = given.experimenter_of(run)
    splits = views.run_meta(run.path).task
    split = next(name for name in ("train", "test", "") if not name or splits.split(name))
    ids = list(dict.fromkeys(each.candidate for each in chosen if each.candidate))
    fresh = maker.measure_leaders(run, ids, split, given.repeats)
    return [
        (float(getattr(each, axis)), fresh[each.candidate])
        for each in chosen
        if each.candidate in fresh
    ]


def normalised_course(given: PlaceEvidence) -> PlaceResult:
    """Mean over benchmarks of scores and budgets brought to 0..1 (POLCA, Figure 1, right)."""
    series: list[Series] = []
    rows: list[tuple[str, ...]] = []
    lines = {
        (label, name): course_line(given, label, [run for run in runs if run in given.runs[name]])
        for label, runs in given.by_contender().items()
        for name in given.runs
    }
    by_name = {name: [line for (_, of), line in lines.items() if of == name] for name in given.runs}
    ranges = {name: [y for line in own for y in line.y] for name, own in by_name.items()}
    names = [name for name, values in ranges.items() if values and max(values) > min(values)]
    budgets = {name: max(float(x) for line in by_name[name] for x in line.x) for name in names}
    for label in given.by_contender():
        points: list[tuple[float, float, float | None]] = []
        for step in range(1, CHECKPOINTS + 1):
            share = step / CHECKPOINTS
            values = [
                _normal_value(lines[label, name], share * budgets[name], ranges[name])
                for name in names
            ]
            known = [value for value in values if value is not None]
            if known and len(known) == len(values):  # a mean of the same benchmarks throughout
                points.append((share, *mean_with_error(known)))
        if points:
            line = make_series(label, points)
            series.append(line)
            end = error_text(line.y[-1], line.error[-1], ".3f")
            half = f"{line.y[len(line.y) // 2]:.3f}"
            rows.append((label, half, end, *given.beside_printed(label)))
    panel = Panel("mean over benchmarks", "share of the budget", "normalised score", tuple(series))
    heads = ("method", "half-way", "end", *given.place.printed_heads)
    return PlaceResult(heads, tuple(rows), (panel,))


def _normal_value(line: Series, mark: float, values: Sequence[float]) -> float | None:
    """The line's last value up to a mark, within the range of `values`; None before its first."""
    at = _value_at([(float(x), y) for x, y in zip(line.x, line.y)], mark)
    low, high = min(values), max(values)
    return None if at is None else (at - low) / (high - low)


def share_table(given: PlaceEvidence) -> PlaceResult:
    """Share of tasks solved, or fast_p, with its course (POLCA, Table 2 and Figure 2d)."""
    measure, outcomes = given.place.measure, list[shares.SuiteRun]()
    for run in given.every_run():
        best, goals = views.best_result(run.path), views.run_meta(run.path).task.objective
        result = shares.is_solved(goals, best), shares.speed_ups(run.path, best)
        outcomes.append(
            shares.SuiteRun(run.cell.task, run.contender, run.cell.run, run.cell.state, *result)
        )
    rows: list[tuple[str, ...]] = []
    for label, runs in given.by_contender().items():
        chosen = [each for each in outcomes if each.strategy == label]
        by_seed = [
            [each for each in chosen if each.run.endswith(f"seed-{seed}")]
            for seed in sorted({run.cell.seed for run in runs})
        ]
        values = [
            row["share"]
            for part in by_seed
            for row in shares.share_rows(part)
            if row["measure"] == measure
        ]
        tasks = str(len({each.task for each in chosen}))
        rows.append((label, mean_text(values, 3), tasks, *given.beside_printed(label)))
    curve = shares.share_curves(outcomes)
    series = tuple(_share_series(curve, label, given) for label in given.by_contender())
    marks = {
        line.label: printed_marks(line.x[-1:], given.beside_printed(line.label)) for line in series
    }
    words = measure.replace("solved", "pass rate")
    panel = Panel("", axis_text(given.place.axis), words, series, printed=marks)
    heads = ("method", measure.replace("solved", "pass rate"), "tasks", *given.place.printed_heads)
    return PlaceResult(heads, tuple(rows), (panel,))


def _share_series(curve: Rows, label: str, given: PlaceEvidence) -> Series:
    points = [
        (row["at"], row["share"])
        for row in curve
        if row["strategy"] == label
        and row["measure"] == given.place.measure
        and row["axis"] == given.place.axis
    ]
    return Series(label, tuple(x for x, _ in points), tuple(y for _, y in points))


def pick_table(given: PlaceEvidence) -> PlaceResult:
    """Scores of programs picked by other rules than the mean (POLCA, Figure 3d)."""
    picks = [
        pick
        for run in given.every_run()
        for pick in evaluate_picks(
            run.path,
            run.contender,
            run.cell.seed,
            given.repeats,
            **given.experimenter_of(run).parts(given.experimenter_of(run).suites()[0]),
        )
    ]
    found = pick_rows(picks)
    rows: list[tuple[str, ...]] = []
    points: dict[str, list[tuple[str, float, float | None]]] = {}
    for row in found:
        share, rule, mean, error = f"{row['share']:.0%}", row["rule"], row["mean"], row["se"]
        rows.append((share, rule, error_text(mean, error, ".3g")))
        points.setdefault(rule, []).append((share, mean, error))
    series = tuple(
        make_series(rule, bars) for rule, bars in points.items() if len(bars) == len(PICK_SHARES)
    )
    panel = Panel("", "share of the observations", "score of the pick", series, bars=True)
    return PlaceResult(("observations", "rule", "score of its pick"), tuple(rows), (panel,))


def best_table(given: PlaceEvidence) -> PlaceResult:
    """Best of the runs of each contender on each task (TurboEvolve, Table 1)."""
    rows: list[tuple[str, ...]] = []
    panels: list[Panel] = []
    for task, groups in given.by_task().items():
        bars: list[Series] = []
        marks: dict[str, tuple[tuple[float | str, float], ...]] = {}
        for label, runs in groups.items():
            cells = [run.cell for run in runs]
            scores = [cell.score for cell in cells if cell.score is not None]
            if not scores:
                continue
            choose = max if cells[0].direction == "max" else min
            certified = [cell.certified for cell in cells if cell.certified is not None]
            arrow = "↑" if cells[0].direction == "max" else "↓"
            sure = f"{choose(certified):.6f}" if certified else "-"
            printed = given.beside_printed(f"{task} {label}")
            best = f"{choose(scores):.6f} (of {len(cells)})"
            cells_of_row = (f"{given.label_of(task)} {arrow}", label, best, sure, *printed)
            rows.append((*cells_of_row, "-") if given.place.reported else cells_of_row)
            bars.append(Series(label, (label,), (choose(scores),)))
            marks[label] = printed_marks((label,) * len(printed), printed)
        others = given.reported_by_others(task)
        blanks = ("-",) * (2 + len(given.place.printed_heads))
        rows += [(rows[-1][0], method, *blanks, text) for method, text in others]
        levels = {method: mark[1] for method, text in others for mark in printed_marks("x", [text])}
        panels.append(
            Panel(given.label_of(task), "", "best", tuple(bars), levels, bars=True, printed=marks)
        )
    last = ("reported by others",) if given.place.reported else ()
    heads = ("task", "method", "best", "certified", *given.place.printed_heads, *last)
    return PlaceResult(heads, tuple(rows), tuple(panels))


def analysis_tables(given: PlaceEvidence) -> PlaceResult:
    """Analyses of requests for several candidates (TurboEvolve, Figures 4 to 6)."""
    records = [read_run(run.path) for run in given.every_run()]
    wanted = given.place.measure.split(",")
    tables = [analysis(records) for analysis in all_analyses()]
    chosen = tuple(table for table in tables if table.name in wanted)
    shown = next((table for table in chosen if table.rows), None)
    notes = tuple(
        f"{table.title}: {table.skipped}" if table.skipped else note
        for table in chosen
        for note in (table.notes or ((table.skipped,) if table.skipped else ()))
    )
    if shown is None:
        return PlaceResult(("analysis",), (), (), chosen, notes)
    names = [name for name in shown.rows[0] if not name.endswith(("_q1", "_q3"))]
    rows = tuple(tuple(_cell_text(row, name) for name in names) for row in shown.rows[:28])
    return PlaceResult(tuple(names), rows, (), chosen, notes)


def _cell_text(row: JsonObject, name: str) -> str:
    """A figure with its quartiles, where the table has them."""
    value = row[name]
    if value is None:
        return "-"
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    low, high = row.get(f"{name}_q1"), row.get(f"{name}_q3")
    return text if low is None or high is None else f"{text} ({low:.3g} to {high:.3g})"


def cost_table(given: PlaceEvidence) -> PlaceResult:
    """Score and cost of each run, and the best before the first finding (CATO, results)."""
    rows: list[tuple[str, ...]] = []
    panels: list[Panel] = []
    heads = ("task", "method", "score", "certified", "cost", "evaluations")
    last = ("reported by others",) if given.place.reported else ()
    for task, groups in given.by_task().items():
        pairs = [(label, run) for label, runs in groups.items() for run in runs]
        rows += [(*_cost_row(given, label, run), *("-" for _ in last)) for label, run in pairs]
        blanks = ("-",) * (len(heads) - 1 + len(given.place.printed_heads))
        others = given.reported_by_others(task)
        rows += [(rows[-1][0], method, *blanks, text) for method, text in others]
        panels += _cost_panels(given, task, pairs)
    whole = (*heads, "before the first finding", *given.place.printed_heads, *last)
    notes = (UNCOUNTED,) if any(NOT_COUNTED in row for row in rows) else ()
    return PlaceResult(whole, tuple(rows), tuple(panels), notes=notes)


NOT_COUNTED = "not counted"
"""Cost of a run whose agents' programs did not call a model through culmen."""

UNCOUNTED = "Not counted: no call of a model came by culmen's gateway, so that its cost is unknown."
"""Remark on such costs."""


def _cost_row(given: PlaceEvidence, label: str, run: Made) -> tuple[str, ...]:
    """A run's row of the table, without other papers' figures."""
    cell, before = run.cell, _before_finding(given, run)
    printed = given.beside_printed(f"{cell.task} {label}")
    scores = (given.in_paper_unit(cell.task, each) for each in (cell.score, cell.certified))
    texts = ("-" if score is None else f"{score:.5f}" for score in scores)
    count = str(cell.evaluations)
    shown = before if isinstance(before, str) else f"{before:.5f}"
    return (cell.label, label, *texts, _run_cost_text(run), count, shown, *printed)


def _run_cost_text(run: Made) -> str:
    if not is_cost_counted(run):
        return NOT_COUNTED
    unpriced = run.cell.unpriced
    return dollars_text(run.cell.dollars) + (
        f" ({unpriced} calls without a price)" if unpriced else ""
    )


def is_cost_counted(run: Made) -> bool:
    """True unless nothing is known of the run's calls: no dollars, no tokens, no calls."""
    return bool(run.cell.dollars or run.cell.tokens or run.cell.calls)


def _cost_panels(given: PlaceEvidence, task: str, pairs: Sequence[tuple[str, Made]]) -> list[Panel]:
    """Score, cost, and the best before the first finding on one task."""
    measures: dict[str, list[tuple[str, float | None]]] = {"score": [], "dollars": []}
    early = "score before the first finding"
    measures[early] = []
    marks: dict[str, dict[str, tuple[tuple[float | str, float], ...]]] = {
        "score": {},
        "dollars": {},
    }
    for label, run in pairs:
        score = given.in_paper_unit(task, run.cell.score)
        before = _before_finding(given, run)
        cost = run.cell.dollars if is_cost_counted(run) else None
        # without a finding all of the run came before one
        alone = score if before == NO_FINDING else before if isinstance(before, float) else None
        for name, value in zip(measures, (score, cost, alone)):
            measures[name].append((label, value))
        printed = given.place.printed.get(f"{task} {label}", ())
        for name, text in zip(marks, printed):
            marks[name][label] = printed_marks((label,), (text,))
    words = {"score": "no score", "dollars": NOT_COUNTED, early: "none"}
    others = dict(given.reported_by_others(task))
    levels = {name: float(text) for name, text in others.items() if text != "—"}
    return [
        Panel(
            given.label_of(task),
            "",
            name,
            tuple(
                Series(label, (label,), (value,)) for label, value in values if value is not None
            ),
            {} if name == "dollars" else levels,
            bars=True,
            printed=marks.get(name, {}),
            absent={label: words[name] for label, value in values if value is None},
        )
        for name, values in measures.items()
    ]


NO_FINDING = "no finding"
"""Cell of a run in which nothing was found against its candidates."""


def _before_finding(given: PlaceEvidence, run: Made) -> float | str:
    """Best score before the first finding, in the paper's unit, or words."""
    status = views.run_status(run.path)
    best: RunResult | None = status.best_before_first_finding
    if not status.findings:
        return NO_FINDING
    score = None if best is None else given.in_paper_unit(run.cell.task, best.score)
    return "nothing" if score is None else score


def training_course(given: PlaceEvidence) -> PlaceResult:
    """A diagnostic of the training against barriers (PACEvolve++, Figures 2 to 10)."""
    panels: list[Panel] = []
    rows: list[tuple[str, ...]] = []
    measures = given.place.measure.split(",")
    for task, groups in given.by_task().items():
        name = given.label_of(task)
        for measure in measures:
            lines: list[Series] = []
            for label, runs in groups.items():
                line = _barrier_line(label, runs, measure)
                if line.y:
                    lines.append(line)
                    spread = f"{min(line.y):.4g} to {max(line.y):.4g}"
                    last = f"{line.y[-1]:.4g}"
                    rows.append((name, measure.replace("_", " "), label, last, spread))
            panels.append(Panel(name, "barrier", measure.replace("_", " "), tuple(lines)))
    return PlaceResult(("task", "measure", "method", "last", "range"), tuple(rows), tuple(panels))


def _barrier_line(label: str, runs: Sequence[Made], measure: str) -> Series:
    """Mean over runs of a measure at each barrier; `best_score` is the best so far."""
    points: dict[int, list[float]] = {}
    for run in runs:
        record = read_run(run.path)
        for barrier in record.barriers:
            value = barrier.measures.get(measure)
            if measure == "best_score":
                value = (
                    record.moments[barrier.evaluations - 1].best if barrier.evaluations else None
                )
            if value is not None:
                points.setdefault(barrier.number + 1, []).append(value)
    return make_series(label, [(at, *mean_with_error(points[at])) for at in sorted(points)])


def metric_table(given: PlaceEvidence) -> PlaceResult:
    """Separate metrics of the best candidate of each contender (PACEvolve++, Tables 2 to 4)."""
    wanted = given.place.measure.split(",")
    rows: list[tuple[str, ...]] = []
    bars: dict[str, list[float]] = {}
    for task, groups in given.by_task().items():
        name = given.label_of(task)
        for label, runs in groups.items():
            metrics = _best_metrics(_best_run(runs))
            wanted = wanted if set(wanted) & set(metrics) else list(metrics)
            cells = [metrics.get(each) for each in wanted]
            texts = ["-" if value is None else f"{value:.3f}" for value in cells]
            rows.append((name, label, *texts, *given.beside_printed(label)))
            bars[label] = [0.0 if value is None else value for value in cells]
    series = tuple(Series(label, tuple(wanted), tuple(values)) for label, values in bars.items())
    heads = ("task", "method", *(each.replace("_", " ") for each in wanted))
    panel = Panel("", "metric", "value", series, bars=True)
    return PlaceResult((*heads, *given.place.printed_heads), tuple(rows), (panel,))


def _best_metrics(run: Made) -> dict[str, float]:
    """Means of the reported candidate's metrics, over the final choice's evaluations if any."""
    best = views.best_result(run.path)
    if best is None:
        return {}
    seen = list(views.stream_observations(run.path, best.id, "final"))
    seen = seen or list(views.stream_observations(run.path, best.id))
    names = dict.fromkeys(name for each in seen for name in each.metrics)
    return {
        name: fmean(each.metrics[name] for each in seen if name in each.metrics) for name in names
    }


ANALYSES: dict[str, Callable[[PlaceEvidence], PlaceResult]] = {
    "final": final_table,
    "course": course_of_best,
    "normalised": normalised_course,
    "shares": share_table,
    "picks": pick_table,
    "best": best_table,
    "analysis": analysis_tables,
    "costs": cost_table,
    "training": training_course,
    "metrics": metric_table,
}
