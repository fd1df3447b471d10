"""The one connection that writes a run: lock, epoch, and what one append does."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import func, insert, select, update

from culmen.core.errors import RunLocked, Unavailable
from culmen.core.event import Entry, Event
from culmen.store import schema
from culmen.store.blobs import INLINE, Blobs
from culmen.store.checks import check
from culmen.store.codec import encode, escape
from culmen.store.database import check_format, meanings, owner, read_meta
from culmen.store.meta import FORMAT, RunMeta
from culmen.store.ranking import leader
from culmen.store.reader import gap, lookup_in, read_page
from culmen.store.rows import Batch, store, store_body
from culmen.store.seat import Seat, take
from culmen.store.statements import Inserts, run_many
from culmen.store.totals import Totals

if TYPE_CHECKING:
    from sqlalchemy import Connection

_SPARSE = 200  # the progress series gains a point whenever the evaluations have grown by one part in this many


class Writer:
    """Holds the run and a connection; not for two threads at once, but for any thread."""

    def __init__(self, run_dir: Path, seat: Seat) -> None:
        self._run_dir, self._seat, self._connection, self._lost = run_dir, seat, seat.connection, False
        self._blobs = Blobs(run_dir / "blobs", lookup_in(self._connection))
        self._insert = Inserts(self._connection.dialect)
        self._fence = str(select(schema.run.c.epoch).with_for_update().compile(dialect=self._connection.dialect))
        self._epoch = self._last = self._evaluations = self._marked = self._shown_in_flight = 0
        self._in_flight: set[int] = set()
        self._direction = "max"

    @classmethod
    def open(cls, run_dir: Path, meta: RunMeta | None = None) -> tuple[Writer, RunMeta]:
        """Take the run over for writing; with `meta`, make its tables first. Raises `RunLocked`, `JournalDamaged`."""
        with meanings(run_dir):
            seat = take(run_dir, None if meta is None else lambda connection: make(connection, meta))
            try:
                writer = cls(run_dir, seat)
                return writer, writer._take_over()
            except BaseException:
                seat.close()
                raise

    def append(self, entries: Sequence[Entry], times: Sequence[float] | None = None) -> list[Event]:
        """See `SqlJournal.append`; `times` are Unix seconds, now if not given."""
        for entry in entries:
            check(entry)
        times = times or [time.time()] * len(entries)
        batch, totals = Batch(), Totals()
        rows: list[tuple[Any, ...]] = []
        events: list[Event] = []
        for seq, (entry, when) in enumerate(zip(entries, times), self._last + 1):
            row, event = _row(entry, seq, when, batch)
            rows.append(row)
            events.append(event)
            totals.see(entry, seq)
        in_flight = _in_flight(self._in_flight, entries)
        totals.counters["session", "in_flight"] = len(in_flight) - self._shown_in_flight
        evaluations = self._evaluations + len(totals.observations)
        with self._writing() as regained:
            stored = self._arrived(rows) if regained else []
            with self._connection.begin():
                if stored:
                    marked = self._last_mark()
                else:
                    self._insert_all(rows, self._put_files(batch), batch, totals)
                    marked = self._mark(events[-1], evaluations)
        events = stored or events
        self._last, self._evaluations, self._marked = events[-1].seq, evaluations, marked
        self._in_flight, self._shown_in_flight = in_flight, len(in_flight)
        return events

    def save(self, meta: RunMeta) -> None:
        """Replace the run's settings."""
        with self._writing(), self._connection.begin():
            self._check_epoch(self._connection.connection.cursor())
            self._connection.execute(update(schema.run).values(meta=encode(meta)))
        self._direction = meta.task.objective.direction

    def close(self) -> None:
        """Give the run back."""
        self._seat.close()

    @contextmanager
    def _writing(self) -> Iterator[bool]:
        """For one transaction. A connection that was lost is made again first (True): the run may still be ours."""
        try:
            with meanings(self._run_dir):
                regained = self._lost
                if regained:
                    self._connection = self._seat.renew()
                    self._lost = False
                yield regained
        except Unavailable:
            self._lost = not self._seat.files
            raise

    def _arrived(self, rows: Sequence[tuple[Any, ...]]) -> list[Event]:
        """The events of an append whose commit was not heard of, as they are stored; [] if it never arrived."""
        with self._connection.begin():
            self._check_epoch(self._connection.connection.cursor())
            stored = read_page(self._connection, self._run_dir, self._last, len(rows) + 1)
        found = [(event.entry.kind, event.entry.key, escape(event.entry.mark)) for event in stored]
        if stored and found != [(row[2], row[5], row[6]) for row in rows]:
            raise gap(self._last + 1, self._run_dir)
        return stored

    def _take_over(self) -> RunMeta:
        """Raise the epoch, so that no earlier owner can write any more, and load what appends build on."""
        from culmen.store.migrate import upgrade

        with self._connection.begin():
            check_format(self._connection, self._run_dir)
            upgrade(self._connection)
            self._connection.execute(update(schema.run).values(epoch=schema.run.c.epoch + 1, format=FORMAT))
            self._epoch = self._connection.execute(select(schema.run.c.epoch)).scalar_one()
            meta = read_meta(self._connection)
            self._last = self._connection.execute(select(func.max(schema.event.c.seq))).scalar() or 0
            counters = {(row[0], row[1]): row[2] for row in self._connection.execute(select(schema.counter))}
            self._marked = self._last_mark()
        if sum(value for (scope, _), value in counters.items() if scope == "kind") != self._last:
            raise gap(self._last, self._run_dir)
        self._evaluations = sum(value for (scope, _), value in counters.items() if scope == "status")
        self._shown_in_flight = counters.get(("session", "in_flight"), 0)
        self._direction = meta.task.objective.direction
        return meta

    def _put_files(self, batch: Batch) -> list[tuple[bytes, bytes]]:
        """Make large blobs durable as files; returns the others."""
        if not self._seat.files:
            return list(batch.blobs.items())
        small: list[tuple[bytes, bytes]] = []
        for sha, data in batch.blobs.items():
            if len(data) > INLINE:
                self._blobs.put_file(sha, data)
            else:
                small.append((sha, data))
        return small

    def _insert_all(self, rows: list[tuple[Any, ...]], small: list[Any], batch: Batch, totals: Totals) -> None:
        cursor, insert = self._connection.connection.cursor(), self._insert
        self._check_epoch(cursor)
        run_many(cursor, insert.blob, small)
        run_many(cursor, insert.candidate, [_candidate_row(*each) for each in batch.candidates.values()])
        run_many(cursor, insert.event, rows)
        run_many(cursor, insert.observation, totals.observations)
        run_many(cursor, insert.tally, [tally.row(escape(name)) for name, tally in totals.tallies.items()])
        run_many(cursor, insert.spend, totals.spend_rows())
        run_many(cursor, insert.counter, [(*key, value) for key, value in totals.counters.items() if value])

    def _check_epoch(self, cursor: Any) -> None:
        cursor.execute(self._fence)
        if cursor.fetchone() != (self._epoch,):
            raise RunLocked(
                f"another process took this run over: {owner(self._run_dir) or 'it is gone by now'}",
                where=str(self._run_dir),
                fix="stop this process; the other one goes on",
            )

    def _last_mark(self) -> int:
        """Evaluations at the newest point of the progress series."""
        return self._connection.execute(select(func.max(schema.progress.c.evaluations))).scalar() or 0

    def _mark(self, event: Event, evaluations: int) -> int:
        """Add a point to the progress series if it is time; returns the evaluations of the last point."""
        ended = event.entry.kind == "state"
        if evaluations == self._marked or (evaluations < self._marked + max(4, evaluations // _SPARSE) and not ended):
            return self._marked
        best = leader(self._connection, self._direction)
        if best is not None:
            row = (event.seq, evaluations, event.entry.elapsed, best.candidate, best.value, best.count)
            run_many(self._connection.connection.cursor(), self._insert.progress, [row])
        return evaluations


def make(connection: Connection, meta: RunMeta) -> None:
    """The tables of a new run."""
    schema.metadata.create_all(connection)
    connection.execute(insert(schema.version).values(version_num=schema.REVISION))
    connection.execute(insert(schema.run).values(id=1, format=meta.format, epoch=0, meta=encode(meta)))


def _row(entry: Entry, seq: int, now: float, batch: Batch) -> tuple[tuple[Any, ...], Event]:
    shape = raw = data = None
    result, body = entry.result, entry.body
    if body:
        body = store_body(body, seq, batch)
    if result is not None:
        shape, raw, data, result = store(result, seq, batch)
    if result is not entry.result or body is not entry.body:
        entry = Entry(entry.kind, entry.key, entry.mark, entry.effect, body, result, entry.elapsed)
    row = (
        seq,
        now,
        entry.kind,
        escape(entry.effect),
        _topic(entry),
        entry.key,
        escape(entry.mark),
        entry.elapsed,
        shape,
        encode(body) if body else None,
        raw,
        data,
    )
    return row, Event(seq, now, entry)


def _topic(entry: Entry) -> str | None:
    if entry.kind in ("started", "done"):
        return None
    return escape(str(entry.body.get(entry.kind, "")))


def _candidate_row(candidate: Any, sha: bytes, seq: int) -> tuple[Any, ...]:
    return (
        escape(candidate.id),
        candidate.digest,
        seq,
        sha,
        escape(" ".join(candidate.parents)),
        escape(candidate.origin.operator),
        escape(candidate.origin.model),
        encode(candidate.origin),
    )


def _in_flight(before: set[int], entries: Sequence[Entry]) -> set[int]:
    """Keys started and not done in this session; a new session and a stop leave nothing in flight."""
    keys = set(before)
    for entry in entries:
        if entry.kind == "started":
            keys.add(entry.key)
        elif entry.kind == "done":
            keys.discard(entry.key)
        elif entry.kind == "stop" or (entry.kind == "state" and entry.body.get("state") in ("running", "finished")):
            keys.clear()
    return keys
