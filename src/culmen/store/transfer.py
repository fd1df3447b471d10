"""Copies of runs between folders and databases, checked by counts and hashes of tables.

The copy is of one snapshot of the source, which may go on. The hash of a table is the sum, modulo
2**256, of the SHA-256 of each of its rows: it does not depend on the order in which a database
returns them.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from culmen.core.brief import Proposal, Text
from culmen.core.errors import CulmenError, JournalDamaged, UserError
from culmen.core.event import Event
from culmen.store import sql
from culmen.store.address import (
    FILE,
    Address,
    has_run,
    read_pointer,
)
from culmen.store.chain import count_intact_events, read_seal, settings_hash
from culmen.store.codec import Blobs, check_entry, compress
from culmen.store.database import (
    RunMeta,
    check_format,
    connect,
    open_snapshot,
    read_meta,
    require_run,
    run_database,
    translate_errors,
)
from culmen.store.reader import PAGE, blobs_in, read_page
from culmen.store.schema import TABLES, create_tables
from culmen.store.sql import Connection, insert_into

if TYPE_CHECKING:
    from culmen.store.database import WriteLease


_COPIED = tuple(table for table in TABLES if table not in ("run", "seal"))


class Sum(msgspec.Struct, frozen=True):
    """Number of rows of a table, and their hash."""

    rows: int
    digest: str


class Copied(msgspec.Struct, frozen=True):
    """A verified copy: its tables were read again and equal the source's.

    `tables` is by name; blobs that are files count to `blob`.
    """

    source: str
    target: str
    tables: dict[str, Sum]


def copy_run(source: Path, to: Path | Address) -> Copied:
    """Copy a run to a place that holds none.

    Raises `UserError` if there is a run already, `Unavailable`, or `JournalDamaged` if the copy
    differs from its source.
    """
    folder = to if isinstance(to, Path) else None
    if folder is not None and has_run(folder):
        raise UserError(
            "there is a run already", where=folder, fix="give another folder for the copy"
        )
    with open_snapshot(source) as connection:
        meta = msgspec.structs.replace(read_meta(connection), id=to.name)
        blobs = blobs_in(connection)
        lease = _take_target_lease(to, meta)
        try:
            with translate_errors(folder or source), lease.connection.begin():
                copied = {
                    table: _copy_table(table, connection, lease.connection) for table in _COPIED
                }
                _copy_seal(connection, lease.connection)
                copied["blob"] = _add_sums(
                    copied["blob"], _copy_files(blobs, source / "blobs", lease.connection)
                )
            with translate_errors(folder or source), lease.connection.begin():
                stored = {
                    table: _sum_rows(_table_rows(lease.connection, table)) for table in _COPIED
                }
        finally:
            lease.close()
    if copied != stored:
        wrong = ", ".join(name for name in copied if copied[name] != stored[name])
        raise JournalDamaged(
            f"the copy differs from its source in: {wrong}",
            where=to,
            fix="delete it, try again",
        )
    return Copied(str(read_pointer(source) or source), str(to), stored)


def table_sums(run_dir: Path) -> dict[str, Sum]:
    """Counts and hashes of a run's tables; large blobs in files are not included."""
    with open_snapshot(run_dir) as connection:
        return {table: _sum_rows(_table_rows(connection, table)) for table in _COPIED}


def _copy_seal(source: Connection, into: Connection) -> None:
    """Copy the ends of the hash chain; the settings are those of the copy, which name it."""
    from culmen.store.writer import insert_seal

    seal = read_seal(source)
    into.execute("DELETE FROM seal")
    if seal is not None:  # a copy is as damaged as its source
        meta = into.execute("SELECT meta FROM run").scalar()
        insert_seal(into, seal._replace(settings=settings_hash(meta)))


def _take_target_lease(to: Path | Address, meta: RunMeta) -> WriteLease:
    from culmen.store.lease import FolderLease
    from culmen.store.writer import make_tables

    if isinstance(to, Path):
        from culmen.store.address import require_local

        to.mkdir(parents=True, exist_ok=True)
        require_local(to)
        return FolderLease(to, lambda connection: make_tables(connection, meta))
    return run_database(to).take_lease(lambda connection: make_tables(connection, meta))


def _copy_table(table: str, source: Connection, into: Connection) -> Sum:
    return _insert_rows(table, _table_rows(source, table), into)


def _copy_files(blobs: Blobs, folder: Path, into: Connection) -> Sum:
    """Copy blobs in files to rows: a copy keeps all blobs in one place."""
    names = (bytes.fromhex(path.name) for path in folder.glob("??/*") if len(path.name) == 64)
    return _insert_rows("blob", ((sha, 0, compress(blobs.read_file(sha))) for sha in names), into)


def _insert_rows(table: str, rows: Iterable[tuple[object, ...]], into: Connection) -> Sum:
    statement, cursor = insert_into(table, TABLES[table], into.dialect), into.cursor()
    count, total, page = 0, 0, list[tuple[object, ...]]()
    for row in rows:
        count, total = count + 1, total + _row_hash(row)
        page.append(row)
        if len(page) == sql.PAGE:
            cursor.executemany(statement, page)
            page.clear()
    if page:
        cursor.executemany(statement, page)
    return _make_sum(count, total)


def _table_rows(connection: Connection, table: str) -> Iterator[tuple[object, ...]]:
    names = ", ".join(f'"{name}"' for name in TABLES[table])
    with contextlib.closing(connection.dialect.streaming_cursor(connection.raw)) as cursor:
        cursor.execute(f"SELECT {names} FROM {table}")
        while rows := cursor.fetchmany(sql.PAGE):
            yield from rows


def _sum_rows(rows: Iterable[tuple[object, ...]]) -> Sum:
    count = total = 0
    for row in rows:
        count, total = count + 1, total + _row_hash(row)
    return _make_sum(count, total)


def _row_hash(row: tuple[object, ...]) -> int:
    return int.from_bytes(hashlib.sha256(msgspec.msgpack.encode(row)).digest())


def _make_sum(count: int, total: int) -> Sum:
    return Sum(count, f"{total % (1 << 256):064x}")


def _add_sums(first: Sum, second: Sum) -> Sum:
    return _make_sum(first.rows + second.rows, int(first.digest, 16) + int(second.digest, 16))


# Recovery from a damaged journal: count its readable events, and copy them into a new run.


BEYOND = "beyond.jsonl"
_HOLE = 5_000  # consecutive unreadable rows after which the rest is given up


class Recovered(msgspec.Struct, frozen=True):
    """The recovered copy: its path and its number of events (1 to `events`).

    `beyond` more events after the first unreadable one are in the file `BEYOND` beside the journal,
    one a line.
    """

    path: str
    events: int
    beyond: int = 0


def recover_run(run_dir: Path | str, out: Path | str | None = None) -> Recovered:
    """Copy the readable beginning of a run into a new run folder.

    The default folder is RUN-recovered; the new run can be resumed. Readable events after the first
    unreadable one go to a file beside it. All sums are computed anew from the events. The damaged
    run is not changed.

    Raises `JournalDamaged` if even the run's settings cannot be read, and `UserError` if the new
    folder holds a run already.
    """
    from culmen.store.writer import JournalWriter

    source = Path(run_dir)
    if (address := read_pointer(source)) is not None:
        fix = "restore the database from the server's own backups"
        raise UserError("a run in a database is not recovered from a file", where=address, fix=fix)
    target = Path(out) if out is not None else source.with_name(source.name + "-recovered")
    if (target / FILE).exists():
        raise UserError(
            "there is a run already",
            where=target,
            fix="give another folder for the recovered run",
        )
    with _open_salvaged(source) as connection:
        meta = msgspec.structs.replace(_read_settings(connection), id=target.name)
        target.mkdir(parents=True, exist_ok=True)
        writer, _ = JournalWriter.open(target, meta)
        count = 0
        try:
            for events in _readable_prefix(connection):
                blobs = blobs_in(connection)
                writer.append(
                    [_event_with_texts(event, blobs).entry for event in events],
                    [event.time for event in events],
                )
                count += len(events)
        finally:
            writer.close()
        beyond = _write_events_beyond(connection, count, target / BEYOND)
    return Recovered(str(target), count, beyond)


def recoverable_damage(run_dir: Path, error: JournalDamaged) -> JournalDamaged:
    """The error with the number of events that can be recovered."""
    try:
        with _open_salvaged(run_dir) as connection:
            _read_settings(connection)
            count = sum(len(events) for events in _readable_prefix(connection))
    except JournalDamaged as unrecoverable:
        return unrecoverable
    except CulmenError:  # no room for a copy: report the damage
        return error
    what = f"{error.what}; its first {count} events can be saved"
    return JournalDamaged(what, where=run_dir, fix=f"culmen runs recover {run_dir}")


def _read_settings(connection: Connection) -> RunMeta:
    try:
        with translate_errors(connection.folder):
            meta = read_meta(connection)
            check_format(connection)
            return meta
    except JournalDamaged as error:
        fix = "restore the folder from a copy"
        raise JournalDamaged(
            f"{error.what}; nothing of it can be read", where=connection.folder, fix=fix
        ) from error


@contextmanager
def _open_salvaged(run_dir: Path) -> Iterator[Connection]:
    """A connection to a sound copy with each table's readable rows.

    Rows are fetched in the order they were written: indexes, whose pages are scattered over the
    file, are not needed.
    """
    require_run(run_dir)
    with tempfile.TemporaryDirectory(prefix="culmen-") as folder, translate_errors(run_dir):
        broken = _padded_copy(run_dir, Path(folder) / "broken.db")
        source = sqlite3.connect(broken)
        with contextlib.closing(connect(Path(folder) / FILE, write=True)) as connection:
            with connection.begin():
                create_tables(connection)
                for table in ("run", "dictionary", "blob", "event", "seal"):
                    _copy_rows(source, connection, table)
            source.close()
            connection.folder = run_dir
            with connection.begin():
                yield connection


def _padded_copy(run_dir: Path, copy: Path) -> Path:
    """A copy, padded with zeros if the file was truncated: otherwise SQLite rejects it."""
    shutil.copyfile(run_dir / FILE, copy)
    with contextlib.suppress(FileNotFoundError):
        shutil.copyfile(run_dir / f"{FILE}-wal", f"{copy}-wal")
    with copy.open("r+b") as file:
        header = file.read(100)
        promised = int.from_bytes(header[16:18]) * int.from_bytes(header[28:32])
        # a header with a larger size is itself damaged
        if header.startswith(b"SQLite format 3\0") and copy.stat().st_size < promised <= 1 << 40:
            file.truncate(promised)
    return copy


def _copy_rows(source: sqlite3.Connection, target: Connection, table: str) -> None:
    names = ", ".join(TABLES[table])
    target.cursor().executemany(  # of sqlite3: it takes an iterator, so the rows are streamed
        insert_into(table, TABLES[table], target.dialect).replace("INSERT", "INSERT OR IGNORE"),
        _readable_rows(source, names, table),
    )


def _readable_rows(
    source: sqlite3.Connection, names: str, table: str
) -> Iterator[tuple[object, ...]]:
    """All readable rows, in the order they were written.

    After an unreadable row, the next rows are read one by one.
    """
    query, last, missed = f"SELECT rowid, {names} FROM {table} NOT INDEXED WHERE rowid", 0, 0
    while missed < _HOLE:
        try:
            for row in source.execute(f"{query} > ? ORDER BY rowid", (last,)):
                if row[0] <= last:  # a page that was lost: its rows would come again and again
                    break
                last, missed = row[0], 0
                yield row[1:]
            else:
                return
        except (sqlite3.Error, UnicodeDecodeError, OverflowError):
            pass
        for _ in range(_HOLE - missed):
            last, missed = last + 1, missed + 1
            try:
                row = source.execute(f"{query} = ?", (last,)).fetchone()
            except (sqlite3.Error, UnicodeDecodeError, OverflowError):
                continue
            if row is not None:
                missed = 0
                yield row[1:]
                break


def _write_events_beyond(connection: Connection, after: int, out: Path) -> int:
    """Write the readable events after event `after`, one a line; return their number."""
    count = 0
    query = "SELECT seq FROM event WHERE seq > :after ORDER BY seq"
    numbers = connection.execute(query, after=after).scalars()
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(out.open("wb")) if numbers else None
        for number in numbers:
            try:
                with translate_errors(connection.folder):
                    (event,) = read_page(connection, number - 1, 1)
                check_entry(event.entry)
            except (CulmenError, ValueError):
                continue
            if file is not None:
                file.write(msgspec.json.encode(event) + b"\n")
                count += 1
    if not count:
        out.unlink(missing_ok=True)
    return count


def _readable_prefix(connection: Connection) -> Iterator[list[Event]]:
    """The events up to the first that is unreadable or not as written, in pages."""
    after, size, intact = 0, PAGE, count_intact_events(connection)
    while intact is None or after < intact:
        size = size if intact is None else min(size, intact - after)
        try:
            with translate_errors(connection.folder):
                events = read_page(connection, after, size)
            for event in events:
                check_entry(event.entry)
        except (CulmenError, ValueError):
            if size == 1:
                return
            size = 1
            continue
        if not events:
            return
        yield events
        after = events[-1].seq


def _event_with_texts(event: Event, blobs: Blobs) -> Event:
    """The event with its prompt and reply as texts.

    A lost text becomes "": no strategy reads it.
    """
    result = event.entry.result
    if not isinstance(result, Proposal | Text):
        return event
    result = msgspec.structs.replace(
        result,
        prompt=_text_or_empty(result.prompt, blobs),
        reply=_text_or_empty(result.reply, blobs),
    )
    return msgspec.structs.replace(event, entry=msgspec.structs.replace(event.entry, result=result))


def _text_or_empty(ref: str, blobs: Blobs) -> str:
    try:
        return blobs.resolve_text(ref)
    except JournalDamaged:
        return ""
