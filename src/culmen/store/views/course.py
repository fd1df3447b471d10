"""A run's course for a chart: its evaluations, and the best candidate over time."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

import msgspec

from culmen.core.brief import ANSWERED, LEARNT, UNANSWERED
from culmen.core.event import Event
from culmen.core.json import JsonObject
from culmen.store.codec import decode_value, escape_text, island_in_origin, unescape_text
from culmen.store.columns import OBSERVATIONS, Columns, read_columns
from culmen.store.database import RunMeta, open_snapshot, read_meta
from culmen.store.evidence import MODELLED, RunEvidence, observation_count, shared_evidence
from culmen.store.reader import END, PAGE, select_events
from culmen.store.schema import MARKS, is_mark_due
from culmen.store.sql import Connection
from culmen.store.views.run import standing_best

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from culmen.evidence.evidence import Evidence

COLUMNS, ROWS = 96, 28  # cells of a chart with many evaluations
# for a chart of one run: evaluations after each of which there is a point, and later parts
FINE = MARKS
ROUGH = (6, 8)  # for a comparison of runs
LISTED = (1, 1)  # for a list of runs: after 1, 2, 4, 8, ... evaluations
_KEPT = 64  # courses


class SeenScore(NamedTuple):
    """The n-th evaluation of the search, made at event `seq`, of a candidate of this origin.

    It represents `count` similar evaluations. `score` is None if it gave none; `status` then has
    the reason.
    """

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
    """The best candidate after a number of evaluations.

    `mean` is its expected score at that time (or its certified value), from `count` evaluations of
    its own; `seq` is the last event taken into account.
    """

    evaluations: int
    elapsed: float
    candidate: str
    mean: float
    count: int
    seq: int = 0


class LeaderPoint(NamedTuple):
    """The candidate expected to be best after `evaluations` evaluations.

    It was evaluated `count` times; `score` is its expected score with the 95 % interval `low` to
    `high`.
    """

    evaluations: int
    seq: int
    elapsed: float
    candidate: str
    score: float
    low: float
    high: float
    count: int = 0


def search_evaluations(run: Path, cells: tuple[int, int] | None = None) -> list[SeenScore]:
    """The evaluations of the search in order, at most a few thousand.

    Of a longer run, one evaluation for each occupied cell of a grid over number and score, of so
    many columns and rows.
    """
    with open_snapshot(run) as connection:
        names = ("seq", "score", "status", "phase")
        found = read_columns(connection, OBSERVATIONS, *names)
        places, counts = _grid_cells(found, *(cells or (COLUMNS, ROWS)))
        return _seen_scores(connection, found, places, counts)


def _grid_cells(found: Columns, columns: int, rows: int) -> tuple[NDArray[np.int64], list[int]]:
    """Places of the first observation of the search in each cell, and the number in the cell.

    Of few observations each is in a cell of its own. Those without a score share a row of the grid
    for each status.
    """
    import numpy as np

    searched = np.flatnonzero(~np.isin(found["phase"], np.flatnonzero(found["phase+"] != "")))
    if len(searched) <= COLUMNS * 8:
        return searched, [1] * len(searched)
    scores = found["score"][searched]
    scored = ~np.isnan(scores)
    low, high = (scores[scored].min(), scores[scored].max()) if scored.any() else (0.0, 0.0)
    tall, wide = (high - low) / rows or 1.0, (int(searched[-1]) + 1) / columns
    row = np.where(scored, (np.where(scored, scores, low) - low) / tall, 0.0).astype(np.int64)
    row = np.where(scored, row, -1 - found["status"][searched].astype(np.int64))
    lowest = int(row.min())
    cells = ((searched + 1) / wide).astype(np.int64) * (rows + 2 - lowest) + row - lowest
    _, firsts, counts = np.unique(cells, return_index=True, return_counts=True)
    order = np.argsort(firsts)
    return searched[firsts[order]], counts[order].tolist()


_SEEN = """
SELECT o.seq, e.elapsed, o.score, o.status, o.candidate, coalesce(c.operator, ''),
       coalesce(c.model, ''), c.origin
FROM observation o JOIN event e ON e.seq = o.seq LEFT JOIN candidate c ON c.id = o.candidate
WHERE o.seq IN :seqs ORDER BY o.seq
"""


def _seen_scores(
    connection: Connection, found: Columns, places: NDArray[np.int64], counts: list[int]
) -> list[SeenScore]:
    """The observations at these places with their origin."""
    seen = list[SeenScore]()
    seqs, numbers = found["seq"][places].tolist(), (places + 1).tolist()
    for start in range(0, len(seqs), PAGE):
        found_rows = connection.execute(_SEEN, seqs=seqs[start : start + PAGE]).all()
        rows = zip(found_rows, numbers[start:], counts[start:])
        for (seq, elapsed, score, status, *texts, raw), n, count in rows:
            name, operator, model = map(unescape_text, texts)
            origin = operator, model, island_in_origin(raw)
            seen.append(SeenScore(n, seq, elapsed, score, status, name, *origin, count))
    return seen


class LeaderCourse:
    """The leader by the run's evidence as the run went on.

    It is computed at the `steps` of `MARKS`. Only new events are read again: those of the evidence
    that all views share, if no view has read further yet. Empty for a run longer than `MODELLED`
    evaluations.
    """

    def __init__(self, run: Path, meta: RunMeta, steps: tuple[int, int] = FINE) -> None:
        self._run, self._meta, self._objective = run, meta, meta.task.objective
        self._evidence: RunEvidence | None = None
        self._steps = steps
        self._points: list[LeaderPoint] = []
        self._evaluations = self._last = 0
        self._lock = threading.Lock()

    def points(self) -> list[LeaderPoint]:
        """All points; the latest evaluations are left out until the next step is reached."""
        with self._lock, open_snapshot(self._run) as connection:
            if observation_count(connection) > MODELLED:
                self._evidence, self._points = None, []  # frees much memory
                return []
            if not self._points:
                self._take_kept(connection)
            query = (
                "SELECT o.seq, e.elapsed, o.phase FROM observation o JOIN event e ON e.seq = o.seq "
                "WHERE o.seq > :last ORDER BY o.seq"
            )
            due = list[tuple[int, int, float]]()
            marked = self._evaluations
            rows = connection.execute(query, last=self._last).all()
            for n, (seq, elapsed, phase) in enumerate(rows, self._evaluations + 1):
                if not phase and is_mark_due(n, marked, self._steps):
                    due.append((n, seq, elapsed))
                    marked = n
            if due:
                self._extend(connection, due)
        return self._points

    def _take_kept(self, connection: Connection) -> None:
        """Begin with the points that were kept with the run's evidence."""
        with shared_evidence(connection) as shared:
            self._points = list(cast("list[LeaderPoint]", shared.courses.get(self._steps, [])))
        if self._points:
            self._evaluations, self._last = self._points[-1].evaluations, self._points[-1].seq

    def _extend(self, connection: Connection, due: list[tuple[int, int, float]]) -> None:
        with shared_evidence(connection) as shared:
            if self._evidence is None and shared.last <= self._last:
                evidence = shared
            else:
                evidence = self._evidence = self._evidence or RunEvidence(self._meta, self._run)
            for n, seq, elapsed in due:
                evidence.read(connection, seq)
                self._add_point(evidence.evidence, n, seq, elapsed)
                self._evaluations, self._last = n, seq
            shared.courses[self._steps] = [*self._points]

    def _add_point(self, evidence: Evidence, n: int, seq: int, elapsed: float) -> None:
        leader = evidence.leader()
        score = None if leader is None else evidence.verdict.score_of(leader)
        if leader is None or score is None:
            return
        half = score.margin or 0.0
        low, high = score.score - half, score.score + half
        self._points.append(
            LeaderPoint(n, seq, elapsed, leader, score.score, low, high, score.count)
        )


_lock = threading.Lock()

_kept: OrderedDict[tuple[str, float, tuple[int, int]], LeaderCourse] = OrderedDict()


def leader_course(run: Path, meta: RunMeta, steps: tuple[int, int] = FINE) -> list[LeaderPoint]:
    """The points of a run's `LeaderCourse`, which is cached."""
    key = (str(run.absolute()), meta.created, steps)
    with _lock:
        course = _kept[key] = _kept.pop(key, None) or LeaderCourse(run, meta, steps)
        while len(_kept) > _KEPT:
            _kept.popitem(last=False)
    return course.points()


def _recorded_points(connection: Connection, steps: tuple[int, int]) -> list[ProgressPoint]:
    query = "SELECT evaluations, elapsed, candidate, mean, count, seq FROM progress ORDER BY seq"
    points = list[ProgressPoint]()
    for row in connection.execute(query):
        point = ProgressPoint(*row)
        if is_mark_due(point.evaluations, points[-1].evaluations if points else 0, steps):
            points.append(point)
    return points


def progress_points(run: Path | str, steps: tuple[int, int] = FINE) -> list[ProgressPoint]:
    """The best candidate as the run went on; the last point is now.

    The points that were recorded while the search ran, thinned to `steps`; of a journal without
    them, those of the `LeaderCourse`. The mean may fall from one point to the next if scores are
    noisy.
    """
    with open_snapshot(run) as connection:
        points = _recorded_points(connection, steps)
        meta = None if points else read_meta(connection)
    course = () if meta is None else leader_course(Path(run), meta, steps)
    points += [
        ProgressPoint(p.evaluations, p.elapsed, p.candidate, p.score, p.count, p.seq)
        for p in course
    ]
    with open_snapshot(run) as connection:
        evaluations = observation_count(connection)
        best = standing_best(connection)
        while best is not None and points and points[-1].evaluations >= evaluations:
            points.pop()
        if best is not None:
            newest = "SELECT elapsed, seq FROM event ORDER BY seq DESC LIMIT 1"
            last = connection.execute(newest).one()
            points.append(
                ProgressPoint(evaluations, last.elapsed, best.id, best.value, best.count, last.seq)
            )
        return points


# The log of a run: its events as they happened, notes of the strategy, places in time.


class StrategyNote(NamedTuple):
    """A note of the strategy: its kind and its fields (`note` among them)."""

    seq: int
    elapsed: float
    kind: str
    body: JsonObject


def log_events(
    run: Path | str, after: int = 0, limit: int = 100, kinds: Collection[str] = ()
) -> list[Event]:
    """At most `limit` events with seq > `after`, oldest first.

    `kinds`: only events of these kinds (empty: all kinds).
    """
    values: dict[str, object] = {"after": after, "limit": limit}
    query = "seq > :after"
    if kinds:
        query, values["kinds"] = f"{query} AND kind IN :kinds", list(kinds)
        if not {"started", "done"} & set(kinds):
            query += " AND topic IS NOT NULL"  # the index over the rare kinds
    with open_snapshot(run) as connection:
        return select_events(connection, f"{query} ORDER BY seq LIMIT :limit", **values)


def event_count(run: Path | str, kinds: Collection[str], before: int) -> int:
    """Number of events of these kinds with a smaller seq."""
    query = "SELECT count(seq) FROM event WHERE seq < :before AND kind IN :kinds"
    with open_snapshot(run) as connection:
        return connection.execute(query, before=before, kinds=list(kinds)).scalar()


def last_seq(run: Path | str) -> int:
    """Number of events: the cheapest way to notice that something happened."""
    with open_snapshot(run) as connection:
        return connection.execute("SELECT max(seq) FROM event").scalar() or 0


def note_events(run: Path | str, kind: str, after: int = 0) -> list[Event]:
    """Notes of the strategy of one kind, oldest first."""
    query = "kind = 'note' AND topic = :topic AND seq > :after ORDER BY seq"
    with open_snapshot(run) as connection:
        return select_events(connection, query, topic=escape_text(kind), after=after)


def strategy_notes(run: Path | str, after: int = 0, last: int = END) -> list[StrategyNote]:
    """Notes of the strategy after event `after`, up to `last`, oldest first.

    The engine's own notes (seeds, candidates), and those on models, are left out.
    """
    query = (
        "SELECT seq, elapsed, topic, body FROM event WHERE kind = 'note' AND topic NOT IN "
        "('seeds', 'candidates', '', :learnt, :silent, :answered) "
        "AND seq > :after AND seq <= :last ORDER BY seq"
    )
    topics = {"learnt": LEARNT, "silent": UNANSWERED, "answered": ANSWERED}
    with open_snapshot(run) as connection:
        rows = connection.execute(query, after=after, last=last, **topics).all()
    return [
        StrategyNote(
            seq,
            elapsed,
            unescape_text(topic),
            {} if body is None else decode_value(body, JsonObject),
        )
        for seq, elapsed, topic, body in rows
    ]
