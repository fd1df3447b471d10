"""Comparison of strategies over seeds and tasks.

Results on one task are in its own scores; results over tasks are on a common scale. A run's value
comes from `bench.worth`. The common scale is 0 at the initial program (or the task's start) and 1
at the task's best known value, or else its target, or else the best value of these runs. Values
below 0 count as 0, since the initial program could have been kept; so do runs without a value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from statistics import median
from typing import TYPE_CHECKING

import msgspec

from culmen.core.errors import UserError
from culmen.core.evaluation import weakest_trust
from culmen.core.task import Objective
from culmen.extensions.bench import stats
from culmen.extensions.bench.records import Axis, ComparedRun, LeftOut, Moment, distinct_labels
from culmen.extensions.bench.stats import (
    CONFIDENCE,
    Estimate,
    MeasuredValues,
    expected_running_time,
    median_to_target,
    pairs_needed,
)
from culmen.extensions.bench.worth import NOTHING, Worth, worth_of_runs
from culmen.report.figures import count_of_limit

if TYPE_CHECKING:
    from culmen.extensions.bench.stats import Floats


class StrategyFigures(msgspec.Struct, frozen=True):
    """A strategy on one task, or over tasks.

    Figures are in the task's own scores, of the `valued` of `runs` that have a value; over tasks
    they are normalised, of all runs. `best_of[n-1]` is the normalised expected best of n runs,
    `steps` the performance profile as (level, share of runs above it), `trust` the level of the
    weakest score; `reach` is None over tasks. `nothing` is the number of runs that found nothing
    better than the initial program, `margin` half the width of the best value's 95 % interval
    (None: unknown), `on` the cases measured ("3 of 24"; "": no data set).
    """

    strategy: str
    runs: int
    valued: int
    best: float | None
    mean: Estimate
    median: Estimate
    iqm: Estimate
    normalised: Estimate
    best_of: tuple[float, ...]
    steps: tuple[tuple[float, float], ...]
    trust: str = ""
    reach: Reach | None = None
    nothing: int = 0
    margin: float | None = None
    on: str = ""


class RunWorth(msgspec.Struct, frozen=True):
    """One run in a comparison.

    `value` is in the task's own direction (None: no value), `margin` half the width of its 95 %
    interval (None: unknown), `on` the cases it was measured on. `nothing`: it found nothing better
    than the initial program.
    """

    run: str
    strategy: str
    seed: int
    value: float | None
    margin: float | None
    on: str
    nothing: bool


class StrategyPair(msgspec.Struct, frozen=True):
    """Two strategies compared; `first` is the one that wins more often.

    `probability` is that of improvement (at least 0.5 by the order of the two), `p` is corrected
    for the number of comparisons (Holm), `pairs` is the number of pairs of equal seeds (0:
    unpaired), `apart` is True if the difference is significant, and `sentence` states the result.
    """

    first: str
    second: str
    probability: Estimate
    p: float | None
    pairs: int
    apart: bool
    sentence: str


class TaskComparison(msgspec.Struct, frozen=True):
    """The comparison on one task; `basis` is the kind of the values.

    `unequal`: the runs were measured on different samples of cases, and not together since.
    `together`: all their programs were scored together. `bounds` are those of the score.
    """

    task: str
    direction: str
    basis: str
    scale: Scale
    target: Target
    rows: tuple[StrategyFigures, ...]
    pairs: tuple[StrategyPair, ...]
    runs: tuple[RunWorth, ...] = ()
    unequal: bool = False
    together: bool = False
    bounds: tuple[float | None, float | None] = (None, None)

    @property
    def worth_scoring(self) -> bool:
        """True if scoring the programs together could show more.

        That is the case if runs were measured on different cases, or if a gain of a run is not
        shown by its own measurement.
        """
        return self.unequal or (
            not self.together and any(run.nothing and run.value is not None for run in self.runs)
        )


class Overall(msgspec.Struct, frozen=True):
    """The comparison over the tasks on which every strategy has runs, on the common scale."""

    tasks: tuple[str, ...]
    rows: tuple[StrategyFigures, ...]
    pairs: tuple[StrategyPair, ...]


class UnfinishedRun(msgspec.Struct, frozen=True):
    """A run that has not finished: it is named beside the figures, and not counted in them.

    `came` is how far it came: "34 of 200 evaluations".
    """

    run: str
    task: str
    strategy: str
    seed: int
    state: str
    came: str


class Comparison(msgspec.Struct, frozen=True):
    """A comparison of strategies.

    `overall` is None for one task, or if fewer than two tasks have runs of every strategy.
    `remarks` are sentences about runs left out and about limits of the comparison. `axis` is a
    further unit in which the effort to reach a target is counted. `unfinished` are runs that have
    not finished.
    """

    tasks: tuple[TaskComparison, ...]
    overall: Overall | None
    remarks: tuple[str, ...]
    axis: Axis = "evaluations"
    confidence: float = stats.CONFIDENCE
    unfinished: tuple[UnfinishedRun, ...] = ()


class _Task(msgspec.Struct):
    """One task's finished runs by strategy, with rewards and normalised values in run order."""

    part: TaskComparison
    runs: dict[str, list[ComparedRun]]
    rewards: dict[str, MeasuredValues]
    normal: dict[str, MeasuredValues]


def compare_runs(
    runs: Sequence[ComparedRun],
    names: Mapping[str, str] | None = None,
    left_out: Sequence[LeftOut] = (),
    axis: Axis = "evaluations",
) -> Comparison:
    """Compare the finished runs among these, in any order.

    `names` maps the path of a strategy's class to its display name, `left_out` are runs that could
    not be read. The effort to reach a target is also reported along `axis`. Raises `UserError` if
    none has finished.
    """
    done = sorted(
        (run for run in runs if run.state == "finished"),
        key=lambda run: (run.task, run.seed, run.run),
    )
    if not done:
        raise UserError(
            "none of these runs has finished", where=f"{len(runs)} runs", fix="culmen resume RUN"
        )
    labels = _contender_labels(done, names or {})
    groups = _runs_by_task_and_label(done, labels)
    tasks = [_compare_on_task(title, each, axis) for title, each in groups.items()]
    overall = _compare_overall(tasks) if len(tasks) > 1 else None
    runs_by_task = {
        title: [run for each in by.values() for run in each] for title, by in groups.items()
    }
    remarks = comparison_remarks(runs_by_task, labels, overall is None)
    return Comparison(
        tuple(task.part for task in tasks),
        overall,
        (*unreadable_remarks(left_out), *remarks),
        axis,
        unfinished=_unfinished_runs(runs, names or {}),
    )


def _unfinished_runs(
    runs: Sequence[ComparedRun], names: Mapping[str, str]
) -> tuple[UnfinishedRun, ...]:
    found: list[UnfinishedRun] = []
    for run in sorted(runs, key=lambda run: (run.task, run.seed, run.run)):
        if run.state != "finished":
            label = run.written or names.get(run.strategy) or run.strategy.rpartition(":")[2]
            came = count_of_limit(run.evaluations, run.budget.evaluations)
            found.append(UnfinishedRun(run.run, run.task, label, run.seed, run.state, came))
    return tuple(found)


def comparison_document(
    runs: Sequence[ComparedRun], names: Mapping[str, str] | None = None
) -> dict[str, object] | None:
    """The comparison as plain data for JSON; None if none of the runs has finished."""
    if not any(run.state == "finished" for run in runs):
        return None
    return msgspec.to_builtins(compare_runs(runs, names))


def _contender_labels(runs: Sequence[ComparedRun], names: Mapping[str, str]) -> dict[str, str]:
    """The label of each contender: its strategy, with settings and model that differ."""
    firsts = {run.contender_key: run for run in runs}
    chosen = [firsts[key] for key in sorted(firsts)]
    plain = [
        run.written or names.get(run.strategy) or run.strategy.rpartition(":")[2] or "unknown"
        for run in chosen
    ]
    return {run.contender_key: label for run, label in zip(chosen, distinct_labels(chosen, plain))}


def _runs_by_task_and_label(
    runs: Sequence[ComparedRun], labels: Mapping[str, str]
) -> dict[str, dict[str, list[ComparedRun]]]:
    """Runs by task and label.

    Different tasks of the same name get the first digits of their digests as a suffix.
    """
    kinds = {(run.task, run.digest) for run in runs}
    groups: dict[str, dict[str, list[ComparedRun]]] = {}
    for run in sorted(runs, key=lambda run: (run.task, run.digest, labels[run.contender_key])):
        alone = sum(task == run.task for task, _ in kinds) == 1
        title = run.task if alone else f"{run.task} ({run.digest[:8]})"
        groups.setdefault(title, {}).setdefault(labels[run.contender_key], []).append(run)
    return groups


def _compare_on_task(title: str, groups: dict[str, list[ComparedRun]], axis: Axis) -> _Task:
    runs = [run for each in groups.values() for run in each]
    objective, worth = runs[0].objective, worth_of_runs(runs)
    known = [value for value in worth.values if value is not None]
    scale, aim = scale_of(objective, runs, known, worth.initial), choose_target(objective, known)
    positions = _group_positions(groups)
    rewards = {label: worth.rewards.take_positions(each) for label, each in positions.items()}
    normal = {
        label: _on_scale(each, scale, objective, worth.start) for label, each in rewards.items()
    }
    rows = tuple(
        _task_figures(
            label,
            groups[label],
            _worth_at(worth, positions[label]),
            normal[label],
            objective,
            effort_to_target(groups[label], objective, aim, axis),
        )
        for label in groups
    )
    seeds = {label: [run.seed for run in each] for label, each in groups.items()}
    labels = [label for label, each in groups.items() for _ in each]
    remarks = tuple(
        RunWorth(run.run, label, run.seed, *facts)
        for run, label, *facts in zip(
            runs, labels, worth.values, worth.margins, worth.on, worth.nothing
        )
    )
    pairs = _strategy_pairs([(rewards, seeds)])
    part = TaskComparison(
        title,
        objective.direction,
        worth.basis,
        scale,
        aim,
        rows,
        pairs,
        remarks,
        worth.unequal,
        worth.together,
        objective.bounds,
    )
    return _Task(part, groups, rewards, normal)


def _group_positions(groups: Mapping[str, Sequence[ComparedRun]]) -> dict[str, list[int]]:
    """Positions of each group's runs among all of them, group by group."""
    positions: dict[str, list[int]] = {}
    end = 0
    for label, each in groups.items():
        positions[label] = list(range(end, end + len(each)))
        end += len(each)
    return positions


def _worth_at(worth: Worth, positions: Sequence[int]) -> Worth:
    """The worth of some of the runs, by position."""
    lists = {
        name: [getattr(worth, name)[position] for position in positions]
        for name in ("values", "margins", "on", "nothing")
    }
    return worth._replace(**lists, rewards=worth.rewards.take_positions(positions))


def _on_scale(
    rewards: MeasuredValues, scale: Scale, objective: Objective, start: Floats | None
) -> MeasuredValues:
    """Values on the common scale, with their draws.

    If the initial program is 0, its draws are subtracted.
    """
    import numpy as np

    values = [None if reward == NOTHING else objective.score(reward) for reward in rewards.values]
    zero = objective.reward(scale.start) if start is None else start[:, None]
    width = abs(scale.reference - scale.start)
    draws = (
        np.maximum(0.0, (rewards.draws - zero) / width) if width else np.zeros_like(rewards.draws)
    )
    return MeasuredValues([normalised_value(value, scale) for value in values], draws)


def _task_figures(
    label: str,
    runs: Sequence[ComparedRun],
    worth: Worth,
    normal: MeasuredValues,
    objective: Objective,
    reached: Reach,
) -> StrategyFigures:
    valued = [position for position, value in enumerate(worth.values) if value is not None]
    rewards = worth.rewards.take_positions(valued)
    best = max(valued, key=lambda position: worth.rewards.values[position], default=None)
    figures = [
        _score_estimate(measure([rewards]), objective)
        for measure in (stats.mean_estimate, stats.median_estimate, stats.iqm_estimate)
    ]
    return StrategyFigures(
        strategy=label,
        runs=len(runs),
        valued=len(valued),
        best=None if best is None else worth.values[best],
        mean=figures[0],
        median=figures[1],
        iqm=figures[2],
        normalised=stats.iqm_estimate([normal]),
        best_of=tuple(stats.best_of(normal.values)),
        steps=tuple(stats.profile_steps([normal.values])),
        trust=weakest_trust(run.trust for run in runs if run.trust),
        reach=reached,
        nothing=sum(worth.nothing),
        margin=None if best is None else worth.margins[best],
        on=_measured_cases_text(worth.on),
    )


def _measured_cases_text(measured: Sequence[str]) -> str:
    """The cases measured: `3 of 24`, or `3 to 5 of 24` if runs differ; "" without a data set."""
    known = sorted(
        {each for each in measured if each}, key=lambda each: int(each.partition(" ")[0])
    )
    if len(known) < 2:
        return "".join(known)
    first, last = (each.partition(" of ") for each in (known[0], known[-1]))
    return f"{first[0]} to {last[0]} of {last[2]}" if first[2] == last[2] else ", ".join(known)


def _score_estimate(rewards: Estimate, objective: Objective) -> Estimate:
    """An estimate of scores from one of rewards."""
    ends = (
        (rewards.low, rewards.high) if objective.direction == "max" else (rewards.high, rewards.low)
    )
    return Estimate(
        *(None if each is None else objective.score(each) for each in (rewards.value, *ends))
    )


def _compare_overall(tasks: Sequence[_Task]) -> Overall | None:
    """The comparison over the tasks that all strategies share; None with fewer than two."""
    everyone = {label for task in tasks for label in task.runs}
    shared = [task for task in tasks if set(task.runs) == everyone]
    if len(shared) < 2:
        return None
    rows = tuple(
        _overall_figures(label, [(task.runs[label], task.normal[label]) for task in shared], shared)
        for label in sorted(everyone)
    )
    seeds = [
        {label: [run.seed for run in each] for label, each in task.runs.items()} for task in shared
    ]
    pairs = _strategy_pairs([(task.rewards, each) for task, each in zip(shared, seeds)])
    return Overall(tuple(task.part.task for task in shared), rows, pairs)


def _overall_figures(
    label: str,
    parts: Sequence[tuple[Sequence[ComparedRun], MeasuredValues]],
    tasks: Sequence[_Task],
) -> StrategyFigures:
    strata = [normal for _, normal in parts]
    values = [each.values for each in strata]
    few = min(map(len, values))
    curves = [stats.best_of(each) for each in values]
    return StrategyFigures(
        strategy=label,
        runs=sum(map(len, values)),
        valued=sum(reward != NOTHING for task in tasks for reward in task.rewards[label].values),
        best=max(map(max, values)),
        mean=stats.mean_estimate(strata),
        median=stats.median_estimate(strata),
        iqm=stats.iqm_estimate(strata),
        normalised=stats.iqm_estimate(strata),
        best_of=tuple(sum(curve[n] for curve in curves) / len(curves) for n in range(few)),
        steps=tuple(stats.profile_steps(values)),
        trust=weakest_trust(run.trust for runs, _ in parts for run in runs if run.trust),
        nothing=sum(
            row.nothing for task in tasks for row in task.part.rows if row.strategy == label
        ),
    )


_Rewards = Mapping[str, MeasuredValues]
_Seeds = Mapping[str, Sequence[int]]


def _strategy_pairs(tasks: Sequence[tuple[_Rewards, _Seeds]]) -> tuple[StrategyPair, ...]:
    """Every pair of strategies, the one that wins more often first."""
    couples = list(combinations(sorted(tasks[0][0]), 2))
    improvements = [_pair_improvement(tasks, one, other) for one, other in couples]
    corrected = stats.holm_correction([each.p for each in improvements])
    return tuple(
        _oriented_pair(*couple, each, p, len(couples))
        for couple, each, p in zip(couples, improvements, corrected)
    )


def _pair_improvement(
    tasks: Sequence[tuple[_Rewards, _Seeds]], one: str, other: str
) -> stats.Improvement:
    """Probability that `one` improves on `other`.

    Paired if on every task at least two seeds occur exactly once on both sides; seeds without a
    partner are then left out.
    """
    matched: list[tuple[MeasuredValues, MeasuredValues]] = []
    for rewards, seeds in tasks:
        left, right = (
            {seed: place for place, seed in enumerate(seeds[name])} for name in (one, other)
        )
        repeats = len(left) < len(seeds[one]) or len(right) < len(seeds[other])
        common = [] if repeats else sorted(left.keys() & right.keys())
        sides = (
            rewards[one].take_positions([left[seed] for seed in common]),
            rewards[other].take_positions([right[seed] for seed in common]),
        )
        matched.append(sides)
    if all(len(left.values) > 1 for left, _ in matched):
        return stats.estimate_improvement(matched, paired=True)
    pooled = [(rewards[one], rewards[other]) for rewards, _ in tasks]
    return stats.estimate_improvement(pooled, paired=False)


def _oriented_pair(
    one: str, other: str, improvement: stats.Improvement, p: float | None, comparisons: int
) -> StrategyPair:
    value = improvement.estimate
    if value.value is not None and value.value < 0.5:
        one, other, value = other, one, value.complement()
    apart = p is not None and p < 1 - stats.CONFIDENCE and value.low is not None and value.low > 0.5
    sentence = pair_sentence(one, other, value, p, improvement.pairs, apart, comparisons)
    return StrategyPair(one, other, value, p, improvement.pairs, apart, sentence)


# The common scale: 0 at the initial program or the task's start, 1 at the task's best known value,
# else its target, else the best of the runs.


class Scale(msgspec.Struct, frozen=True):
    """The scores at 0 and 1 of the common scale, and the origin of each."""

    start: float
    start_from: str
    reference: float
    reference_from: str


def scale_of(
    objective: Objective,
    runs: Sequence[ComparedRun],
    values: Sequence[float],
    initial: float | None = None,
) -> Scale:
    """The scale of a task for runs with these values.

    `initial` is the measured score of the initial program (None: not measured).
    """
    firsts = [run.moments[0].best for run in runs if run.moments]
    begun = [value for value in firsts if value is not None]
    best = objective.score(max(map(objective.reward, values), default=0.0))
    if initial is not None:
        start, origin = initial, "the initial program"
    elif objective.start is not None:
        start, origin = objective.start, "declared by the task"
    elif begun:
        start, origin = float(median(begun)), "median of the runs' first scores"
    else:
        start, origin = (
            objective.score(min(map(objective.reward, values), default=0.0)),
            "lowest value of these runs",
        )
    candidates = [
        (objective.known, "best known value"),
        (objective.target, "target"),
        (best, "best of these runs"),
    ]
    for value, what in candidates:
        if value is not None and objective.reward(value) > objective.reward(start):
            return Scale(start, origin, value, what)
    return Scale(start, origin, start, "nothing: no run is better than the start")


def normalised_value(value: float | None, scale: Scale) -> float:
    """A value on the common scale.

    0 at or below the start, or without a value; 1 at the reference; more beyond it.
    """
    width = scale.reference - scale.start
    return 0.0 if value is None or width == 0 else max(0.0, (value - scale.start) / width)


# Effort to reach a target: evaluations and dollars, including runs that never reached it.


class Target(msgspec.Struct, frozen=True):
    """The score to reach (None: no scores) and its origin."""

    score: float | None
    origin: str


class Reach(msgspec.Struct, frozen=True):
    """Number of runs that reached the target, by their best so far, and their effort.

    `evaluations` and `dollars` are medians over all runs, with a run that did not reach the target
    counted as later than any other; `expected_*` is the effort of all runs per run that reached it.
    None: too few runs reached it, or a price is unknown. `steps` and `expected_steps` are the same
    along another axis; None if the axis is one of these two, or if the journals do not record it.
    """

    reached: int
    evaluations: float | None
    expected_evaluations: float | None
    dollars: float | None
    expected_dollars: float | None
    steps: float | None = None
    expected_steps: float | None = None


def choose_target(objective: Objective, values: Sequence[float]) -> Target:
    """The task's target, else its best known value, else the median value of the runs."""
    if objective.target is not None:
        return Target(objective.target, "the task's target")
    if objective.known is not None:
        return Target(objective.known, "the best known value")
    if not values:
        return Target(None, "nothing has a value")
    return Target(
        float(median(values)), "the median of all runs, because the task declares no target"
    )


def effort_to_target(
    runs: Sequence[ComparedRun], objective: Objective, aim: Target, axis: Axis = "evaluations"
) -> Reach:
    """Effort of one strategy's runs to reach the target."""
    first = [_moment_reached(run, objective, aim.score) for run in runs]
    reached = [moment is not None for moment in first]
    evaluations = _effort_figures(
        runs, first, lambda moment: moment.evaluations, lambda run: run.evaluations, reached
    )
    priced = not any(run.unpriced for run in runs)
    money = _effort_figures(
        runs, first, lambda moment: moment.dollars, lambda run: run.dollars, reached
    )
    steps: tuple[float | None, float | None] = (None, None)
    if axis not in ("evaluations", "dollars") and any(_total_effort(run, axis) for run in runs):
        steps = _effort_figures(
            runs,
            first,
            lambda moment: getattr(moment, axis),
            lambda run: _total_effort(run, axis),
            reached,
        )
    return Reach(sum(reached), *evaluations, *(money if priced else (None, None)), *steps)


def _total_effort(run: ComparedRun, axis: Axis) -> float:
    return getattr(run.moments[-1], axis) if run.moments else 0.0


def _moment_reached(run: ComparedRun, objective: Objective, score: float | None) -> Moment | None:
    """The first moment at which the best so far was at least as good as the target."""
    if score is None:
        return None
    wanted = objective.reward(score)
    hits = (
        each
        for each in run.moments
        if each.best is not None and objective.reward(each.best) >= wanted
    )
    return next(hits, None)


def _effort_figures(
    runs: Sequence[ComparedRun],
    first: Sequence[Moment | None],
    until: Callable[[Moment], float],
    run_effort: Callable[[ComparedRun], float],
    reached: Sequence[bool],
) -> tuple[float | None, float | None]:
    """Median effort to the target and expected running time, in one unit."""
    spent = [
        run_effort(run) if moment is None else until(moment) for run, moment in zip(runs, first)
    ]
    return median_to_target(spent, reached), expected_running_time(spent, reached)


# Comparisons as sentences: the better strategy, the strength of the data, the runs left out.

_MOST = 8  # runs named in a sentence


def pair_sentence(
    one: str,
    other: str,
    estimate: Estimate,
    p: float | None,
    pairs: int,
    apart: bool,
    comparisons: int,
) -> str:
    """A sentence on the difference of two strategies, with its figures."""
    if estimate.value is None or estimate.low is None or estimate.high is None or p is None:
        return (
            f"The data cannot tell {one} and {other} apart: a single run on a task does not "
            "show the effect of chance."
        )
    figures = (
        f"probability of improvement {estimate.value:.2f}, "
        f"{CONFIDENCE:.0%} interval {estimate.low:.2f} to "
    )
    figures += f"{estimate.high:.2f}, p = {_p_text(p)}"
    if apart:
        return f"{one} is better than {other}: {figures}."
    needed = pairs_needed(comparisons)
    few = (
        f" With {pairs} paired runs no result could be clear; at least {needed} are needed."
        if 0 < pairs < needed
        else ""
    )
    return f"The data cannot tell {one} and {other} apart: {figures}.{few}"


def comparison_remarks(
    groups: Mapping[str, Sequence[ComparedRun]],
    labels: Mapping[str, str],
    single: bool,
) -> tuple[str, ...]:
    """Sentences on limits of the comparison; `single`: there is no comparison over tasks."""
    remarks = list[str]()
    for title, each in groups.items():
        remarks += [
            _budgets_remark(title, each),
            _unvalued_remark(title, each),
            _seeds_remark(title, each, labels),
            _unconfirmed_remark(title, each),
        ]
    several = len(groups) > 1
    names = {title: {labels[run.contender_key] for run in each} for title, each in groups.items()}
    everyone = set[str]().union(*names.values())
    partial = [title for title, each in names.items() if each != everyone]
    if several and single:
        remarks.append(
            "There is no comparison over tasks: fewer than two have runs of every strategy."
        )
    elif several and partial:
        remarks.append(
            f"Left out over tasks, because not every strategy has runs there: {', '.join(partial)}."
        )
    return tuple(filter(None, remarks))


def unreadable_remarks(left_out: Sequence[LeftOut]) -> tuple[str, ...]:
    """Sentences naming the runs that could not be read, each with the reason."""
    remarks = [
        f"Left out, because it cannot be read: {each.run} ({each.why})."
        for each in left_out[:_MOST]
    ]
    more = len(left_out) - _MOST
    return (*remarks, f"Left out in the same way: {more} more.") if more > 0 else tuple(remarks)


def _budgets_remark(title: str, runs: Sequence[ComparedRun]) -> str:
    if len({run.budget for run in runs}) < 2:
        return ""
    return (
        f"Budgets of runs on {title} differ: what looks like a better strategy may be a larger "
        "budget."
    )


def _unvalued_remark(title: str, runs: Sequence[ComparedRun]) -> str:
    certified = any(run.strict is not None for run in runs)
    without = [run for run in runs if (run.certified if certified else run.score) is None]
    if not without:
        return ""
    what = "certified value" if certified else "score"
    return (
        f"{len(without)} of {len(runs)} runs on {title} have no {what}: they lose against "
        "every run that has one, "
        "count as 0 on the common scale, and are not in the mean, median and IQM of the task's "
        "own scores."
    )


def _unconfirmed_remark(title: str, runs: Sequence[ComparedRun]) -> str:
    """A remark if scores were selected as maxima and not measured afresh since; else ""."""
    unsure = sum(run.score is not None and not run.confirmed and not run.fresh for run in runs)
    if (
        not unsure
        or any(run.strict is not None for run in runs)
        or all(run.deterministic for run in runs)
    ):
        return ""
    return (
        f"{unsure} of {len(runs)} runs on {title} were not evaluated afresh after their search: "
        "their scores may be lucky."
    )


def _seeds_remark(title: str, runs: Sequence[ComparedRun], labels: Mapping[str, str]) -> str:
    """A remark if strategies were run with different seeds; else ""."""
    seeds: dict[str, list[int]] = {}
    for run in runs:
        seeds.setdefault(labels[run.contender_key], []).append(run.seed)
    if len({tuple(sorted(each)) for each in seeds.values()}) < 2:
        return ""
    return (
        f"Strategies have different seeds on {title}: pairs are made of the seeds in common "
        "that occur once."
    )


def _p_text(value: float) -> str:
    return f"{value:.2g}" if value >= 0.001 else "below 0.001"
