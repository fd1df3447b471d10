"""The gain per operator, model, island, part, idea and dollar."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import NormalDist

import msgspec

from culmen.core.result import Z
from culmen.core.task import Objective
from culmen.core.usage import Usage
from culmen.extensions.web.factors.origins import REST, FactorGains, candidate_costs, factor_gains
from culmen.report.figures import (
    dollars_text,
    percent_text,
    score_with_margin,
)
from culmen.report.story import run_story
from culmen.store import views

TITLES = {
    "operator": "operator",
    "model": "model",
    "island": "island",
    "part": "changed part",
    "idea": "idea",
    "shown": "shown in the prompt",
}
"""Names of the factors for people, in the order in which they are shown."""

_UNNAMED = {"operator": "unknown", "model": "no model", "island": "none", "idea": "none stated"}
_SHOWN = {"alone": "the parent alone", "others": "several candidates"}


class Level(msgspec.Struct, frozen=True):
    """One level of a factor, with the gain of a candidate that it made.

    `gain` is in the task's own direction, with half the width `margin` of its 95 % interval;
    `improves` is the share of its `count` candidates that scored better than their parents.
    `dollars` were spent on the requests that made them; `per_dollar` is the gain that one of them
    bought (None: nothing was paid), with its margin. `share` is the part of the gain that its steps
    in the story made.
    """

    name: str
    count: int
    gain: float
    margin: float
    improves: float
    dollars: float
    per_dollar: float | None
    per_dollar_margin: float | None
    share: float


class Factor(msgspec.Struct, frozen=True):
    """One factor with its levels, the largest gain first, and what the data can tell of them."""

    name: str
    title: str
    sentence: str
    levels: tuple[Level, ...]


def run_factors(run: Path | str, spent_at: Callable[[int], Usage]) -> tuple[Factor, ...]:
    """Factors of a run so far; empty if there is nothing to compare or it is too long.

    `spent_at` returns the costs up to an event.
    """
    folder = Path(run)
    best = views.best_result(folder)
    found = factor_gains(folder) if best is not None else []
    if best is None or not found:
        return ()
    costs = candidate_costs(folder, spent_at)
    told = run_story(folder, dollars_at=lambda seqs: [0.0] * len(seqs))
    shares = {step.id: step.share for step in told.steps}
    objective = views.run_meta(folder).task.objective
    return tuple(_factor(each, shares, costs, objective) for each in found)


def _factor(
    found: FactorGains,
    shares: Mapping[str, float],
    costs: Mapping[str, float],
    objective: Objective,
) -> Factor:
    levels: list[Level] = []
    rows = zip(found.levels, found.gains, found.improved, found.members, strict=True)
    for name, gain, improved, members in rows:
        dollars = sum(costs.get(each, 0.0) for each in members)
        bought = gain.count / dollars if dollars > 0 else None
        levels.append(
            Level(
                _level_name(found.name, name),
                gain.count,
                objective.score(gain.gain),
                Z * gain.sd,
                improved,
                dollars,
                None if bought is None else objective.score(gain.gain) * bought,
                None if bought is None else Z * gain.sd * bought,
                sum(shares.get(each, 0.0) for each in members),
            )
        )
    levels.sort(key=lambda each: -objective.reward(each.gain))
    sentence = _sentence(levels, objective)
    if found.tied:
        others = " and ".join(TITLES[each] for each in found.tied)
        sentence += f"; it went together with the {others}, so that either may be the cause"
    return Factor(found.name, TITLES[found.name], sentence, tuple(levels))


def _level_name(factor: str, name: str) -> str:
    if name == REST:
        return "others"
    shown = _SHOWN.get(name, name) if factor == "shown" else name
    shown = shown or _UNNAMED.get(factor, "none")
    if factor == "operator":
        shown = shown.replace("_", " ")
    elif factor == "island" and name:
        shown = f"island {shown}"
    shown = " ".join(shown.split())
    return shown if len(shown) <= 60 else shown[:59] + "…"  # characters of a level's name


def _sentence(levels: Sequence[Level], objective: Objective) -> str:
    """Order that the intervals allow, all comparisons with the first at 95 %."""
    first, *others = levels
    width = NormalDist().inv_cdf(1 - 0.025 / len(others)) / Z
    behind = [
        each.name
        for each in others
        if objective.reward(first.gain - each.gain) > width * math.hypot(first.margin, each.margin)
    ]
    if not behind:
        return "the data cannot tell which gains most"
    if len(behind) == len(others):
        return f"{first.name} gains most"
    return f"{first.name} gains more than {_enumerate(behind)}; beside the others it is not clear"


def _enumerate(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


NOTE = (
    "Gain of a candidate: by how much it is truly better than its parent, by all evidence; 0 if it "
    "is not, or failed. Mean of each kind with its 95 % interval, other things being equal. "
    "Improved: the share of the n candidates that scored better than their parents, as it was seen."
)


def level_gain_text(gain: float, margin: float) -> str:
    """`+0.012 ± 0.004`; `+0.012 (0 to 0.03)` if the interval would go beyond 0."""
    bounds = (None, 0.0) if gain < 0 else (0.0, None)
    return ("+" if gain > 0 else "") + score_with_margin(float(f"{gain:.3g}"), margin, bounds)


def level_row(level: Level) -> list[str]:
    """A level's cells: name, gain, improved, n, gain per dollar, spent, of the way."""
    bought = level.per_dollar
    return [
        level.name,
        level_gain_text(level.gain, level.margin),
        percent_text(level.improves),
        f"{level.count:,}",
        "" if bought is None else level_gain_text(bought, level.per_dollar_margin or 0.0),
        "" if bought is None else dollars_text(level.dollars),
        percent_text(level.share) if abs(level.share) >= 0.005 else "",
    ]
