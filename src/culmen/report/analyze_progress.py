"""How runs went on: best-so-far against three budgets, filling of the archive, width of the requests."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Literal, Protocol

from culmen.report.analyze_record import Filled, Moment, Record
from culmen.report.analyze_table import Rows, Table, mean, spread

Axis = Literal["evaluations", "dollars", "seconds"]
Series = list[tuple[float, float]]

STEPS = 40
SNAPSHOTS = 10


class Moving(Protocol):
    """A run as far as it is needed to tell how its best went on."""

    @property
    def moments(self) -> Sequence[Moment]: ...

    @property
    def unpriced(self) -> int: ...


def best_so_far(records: Sequence[Moving], axis: Axis, steps: int = STEPS) -> Table:
    """Score of the best candidate, in the task's own direction, after equal shares of what the longest run has spent
    (Section 5.2, Figure 2).

    Failed evaluations count; the best is the one that `culmen status` would have named at that moment. A run that ended
    before holds its last value, one that had none yet is left out: `runs` says how many are in a row.
    """
    title = f"best so far against {axis}"
    missing = _no_axis(records, axis)
    if missing:
        return Table(f"best_by_{axis}", title, skipped=missing)
    series = [_best(record, axis) for record in records]
    rows: Rows = []
    for x in _marks([each[-1][0] for each in series if each], steps, whole=axis == "evaluations"):
        seen = [_at(each, x) for each in series]
        rows.append({axis: x, **spread("score", seen), "runs": sum(value is not None for value in seen)})
    return Table(f"best_by_{axis}", title, rows)


def coverage(records: Sequence[Record], snapshots: int = SNAPSHOTS) -> Table:
    """Cells taken, and mean reward of their occupants, at equal shares of the evaluations (Section 6, snapshots).

    Cells are added up over islands, since each keeps a grid of its own; quality is the mean over all of them.
    """
    name, title = "coverage", "cells taken and their mean reward against evaluations"
    having = [record for record in records if record.filled]
    if not having:
        return Table(name, title, skipped="this strategy keeps no grid of cells")
    rows: Rows = []
    for mark in _marks([record.evaluations for record in having], snapshots, whole=True):
        states = [_state(record.filled, mark) for record in having]
        known = [state for state in states if state]
        cells = [float(sum(each.cells for each in state)) for state in known]
        row = {"evaluations": mark, **spread("cells", cells), **spread("quality", map(_quality, known))}
        rows.append({**row, "runs": len(known)})
    return Table(name, title, rows)


def width(records: Sequence[Record], steps: int = STEPS) -> Table:
    """K, the candidates asked for at once, as the runs went on: the mean over a run's islands, told over runs."""
    name, title = "width", "candidates per request (K) against evaluations"
    having = [record for record in records if _adapts(record)]
    if not having:
        return Table(name, title, skipped=_NO_WIDTH)
    rows: Rows = []
    for mark in _marks([record.evaluations for record in having], steps, whole=True):
        means = [mean(_widths(record, mark).values()) for record in having]
        known = sum(value is not None for value in means)
        rows.append({"evaluations": mark, **spread("k", means), "runs": known})
    return Table(name, title, rows)


def width_by_island(records: Sequence[Record]) -> Table:
    """K of every request of every island."""
    name, title = "width_by_island", "candidates per request (K), island by island"
    rows: Rows = [
        {"run": record.run, "island": ask.island, "turn": ask.turn, "evaluations": ask.evaluations, "k": ask.k}
        for record in records
        if _adapts(record)
        for ask in sorted(record.asks, key=lambda ask: (ask.island, ask.turn))
    ]
    return Table(name, title, rows, skipped="" if rows else _NO_WIDTH)


_NO_WIDTH = "this strategy does not tell how many candidates it asks for at once"


def _no_axis(records: Sequence[Moving], axis: Axis) -> str:
    if not any(record.moments and record.moments[-1].best is not None for record in records):
        return "nothing has scored yet"
    if axis == "dollars":
        unpriced = sum(record.unpriced for record in records)
        if unpriced:
            return f"the price of {unpriced} calls is unknown, so dollars cannot be told"
        if not any(record.moments and record.moments[-1].dollars for record in records):
            return "nothing was paid for: the model is offline or free"
    return ""


def _best(record: Moving, axis: Axis) -> Series:
    """The best score against what was spent when it was the best."""
    return [(getattr(moment, axis), moment.best) for moment in record.moments if moment.best is not None]


def _marks(ends: Sequence[float], count: int, whole: bool) -> list[float]:
    """`count` equal shares of the largest end; whole numbers without repeats where they count something."""
    end = max(ends, default=0)
    marks = [end * step / count for step in range(1, count + 1)]
    return sorted({max(1, round(mark)) for mark in marks}) if whole else marks


def _at(series: Series, x: float) -> float | None:
    """The last value at or before x; None before the first."""
    place = bisect_right(series, x, key=lambda pair: pair[0])
    return series[place - 1][1] if place else None


def _state(filled: Sequence[Filled], mark: float) -> list[Filled]:
    """The last state of every island at or before the mark."""
    last: dict[int, Filled] = {each.island: each for each in filled if each.evaluations <= mark}
    return list(last.values())


def _quality(state: Sequence[Filled]) -> float | None:
    known = [(each.cells, each.quality) for each in state if each.quality is not None]
    cells = sum(count for count, _ in known)
    return sum(count * quality for count, quality in known) / cells if cells else None


def _adapts(record: Record) -> bool:
    return any(ask.next_k is not None for ask in record.asks)


def _widths(record: Record, mark: float) -> dict[int, float]:
    """K in force on every island after so many evaluations."""
    return {ask.island: float(ask.next_k or ask.k) for ask in record.asks if ask.evaluations <= mark}
