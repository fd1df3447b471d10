"""Strategies compared over seeds and tasks: per task in its own scores, over tasks only on a common scale.

A value is the certified one where the task has a verifier, else the reported score. The common scale is 0 at the task's
start and 1 at its best known value, or else its target, or else the best that any of the runs found. Less than 0 counts
as 0, for the seed could have been kept; so does a run without a value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import msgspec

from culmen.core.errors import UserError
from culmen.core.evaluation import weakest
from culmen.core.task import Objective
from culmen.report import compare_stats as stats
from culmen.report.analyze import told_apart
from culmen.report.compare_read import Entry, LeftOut
from culmen.report.compare_scale import Scale, normalised, scale_of
from culmen.report.compare_stats import Estimate
from culmen.report.compare_target import Reach, Target, reach, target
from culmen.report.compare_words import pair_sentence, remarks, unreadable

THRESHOLDS = (0.0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)
_NOTHING = float("-inf")  # the reward of a run without a value
_ROUNDING = 1e-12  # by which a profile forgives a value that should lie on its threshold


class Row(msgspec.Struct, frozen=True):
    """A strategy on one task (figures in its own scores, of the `valued` of `runs` that have a value) or over tasks
    (normalised, of all runs). `best_of[n-1]` is the normalised expected best of n runs; `profile` goes with
    `THRESHOLDS`, and `steps` is all of it: (level, share of runs above it). `trust` is the level of the weakest score;
    `reach` is None over tasks."""

    strategy: str
    runs: int
    valued: int
    best: float | None
    mean: Estimate
    median: Estimate
    iqm: Estimate
    normalised: Estimate
    best_of: tuple[float, ...]
    profile: tuple[float, ...]
    steps: tuple[tuple[float, float], ...]
    trust: str = ""
    reach: Reach | None = None


class Pair(msgspec.Struct, frozen=True):
    """Whether `first` beats `second`: probability of improvement (at least 0.5, by the order of the two), p corrected
    for the number of pairs (Holm), `pairs` of equal seeds (0: they do not pair), and the same as a sentence."""

    first: str
    second: str
    probability: Estimate
    p: float | None
    pairs: int
    apart: bool
    sentence: str


class Part(msgspec.Struct, frozen=True):
    """One task; `basis` says whether values are certified or scores."""

    task: str
    direction: str
    basis: str
    scale: Scale
    target: Target
    rows: tuple[Row, ...]
    pairs: tuple[Pair, ...]


class Overall(msgspec.Struct, frozen=True):
    """Over the tasks on which every strategy has runs, on the common scale."""

    tasks: tuple[str, ...]
    rows: tuple[Row, ...]
    pairs: tuple[Pair, ...]


class Comparison(msgspec.Struct, frozen=True):
    """All of it; `overall` is None with one task, or where no task has runs of all. `remarks` are sentences on what
    was left out and what does not compare."""

    tasks: tuple[Part, ...]
    overall: Overall | None
    remarks: tuple[str, ...]
    confidence: float = stats.CONFIDENCE
    thresholds: tuple[float, ...] = THRESHOLDS


class _Task(msgspec.Struct):
    """One task's finished runs by strategy, best-known facts, and rewards and normalised values at the same places."""

    part: Part
    runs: dict[str, list[Entry]]
    rewards: dict[str, list[float]]
    normal: dict[str, list[float]]


def compare(
    runs: Sequence[Entry], names: Mapping[str, str] | None = None, left_out: Sequence[LeftOut] = ()
) -> Comparison:
    """Compare the finished ones among these runs; `names` maps the path of a strategy's class to what it is called,
    `left_out` are those that could not be read.

    Raises `UserError` where none has finished. The order of the runs does not matter.
    """
    done = sorted((run for run in runs if run.state == "finished"), key=lambda run: (run.task, run.seed, run.run))
    if not done:
        raise UserError("none of these runs has finished", where=f"{len(runs)} runs", fix="culmen resume RUN")
    labels = _labels(done, names or {})
    groups = _contenders(done, labels)
    tasks = [_task(title, each) for title, each in groups.items()]
    overall = _overall(tasks) if len(tasks) > 1 else None
    whole = {title: [run for each in by.values() for run in each] for title, by in groups.items()}
    told = remarks(runs, whole, labels, overall is None)
    return Comparison(tuple(task.part for task in tasks), overall, (*unreadable(left_out), *told))


def contenders(runs: Sequence[Entry], names: Mapping[str, str] | None = None) -> dict[str, dict[str, list[Entry]]]:
    """The finished runs by task and strategy, both called as `compare` calls them."""
    done = [run for run in runs if run.state == "finished"]
    return _contenders(done, _labels(done, names or {}))


def document(runs: Sequence[Entry], names: Mapping[str, str] | None = None) -> dict[str, object] | None:
    """The comparison as plain data for JSON; None where none of the runs has finished."""
    if not any(run.state == "finished" for run in runs):
        return None
    return msgspec.to_builtins(compare(runs, names))


def _labels(runs: Sequence[Entry], names: Mapping[str, str]) -> dict[str, str]:
    """What each contender is called: its strategy, with settings and model where they differ."""
    firsts = {run.contender: run for run in runs}
    chosen = [firsts[key] for key in sorted(firsts)]
    plain = [names.get(run.strategy) or run.strategy.rpartition(":")[2] or "unknown" for run in chosen]
    return {run.contender: label for run, label in zip(chosen, told_apart(chosen, plain))}


def _contenders(runs: Sequence[Entry], labels: Mapping[str, str]) -> dict[str, dict[str, list[Entry]]]:
    """Tasks of one name that differ in what they measure are called with the first digits of their digests."""
    kinds = {(run.task, run.digest) for run in runs}
    found: dict[str, dict[str, list[Entry]]] = {}
    for run in sorted(runs, key=lambda run: (run.task, run.digest, labels[run.contender])):
        alone = sum(task == run.task for task, _ in kinds) == 1
        title = run.task if alone else f"{run.task} ({run.digest[:8]})"
        found.setdefault(title, {}).setdefault(labels[run.contender], []).append(run)
    return found


def _task(title: str, groups: dict[str, list[Entry]]) -> _Task:
    runs = [run for each in groups.values() for run in each]
    objective = runs[0].objective
    certified = any(run.strict is not None for run in runs)
    values = {label: [run.certified if certified else run.score for run in each] for label, each in groups.items()}
    known = [value for each in values.values() for value in each if value is not None]
    scale, aim = scale_of(objective, runs, known), target(objective, known)
    rewards = {label: [_NOTHING if v is None else objective.reward(v) for v in each] for label, each in values.items()}
    normal = {label: [normalised(v, scale) for v in each] for label, each in values.items()}
    rows = tuple(_row(label, groups[label], values[label], normal[label], objective, aim) for label in groups)
    seeds = {label: [run.seed for run in each] for label, each in groups.items()}
    basis = "certified values" if certified else "scores"
    part = Part(title, objective.direction, basis, scale, aim, rows, _pairs([(rewards, seeds)]))
    return _Task(part, groups, rewards, normal)


def _row(
    label: str,
    runs: Sequence[Entry],
    values: Sequence[float | None],
    normal: Sequence[float],
    objective: Objective,
    aim: Target,
) -> Row:
    rewards = [objective.reward(value) for value in values if value is not None]
    figures = [_turned(measure([rewards]), objective) for measure in (stats.mean, stats.median, stats.iqm)]
    return Row(
        strategy=label,
        runs=len(runs),
        valued=len(rewards),
        best=objective.score(max(rewards)) if rewards else None,
        mean=figures[0],
        median=figures[1],
        iqm=figures[2],
        normalised=stats.iqm([normal]),
        best_of=tuple(stats.best_of(normal)),
        profile=_profile([normal]),
        steps=tuple(stats.steps([normal])),
        trust=weakest(run.trust for run in runs if run.trust),
        reach=reach(runs, objective, aim),
    )


def _turned(rewards: Estimate, objective: Objective) -> Estimate:
    """An estimate of rewards as one of scores."""
    ends = (rewards.low, rewards.high) if objective.direction == "max" else (rewards.high, rewards.low)
    return Estimate(*(None if each is None else objective.score(each) for each in (rewards.value, *ends)))


def _profile(strata: Sequence[Sequence[float]]) -> tuple[float, ...]:
    return tuple(stats.profile([[value + _ROUNDING for value in each] for each in strata], THRESHOLDS))


def _overall(tasks: Sequence[_Task]) -> Overall | None:
    """Over the tasks that all strategies share; None with fewer than two of them."""
    everyone = {label for task in tasks for label in task.runs}
    shared = [task for task in tasks if set(task.runs) == everyone]
    if len(shared) < 2:
        return None
    rows = tuple(
        _over(label, [(task.runs[label], task.normal[label]) for task in shared], shared) for label in sorted(everyone)
    )
    seeds = [{label: [run.seed for run in each] for label, each in task.runs.items()} for task in shared]
    pairs = _pairs([(task.rewards, each) for task, each in zip(shared, seeds)])
    return Overall(tuple(task.part.task for task in shared), rows, pairs)


def _over(label: str, given: Sequence[tuple[Sequence[Entry], Sequence[float]]], tasks: Sequence[_Task]) -> Row:
    strata = [normal for _, normal in given]
    few = min(map(len, strata))
    curves = [stats.best_of(each) for each in strata]
    return Row(
        strategy=label,
        runs=sum(map(len, strata)),
        valued=sum(reward != _NOTHING for task in tasks for reward in task.rewards[label]),
        best=max(map(max, strata)),
        mean=stats.mean(strata),
        median=stats.median(strata),
        iqm=stats.iqm(strata),
        normalised=stats.iqm(strata),
        best_of=tuple(sum(curve[n] for curve in curves) / len(curves) for n in range(few)),
        profile=_profile(strata),
        steps=tuple(stats.steps(strata)),
        trust=weakest(run.trust for runs, _ in given for run in runs if run.trust),
    )


_Rewards = Mapping[str, Sequence[float]]
_Seeds = Mapping[str, Sequence[int]]


def _pairs(tasks: Sequence[tuple[_Rewards, _Seeds]]) -> tuple[Pair, ...]:
    """Every two strategies, the one that wins more often first."""
    couples = list(combinations(sorted(tasks[0][0]), 2))
    found = [_improvement(tasks, one, other) for one, other in couples]
    corrected = stats.holm([each.p for each in found])
    return tuple(_pair(*couple, each, p, len(couples)) for couple, each, p in zip(couples, found, corrected))


def _improvement(tasks: Sequence[tuple[_Rewards, _Seeds]], one: str, other: str) -> stats.Improvement:
    """Paired where on every task at least two seeds occur once on both sides; seeds without a partner are left out."""
    matched: list[tuple[list[float], list[float]]] = []
    for rewards, seeds in tasks:
        left, right = (dict(zip(seeds[name], rewards[name])) for name in (one, other))
        repeats = len(left) < len(seeds[one]) or len(right) < len(seeds[other])
        common = [] if repeats else sorted(left.keys() & right.keys())
        matched.append(([left[seed] for seed in common], [right[seed] for seed in common]))
    if all(len(left) > 1 for left, _ in matched):
        return stats.improvement(matched, paired=True)
    whole = [(rewards[one], rewards[other]) for rewards, _ in tasks]
    return stats.improvement(whole, paired=False)


def _pair(one: str, other: str, found: stats.Improvement, p: float | None, comparisons: int) -> Pair:
    value = found.estimate
    if value.value is not None and value.value < 0.5:
        one, other, value = other, one, value.mirrored()
    apart = p is not None and p < 1 - stats.CONFIDENCE and value.low is not None and value.low > 0.5
    sentence = pair_sentence(one, other, value, p, found.pairs, apart, comparisons)
    return Pair(one, other, value, p, found.pairs, apart, sentence)
