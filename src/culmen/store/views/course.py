"""A run's course for a chart: its evaluations, and the best so far as they came in."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from pathlib import Path
from typing import NamedTuple

import msgspec

from culmen.core.task import Task
from culmen.store import sql
from culmen.store.codec import unescape
from culmen.store.database import RunMeta, read_meta, reading
from culmen.store.ranking import MODELLED, Arrival, Estimates, ScoreRow, Z, arrivals, estimates, score_rows
from culmen.store.views.run import standing_best

_COLUMNS, _ROWS = 220, 60  # cells of a chart with many evaluations
_END = 2**63 - 1  # beyond the last event
FINE = (40, 20)  # for a chart of one run: evaluations after each of which the leader is looked at, and later parts
ROUGH = (6, 8)  # for runs beside one another
LISTED = (1, 1)  # for a list of runs: after 1, 2, 4, 8, ... evaluations
_KEPT = 64  # courses


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


class ProgressPoint(msgspec.Struct, frozen=True):
    """The best candidate after so many evaluations: its `mean` then (of exact scores), what its `count` evaluations and
    its relatives' let expect (of noisy ones), or its certified value; `seq` is the event after which it was so."""

    evaluations: int
    elapsed: float
    candidate: str
    mean: float
    count: int
    seq: int = 0


class LeaderPoint(NamedTuple):
    """After `evaluations`: the candidate expected to be best, evaluated `count` times, its expected score and its 95 %
    interval."""

    evaluations: int
    seq: int
    elapsed: float
    candidate: str
    score: float
    low: float
    high: float
    count: int = 0


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
    """What was known of the leader, by the value model: after each of the `first` evaluations, then after every further
    `part`-th part of them. Only what is new is read again. Empty where the run is too long for the model.
    """

    def __init__(self, run: Path, task: Task, first: int = FINE[0], part: int = FINE[1]) -> None:
        self._run, self._task, self._objective = run, task, task.objective
        self._estimates = Estimates(task)
        self._first, self._part = first, part
        self._points: list[LeaderPoint] = []
        self._made = self._read = self._born = 0
        self._lock = threading.Lock()

    def points(self) -> list[LeaderPoint]:
        """All of them, the latest evaluations not included before the next distance is reached."""
        o, e = sql.observation.c, sql.event.c
        with self._lock, reading(self._run) as connection:
            if connection.execute(sql.select(sql.func.count()).select_from(sql.observation)).scalar_one() > MODELLED:
                self._estimates, self._points = Estimates(self._task), []  # what was learnt takes much room
                return []
            query = sql.select(e.elapsed, o.phase).join(sql.event, e.seq == o.seq).where(o.seq > self._read)
            times = connection.execute(query.order_by(o.seq)).all()
            seen, born = score_rows(connection, self._read, _END), deque(arrivals(connection, self._born, _END))
            new: list[ScoreRow] = []
            for n, (score, (elapsed, phase)) in enumerate(zip(seen, times), self._made + 1):
                new.append(score)
                if phase != "final" and self._due(n):
                    self._learn(born, new)
                    self._made, self._read, new = n, score.seq, []
                    self._add(n, score.seq, elapsed)
        return self._points

    def _learn(self, born: deque[Arrival], seen: list[ScoreRow]) -> None:
        """Let the model see these scores, and the candidates that were there by then."""
        while born and born[0].seq <= seen[-1].seq:
            self._born = born[0].seq
            self._estimates.learn([born.popleft()], ())
        self._estimates.learn((), seen)

    def _due(self, n: int) -> bool:
        return n <= self._first or n >= self._made + max(1, self._made // self._part)

    def _add(self, n: int, seq: int, elapsed: float) -> None:
        leader = self._estimates.leader(set())
        value = None if leader is None else self._estimates.value(leader)
        if leader is None or value is None:
            return
        mean, half = value[0], Z * value[1]
        low, high = sorted(self._objective.score(mean + side * half) for side in (-1, 1))
        count, score = self._estimates.count(leader), self._objective.score(mean)
        self._points.append(LeaderPoint(n, seq, elapsed, leader, score, low, high, count))


_lock = threading.Lock()
_kept: OrderedDict[tuple[str, float, tuple[int, int]], LeaderCourse] = OrderedDict()


def expected(run: Path, steps: tuple[int, int] = FINE) -> list[LeaderPoint]:
    """What could be expected of the leader of a run with noisy scores; empty where scores are exact, where a verifier
    vouches for values, and where the run is too long for the value model."""
    with reading(run) as connection:
        about, tally = read_meta(connection), sql.tally.c
        if about.task.deterministic and len(about.task.cases) < 2:
            return []
        certified = sql.select(tally.candidate).where(sql.judged, tally.accepted > 0).limit(1)
        if connection.execute(certified).first() or estimates(connection, run, about.task) is None:
            return []
    return course(run, about, steps)


def course(run: Path, about: RunMeta, steps: tuple[int, int] = FINE) -> list[LeaderPoint]:
    """The points of a run's `LeaderCourse`, which is kept."""
    key = (str(run.absolute()), about.created, steps)
    with _lock:
        found = _kept[key] = _kept.pop(key, None) or LeaderCourse(run, about.task, *steps)
        while len(_kept) > _KEPT:
            _kept.popitem(last=False)
    return found.points()


def progress(run: Path | str, steps: tuple[int, int] = FINE) -> list[ProgressPoint]:
    """The best candidate as the run went on, at most a few hundred points per tenfold of evaluations; the last is now.

    Of noisy scores it is what could be expected then, at the `steps` of `LeaderCourse`; it may fall from one point to
    the next. Where a verifier vouches for values, or the run is too long for the value model, it is the mean.
    """
    folder = Path(run)
    found = expected(folder, steps)
    with reading(folder) as connection:
        columns = (
            sql.progress.c.evaluations,
            sql.progress.c.elapsed,
            sql.progress.c.candidate,
            sql.progress.c.mean,
            sql.progress.c.count,
            sql.progress.c.seq,
        )
        points = [ProgressPoint(*row) for row in connection.execute(sql.select(*columns).order_by(sql.progress.c.seq))]
        if found:
            points = [ProgressPoint(p.evaluations, p.elapsed, p.candidate, p.score, p.count, p.seq) for p in found]
        made = int(
            connection.execute(
                sql.select(sql.func.sum(sql.counter.c.value)).where(sql.counter.c.scope == "status")
            ).scalar()
            or 0
        )
        best = standing_best(connection, folder)
        while best is not None and points and points[-1].evaluations >= made:
            points.pop()
        if best is not None:
            last = connection.execute(
                sql.select(sql.event.c.elapsed, sql.event.c.seq).order_by(sql.event.c.seq.desc()).limit(1)
            ).one()
            points.append(ProgressPoint(made, last.elapsed, best.id, best.value, best.count, last.seq))
        return points
