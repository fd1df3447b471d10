"""The hash chain over a run's events, and the check by which a journal vouches for itself.

The hash of event n covers the hash of event n - 1 and all other columns of row n of `event`. The
first hash covers `seal.origin`, random bytes of the run, so that rows of another run do not fit.
`seal` has the place and hash of the last event, and the hash of the run's settings.
Tables that views read in place of events are compared with the events: `observation` row by row,
the counts, means and spreads of `tally` and the numbers of `counter` by adding them up again.

A chain without a secret shows changes by anybody who does not compute it anew.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from culmen.core.errors import JournalDamaged
from culmen.store.address import read_pointer
from culmen.store.codec import Blobs, decode_value, escape_text
from culmen.store.reader import EventRow, blobs_in, translate_decode_errors
from culmen.store.sql import Connection

SIZE = 16
"""Bytes of a hash."""


Row = tuple[Any, ...]
"""An event, its hash and what `observation` has of it, as a database gives them."""


class Seal(NamedTuple):
    """The row of `seal`: where the chain begins, and where it ends."""

    origin: bytes
    seq: int
    hash: bytes
    settings: bytes


class JournalAltered(JournalDamaged):
    """The journal is readable, but it is not what culmen wrote.

    Events before `seq` are as written.
    """

    def __init__(self, what: str, run_dir: Path, seq: int) -> None:
        address = read_pointer(run_dir)
        saved = f"culmen runs recover {run_dir}  (saves the first {seq - 1} events into a new run)"
        fix = saved if address is None else "restore the database from the server's own backups"
        super().__init__(what, where=address or run_dir, fix=fix)
        self.seq = seq


def link_hash(previous: bytes, row: EventRow) -> bytes:
    """The hash of an event: of the hash before it and of its row, as any database returns it."""
    return hashlib.blake2b(_link_content(previous, row), digest_size=SIZE).digest()


def _link_content(previous: bytes, row: EventRow) -> bytes:
    seq, when, kind, effect, topic, key, mark, elapsed, shape, body, result, data = row
    columns = (seq, float(when), kind, effect, topic, key, mark, elapsed + 0.0, shape)
    return msgspec.msgpack.encode((previous, *columns, body, result, data))


def read_contents(connection: Connection) -> Iterator[bytes]:
    """The content of each event's hash, in order, without the hash of the event before."""
    for rows in _pages(connection):
        for row in rows:
            # bytes of MessagePack before the first column, if the hash before is empty
            yield _link_content(b"", row[:_EVENT])[3:]


def settings_hash(meta: bytes) -> bytes:
    """The hash of a run's settings in stored form."""
    return hashlib.blake2b(meta, digest_size=SIZE).digest()


def new_seal(meta: bytes) -> Seal:
    """The seal of a run without events."""
    origin = os.urandom(SIZE)
    return Seal(origin, 0, origin, settings_hash(meta))


def read_seal(connection: Connection) -> Seal | None:
    """The seal of a run; None if it was lost."""
    row = connection.execute("SELECT origin, seq, hash, settings FROM seal").first()
    return None if row is None else Seal(*row)


def check_journal(connection: Connection) -> None:
    """Read the whole journal; raise `JournalAltered` unless it is as culmen wrote it."""
    seal = read_seal(connection)
    if seal is None:
        last = connection.execute("SELECT max(seq) FROM event WHERE hash IS NOT NULL").scalar() or 0
        what = "the record of the journal's last event is missing"
        raise JournalAltered(what, connection.folder, last + 1)
    meta = connection.execute("SELECT meta FROM run").scalar()
    if meta is None or settings_hash(meta) != seal.settings:
        what = "the run's settings were changed by another program"
        raise JournalAltered(what, connection.folder, seal.seq + 1)
    kinds = _check_events(connection, seal)
    if what := _wrong_sum(connection, kinds):
        raise JournalAltered(what, connection.folder, seal.seq + 1)


def count_intact_events(connection: Connection) -> int | None:
    """The number of events up to the first whose hash does not fit; None if no hash is left."""
    seal = read_seal(connection)
    if seal is None or connection.execute(_HASHED).first() is None:
        return None
    previous, last = seal.origin, 0
    for rows in _pages(connection):
        for row in rows:
            if row[0] != last + 1 or link_hash(previous, row[:_EVENT]) != row[_HASH]:
                return last
            last, previous = row[0], row[_HASH]
    return last


_QUERY = (
    "SELECT e.seq, e.time, e.kind, e.effect, e.topic, e.key, e.mark, e.elapsed, e.shape, e.body, "
    "e.result, e.data, e.hash, o.candidate, o.score, o.status, o.phase FROM event e "
    "LEFT JOIN observation o ON o.seq = e.seq "
    "WHERE e.seq > {mark} ORDER BY e.seq LIMIT {mark}"
)
_HASHED = "SELECT seq FROM event WHERE hash IS NOT NULL LIMIT 1"
_EVENT, _HASH = 12, 12  # columns of an event, and the place of its hash behind them


class _Scored(msgspec.Struct):
    """The parts of a stored observation that its row repeats."""

    candidate: str
    status: str
    score: float | None = None


class _Phase(msgspec.Struct):
    phase: str = ""


def _pages(connection: Connection) -> Iterator[Sequence[Row]]:
    query = _QUERY.format(mark=connection.dialect.mark)
    cursor, after = connection.cursor(), 0
    while True:
        cursor.execute(query, (after, 500))  # events read at once
        rows = cursor.fetchall()
        if not rows:
            return
        yield rows
        after = rows[-1][0]


def _check_events(connection: Connection, seal: Seal) -> Counter[str]:
    """Check every event; returns how many of each kind there are."""
    previous, last, kinds = seal.origin, 0, Counter[str]()
    blobs = blobs_in(connection)
    for rows in _pages(connection):
        for place, row in enumerate(rows):
            last += 1
            if row[0] != last:
                what = f"event {last} of the journal is missing"
                raise JournalAltered(what, connection.folder, last)
            previous = link_hash(previous, row[:_EVENT])
            if previous != row[_HASH]:
                what = _difference(row, rows[place + 1 : place + 2], seal)
                raise JournalAltered(what, connection.folder, last)
            with translate_decode_errors(connection.folder):
                if not _has_its_score(row, blobs):
                    what = f"the score kept of event {last} is not the one in the event"
                    raise JournalAltered(what, connection.folder, seal.seq + 1)
            kinds[row[2]] += 1
    what = ""
    if last < seal.seq:
        what = f"the journal ends at event {last}, but {seal.seq} were written"
    elif last > seal.seq:
        what = f"event {seal.seq + 1} was added by another program"
    elif previous != seal.hash:
        what = f"the hash recorded for the last event, {last}, is not its own"
    if what:
        raise JournalAltered(what, connection.folder, min(last, seal.seq) + 1)
    return kinds


def _difference(row: Row, following: Sequence[Row], seal: Seal) -> str:
    """A sentence about an event whose hash differs: its content, if the hash itself fits."""
    seq, stored = row[0], row[_HASH]
    if stored is None:
        return f"event {seq} has no hash: another program added it, or removed the hash"
    fits = (seq, stored) == (seal.seq, seal.hash) or (
        bool(following) and link_hash(stored, following[0][:_EVENT]) == following[0][_HASH]
    )
    if fits:
        return f"event {seq} was changed after it was written"
    return f"event {seq} is not the one that was written after event {seq - 1}"


def _has_its_score(row: Row, blobs: Blobs) -> bool:
    """True if the row of `observation` repeats what the event holds; others have none."""
    kind, shape, body, raw = row[2], row[8], row[9], row[10]
    candidate, score, status, phase = row[_HASH + 1 :]
    if shape != "observation" or kind != "done" or candidate is None:
        return candidate is None and (shape != "observation" or kind != "done")
    if raw[:5] == b"blob:":
        sha = bytes.fromhex(raw[5:].decode())
        raw = blobs.get([sha])[sha]
    event = decode_value(raw, _Scored)
    wanted = decode_value(body, _Phase).phase if body else ""
    return (
        candidate == escape_text(event.candidate)
        and score == event.score
        and status == event.status
        and phase == escape_text(wanted)
    )


def _wrong_sum(connection: Connection, kinds: Counter[str]) -> str:
    """A sentence about sums that views show and that are not those of their rows; "" if all are."""
    query = "SELECT scope, name, value FROM counter WHERE scope IN ('kind', 'status')"
    rows = connection.execute(query).all()
    known = {scope: {n: v for s, n, v in rows if s == scope} for scope in ("kind", "status")}
    statuses = connection.execute("SELECT status, count(*) FROM observation GROUP BY status").all()
    if known != {"kind": dict(kinds), "status": {name: count for name, count in statuses}}:
        return "the numbers of events and evaluations kept are not those of the events"
    if wrong := connection.execute(_TALLIES).first():
        return f"the scores kept of candidate {wrong[0]} do not add up to its evaluations"
    return ""


# Rows of `tally` that differ from their evaluations. A candidate may have one without any, and sums
# made in another order have a rounding error of the size of the scores. PostgreSQL refuses squares
# that are too small for it.
_TALLIES = """
SELECT t.candidate FROM tally t LEFT JOIN (
  SELECT o.candidate, count(o.score) AS n, avg(o.score) AS mean, max(abs(o.score)) AS size,
         sum(o.score * o.score) AS squares,
         sum(CASE WHEN o.score IS NULL AND o.status <> 'lost' AND o.culprit IN ('', 'candidate')
             THEN 1 ELSE 0 END) AS bad
  FROM (SELECT candidate, status, culprit, CASE WHEN abs(score) < 1e-100 THEN 0 ELSE score END
        AS score FROM observation WHERE phase = '') o GROUP BY o.candidate
) s ON s.candidate = t.candidate
WHERE t.count <> coalesce(s.n, 0) OR abs(t.mean - coalesce(s.mean, 0)) > 1e-6 * (1 + s.size)
   OR abs(t.spread - (s.squares - s.n * s.mean * s.mean)) > 1e-6 * (1 + s.n * s.size * s.size)
   OR t.failed <> coalesce(s.bad, 0)
UNION ALL
SELECT o.candidate FROM observation o LEFT JOIN tally t ON t.candidate = o.candidate
WHERE t.candidate IS NULL AND o.phase = ''
LIMIT 1
"""
