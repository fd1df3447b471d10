"""All analyses of some runs: like runs are grouped, every analysis is made of every group."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import msgspec

from culmen.core.evaluation import weakest
from culmen.report.analyses import (
    Table,
    best_so_far,
    coverage,
    distance_by_k,
    rank_groups,
    rank_profile,
    top_m,
    training,
    training_events,
    width,
    width_by_island,
)
from culmen.report.records import RunRecord, read_run


class Configured(Protocol):
    """Whatever was made by a strategy with settings and a model."""

    @property
    def config(self) -> dict[str, Any]: ...

    @property
    def model(self) -> str: ...


Analysis = Callable[[Sequence[RunRecord]], Table]


class Group(msgspec.Struct, frozen=True):
    """Runs of one task by one strategy with the same settings and model, which differ in their seeds.

    `trust` is the level of the weakest score in them (`core.evaluation`).
    """

    label: str
    task: str
    direction: str
    strategy: str
    runs: tuple[str, ...]
    tables: tuple[Table, ...]
    trust: str = ""


def analyses(k: int | None = None) -> tuple[Analysis, ...]:
    """Every analysis; `k` is the width that the top-m replay and the profile by rank look at (None: the widest)."""
    return (
        partial(best_so_far, axis="evaluations"),
        partial(best_so_far, axis="dollars"),
        partial(best_so_far, axis="seconds"),
        coverage,
        partial(top_m, k=k),
        partial(rank_profile, k=k),
        partial(rank_groups, k=k),
        distance_by_k,
        width,
        width_by_island,
    )


def analyze(runs: Sequence[Path | str], names: Mapping[str, str] | None = None, k: int | None = None) -> list[Group]:
    """The analyses of these runs, group by group in the order in which they are given.

    `names` maps the path of a strategy's class to what it is called. Raises `UserError` where there is no run.
    """
    grouped: dict[str, list[RunRecord]] = {}
    for record in map(read_run, runs):
        grouped.setdefault(_key(record), []).append(record)
    labels = _labels([records[0] for records in grouped.values()], names or {})
    return [
        Group(
            label=label,
            task=records[0].task,
            direction=records[0].direction,
            strategy=_name(records[0], names or {}),
            runs=tuple(record.run for record in records),
            tables=(*(analysis(records) for analysis in analyses(k)), *_of_training(records)),
            trust=weakest(record.trust for record in records if record.trust),
        )
        for label, records in zip(labels, grouped.values())
    ]


def _of_training(records: Sequence[RunRecord]) -> tuple[Table, ...]:
    """Tables of barriers, where there are any."""
    runs = [record.barriers for record in records]
    return (training(runs), training_events(runs)) if any(runs) else ()


def _key(record: RunRecord) -> str:
    return json.dumps([record.task, record.direction, record.strategy, record.config, record.model], sort_keys=True)


def _name(record: RunRecord, names: Mapping[str, str]) -> str:
    return names.get(record.strategy) or record.strategy.rpartition(":")[2] or "unknown"


def _labels(firsts: Sequence[RunRecord], names: Mapping[str, str]) -> list[str]:
    """Task and strategy; where that is not enough to tell groups apart, also the model and settings that differ."""
    return told_apart(firsts, [f"{record.task} {_name(record, names)}" for record in firsts])


def told_apart(firsts: Sequence[Configured], plain: Sequence[str]) -> list[str]:
    """Plain labels; behind those that occur several times the model and settings in which they differ."""
    labels: list[str] = []
    for label, record in zip(plain, firsts):
        alike = [other for other, name in zip(firsts, plain) if name == label]
        facts = {"model": record.model, **record.config}
        kinds = [{"model": other.model, **other.config} for other in alike]
        differing = [name for name in facts if any(other.get(name) != facts[name] for other in kinds)]
        told = ", ".join(f"{name}={_short(facts[name])}" for name in differing)
        labels.append(f"{label} ({told})" if told else label)
    return labels


def _short(value: object) -> str:
    """A setting as text; of an object only its fields."""
    if isinstance(value, dict) and "object" in value:
        kind = str(value["object"]).rpartition(":")[2].lower()
        inner = ", ".join(f"{name}={_short(each)}" for name, each in value.get("fields", {}).items())
        return f"{kind}({inner})" if inner else kind
    return str(value)
