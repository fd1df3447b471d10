"""The connection that writes a run: lock, epoch, and the work of one append."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from sqlalchemy import Table, case, func, insert, literal_column, select, update

from culmen.core.admissions import ADMISSION
from culmen.core.brief import NOTED, Proposal, Text
from culmen.core.candidate import Candidate
from culmen.core.errors import RunLocked, Unavailable
from culmen.core.evaluation import LEVELS, Observation, Status, culprit_of, is_excused, trust_rank
from culmen.core.event import Edits, Entry, Event
from culmen.core.usage import Usage, total_usage
from culmen.store import chain, schema
from culmen.store.codec import (
    INLINE,
    Blobs,
    RowBatch,
    check_entry,
    encode_value,
    escape_text,
    store_body,
    store_result,
)
from culmen.store.database import (
    FORMAT,
    RunMeta,
    check_format,
    pack_meta,
    read_meta,
    translate_errors,
)
from culmen.store.databases import WriteLease
from culmen.store.lease import current_owner, take_lease
from culmen.store.packs import Packer, PackState
from culmen.store.reader import EventRow, gap_error, lookup_in, read_page

if TYPE_CHECKING:
    from sqlalchemy import Connection, Dialect, Insert
    from sqlalchemy.dialects import postgresql, sqlite
    from sqlalchemy.engine.interfaces import DBAPICursor

    UpsertInsert = sqlite.Insert | postgresql.Insert  # of a dialect that has ON CONFLICT


Standing = Callable[[], tuple[str, float, int] | None]
"""Id, score and number of evaluations of a search's leader; None before a first score."""

# the progress series gains a point whenever the evaluations have grown by 1/_SPARSE
_SPARSE = 200


class JournalWriter:
    """A lease on the run and its connection; usable from any thread, one at a time."""

    def __init__(self, run_dir: Path, lease: WriteLease) -> None:
        self._run_dir, self._lease, self._connection, self._lost = (
            run_dir,
            lease,
            lease.connection,
            False,
        )
        self._blobs = Blobs(run_dir / "blobs", lookup_in(self._connection))
        self._insert = inserts_for(type(self._connection.dialect))
        self._fence = str(
            select(schema.run.c.epoch).with_for_update().compile(dialect=self._connection.dialect)
        )
        self._epoch = self._last = self._evaluations = self._marked = self._shown_in_flight = 0
        self._in_flight: set[int] = set()
        self._origin = self._hash = b""
        self._remembered = self._version = 0
        self._packer = Packer(self._connection.dialect.name)
        self.standing: Standing | None = None  # of the search that writes

    @classmethod
    def open(cls, run_dir: Path, meta: RunMeta | None = None) -> tuple[JournalWriter, RunMeta]:
        """Take the run over for writing; with `meta`, make its tables first.

        Raises `RunLocked` or `JournalDamaged`.
        """
        state = chain.journal_state(run_dir)
        with translate_errors(run_dir):
            lease = take_lease(
                run_dir, None if meta is None else lambda connection: make_tables(connection, meta)
            )
            try:
                writer = cls(run_dir, lease)
                return writer, writer._take_over(state)
            except BaseException:
                lease.close()
                raise

    def append(self, entries: Sequence[Entry], times: Sequence[float] | None = None) -> list[Event]:
        """Append entries as `SqlJournal.append` does; `times` are Unix seconds (default: now)."""
        for entry in entries:
            check_entry(entry)
        times = times or [time.time()] * len(entries)
        batch, totals = RowBatch(), Totals(dollars=self._packer.state.dollars)
        rows: list[EventRow] = []
        events: list[Event] = []
        links: list[tuple[int, bytes]] = []
        last_hash = self._hash
        for seq, (entry, when) in enumerate(zip(entries, times), self._last + 1):
            row, event = _event_row(entry, seq, when, batch)
            rows.append(row)
            last_hash = chain.link_hash(last_hash, row)
            links.append((seq, last_hash))
            events.append(event)
            totals.count_entry(entry, seq)
        in_flight = _in_flight(self._in_flight, entries)
        totals.counters["session", "in_flight"] = len(in_flight) - self._shown_in_flight
        evaluations = self._evaluations + len(totals.observations)
        with self._write_context() as regained:
            stored = self._stored_events(rows) if regained else []
            due = self._is_mark_due(events[-1], evaluations)
            packed = self._packer.state
            with self._transaction(plain=not stored):
                if stored:
                    marked, last_hash = self._last_mark(), self._last_hash()
                    packed = self._packer.load(self._connection, self._run_dir)
                else:
                    self._insert_all(rows, self._put_files(batch), batch, totals)
                    self._extend_chain(links)
                    packed = self._add_to_packs(events[-1].seq, batch, totals)
                    marked = self._add_mark(events[-1], evaluations) if due else self._marked
        events = stored or events
        self._last, self._evaluations, self._marked = events[-1].seq, evaluations, marked
        self._in_flight, self._shown_in_flight = in_flight, len(in_flight)
        self._hash, self._packer.state = last_hash, packed
        if self._last - self._remembered >= chain.OFTEN:
            self._remember([])
        return events

    def save_meta(self, meta: RunMeta) -> None:
        """Replace the run's settings."""
        with self._write_context(), self._connection.begin():
            self._check_epoch(self._connection.connection.cursor())
            packed = pack_meta(meta)
            self._connection.execute(update(schema.run).values(meta=packed))
            self._connection.execute(
                update(schema.seal).values(settings=chain.settings_hash(packed))
            )

    def close(self) -> None:
        """Release the run; remember that it is whole unless another program wrote to it, too."""
        alone = self._lease.files and self._data_version() == self._version
        self._lease.close()
        if alone:
            self._remember(chain.journal_state(self._run_dir))

    def _remember(self, state: list[object]) -> None:
        chain.remember(self._run_dir, chain.Checked(self._origin, self._last, self._hash, state))
        self._remembered = self._last

    def _data_version(self) -> int:
        """A number that changes when another connection writes; 0 for a run in a database."""
        if not self._lease.files:
            return 0
        cursor = self._connection.connection.cursor()
        cursor.execute("PRAGMA data_version")
        row = cursor.fetchone()
        return 0 if row is None else int(row[0])

    def _extend_chain(self, links: list[tuple[int, bytes]]) -> None:
        cursor = self._connection.connection.cursor()
        run_many(cursor, self._insert.link, links)
        cursor.execute(self._insert.seal, links[-1])

    def _add_to_packs(self, seq: int, batch: RowBatch, totals: Totals) -> PackState:
        """Count the rows of an append for packs; returns the state after it."""
        changed = [(escape_text(name), name in totals.confessed) for name in totals.tallies]
        cursor = self._connection.connection.cursor()
        spent = totals.spent_at, totals.dollars
        return self._packer.add_rows(cursor, seq, len(batch.candidates), changed, spent)

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
                    self._lost = False
                yield regained
        except Unavailable:
            self._lost = not self._lease.files
            raise

    @contextmanager
    def _transaction(self, *, plain: bool) -> Iterator[None]:
        """One transaction.

        `plain`: the block executes no SQLAlchemy statements, so on SQLite the faster driver is used
        alone.
        """
        if not plain or self._connection.dialect.name != "sqlite":
            with self._connection.begin():
                yield
            return
        cursor = self._connection.connection.cursor()
        cursor.execute("BEGIN IMMEDIATE")
        try:
            yield
            cursor.execute("COMMIT")
        except BaseException:
            if cursor.connection.in_transaction:
                cursor.execute("ROLLBACK")
            raise

    def _stored_events(self, rows: Sequence[EventRow]) -> list[Event]:
        """The stored events of an append whose commit was not acknowledged.

        [] if the commit never reached the database.
        """
        with self._connection.begin():
            self._check_epoch(self._connection.connection.cursor())
            stored = read_page(self._connection, self._run_dir, self._last, len(rows) + 1)
        stored_keys = [
            (event.entry.kind, event.entry.key, escape_text(event.entry.mark)) for event in stored
        ]
        if stored and stored_keys != [(row[2], row[5], row[6]) for row in rows]:
            raise gap_error(self._last + 1, self._run_dir)
        return stored

    def _take_over(self, state: list[object]) -> RunMeta:
        """Raise the epoch, which locks out earlier owners, and load the state for appends.

        The journal is checked first; `state` as in `chain.check_journal`.
        """
        from culmen.store.database import upgrade_tables

        with self._connection.begin():
            check_format(self._connection, self._run_dir)
            upgrade_tables(self._connection)
            chain.check_before_writing(self._connection, self._run_dir, state)
            self._connection.execute(
                update(schema.run).values(epoch=schema.run.c.epoch + 1, format=FORMAT)
            )
            self._epoch = self._connection.execute(select(schema.run.c.epoch)).scalar_one()
            meta = read_meta(self._connection)
            self._last = (
                self._connection.execute(select(func.max(schema.event.c.seq))).scalar() or 0
            )
            counters = {
                (row[0], row[1]): row[2] for row in self._connection.execute(select(schema.counter))
            }
            self._marked = self._last_mark()
            self._load_seal()
            self._packer.load(self._connection, self._run_dir)
        if sum(value for (scope, _), value in counters.items() if scope == "kind") != self._last:
            raise gap_error(self._last, self._run_dir)
        self._evaluations = sum(
            value for (scope, _), value in counters.items() if scope == "status"
        )
        self._shown_in_flight = counters.get(("session", "in_flight"), 0)
        return meta

    def _load_seal(self) -> None:
        """Load the end of the chain; a run of an older culmen gets its chain now."""
        seal = chain.read_seal(self._connection)
        if seal is None:
            meta = self._connection.execute(select(schema.run.c.meta)).scalar_one()
            seal = chain.new_seal(self._last, meta)
            self._connection.execute(insert(schema.seal).values(id=1, **seal._asdict()))
        self._origin, self._hash, self._remembered = seal.origin, seal.hash, seal.seq
        self._version = self._data_version()

    def _put_files(self, batch: RowBatch) -> list[tuple[bytes, bytes]]:
        """Write large blobs to files, durably; return the other blobs."""
        if not self._lease.files:
            return list(batch.blobs.items())
        small: list[tuple[bytes, bytes]] = []
        for sha, data in batch.blobs.items():
            if len(data) > INLINE:
                self._blobs.put_file(sha, data)
            else:
                small.append((sha, data))
        return small

    def _insert_all(
        self,
        rows: list[EventRow],
        small: list[tuple[bytes, bytes]],
        batch: RowBatch,
        totals: Totals,
    ) -> None:
        cursor, insert = self._connection.connection.cursor(), self._insert
        self._check_epoch(cursor)
        run_many(cursor, insert.blob, small)
        run_many(
            cursor, insert.candidate, [_candidate_row(*each) for each in batch.candidates.values()]
        )
        run_many(cursor, insert.event, rows)
        run_many(cursor, insert.observation, totals.observations)
        run_many(
            cursor,
            insert.tally,
            [tally.table_row(escape_text(name)) for name, tally in totals.tallies.items()],
        )
        run_many(cursor, insert.spend, totals.spend_rows())
        run_many(
            cursor,
            insert.counter,
            [(*key, value) for key, value in totals.counters.items() if value],
        )

    def _check_epoch(self, cursor: DBAPICursor) -> None:
        cursor.execute(self._fence)
        if cursor.fetchone() != (self._epoch,):
            raise RunLocked(
                "another process took this run over: "
                f"{current_owner(self._run_dir) or 'it is gone by now'}",
                where=str(self._run_dir),
                fix="stop this process; the other one continues",
            )

    def _last_hash(self) -> bytes:
        """The hash at the end of the chain."""
        return self._connection.execute(select(schema.seal.c.hash)).scalar_one()

    def _last_mark(self) -> int:
        """Evaluations at the newest point of the progress series."""
        return (
            self._connection.execute(select(func.max(schema.progress.c.evaluations))).scalar() or 0
        )

    def _is_mark_due(self, event: Event, evaluations: int) -> bool:
        """True if a point of the progress series is due."""
        if self.standing is None:
            return False
        ended = event.entry.kind == "state"
        return evaluations != self._marked and (
            ended or evaluations >= self._marked + max(4, evaluations // _SPARSE)
        )

    def _add_mark(self, event: Event, evaluations: int) -> int:
        """Add a point to the progress series; return its number of evaluations."""
        best = None if self.standing is None else self.standing()
        if best is not None:
            row = (event.seq, evaluations, event.entry.elapsed, escape_text(best[0]), *best[1:])
            run_many(self._connection.connection.cursor(), self._insert.progress, [row])
        return evaluations


def make_tables(connection: Connection, meta: RunMeta) -> None:
    """Make the tables of a new run."""
    schema.metadata.create_all(connection)
    connection.execute(insert(schema.version).values(version_num=schema.REVISION))
    connection.execute(
        insert(schema.run).values(id=1, format=meta.format, epoch=0, meta=pack_meta(meta))
    )
    seal = chain.new_seal(0, pack_meta(meta))
    connection.execute(insert(schema.seal).values(id=1, **seal._asdict()))


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
    """Additions of one append to the tables of sums.

    `dollars` are those of the whole run so far, `spent_at` those up to each observation (0 if they
    are not known); `confessed` are candidates of admissions.
    """

    dollars: float | None = None
    spent_at: list[float] = field(default_factory=list[float])
    confessed: set[str] = field(default_factory=set[str])
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
            self._add_dollars(entry.result)
            if isinstance(entry.result, Observation):
                self._count_observation(entry, entry.result, seq)
            self._count_effect(entry)
        elif entry.kind == "note" and entry.body.get("note") == ADMISSION:
            for candidate in entry.body.get("candidates", ()):
                self.tallies.setdefault(candidate, ScoreTally(seq)).mark_confessed(seq)
                self.confessed.add(candidate)
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
        self.spent_at.append(self.dollars or 0.0)
        tally = self.tallies.get(candidate)
        if tally is None:
            tally = self.tallies[candidate] = ScoreTally(seq)
        tally.add(observation, seq, phase != "")
        self.counters["status", observation.status.value] += 1
        self.counters["further", "evaluations"] += (
            observation.usage.evaluations
        )  # made to diagnose this one
        if observation.signs:
            self.counters["sign", ""] += 1
            for name in {"", *(escape_text(sign.name) for sign in observation.signs)}:
                self.counters["signed", name] += (
                    1  # counts "" too: older journals count only the line above
                )
        if observation.status is Status.OK:
            self.counters["trust", escape_text(observation.trust)] += 1
        else:
            self.counters[
                "reason", escape_text(observation.reason or observation.status.value)
            ] += 1

    def _add_dollars(self, result: object) -> None:
        """Add what an effect cost; an evaluation costs what its evaluator's requests did."""
        if self.dollars is None or (isinstance(result, Observation) and not result.asked):
            return
        if usage := getattr(result, "usage", None):
            self.dollars += usage.dollars

    def _count_effect(self, entry: Entry) -> None:
        result = entry.result
        if isinstance(result, Proposal | Text | Edits) and result.fault:
            self.counters["fault", escape_text(result.fault)] += 1
        if isinstance(result, Proposal | Text):
            for kind in NOTED:
                if number := result.faults.get(kind, 0):  # counted even if the request succeeded
                    self.counters["fault", kind] += number
        role, model = str(entry.body.get("role", "")), getattr(result, "model", "")
        key, usage = (
            (escape_text(entry.effect), escape_text(role), escape_text(model)),
            getattr(result, "usage", _FREE),
        )
        if isinstance(result, Observation) and result.asked:
            for call in result.asked:
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


# Frequent inserts: compiled once by SQLAlchemy, run by the driver's `executemany`.


@cache
def inserts_for(kind: type[Dialect]) -> Inserts:
    """The inserts of a dialect."""
    return Inserts(kind())


def _upsert(table: Table, dialect: Dialect) -> UpsertInsert:
    """An insert to which a rule for rows that are there can be added."""
    if dialect.name == "sqlite":
        from sqlalchemy.dialects import sqlite

        return sqlite.insert(table)
    from sqlalchemy.dialects import postgresql

    return postgresql.insert(table)


class Inserts:
    """SQL texts of inserts for one dialect; rows are tuples in the order of the columns."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect

        def insert_into(table: Table) -> UpsertInsert:
            return _upsert(table, dialect)

        self.event = self._compile_insert(insert(schema.event), schema.event)
        self.link = self._compile_insert(insert(schema.link), schema.link)
        mark = "?" if dialect.name == "sqlite" else "%s"
        self.seal = f"UPDATE seal SET seq = {mark}, hash = {mark}"
        self.observation = self._compile_insert(insert(schema.observation), schema.observation)
        self.progress = self._compile_insert(insert(schema.progress), schema.progress)
        self.blob = self._compile_insert(
            insert_into(schema.blob).on_conflict_do_nothing(), schema.blob
        )
        self.candidate = self._compile_insert(
            insert_into(schema.candidate).on_conflict_do_nothing(), schema.candidate
        )
        self.tally = self._compile_insert(_merge_tally(insert_into(schema.tally)), schema.tally)
        self.spend = self._compile_insert(
            _upsert_sums(insert_into(schema.spend), schema.spend), schema.spend
        )
        self.counter = self._compile_insert(
            _upsert_sums(insert_into(schema.counter), schema.counter), schema.counter
        )

    def _compile_insert(self, statement: Insert, table: Table) -> str:
        return compile_insert(statement, table, self._dialect)


def compile_insert(statement: Insert, table: Table, dialect: Dialect) -> str:
    """The text of an insert with positional parameters in the order of the table's columns."""
    positional = dialect if dialect.name == "sqlite" else type(dialect)(paramstyle="format")  # pyright: ignore
    names = [column.name for column in table.columns]
    compiled = statement.compile(dialect=positional, column_keys=names)
    if list(compiled.positiontup or ()) != names:
        raise RuntimeError(f"unexpected parameter order for {table.name}: {compiled.positiontup}")
    return str(compiled)


def run_many(cursor: DBAPICursor, sql: str, rows: Iterable[Sequence[object]]) -> None:
    """Insert the rows, if there are any."""
    rows = rows if isinstance(rows, list) else list(rows)
    if rows:
        cursor.executemany(sql, rows)


def _upsert_sums(statement: UpsertInsert, table: Table) -> UpsertInsert:
    keys = list(table.primary_key.columns)
    sums = {c.name: c + statement.excluded[c.name] for c in table.columns if not c.primary_key}
    return statement.on_conflict_do_update(index_elements=keys, set_=sums)


def _merge_tally(statement: UpsertInsert) -> UpsertInsert:
    """An insert that merges the tally into an existing row.

    Mean and sum of squared deviations follow the pairwise update of Chan, Golub and LeVeque.
    """
    old, new, zero = schema.tally.c, statement.excluded, literal_column("0")
    both = func.nullif(old.count + new.count, zero)
    delta = new.mean - old.mean
    merged = {
        "count": old.count + new.count,
        "mean": old.mean + func.coalesce(delta * new.count / both, zero),
        "spread": old.spread
        + new.spread
        + func.coalesce(delta * delta * old.count * new.count / both, zero),
    }
    merged["low"] = case((old.low < new.low, old.low), else_=func.coalesce(new.low, old.low))
    merged["high"] = case((old.high > new.high, old.high), else_=func.coalesce(new.high, old.high))
    merged["trust"] = case(
        (old.trust > new.trust, old.trust), else_=func.coalesce(new.trust, old.trust)
    )
    merged["grave"] = func.coalesce(old.grave, new.grave)
    sums = {c.name: c + new[c.name] for c in old if c.name not in ("candidate", "first", *merged)}
    return statement.on_conflict_do_update(index_elements=[old.candidate], set_=merged | sums)
