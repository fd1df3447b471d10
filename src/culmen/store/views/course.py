"""A run's course for a chart: its evaluations, and what was known of the leader as they came in."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import NamedTuple

from culmen.core.task import Task
from culmen.store import sql
from culmen.store.codec import unescape
from culmen.store.database import reading
from culmen.store.estimates import MODELLED, Estimates
from culmen.store.views.scores import Z

_COLUMNS, _ROWS = 220, 60  # cells of a chart with many evaluations
_EACH = 40  # evaluations after every one of which the leader is looked at; later after every 20th part of them


class SeenScore(NamedTuple):
    """An evaluation of the search that scored: the n-th, made at event `seq`; it stands for `count` like it."""

    n: int
    seq: int
    elapsed: float
    score: float
    count: int = 1


class LeaderPoint(NamedTuple):
    """After `evaluations`: the candidate expected to be best, its expected score and its 95 % interval."""

    evaluations: int
    seq: int
    elapsed: float
    candidate: str
    score: float
    low: float
    high: float


def evaluations(run: Path) -> list[SeenScore]:
    """The scores of the search in their order, at most some thousand: where there are more, one for each cell of a
    grid over number and score."""
    o, e = sql.observation.c, sql.event.c
    numbered = sql.select(o.seq, o.score, o.phase, sql.func.row_number().over(order_by=o.seq).label("n")).subquery().c
    query = sql.select(numbered.n, numbered.seq, e.elapsed, numbered.score).join(sql.event, e.seq == numbered.seq)
    scored = query.where(numbered.score.is_not(None), numbered.phase != "final").order_by(numbered.seq)
    with reading(run) as connection:
        found = [SeenScore(*row) for row in connection.execute(scored)]
    if len(found) <= _COLUMNS * 8:
        return found
    low, high = min(each.score for each in found), max(each.score for each in found)
    tall, wide = (high - low) / _ROWS or 1.0, found[-1].n / _COLUMNS
    cells: dict[tuple[int, int], SeenScore] = {}
    for each in found:
        cell = (int(each.n / wide), int((each.score - low) / tall))
        known = cells.get(cell)
        cells[cell] = each if known is None else known._replace(count=known.count + 1)
    return sorted(cells.values(), key=lambda each: each.seq)


class LeaderCourse:
    """What was known of the leader at growing distances, by the value model; only what is new is read again.

    Empty where the run is too long for the model.
    """

    def __init__(self, run: Path, task: Task) -> None:
        self._run, self._objective, self._estimates = run, task.objective, Estimates(task)
        self._points: list[LeaderPoint] = []
        self._made = 0
        self._lock = threading.Lock()

    def points(self) -> list[LeaderPoint]:
        """All of them, the latest evaluations not included before the next distance is reached."""
        o, e = sql.observation.c, sql.event.c
        with self._lock, reading(self._run) as connection:
            if connection.execute(sql.select(sql.func.count()).select_from(sql.observation)).scalar_one() > MODELLED:
                return []
            query = sql.select(o.seq, e.elapsed, o.phase).join(sql.event, e.seq == o.seq).order_by(o.seq)
            for n, (seq, elapsed, phase) in enumerate(
                connection.execute(query.offset(self._made)).all(), self._made + 1
            ):
                if n > self._made and phase != "final" and (n <= _EACH or n >= self._made + max(1, self._made // 20)):
                    self._estimates.refresh(connection, n, seq)
                    self._made = n
                    self._add(n, seq, elapsed)
        return self._points

    def _add(self, n: int, seq: int, elapsed: float) -> None:
        leader = self._estimates.leader(set())
        value = None if leader is None else self._estimates.value(leader)
        if leader is None or value is None:
            return
        mean, half = value[0], Z * value[1]
        ends = sorted(self._objective.score(mean + side * half) for side in (-1, 1))
        self._points.append(LeaderPoint(n, seq, elapsed, unescape(leader), self._objective.score(mean), *ends))
