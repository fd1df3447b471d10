"""Shares over the tasks of a bench: the share solved, and fast_p, also along the runs.

A task is solved by a run whose reported candidate reaches the task's target, with its certified
value if the task has a verifier. fast_p is KernelBench's (Ouyang et al. 2025): the share of
problems that are right and more than p times as fast as the baseline, by the evaluator's metric
`speed_up`. A task's cases are problems; a task without cases is one. Tasks count alike, and so do
the runs of a task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import NamedTuple

from culmen.core.evaluation import Observation, Status, is_excused
from culmen.core.result import RunResult
from culmen.core.task import Objective
from culmen.extensions.bench import stats
from culmen.extensions.bench.analyses import Rows
from culmen.extensions.bench.records import Moment, read_run
from culmen.store import views

METRIC = "speed_up"
LEVELS = (0.0, 0.5, 1.0, 1.5, 2.0)  # p
# of `extensions.bench.records.Moment`
AXES = ("evaluation_steps", "proposal_steps", "proposals", "evaluations")


class SuiteRun(NamedTuple):
    """A run of a suite: its folder, and the result of its reported candidate."""

    task: str
    strategy: str
    run: str
    state: str
    solved: bool | None = None
    speed_ups: tuple[float | None, ...] | None = None


class _BestSoFar(NamedTuple):
    """Result of the best candidate so far."""

    solved: bool | None
    speed_ups: tuple[float | None, ...] | None


_VALUES: dict[str, Callable[[SuiteRun | _BestSoFar], float]] = {
    "solved": lambda run: float(bool(run.solved)),
    **{f"fast_{p:g}": lambda run, p=p: fast_share(run.speed_ups, p) for p in LEVELS},
}


CandidateOutcome = SuiteRun | _BestSoFar


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


def _problem_speed_ups(observations: Sequence[Observation]) -> tuple[float | None, ...] | None:
    problems: dict[str, list[Observation]] = {}
    for observation in observations:
        if not is_excused(observation):
            problems.setdefault(observation.case, []).append(observation)
    medians = tuple(map(_speed_up, problems.values()))
    return medians if any(METRIC in observation.metrics for observation in observations) else None


def _speed_up(observations: Sequence[Observation]) -> float | None:
    is_right = all(
        observation.status is Status.OK and METRIC in observation.metrics
        for observation in observations
    )
    return median(observation.metrics[METRIC] for observation in observations) if is_right else None


def fast_share(speed_ups: Sequence[float | None] | None, p: float) -> float:
    """The share of a run's problems that are right and more than `p` times as fast.

    It is 0 without a report of speed-ups.
    """
    return (
        fmean(speed_up is not None and speed_up > p for speed_up in speed_ups) if speed_ups else 0.0
    )


def share_rows(outcomes: Sequence[SuiteRun]) -> Rows:
    """A row per strategy and measure (`solved`, `fast_1`, ...) with the mean `share`.

    `low` and `high` are its bootstrap interval over random seeds, None with one seed. The tasks are
    those to which the measure applies and on which every strategy has finished runs; there are no
    rows without such tasks.
    """
    rows: Rows = []
    for measure, strategy, runs in _counted_runs(outcomes):
        strata = [[_VALUES[measure](run) for run in task_runs] for task_runs in runs]
        estimate = stats.mean_estimate(strata)
        row = {
            "strategy": strategy,
            "measure": measure,
            "tasks": len(runs),
            "runs": sum(map(len, strata)),
        }
        rows.append(row | {"share": estimate.value, "low": estimate.low, "high": estimate.high})
    return rows


def _counted_runs(outcomes: Sequence[SuiteRun]) -> Iterator[tuple[str, str, list[list[SuiteRun]]]]:
    """Measure, strategy, and its runs by task."""
    done = [run for run in outcomes if run.state == "finished"]
    strategies = list(dict.fromkeys(run.strategy for run in outcomes))
    common = [
        task
        for task in _task_names(done)
        if {run.strategy for run in done if run.task == task} == {*strategies}
    ]
    with_target = {run.task for run in done if run.solved is not None}
    timed = {run.task for run in done if run.speed_ups is not None}
    for measure in _VALUES:
        tasks = [task for task in common if task in (with_target if measure == "solved" else timed)]
        for strategy in strategies if tasks else ():
            yield (
                measure,
                strategy,
                [
                    [run for run in done if (run.task, run.strategy) == (task, strategy)]
                    for task in tasks
                ],
            )


def share_curves(outcomes: Sequence[SuiteRun]) -> Rows:
    """The shares of `table` over the course of runs.

    There is a row for each change along one of `AXES`. Shares are those of the best so far of each
    run, which keeps its value after the run has ended. The last `share` is that of the table.
    """
    course_by_run: dict[str, list[tuple[Moment, CandidateOutcome]]] = {}
    rows: Rows = []
    for measure, strategy, runs in _counted_runs(outcomes):
        for run in (run for task_runs in runs for run in task_runs if run.run not in course_by_run):
            course_by_run[run.run] = _run_course(run)
        courses = [
            [
                [(step, _VALUES[measure](best)) for step, best in course_by_run[run.run]]
                for run in task_runs
            ]
            for task_runs in runs
        ]
        for axis in AXES:
            for step, share in _mean_curve(courses, axis):
                rows.append(
                    {
                        "strategy": strategy,
                        "measure": measure,
                        "axis": axis,
                        "at": step,
                        "share": share,
                    }
                )
    return rows


def _run_course(run: SuiteRun) -> list[tuple[Moment, CandidateOutcome]]:
    """Results of the best so far at each possible change; at the end the reported result."""
    path, observations, course = (
        Path(run.run),
        dict[str, list[Observation]](),
        list[tuple[Moment, CandidateOutcome]](),
    )
    moments, objective = read_run(path).moments, views.run_meta(path).task.objective
    for moment, observation in zip(moments, views.stream_observations(path)):
        observations.setdefault(observation.candidate, []).append(observation)
        if moment.best is not None:
            course.append(
                (
                    moment,
                    _BestSoFar(
                        objective.reaches_target(moment.best),
                        _problem_speed_ups(observations.get(moment.candidate, ())),
                    ),
                )
            )
    return [*course, (moments[-1], run)] if moments else course


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
    steps = list(values.items())
    return [steps[0], *(after for before, after in pairwise(steps) if after[1] != before[1])]


def _task_names(outcomes: Iterable[SuiteRun]) -> list[str]:
    return list(dict.fromkeys(each.task for each in outcomes))
