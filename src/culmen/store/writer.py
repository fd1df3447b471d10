"""The connection that writes a run: lock, epoch, and the work of one append."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from culmen.core.admissions import ADMISSION
from culmen.core.brief import NOTED, SERVER_ERROR, Proposal, Text
from culmen.core.candidate import Candidate
from culmen.core.errors import RunLocked, Unavailable
from culmen.core.evaluation import LEVELS, Observation, Status, culprit_of, is_excused, trust_rank
from culmen.core.event import Edits, Entry, Event
from culmen.core.usage import Usage, total_usage
from culmen.store import chain
from culmen.store.codec import (
    INLINE,
    Packer,
    RowBatch,
    check_entry,
    compress,
    encode_value,
    escape_text,
    store_body,
    store_result,
)
from culmen.store.database import (
    RunMeta,
    WriteLease,
    check_format,
    pack_meta,
    read_meta,
    translate_errors,
)
from culmen.store.lease import current_owner, take_lease
from culmen.store.reader import EventRow, blobs_in, gap_error, read_page
from culmen.store.schema import FORMAT, MARKS, TABLES, create_tables, is_mark_due
from culmen.store.sql import Connection, Dialect, insert_into, insert_rows

Standing = Callable[[], tuple[str, float, int] | None]
"""Id, score and number of evaluations of a search's leader; None before a first score."""


class JournalWriter:
    """A lease on the run and its connection; usable from any thread, one at a time."""

    def __init__(self, run_dir: Path, lease: WriteLease) -> None:
        self._run_dir, self._lease, self._connection, self._lost = (
            run_dir,
            lease,
            lease.connection,
            False,
        )
        self._connection.folder = run_dir
        self._blobs = blobs_in(self._connection)
        self._insert = Inserts(self._connection.dialect)
        self._epoch = self._last = self._evaluations = self._marked = self._shown_in_flight = 0
        self._in_flight: set[int] = set()
        self._hash, self._packer = b"", Packer()
        self.standing: Standing | None = None  # of the search that writes

    @classmethod
    def open(cls, run_dir: Path, meta: RunMeta | None = None) -> tuple[JournalWriter, RunMeta]:
        """Take the run over for writing; with `meta`, make its tables first.

        Raises `RunLocked` or `JournalDamaged`.
        """
        with translate_errors(run_dir):
            lease = take_lease(
                run_dir, None if meta is None else lambda connection: make_tables(connection, meta)
            )
            try:
                writer = cls(run_dir, lease)
                return writer, writer._take_over()
            except BaseException:
                lease.close()
                raise

    def append(self, entries: Sequence[Entry], times: Sequence[float] | None = None) -> list[Event]:
        """Append entries as `SqlJournal.append` does; `times` are Unix seconds (default: now)."""
        for entry in entries:
            check_entry(entry)
        times = times or [time.time()] * len(entries)
        batch, totals = RowBatch(), Totals()
        rows: list[EventRow] = []
        events: list[Event] = []
        hashes: list[bytes] = []
        for seq, (entry, when) in enumerate(zip(entries, times), self._last + 1):
            row, event = _event_row(entry, seq, when, batch)
            rows.append(row)
            hashes.append(chain.link_hash(hashes[-1] if hashes else self._hash, row))
            events.append(event)
            totals.count_entry(entry, seq)
        in_flight = _in_flight(self._in_flight, entries)
        totals.counters["session", "in_flight"] = len(in_flight) - self._shown_in_flight
        evaluations = self._evaluations + len(totals.observations)
        with self._write_context() as regained:
            stored = self._stored_events(rows) if regained else []
            packer = Packer.load(self._connection) if regained else self._packer.copy()
            due = self._is_mark_due(events[-1], evaluations)
            with self._connection.begin():
                if stored:
                    marked, hashes = self._last_mark(), [self._last_hash()]
                else:
                    self._insert_all(rows, hashes, self._put_files(batch), packer, batch, totals)
                    marked = self._add_mark(events[-1], evaluations) if due else self._marked
        events = stored or events
        self._last, self._evaluations, self._marked = events[-1].seq, evaluations, marked
        self._in_flight, self._shown_in_flight = in_flight, len(in_flight)
        self._hash, self._packer = hashes[-1], packer
        return events

    def save_meta(self, meta: RunMeta) -> None:
        """Replace the run's settings."""
        with self._write_context(), self._connection.begin():
            self._check_epoch()
            packed = pack_meta(meta)
            settings = chain.settings_hash(packed)
            self._connection.execute("UPDATE run SET meta = :meta", meta=packed)
            self._connection.execute("UPDATE seal SET settings = :settings", settings=settings)

    def close(self) -> None:
        """Release the run."""
        self._lease.close()

    @contextmanager
    def _write_context(self) -> Iterator[bool]:
        """The context of one transaction; yields True if the connection was renewed.

        A lost connection is made again first: the run may still belong to this writer.
        """
        try:
            with translate_errors(self._run_dir):
                regained = self._lost
                if regained:
                    self._connection = self._lease.renew()
                    self._connection.folder = self._run_dir
                    self._lost = False
                yield regained
        except Unavailable:
            self._lost = not self._lease.files
            raise

    def _stored_events(self, rows: Sequence[EventRow]) -> list[Event]:
        """The stored events of an append whose commit was not acknowledged.

        [] if the commit never reached the database.
        """
        with self._connection.begin():
            self._check_epoch()
            stored = read_page(self._connection, self._last, len(rows) + 1)
        stored_keys = [
            (event.entry.kind, event.entry.key, escape_text(event.entry.mark)) for event in stored
        ]
        if stored and stored_keys != [(row[2], row[5], row[6]) for row in rows]:
            raise gap_error(self._last + 1, self._run_dir)
        return stored

    def _take_over(self) -> RunMeta:
        """Raise the epoch, which locks out earlier owners, and load the state for appends.

        The journal is checked first.
        """
        with self._connection.begin():
            check_format(self._connection)
            chain.check_journal(self._connection)
            self._connection.execute("UPDATE run SET epoch = epoch + 1")
            self._epoch = self._connection.execute("SELECT epoch FROM run").scalar()
            meta = read_meta(self._connection)
            self._last = self._connection.execute("SELECT max(seq) FROM event").scalar() or 0
            rows = self._connection.execute("SELECT scope, name, value FROM counter")
            counters = {(scope, name): value for scope, name, value in rows}
            self._marked = self._last_mark()
            self._hash = self._last_hash()
            self._packer = Packer.load(self._connection)
        if sum(value for (scope, _), value in counters.items() if scope == "kind") != self._last:
            raise gap_error(self._last, self._run_dir)
        self._evaluations = sum(
            value for (scope, _), value in counters.items() if scope == "status"
        )
        self._shown_in_flight = counters.get(("session", "in_flight"), 0)
        return meta

    def _put_files(self, batch: RowBatch) -> list[tuple[bytes, str, bytes]]:
        """Write large blobs to files, durably; return the other blobs with their kinds."""
        small: list[tuple[bytes, str, bytes]] = []
        for sha, (kind, data) in batch.blobs.items():
            if self._lease.files and len(data) > INLINE:
                self._blobs.put_file(sha, data)
            else:
                small.append((sha, kind, data))
        return small

    def _insert_all(
        self,
        rows: list[EventRow],
        hashes: list[bytes],
        small: list[tuple[bytes, str, bytes]],
        packer: Packer,
        batch: RowBatch,
        totals: Totals,
    ) -> None:
        cursor, insert = self._connection.cursor(), self._insert
        self._check_epoch()
        insert_rows(
            cursor, insert.blob, [(sha, *packer.pack(kind, data)) for sha, kind, data in small]
        )
        added = [(each.number, each.kind, compress(each.text)) for each in packer.added]
        insert_rows(cursor, insert.dictionary, added)
        insert_rows(
            cursor, insert.candidate, [_candidate_row(*each) for each in batch.candidates.values()]
        )
        insert_rows(cursor, insert.event, [(*row, hash) for row, hash in zip(rows, hashes)])
        cursor.execute(insert.seal, (rows[-1][0], hashes[-1]))
        insert_rows(cursor, insert.observation, totals.observations)
        insert_rows(
            cursor,
            insert.tally,
            [tally.table_row(escape_text(name)) for name, tally in totals.tallies.items()],
        )
        insert_rows(cursor, insert.spend, totals.spend_rows())
        insert_rows(
            cursor,
            insert.counter,
            [(*key, value) for key, value in totals.counters.items() if value],
        )

    def _check_epoch(self) -> None:
        fence = f"SELECT epoch FROM run {self._connection.dialect.fence}"
        if self._connection.execute(fence).scalar() != self._epoch:
            raise RunLocked(
                "another process took this run over: "
                f"{current_owner(self._run_dir) or 'it is gone by now'}",
                where=str(self._run_dir),
                fix="stop this process; the other one continues",
            )

    def _last_hash(self) -> bytes:
        """The hash at the end of the chain."""
        return self._connection.execute("SELECT hash FROM seal").scalar()

    def _last_mark(self) -> int:
        """Evaluations at the newest point of the progress series."""
        return self._connection.execute("SELECT max(evaluations) FROM progress").scalar() or 0

    def _is_mark_due(self, event: Event, evaluations: int) -> bool:
        """True if a point of the progress series is due."""
        if self.standing is None:
            return False
        ended = event.entry.kind == "state"
        return evaluations != self._marked and (
            ended or is_mark_due(evaluations, self._marked, MARKS)
        )

    def _add_mark(self, event: Event, evaluations: int) -> int:
        """Add a point to the progress series; return its number of evaluations."""
        best = None if self.standing is None else self.standing()
        if best is not None:
            row = (event.seq, evaluations, event.entry.elapsed, escape_text(best[0]), *best[1:])
            insert_rows(self._connection.cursor(), self._insert.progress, [row])
        return evaluations


def make_tables(connection: Connection, meta: RunMeta) -> None:
    """Make the tables of a new run."""
    create_tables(connection)
    cursor, packed = connection.cursor(), pack_meta(meta)
    run = insert_into("run", TABLES["run"], connection.dialect)
    cursor.execute(run, (1, FORMAT, 0, packed))
    insert_seal(connection, chain.new_seal(packed))


def insert_seal(connection: Connection, seal: chain.Seal) -> None:
    """Insert the ends of the hash chain."""
    insert = insert_into("seal", TABLES["seal"], connection.dialect)
    connection.cursor().execute(insert, (1, *seal))


def _event_row(entry: Entry, seq: int, now: float, batch: RowBatch) -> tuple[EventRow, Event]:
    shape = raw = data = None
    result, body = entry.result, entry.body
    if body:
        body = store_body(body, seq, batch)
    if result is not None:
        shape, raw, data, result = store_result(result, seq, batch)
    if result is not entry.result or body is not entry.body:
        entry = Entry(entry.kind, entry.key, entry.mark, entry.effect, body, result, entry.elapsed)
    row = (
        seq,
        now,
        entry.kind,
        escape_text(entry.effect),
        _entry_topic(entry),
        entry.key,
        escape_text(entry.mark),
        entry.elapsed,
        shape,
        encode_value(body) if body else None,
        raw,
        data,
    )
    return row, Event(seq, now, entry)


def _entry_topic(entry: Entry) -> str | None:
    if entry.kind in ("started", "held", "done"):
        return None
    return escape_text(str(entry.body.get(entry.kind, "")))


def _candidate_row(candidate: Candidate, sha: bytes, seq: int) -> tuple[object, ...]:
    return (
        escape_text(candidate.id),
        candidate.digest,
        seq,
        sha,
        escape_text(" ".join(candidate.parents)),
        escape_text(candidate.origin.operator),
        escape_text(candidate.origin.model),
        encode_value(candidate.origin),
    )


def _in_flight(before: set[int], entries: Sequence[Entry]) -> set[int]:
    """Keys started and not done in this session.

    A new session and a stop leave none in flight.
    """
    keys = set(before)
    for entry in entries:
        if entry.kind == "started":
            keys.add(entry.key)
        elif entry.kind == "done":
            keys.discard(entry.key)
        elif entry.kind == "stop" or (
            entry.kind == "state" and entry.body.get("state") in ("running", "finished")
        ):
            keys.clear()
    return keys


# Sums kept beside the events, in the same transaction, so that views need not add up every event.

FAILURES = ("invalid", "error", "timeout", "rejected")


@dataclass(slots=True)
class ScoreTally:
    """One candidate's scores and failures within one append.

    `spread` is the sum of squared deviations from `mean`.
    """

    first: int
    count: int = 0
    mean: float = 0.0
    spread: float = 0.0
    failures: Counter[str] = field(default_factory=Counter[str])
    asked: int = 0
    accepted: int = 0
    strict: int = 0
    barred: int = 0
    low: float | None = None
    high: float | None = None
    grave: int | None = None
    trust: int | None = None

    def add(self, observation: Observation, seq: int, final: bool) -> None:
        """Add the observation of event `seq` (Welford's update).

        Scores of the `final` choice are kept out of the search's; of these, only certified values,
        signs and levels of trust are counted.
        """
        if observation.strict is not None or observation.signs:
            self._add_judgement(observation, seq)
        if final and observation.score is None:
            return
        if observation.score is None:
            excused = is_excused(observation)  # not a failure of the candidate
            self.failures["lost" if excused else observation.status.value] += 1
            return
        weakness = trust_rank(observation.trust) if observation.trust in LEVELS else trust_rank("")
        if self.trust is None or weakness > self.trust:
            self.trust = weakness
        if final:
            return
        self.count += 1
        delta = observation.score - self.mean
        self.mean += delta / self.count
        self.spread += delta * (observation.score - self.mean)

    def _add_judgement(self, observation: Observation, seq: int) -> None:
        """Add the results of the verifier and of the guard."""
        self.barred += observation.bars_candidate
        if self.grave is None and observation.grave_sign is not None:
            self.grave = seq
        if observation.strict is None or observation.bars_candidate:
            return
        self.asked += 1
        self.strict += observation.strict
        if (value := observation.certified) is not None:
            self.accepted += 1
            self.low = value if self.low is None else min(self.low, value)
            self.high = value if self.high is None else max(self.high, value)

    def mark_confessed(self, seq: int) -> None:
        """Mark the candidate as grave: its agent admitted to gaming the evaluator."""
        self.grave = seq if self.grave is None else self.grave

    def table_row(self, candidate: str) -> tuple[object, ...]:
        """The tally as a row, in the order of the table's columns."""
        failures = [self.failures[name] for name in FAILURES]
        scores = (
            candidate,
            self.count,
            self.mean,
            self.spread,
            sum(failures),
            *failures,
            self.failures["lost"],
            self.first,
        )
        judged = (
            self.asked,
            self.accepted,
            self.strict,
            self.barred,
            self.low,
            self.high,
            self.grave,
            self.trust,
        )
        return scores + judged


@dataclass(slots=True)
class Totals:
    """Additions of one append to the tables of sums."""

    observations: list[tuple[object, ...]] = field(default_factory=list[tuple[object, ...]])
    tallies: dict[str, ScoreTally] = field(default_factory=dict[str, ScoreTally])
    spent: dict[tuple[str, str, str], list[float]] = field(
        default_factory=dict[tuple[str, str, str], list[float]]
    )
    counters: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])

    def count_entry(self, entry: Entry, seq: int) -> None:
        """Count one entry."""
        self.counters["kind", entry.kind] += 1
        if entry.kind == "done":
            if isinstance(entry.result, Observation):
                self._count_observation(entry, entry.result, seq)
            self._count_effect(entry)
        elif entry.kind == "note" and entry.body.get("note") == ADMISSION:
            for candidate in entry.body.get("candidates", ()):
                self.tallies.setdefault(candidate, ScoreTally(seq)).mark_confessed(seq)
        elif entry.kind == "torn" and (usage := entry.body.get("usage")):
            self._add_usage(("torn", "", ""), msgspec.convert(usage, Usage))

    def spend_rows(self) -> list[tuple[object, ...]]:
        """Rows of the table `spend`, in the order of its columns."""
        return [(*key, *values) for key, values in self.spent.items()]

    def _count_observation(self, entry: Entry, observation: Observation, seq: int) -> None:
        candidate = observation.candidate
        phase = str(entry.body.get("phase", ""))
        self.observations.append(
            (
                seq,
                escape_text(candidate),
                escape_text(observation.case),
                observation.score,
                observation.status.value,
                escape_text(observation.reason),
                observation.seconds,
                str(observation.seed),
                escape_text(phase),
                escape_text(observation.trust),
                escape_text(culprit_of(observation)),
                escape_text(observation.failure_kind),
            )
        )
        tally = self.tallies.get(candidate)
        if tally is None:
            tally = self.tallies[candidate] = ScoreTally(seq)
        tally.add(observation, seq, phase != "")
        self.counters["status", observation.status.value] += 1
        self.counters["further", "evaluations"] += (
            observation.usage.evaluations
        )  # made to diagnose this one
        if observation.signs:
            for name in {"", *(escape_text(sign.name) for sign in observation.signs)}:
                self.counters["signed", name] += 1
        for name in observation.drew if observation.ok else ():
            self.counters["drew", escape_text(name)] += 1
        for name in observation.left:
            self.counters["left", escape_text(name)] += 1
        if observation.status is Status.OK:
            self.counters["trust", escape_text(observation.trust)] += 1
        else:
            self.counters[
                "reason", escape_text(observation.reason or observation.status.value)
            ] += 1

    def _count_effect(self, entry: Entry) -> None:
        result = entry.result
        if isinstance(result, Proposal | Text | Edits) and result.fault:
            self.counters["fault", escape_text(result.fault)] += 1
        if isinstance(result, Proposal | Text):
            for kind in NOTED:
                if number := result.faults.get(kind, 0):  # counted even if the request succeeded
                    self.counters["fault", kind] += number
            if errors := result.faults.get(SERVER_ERROR, 0):  # most are repaired by a retry
                self.counters["further", "server_errors"] += errors
        role, model = str(entry.body.get("role", "")), getattr(result, "model", "")
        key, usage = (
            (escape_text(entry.effect), escape_text(role), escape_text(model)),
            getattr(result, "usage", _FREE),
        )
        if isinstance(result, Observation) and result.asked:
            for call in result.asked:
                if call.errors:
                    self.counters["further", "server_errors"] += call.errors
                self._add_usage(
                    (ASK, escape_text(call.role), escape_text(call.model)),
                    call.usage,
                    effects=call.asked,
                )
            usage = usage - total_usage(call.usage for call in result.asked)
        self._add_usage(key, usage, int(isinstance(result, Observation)))

    def _add_usage(
        self, key: tuple[str, str, str], usage: Usage, evaluations: int = 0, effects: int = 1
    ) -> None:
        sums = self.spent.get(key)
        if sums is None:
            sums = self.spent[key] = [0] * 8
        sums[0] += effects
        sums[1] += evaluations
        *known, tokens, dollars = msgspec.structs.astuple(usage)
        for index, value in enumerate(known, 1):
            sums[index] += value
        if tokens or dollars:
            self._add_usage(UNCERTAIN, Usage(input_tokens=tokens, dollars=dollars))


_FREE = Usage()
ASK = "ask"  # rows for requests of evaluators to models
UNCERTAIN = ("uncertain", "", "")  # row for the possible cost of calls that did not report it


# Frequent inserts, as texts for the driver's `executemany`.


class Inserts:
    """Statements for one database; rows are tuples in the order of the tables' columns."""

    def __init__(self, dialect: Dialect) -> None:
        def insert(table: str, conflict: str = "") -> str:
            return insert_into(table, TABLES[table], dialect, conflict)

        self.event, self.dictionary = insert("event"), insert("dictionary")
        self.observation, self.progress = insert("observation"), insert("progress")
        self.blob = insert("blob", "ON CONFLICT DO NOTHING")
        self.candidate = insert("candidate", "ON CONFLICT DO NOTHING")
        self.tally = insert("tally", f"ON CONFLICT (candidate) DO UPDATE SET {_MERGED_TALLY}")
        self.spend = insert("spend", _added("spend", ("effect", "role", "model")))
        self.counter = insert("counter", _added("counter", ("scope", "name")))
        self.seal = f"UPDATE seal SET seq = {dialect.mark}, hash = {dialect.mark}"


def _sums(table: str, names: Iterable[str]) -> list[str]:
    return [f"{name} = {table}.{name} + excluded.{name}" for name in names]


def _added(table: str, keys: tuple[str, ...]) -> str:
    """The rule that adds a row to the one that is there."""
    sums = _sums(table, (name for name in TABLES[table] if name not in keys))
    return f"ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {', '.join(sums)}"


# The merge of a tally into an existing row. Mean and sum of squared deviations follow the pairwise
# update of Chan, Golub and LeVeque.
_BOTH = "nullif(tally.count + excluded.count, 0)"
_DELTA = "(excluded.mean - tally.mean)"
_MERGES = {
    "mean": f"tally.mean + coalesce({_DELTA} * excluded.count / {_BOTH}, 0)",
    "spread": "tally.spread + excluded.spread + "
    f"coalesce({_DELTA} * {_DELTA} * tally.count * excluded.count / {_BOTH}, 0)",
    "low": "CASE WHEN tally.low < excluded.low THEN tally.low "
    "ELSE coalesce(excluded.low, tally.low) END",
    "high": "CASE WHEN tally.high > excluded.high THEN tally.high "
    "ELSE coalesce(excluded.high, tally.high) END",
    "trust": "CASE WHEN tally.trust > excluded.trust THEN tally.trust "
    "ELSE coalesce(excluded.trust, tally.trust) END",
    "grave": "coalesce(tally.grave, excluded.grave)",
}
_MERGED_TALLY = ", ".join(
    [f"{name} = {merge}" for name, merge in _MERGES.items()]
    + _sums("tally", (n for n in TABLES["tally"] if n not in ("candidate", "first", *_MERGES)))
)
