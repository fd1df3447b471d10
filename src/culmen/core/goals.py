"""Several objectives of a task: metrics with directions, and constraints on metrics."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

import msgspec

from culmen.core.errors import UserError

Way = Literal["max", "min"]
_PENALTY = 10.0  # how much more a violated constraint weighs in the combined score than an objective


def way(text: object, where: str = "direction") -> Way:
    """Which scores are better, as a person says it: max, maximize, maximise, MIN, ... Raises `UserError`."""
    word = text.strip().lower() if isinstance(text, str) else ""
    if word in ("max", "maximize", "maximise"):
        return "max"
    if word in ("min", "minimize", "minimise"):
        return "min"
    raise UserError(f"unknown direction {text!r}", where=where, fix="write max (or maximize) or min (or minimize)")


class MetricGoal(msgspec.Struct, frozen=True, omit_defaults=True):
    """One objective: a metric that every evaluation must report, and which of its values are better.

    `reference` is the worst value that counts, one coordinate of the point that hypervolume is measured from (None:
    found from the candidates). `unit` is the size of a typical value, used by the combined score alone (0: the
    reference's, else 1).
    """

    name: str
    direction: Way = "max"
    reference: float | None = None
    unit: float = 0.0

    def reward(self, value: float) -> float:
        """The value turned so that higher is better; its own inverse."""
        return value if self.direction == "max" else -value

    @property
    def size(self) -> float:
        """The unit in force."""
        return self.unit or abs(self.reference or 0.0) or 1.0


class Constraint(msgspec.Struct, frozen=True):
    """`metric <= level` or `metric >= level`."""

    metric: str
    sense: Literal["<=", ">="]
    level: float

    def __str__(self) -> str:
        return f"{self.metric} {self.sense} {self.level:g}"

    def excess(self, value: float) -> float:
        """By how much a value violates it, 0 if it does not."""
        return max(0.0, value - self.level if self.sense == "<=" else self.level - value)


def constraint(text: object, where: str = "constraints") -> Constraint:
    """`latency <= 20` as a `Constraint`. Raises `UserError`."""
    found = re.fullmatch(r"\s*(.+?)\s*(<=|>=|<|>)\s*(\S+)\s*", text) if isinstance(text, str) else None
    try:
        level = float(found[3]) if found else math.nan
    except ValueError:
        level = math.nan
    if found is None or not math.isfinite(level):
        raise UserError(f"{text!r} is no constraint", where=where, fix="write METRIC <= NUMBER or METRIC >= NUMBER")
    return Constraint(found[1], "<=" if found[2][0] == "<" else ">=", level)


def goals(given: Mapping[str, Any], where: str = "objectives") -> tuple[MetricGoal, ...]:
    """`{"accuracy": "max", "latency": {"direction": "min", "reference": 100}}` as objectives. Raises `UserError`."""
    return tuple(_goal(str(name), value, f"{where}: {name}") for name, value in given.items())


def _goal(name: str, given: Any, where: str) -> MetricGoal:
    table = cast("Mapping[str, Any]", given) if isinstance(given, Mapping) else {"direction": given}
    if unknown := table.keys() - {"direction", "reference", "unit"}:
        raise UserError(f"unknown key {sorted(unknown)[0]!r}", where=where, fix="use direction, reference, unit")
    numbers = {key: table[key] for key in ("reference", "unit") if table.get(key) is not None}
    for key, value in numbers.items():
        plain = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if not plain or (key == "unit" and value <= 0):
            raise UserError(f"{key} = {value!r} is not acceptable", where=where, fix=f"give {key} as a finite number")
    return MetricGoal(name, way(table.get("direction", "max"), where), **{k: float(v) for k, v in numbers.items()})


def lacking(
    metrics: Mapping[str, float], objectives: Sequence[MetricGoal], constraints: Sequence[Constraint]
) -> tuple[str, ...]:
    """Names that the objectives and constraints need, and that have no finite value."""
    named = dict.fromkeys([*(goal.name for goal in objectives), *(each.metric for each in constraints)])
    return tuple(name for name in named if not math.isfinite(metrics.get(name, math.nan)))


def combined(
    metrics: Mapping[str, float], objectives: Sequence[MetricGoal], constraints: Sequence[Constraint]
) -> float:
    """One score for strategies that know no other: the mean of asinh(value / unit), each turned so that higher is
    better, minus ten times the distance to each violated constraint on the same scale.

    asinh is linear for values well below the unit and logarithmic above it, so that no metric of large numbers drowns
    the others.
    """
    units = {goal.name: goal.size for goal in objectives}
    score = math.fsum(goal.reward(math.asinh(metrics[goal.name] / goal.size)) for goal in objectives) / len(objectives)
    for each in constraints:
        unit = units.get(each.metric) or abs(each.level) or 1.0
        if each.excess(metrics[each.metric]):
            score -= _PENALTY * abs(math.asinh(metrics[each.metric] / unit) - math.asinh(each.level / unit))
    return score
