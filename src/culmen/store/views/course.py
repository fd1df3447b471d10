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
    """An evaluation of the search: the n-th, made at event `seq`, of a candidate of this origin; it stands for `count`
    like it. One that gave no score has None and its status."""

    n: int
    seq: int
    elapsed: float
    score: float | None
    status: str
    candidate: str
    operator: str
    model: str
    island: int | None
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
    """The evaluations of the search in their order, at most some thousand: where there are more, one for each cell of
    a grid over number and score."""
    o, e, c = sql.observation.c, sql.event.c, sql.candidate.c
    number = sql.func.row_number().over(order_by=o.seq).label("n")
    seen = sql.select(o.seq, o.score, o.status, o.phase, o.candidate, number).subquery().c
    origin = (sql.func.coalesce(c.operator, ""), sql.func.coalesce(c.model, ""), sql.island(c.origin))
    query = sql.select(seen.n, seen.seq, e.elapsed, seen.score, seen.status, seen.candidate, *origin)
    joined = query.join(sql.event, e.seq == seen.seq).outerjoin(sql.candidate, c.id == seen.candidate)
    with reading(run) as connection:
        sql.taught(connection)
        rows = connection.execute(joined.where(seen.phase != "final").order_by(seen.seq)).all()
    plain = [SeenScore(*row) for row in rows]
    names = ("candidate", "operator", "model")
    found = [each._replace(**{name: unescape(getattr(each, name)) for name in names}) for each in plain]
    scores = [each.score for each in found if each.score is not None]
    if len(found) <= _COLUMNS * 8:
        return found
    low, high = min(scores, default=0.0), max(scores, default=0.0)
    tall, wide = (high - low) / _ROWS or 1.0, found[-1].n / _COLUMNS
    cells: dict[tuple[int, int | str], SeenScore] = {}
    for each in found:
        cell = (int(each.n / wide), each.status if each.score is None else int((each.score - low) / tall))
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
