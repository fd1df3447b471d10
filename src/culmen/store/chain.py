"""The hash chain over a run's events, and the checks by which a journal vouches for itself.

The hash of event n covers the hash of event n - 1 and all columns of row n of `event`; it is row n
of `link`. The first hash covers `seal.origin`, random bytes of the run, so that rows of another run
do not fit. `seal` has the place and hash of the last event, and the hash of the run's settings.
Tables that views read in place of events are compared with the events: `observation` row by row,
the counts, means and spreads of `tally` and the numbers of `counter` by adding them up again.

A chain without a secret shows changes by anybody who does not compute it anew. What was checked is
remembered outside of the run, so a journal that nobody has touched since is not read again.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from culmen.core.errors import JournalDamaged, UserError
from culmen.store import sql
from culmen.store.address import FILE, cache_dir, read_pointer
from culmen.store.codec import Blobs, decode_value, escape_text
from culmen.store.database import open_snapshot
from culmen.store.lease import current_owner
from culmen.store.packs import altered_column
from culmen.store.reader import EventRow, lookup_in, translate_decode_errors

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from culmen.store.packs import Row

SIZE = 16
"""Bytes of a hash."""

_PAGE = 500  # events read at once
FEW = 5_000
"""Events that are rather read again than remembered in a file: some 25 ms."""

OFTEN = 50_000
"""Events after which a writer remembers its place in a file."""


class Seal(NamedTuple):
    """The row of `seal`: where the chain begins and where it ends.

    `since` is the first event with a hash: those before it were written by an older culmen.
    """

    origin: bytes
    since: int
    seq: int
    hash: bytes
    settings: bytes


class JournalAltered(JournalDamaged):
    """The journal is readable, but it is not what culmen wrote.

    Events before `seq` are as written.
    """

    def __init__(self, what: str, run_dir: Path, seq: int) -> None:
        address = read_pointer(run_dir)
        saved = f"culmen recover {run_dir}  (saves the first {seq - 1} events into a new run)"
        fix = saved if address is None else "restore the database from the server's own backups"
        super().__init__(what, where=str(address or run_dir), fix=fix)
        self.seq = seq


def link_hash(previous: bytes, row: EventRow) -> bytes:
    """The hash of an event: of the hash before it and of its row, as any database returns it."""
    seq, when, kind, effect, topic, key, mark, elapsed, shape, body, result, data = row
    columns = (seq, float(when), kind, effect, topic, key, mark, elapsed + 0.0, shape)
    content = msgspec.msgpack.encode((previous, *columns, body, result, data))
    return hashlib.blake2b(content, digest_size=SIZE).digest()


def settings_hash(meta: bytes) -> bytes:
    """The hash of a run's settings in stored form."""
    return hashlib.blake2b(meta, digest_size=SIZE).digest()


def new_seal(last: int, meta: bytes) -> Seal:
    """The seal of a run whose chain begins after event `last`."""
    origin = os.urandom(SIZE)
    return Seal(origin, last + 1, last, origin, settings_hash(meta))


def read_seal(connection: Connection) -> Seal | None:
    """The seal of a run; None for a run that an older culmen wrote."""
    s = sql.seal.c
    row = connection.execute(sql.select(s.origin, s.since, s.seq, s.hash, s.settings)).one_or_none()
    return None if row is None else Seal(*row)


# What was checked before, in this process and in files of the user's cache.


class Checked(msgspec.Struct, frozen=True):
    """A journal that was found whole up to event `seq`.

    `state` are sizes and times of its files then; [] if it was being written.
    """

    origin: bytes
    seq: int
    hash: bytes
    state: list[object] = []


_known: dict[str, Checked] = {}


def _checked_file(name: str) -> Path:
    return cache_dir() / "checked" / hashlib.sha256(name.encode()).hexdigest()[:32]


def _name_of(run_dir: Path) -> str:
    return str(read_pointer(run_dir) or run_dir.absolute())


def remember(run_dir: Path, checked: Checked) -> None:
    """Remember a check; in a file if it would take long to repeat."""
    name = _name_of(run_dir)
    before = _known.get(name)
    _known[name] = checked
    if checked.seq < FEW or (before is not None and before == checked):
        return
    with suppress(OSError, UserError):  # without a cache the journal is read again
        file = _checked_file(name)
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_name(f".{file.name}.{os.getpid()}")
        part.write_bytes(msgspec.msgpack.encode(checked))
        part.replace(file)


def _recall(run_dir: Path, seal: Seal) -> Checked | None:
    """The last check of this run, here or in another process; None without one."""
    name = _name_of(run_dir)
    found = _known.get(name)
    if found is None:
        with suppress(OSError, UserError, msgspec.DecodeError):
            found = msgspec.msgpack.decode(_checked_file(name).read_bytes(), type=Checked)
    return found if found is not None and found.origin == seal.origin else None


def journal_state(run_dir: Path) -> list[object]:
    """Sizes and times of a journal's files; [] for a run in a database."""
    facts: list[object] = []
    if read_pointer(run_dir) is None:
        for path in (run_dir / FILE, run_dir / f"{FILE}-wal"):
            with suppress(FileNotFoundError):
                stat = path.stat()  # the time of a change (ctime) cannot be set by a program
                facts += [stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]
    return facts


# The checks.


@contextmanager
def open_checked(run_dir: Path) -> Iterator[Connection]:
    """A snapshot of a run for reading, checked; raises `JournalAltered`."""
    state, live = journal_state(run_dir), current_owner(run_dir) is not None
    with open_snapshot(run_dir) as connection:
        check_journal(connection, run_dir, state, live=live)
        yield connection


def check_journal(
    connection: Connection, run_dir: Path, state: list[object], *, live: bool = False
) -> None:
    """Raise `JournalAltered` unless the journal is as culmen wrote it.

    `state` are its files' sizes and times before the connection was opened (`journal_state`). A
    journal with the state of the last check is not read. Of one that is being written (`live`), or
    is in a database, the events after that check are; of any other, all.
    """
    seal = read_seal(connection)
    if seal is None:
        return _check_unsealed(connection, run_dir)
    _check_settings(connection, run_dir, seal)
    before = _recall(run_dir, seal)
    is_same = before is not None and (before.seq, before.hash) == (seal.seq, seal.hash)
    if before is not None and is_same and state and before.state == state:
        return
    grows = before is not None and (live or read_pointer(run_dir) is not None)
    if before is not None and grows:
        _compare_with_memory(connection, run_dir, seal, before)
        _check_events(connection, run_dir, seal, before)
    else:
        kinds = _check_events(connection, run_dir, seal, Checked(b"", 0, seal.origin))
        _check_counts(connection, run_dir, seal, kinds)
        if before is not None:
            _compare_with_memory(connection, run_dir, seal, before)
    remember(run_dir, Checked(seal.origin, seal.seq, seal.hash, [] if live else state))


def _compare_with_memory(
    connection: Connection, run_dir: Path, seal: Seal, before: Checked
) -> None:
    """Raise `JournalAltered` if the journal does not begin with what was checked before."""
    if before.seq > seal.seq:
        what = f"the journal ends at event {seal.seq}, but had {before.seq} when last looked at"
        raise JournalAltered(what, run_dir, seal.seq + 1)
    known = sql.select(sql.link.c.hash).where(sql.link.c.seq == before.seq)
    if before.seq >= seal.since and connection.execute(known).scalar() != before.hash:
        what = f"the journal up to event {before.seq} is not the one last looked at"
        raise JournalAltered(what, run_dir, seal.seq + 1)


def check_before_writing(connection: Connection, run_dir: Path, state: list[object]) -> None:
    """`check_journal` for whoever is about to write; a run in a database is read whole."""
    if read_pointer(run_dir) is None:
        check_journal(connection, run_dir, state)
    else:
        check_whole(connection, run_dir)


def check_whole(connection: Connection, run_dir: Path) -> None:
    """Raise `JournalAltered` unless the journal is as culmen wrote it; read all of it."""
    seal = read_seal(connection)
    if seal is None:
        return _check_unsealed(connection, run_dir)
    _check_settings(connection, run_dir, seal)
    kinds = _check_events(connection, run_dir, seal, Checked(b"", 0, seal.origin))
    return _check_counts(connection, run_dir, seal, kinds)


def _check_unsealed(connection: Connection, run_dir: Path) -> None:
    """A run of an older culmen has no seal, and no hash of any event either."""
    last = connection.execute(sql.select(sql.func.max(sql.link.c.seq))).scalar()
    if last is not None:
        what = "the record of the journal's last event is missing"
        raise JournalAltered(what, run_dir, last + 1)


def _check_settings(connection: Connection, run_dir: Path, seal: Seal) -> None:
    meta = connection.execute(sql.select(sql.run.c.meta)).scalar()
    if meta is None or settings_hash(meta) != seal.settings:
        what = "the run's settings were changed by another program"
        raise JournalAltered(what, run_dir, seal.seq + 1)


_MARK = {"sqlite": "?", "postgresql": "%s"}
_QUERY = (
    "SELECT e.seq, e.time, e.kind, e.effect, e.topic, e.key, e.mark, e.elapsed, e.shape, e.body, "
    "e.result, e.data, l.hash, o.candidate, o.score, o.status, o.phase FROM event e "
    "LEFT JOIN link l ON l.seq = e.seq LEFT JOIN observation o ON o.seq = e.seq "
    "WHERE e.seq > {mark} ORDER BY e.seq LIMIT {mark}"
)
_EVENT, _HASH = 12, 12  # columns of an event, and the place of its hash behind them


class _Scored(msgspec.Struct):
    """The parts of a stored observation that its row repeats."""

    candidate: str
    status: str
    score: float | None = None


class _Phase(msgspec.Struct):
    phase: str = ""


def _check_events(
    connection: Connection, run_dir: Path, seal: Seal, start: Checked
) -> Counter[str]:
    """Check the events after `start`; returns how many of each kind there are."""
    previous, last, kinds = start.hash, start.seq, Counter[str]()
    blobs = Blobs(run_dir / "blobs", lookup_in(connection))
    for rows in _pages(connection, last):
        for place, row in enumerate(rows):
            if row[0] != last + 1:
                what = f"event {last + 1} of the journal is missing"
                raise JournalAltered(what, run_dir, last + 1)
            last = row[0]
            previous = _next_hash(previous, row, rows[place + 1 : place + 2], run_dir, seal)
            with translate_decode_errors(run_dir):
                if not _has_its_score(row, blobs):
                    what = f"the score kept of event {last} is not the one in the event"
                    raise JournalAltered(what, run_dir, seal.seq + 1)
            kinds[row[2]] += 1
    what = ""
    if last < seal.seq:
        what = f"the journal ends at event {last}, but {seal.seq} were written"
    elif last > seal.seq:
        what = f"event {seal.seq + 1} was added by another program"
    elif previous != seal.hash:
        what = f"the hash recorded for the last event, {last}, is not its own"
    if what:
        raise JournalAltered(what, run_dir, min(last, seal.seq) + 1)
    return kinds


def _next_hash(
    previous: bytes, row: Row, following: Sequence[Row], run_dir: Path, seal: Seal
) -> bytes:
    """The hash of an event, compared with the stored one; an event before the chain has none."""
    seq, stored = row[0], row[_HASH]
    if seq < seal.since:
        if stored is not None:
            raise JournalAltered(f"event {seq} was added by another program", run_dir, seq)
        return previous
    found = link_hash(previous, row[:_EVENT])
    if found != stored:
        raise JournalAltered(_difference(row, following, seal), run_dir, seq)
    return found


def _pages(connection: Connection, after: int) -> Iterator[Sequence[Row]]:
    query = _QUERY.format(mark=_MARK[connection.dialect.name])
    cursor = connection.connection.cursor()
    while True:
        cursor.execute(query, (after, _PAGE))
        rows = cursor.fetchall()
        if not rows:
            return
        yield rows
        after = rows[-1][0]


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


def _check_counts(connection: Connection, run_dir: Path, seal: Seal, kinds: Counter[str]) -> None:
    """Compare the sums that views show with the rows that they are sums of."""
    query = sql.select(sql.counter.c.scope, sql.counter.c.name, sql.counter.c.value)
    rows = connection.execute(query.where(sql.counter.c.scope.in_(("kind", "status")))).all()
    known = {scope: {n: v for s, n, v in rows if s == scope} for scope in ("kind", "status")}
    o = sql.observation.c
    statuses = connection.execute(sql.select(o.status, sql.func.count()).group_by(o.status)).all()
    if known != {"kind": dict(kinds), "status": {name: count for name, count in statuses}}:
        what = "the numbers of events and evaluations kept are not those of the events"
        raise JournalAltered(what, run_dir, seal.seq + 1)
    wrong = connection.execute(sql.text(_TALLIES if seal.since == 1 else _SCORES)).first()
    if wrong is not None:
        what = f"the scores kept of candidate {wrong[0]} do not add up to its evaluations"
        raise JournalAltered(what, run_dir, seal.seq + 1)
    if column := altered_column(connection):
        what = f"the packed column {column} is not that of its rows"
        raise JournalAltered(what, run_dir, seal.seq + 1)


# Rows of `tally` that differ from their evaluations. A candidate may have one without any, and sums
# made in another order have a rounding error of the size of the scores. Older culmens counted
# failures by other rules.
_SCORES = """
SELECT t.candidate FROM tally t LEFT JOIN (
  SELECT o.candidate, count(o.score) AS n, avg(o.score) AS mean, max(abs(o.score)) AS size,
         sum(o.score * o.score) AS squares,
         sum(CASE WHEN o.score IS NULL AND o.status <> 'lost' AND o.culprit IN ('', 'candidate')
             THEN 1 ELSE 0 END) AS bad
  FROM observation o WHERE o.phase = '' GROUP BY o.candidate
) s ON s.candidate = t.candidate
WHERE t.count <> coalesce(s.n, 0) OR abs(t.mean - coalesce(s.mean, 0)) > 1e-6 * (1 + s.size)
   OR abs(t.spread - (s.squares - s.n * s.mean * s.mean)) > 1e-6 * (1 + s.n * s.size * s.size)
"""
_TALLIES = f"""{_SCORES} OR t.failed <> coalesce(s.bad, 0)
UNION ALL
SELECT o.candidate FROM observation o LEFT JOIN tally t ON t.candidate = o.candidate
WHERE t.candidate IS NULL AND o.phase = ''
LIMIT 1
"""


def count_intact_events(connection: Connection) -> int | None:
    """The number of events up to the first whose hash does not fit; None without a chain."""
    seal = read_seal(connection)
    if seal is None or connection.execute(sql.select(sql.link.c.seq).limit(1)).first() is None:
        return None
    previous, last = seal.origin, 0
    for rows in _pages(connection, 0):
        for row in rows:
            known = row[0] < seal.since or link_hash(previous, row[:_EVENT]) == row[_HASH]
            if row[0] != last + 1 or not known:
                return last
            last, previous = row[0], row[_HASH] or previous
    return last
