"""Shares over a suite of tasks: the share solved, and fast_p.

A task is solved by a run whose reported candidate reaches the task's target, with its certified
value if the task has a verifier. fast_p is KernelBench's (Ouyang et al. 2025): the share of
problems that are right and more than p times as fast as the baseline, by the evaluator's metric
`speed_up`. A task's cases are problems; a task without cases is one. Tasks count alike, and so do
the runs of a task.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import NamedTuple, Protocol

from culmen.core.evaluation import Observation, Status, is_excused
from culmen.core.result import RunResult
from culmen.core.task import Objective
from culmen.report import stats
from culmen.report.analyses import Rows
from culmen.report.records import Moment, read_run
from culmen.store import views

METRIC = "speed_up"
LEVELS = (0.0, 0.5, 1.0, 1.5, 2.0)  # p
# of `report.records.Moment`
AXES = ("evaluation_steps", "proposal_steps", "proposals", "evaluations")


class Reached(Protocol):
    """Result of a candidate: the values of the functions `solved` and `speed_ups`."""

    @property
    def solved(self) -> bool | None: ...

    @property
    def speed_ups(self) -> tuple[float | None, ...] | None: ...


class SuiteRun(Reached, Protocol):
    """A run of a suite: its folder, and the result of its reported candidate."""

    @property
    def task(self) -> str: ...

    @property
    def strategy(self) -> str: ...

    @property
    def run(self) -> str: ...

    @property
    def state(self) -> str: ...


class _Then(NamedTuple):
    """Result of the best candidate so far."""

    solved: bool | None
    speed_ups: tuple[float | None, ...] | None


_VALUES: dict[str, Callable[[Reached], float]] = {
    "solved": lambda run: float(bool(run.solved)),
    **{f"fast_{p:g}": lambda run, p=p: fast_share(run.speed_ups, p) for p in LEVELS},
}


def is_solved(objective: Objective, best: RunResult | None) -> bool | None:
    """True if the reported candidate reaches the task's target; None without a target."""
    if objective.target is None:
        return None
    value = None if best is None else best.score if best.strict is None else best.certified
    return value is not None and objective.reaches_target(value)


def speed_ups(run: Path, best: RunResult | None) -> tuple[float | None, ...] | None:
    """The reported candidate's speed-up on every problem that it was evaluated on.

    It is the median over evaluations (those of the final choice if there are any), None for a
    problem with a failed one. The whole is None if no evaluation reports a speed-up.
    """
    if best is None:
        return None
    return _problem_speed_ups(
        list(views.stream_observations(run, best.id, "final"))
        or list(views.stream_observations(run, best.id))
    )


def _problem_speed_ups(seen: Sequence[Observation]) -> tuple[float | None, ...] | None:
    problems: dict[str, list[Observation]] = {}
    for each in seen:
        if not is_excused(each):
            problems.setdefault(each.case, []).append(each)
    found = tuple(map(_speed_up, problems.values()))
    return found if any(METRIC in each.metrics for each in seen) else None


def _speed_up(seen: Sequence[Observation]) -> float | None:
    right = all(each.status is Status.OK and METRIC in each.metrics for each in seen)
    return median(each.metrics[METRIC] for each in seen) if right else None


def fast_share(found: Sequence[float | None] | None, p: float) -> float:
    """The share of a run's problems that are right and more than `p` times as fast.

    It is 0 without a report of speed-ups.
    """
    return fmean(each is not None and each > p for each in found) if found else 0.0


def share_rows(outcomes: Sequence[SuiteRun]) -> Rows:
    """A row per strategy and measure (`solved`, `fast_1`, ...) with the mean `share`.

    `low` and `high` are its bootstrap interval over random seeds, None with one seed. The tasks are
    those to which the measure applies and on which every strategy has finished runs; there are no
    rows without such tasks.
    """
    rows: Rows = []
    for measure, strategy, runs in _counted_runs(outcomes):
        strata = [[_VALUES[measure](run) for run in each] for each in runs]
        found = _mean_estimate(strata)
        row = {
            "strategy": strategy,
            "measure": measure,
            "tasks": len(runs),
            "runs": sum(map(len, strata)),
        }
        rows.append(row | {"share": found.value, "low": found.low, "high": found.high})
    return rows


def _counted_runs(outcomes: Sequence[SuiteRun]) -> Iterator[tuple[str, str, list[list[SuiteRun]]]]:
    """Measure, strategy, and its runs by task."""
    done = [each for each in outcomes if each.state == "finished"]
    strategies = list(dict.fromkeys(each.strategy for each in outcomes))
    common = [
        task
        for task in _task_names(done)
        if {each.strategy for each in done if each.task == task} == {*strategies}
    ]
    aims = {each.task for each in done if each.solved is not None}
    timed = {each.task for each in done if each.speed_ups is not None}
    for measure in _VALUES:
        tasks = [task for task in common if task in (aims if measure == "solved" else timed)]
        for strategy in strategies if tasks else ():
            yield (
                measure,
                strategy,
                [[run for run in done if (run.task, run.strategy) == (t, strategy)] for t in tasks],
            )


def share_curves(outcomes: Sequence[SuiteRun]) -> Rows:
    """The shares of `table` over the course of runs.

    There is a row for each change along one of `AXES`. Shares are those of the best so far of each
    run, which keeps its value after the run has ended. The last `share` is that of the table.
    """
    kept: dict[str, list[tuple[Moment, Reached]]] = {}
    rows: Rows = []
    for measure, strategy, runs in _counted_runs(outcomes):
        for run in (run for each in runs for run in each if run.run not in kept):
            kept[run.run] = _run_course(run)
        courses = [
            [[(at, _VALUES[measure](then)) for at, then in kept[run.run]] for run in each]
            for each in runs
        ]
        for axis in AXES:
            for at, share in _mean_curve(courses, axis):
                rows.append(
                    {
                        "strategy": strategy,
                        "measure": measure,
                        "axis": axis,
                        "at": at,
                        "share": share,
                    }
                )
    return rows


def _run_course(run: SuiteRun) -> list[tuple[Moment, Reached]]:
    """Results of the best so far at each possible change; at the end the reported result."""
    path, seen, found = (
        Path(run.run),
        dict[str, list[Observation]](),
        list[tuple[Moment, Reached]](),
    )
    moments, objective = read_run(path).moments, views.run_meta(path).task.objective
    for moment, each in zip(moments, views.stream_observations(path)):
        seen.setdefault(each.candidate, []).append(each)
        if moment.best is not None:
            found.append(
                (
                    moment,
                    _Then(
                        objective.reaches_target(moment.best),
                        _problem_speed_ups(seen.get(moment.candidate, ())),
                    ),
                )
            )
    return [*found, (moments[-1], run)] if moments else found


def _mean_curve(
    courses: Sequence[Sequence[Sequence[tuple[Moment, float]]]], axis: str
) -> Iterator[tuple[int, float]]:
    """The mean over tasks of the mean over runs, from 0 on, at each change."""
    tasks = [[_value_changes(course, axis) for course in task] for task in courses]
    last: float | None = None
    for step in sorted({at for task in tasks for course in task for at, _ in course}):
        share = fmean(
            fmean([value for at, value in course if at <= step][-1] for course in task)
            for task in tasks
        )
        if share != last:
            yield step, share
        last = share


def _value_changes(course: Sequence[tuple[Moment, float]], axis: str) -> list[tuple[int, float]]:
    """Steps at which a run's value changes, with the new value, 0 at first.

    The last of several values at one step counts.
    """
    values = {0: 0.0} | {getattr(at, axis): value for at, value in course}
    found = list(values.items())
    return [found[0], *(now for before, now in pairwise(found) if now[1] != before[1])]


def _mean_estimate(strata: Sequence[Sequence[float]]) -> stats.Estimate:
    """Mean with its interval; without scipy the mean alone.

    A bench that took hours is not lost for want of an interval.
    """
    if importlib.util.find_spec("scipy") is None:
        return stats.Estimate(fmean(map(fmean, strata)))
    return stats.mean_estimate(strata)


def share_remarks(outcomes: Sequence[SuiteRun], rows: Rows) -> list[str]:
    """Sentences on the tasks that do not count, with the reasons."""
    if not rows:
        return []
    done = [each for each in outcomes if each.state == "finished"]
    strategies = {each.strategy for each in outcomes}
    partial = {
        task
        for task in _task_names(outcomes)
        if {each.strategy for each in done if each.task == task} != strategies
    }
    told = {task for task in _task_names(done) if task not in partial}
    aimless = {each.task for each in done if each.solved is None}
    untimed = told - {each.task for each in done if each.speed_ups is not None}
    measures = {row["measure"] for row in rows}
    lines = [
        ("Not every strategy has a finished run, so left out of all shares", partial),
        ("No target stated, so left out of solved", told & aimless if "solved" in measures else ()),
        (
            f"No metric {METRIC} reported, so left out of fast_p",
            untimed if "fast_1" in measures else (),
        ),
    ]
    return [f"{what}: {', '.join(sorted(tasks))}." for what, tasks in lines if tasks]


def _task_names(outcomes: Iterable[SuiteRun]) -> list[str]:
    return list(dict.fromkeys(each.task for each in outcomes))


def wide_table(rows: Rows) -> tuple[list[str], list[list[str]]]:
    """The table with one row per strategy: headings, and rows."""
    measures = list(dict.fromkeys(row["measure"] for row in rows))
    cells: dict[str, dict[str, str]] = {}
    for row in rows:
        cells.setdefault(row["strategy"], {})[row["measure"]] = _percent_text(row)
    tasks = {row["measure"]: row["tasks"] for row in rows}
    heads = ["strategy", *(f"{measure} (of {tasks[measure]})" for measure in measures)]
    return heads, [
        [strategy, *(found[measure] for measure in measures)] for strategy, found in cells.items()
    ]


def _percent_text(row: dict[str, float]) -> str:
    interval = "" if row["low"] is None else f" [{row['low']:.0%}, {row['high']:.0%}]"
    return f"{row['share']:.0%}{interval}"


def shares_markdown(rows: Rows) -> str:
    """The same for a page of documentation."""
    heads, cells = wide_table(rows)
    lines = [heads, ["---"] * len(heads), *([f"`{name}`", *rest] for name, *rest in cells)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
