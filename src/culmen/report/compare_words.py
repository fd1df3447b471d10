"""Comparisons as sentences: who is better, whether the data can tell, what was left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from culmen.report.compare_stats import CONFIDENCE, Estimate, pairs_needed

if TYPE_CHECKING:
    from culmen.report.compare_read import Entry, LeftOut

_MOST = 8  # runs named in a sentence


def pair_sentence(
    one: str, other: str, found: Estimate, p: float | None, pairs: int, apart: bool, comparisons: int
) -> str:
    """Whether `one` is better than `other`, with the figures that say so."""
    if found.value is None or found.low is None or found.high is None or p is None:
        return f"The data cannot tell {one} and {other} apart: a single run on a task says nothing about chance."
    figures = f"probability of improvement {found.value:.2f}, {CONFIDENCE:.0%} interval {found.low:.2f} to "
    figures += f"{found.high:.2f}, p = {_p(p)}"
    if apart:
        return f"{one} is better than {other}: {figures}."
    needed = pairs_needed(comparisons)
    few = f" With {pairs} paired runs no result could; it takes at least {needed}." if 0 < pairs < needed else ""
    return f"The data cannot tell {one} and {other} apart: {figures}.{few}"


def remarks(
    runs: Sequence[Entry], groups: Mapping[str, Sequence[Entry]], labels: Mapping[str, str], single: bool
) -> tuple[str, ...]:
    """What does not compare; `single`: nothing is said over tasks."""
    found = [_unfinished(runs)]
    for title, each in groups.items():
        found += [_budgets(title, each), _unvalued(title, each), _seeds(title, each, labels)]
    several = len(groups) > 1
    names = {title: {labels[run.contender] for run in each} for title, each in groups.items()}
    everyone = set[str]().union(*names.values())
    partial = [title for title, each in names.items() if each != everyone]
    if several and single:
        found.append("Nothing is said over tasks: fewer than two have runs of every strategy.")
    elif several and partial:
        found.append(f"Left out over tasks, for not every strategy has runs there: {', '.join(partial)}.")
    return tuple(filter(None, found))


def unreadable(left_out: Sequence[LeftOut]) -> tuple[str, ...]:
    """Which runs could not be read, each with why."""
    told = [f"Left out, for it cannot be read: {each.run} ({each.why})." for each in left_out[:_MOST]]
    more = len(left_out) - _MOST
    return (*told, f"Left out in the same way: {more} more.") if more > 0 else tuple(told)


def _unfinished(runs: Sequence[Entry]) -> str:
    left = sorted(f"{run.run} ({run.state})" for run in runs if run.state != "finished")
    return f"Left out, for they have not finished: {_some(left)}." if left else ""


def _budgets(title: str, runs: Sequence[Entry]) -> str:
    if len({run.budget for run in runs}) < 2:
        return ""
    return f"Budgets of runs on {title} differ: what looks like a better strategy may be a larger budget."


def _unvalued(title: str, runs: Sequence[Entry]) -> str:
    certified = any(run.strict is not None for run in runs)
    without = [run for run in runs if (run.certified if certified else run.score) is None]
    if not without:
        return ""
    what = "certified value" if certified else "score"
    return (
        f"{len(without)} of {len(runs)} runs on {title} have no {what}: they lose against every run that has one, "
        "count as 0 on the common scale, and are not in the mean, median and IQM of the task's own scores."
    )


def _seeds(title: str, runs: Sequence[Entry], labels: Mapping[str, str]) -> str:
    """Whether strategies were tried with different seeds."""
    seeds: dict[str, list[int]] = {}
    for run in runs:
        seeds.setdefault(labels[run.contender], []).append(run.seed)
    if len({tuple(sorted(each)) for each in seeds.values()}) < 2:
        return ""
    return f"Strategies have different seeds on {title}: pairs are made of those in common, where each occurs once."


def _some(names: Sequence[str], most: int = _MOST) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _p(value: float) -> str:
    return f"{value:.2g}" if value >= 0.001 else "below 0.001"
