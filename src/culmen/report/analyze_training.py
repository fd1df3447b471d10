"""What the training of an advisor did, barrier by barrier (PACEvolve++, Section 4 and Appendix D.1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import msgspec

from culmen.report.analyze_table import Rows, Table, spread

_AS_NOTED = (
    "entropy", "grad_norm", "kl", "clip_low", "clip_high", "ratio_max", "gap_mean", "gap_max", "tokens",
    "tokens_per_second",
)  # fmt: skip


class Barrier(msgspec.Struct, frozen=True):
    """One barrier of a run, after `evaluations` of it. `measures` are its diagnostics by name, those of the update only
    where there was one; `skip` says why there was none, `failures` counts decisions that failed, by class."""

    number: int
    evaluations: int
    measures: dict[str, float]
    skip: str
    alarms: tuple[str, ...]
    failures: dict[str, int]


def barrier(body: Mapping[str, Any], evaluations: int) -> Barrier:
    """A note `barrier` as a row; figures that it lacks are left out."""
    rewards, advantages = _numbers(body.get("rewards")), _numbers(body.get("advantages"))
    failures = {str(name): int(times) for name, times in dict(body.get("failures") or {}).items()}
    clamped, tried = _numbers(body.get("clamped")), [_kind(line) for line in body.get("experiments") or () if line]
    measures: dict[str, float] = {"version": float(body.get("version", 0)), "alpha": float(body.get("alpha", 0.0))}
    if rewards:
        measures |= {
            "reward": fmean(rewards),
            "reward_max": max(rewards),
            "failed": _share(sum(failures.values()), rewards),
        }
        measures |= {f"at_{end}": _share(times, rewards) for end, times in zip(("worst", "best"), clamped)}
    if advantages:
        measures["advantage_max"] = max(map(abs, advantages))
    if tried:
        measures["different"] = len(set(tried)) / len(tried)
    measures |= {f"spread_{name}": float(value) for name, value in dict(body.get("spreads") or {}).items()}
    measures |= {name: float(body[name]) for name in _AS_NOTED if body.get(name) is not None}
    return Barrier(
        int(body.get("barrier", 0)),
        evaluations,
        measures,
        str(body.get("skip", "")),
        tuple(map(str, body.get("alarms") or ())),
        failures,
    )


def training(runs: Sequence[Sequence[Barrier]]) -> Table:
    """Diagnostics against barriers: median and quartiles over the runs that got so far (`runs`)."""
    having = [barriers for barriers in runs if barriers]
    measures = list(dict.fromkeys(key for barriers in having for each in barriers for key in each.measures))
    rows: Rows = []
    for place in range(max(map(len, having))):
        there = [barriers[place] for barriers in having if len(barriers) > place]
        row: dict[str, Any] = {"barrier": place + 1, "runs": len(there)}
        row |= spread("evaluations", [each.evaluations for each in there])
        row["skipped"] = _share(sum(bool(each.skip) for each in there), there)
        row["alarmed"] = _share(sum(bool(each.alarms) for each in there), there)
        for measure in measures:
            row |= spread(measure, [each.measures.get(measure) for each in there])
        rows.append(row)
    return Table("training", "training of the advisor against barriers", rows)


def training_events(runs: Sequence[Sequence[Barrier]]) -> Table:
    """How often barriers took no step, raised an alarm or had decisions that failed, by the reason."""
    name, title = "training_events", "skipped updates, alarms and failed decisions of the training"
    counts = Counter[tuple[str, str]]()
    for each in (each for barriers in runs for each in barriers):
        counts.update({("skip", each.skip): 1} if each.skip else {})
        counts.update(("alarm", alarm) for alarm in each.alarms)
        counts.update({("failure", kind): times for kind, times in each.failures.items()})
    total = sum(map(len, runs))
    rows: Rows = [
        {"what": what, "reason": reason, "times": times, "per_barrier": times / total}
        for (what, reason), times in sorted(counts.items(), key=lambda pair: (pair[0][0], -pair[1], pair[0][1]))
    ]
    return Table(name, title, rows, skipped="" if rows else "every barrier took a step, and nothing failed")


def _kind(experiment: Any) -> str:
    """A choice without the number that tells one draw from the menu from another."""
    return str(experiment).partition(" (draw ")[0]


def _numbers(values: Any) -> list[float]:
    return [float(value) for value in values or ()]


def _share(times: float, among: Sequence[Any]) -> float:
    return times / len(among)
