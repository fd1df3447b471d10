"""What to do with a damaged journal: say how much of it can be read, and copy that into a new run."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from culmen.core.brief import Proposal, Text
from culmen.core.errors import CulmenError, JournalDamaged, UserError
from culmen.core.event import Event
from culmen.store.address import FILE, pointer
from culmen.store.blobs import Blobs
from culmen.store.database import engine_for, meanings, read_meta, require_run
from culmen.store.meta import RunMeta
from culmen.store.reader import PAGE, lookup_in, read_page

if TYPE_CHECKING:
    from sqlalchemy import Connection, Table


_LARGEST = 1 << 40  # bytes; a header that promises more is itself damaged


class Recovered(msgspec.Struct, frozen=True):
    """Where the copy lies, and how many events (1 to `events`) are in it."""

    path: str
    events: int


def recover(run_dir: Path | str, out: Path | str | None = None) -> Recovered:
    """Copy the readable beginning of a run into a new run folder (default: RUN-recovered), which can be resumed.

    All sums are made anew from the events. Raises `JournalDamaged` if not even the run's settings can be read, and
    `UserError` if the new folder holds a run already. The damaged run is left as it is.
    """
    from culmen.store.writer import Writer

    source = Path(run_dir)
    if (address := pointer(source)) is not None:
        fix = "restore the database from the server's own backups"
        raise UserError("a run in a database is not recovered from a file", where=str(address), fix=fix)
    target = Path(out) if out is not None else source.with_name(source.name + "-recovered")
    if (target / FILE).exists():
        raise UserError("there is a run already", where=str(target), fix="give another folder for the recovered run")
    with _salvage(source) as connection:
        meta = msgspec.structs.replace(_settings(connection, source), id=target.name)
        target.mkdir(parents=True, exist_ok=True)
        writer, _ = Writer.open(target, meta)
        count = 0
        try:
            for events in _prefix(connection, source):
                blobs = Blobs(source / "blobs", lookup_in(connection))
                writer.append([_whole(event, blobs).entry for event in events], [event.time for event in events])
                count += len(events)
        finally:
            writer.close()
    return Recovered(str(target), count)


def damaged(run_dir: Path, error: JournalDamaged) -> JournalDamaged:
    """The error, with how much can be saved."""
    try:
        with _salvage(run_dir) as connection:
            _settings(connection, run_dir)
            count = sum(len(events) for events in _prefix(connection, run_dir))
    except JournalDamaged as hopeless:
        return hopeless
    except CulmenError:  # no room for a copy: the damage is what matters
        return error
    what = f"{error.what}; its first {count} events can be saved"
    return JournalDamaged(what, where=str(run_dir), fix=f"culmen recover {run_dir}")


def _settings(connection: Connection, run_dir: Path) -> RunMeta:
    try:
        with meanings(run_dir):
            return read_meta(connection)
    except JournalDamaged as error:
        fix = "restore the folder from a copy"
        raise JournalDamaged(f"{error.what}; nothing of it can be read", where=str(run_dir), fix=fix) from error


@contextmanager
def _salvage(run_dir: Path) -> Iterator[Connection]:
    """A connection to a sound database that holds each table's rows up to the first unreadable one.

    Rows are fetched in the order they were written: indexes, whose pages lie all over the file, are not needed.
    """
    from culmen.store import schema

    require_run(run_dir)
    with tempfile.TemporaryDirectory(prefix="culmen-") as folder, meanings(run_dir):
        broken = _padded_copy(run_dir, Path(folder) / "broken.db")
        source = sqlite3.connect(broken)
        with engine_for(Path(folder) / FILE, write=True).connect() as connection:
            with connection.begin():
                schema.metadata.create_all(connection)
                for table in (schema.run, schema.blob, schema.event):
                    _copy_rows(source, connection, table)
            source.close()
            with connection.begin():
                yield connection


def _padded_copy(run_dir: Path, copy: Path) -> Path:
    """A copy, filled up with zeros where the file was cut: SQLite would refuse all of it otherwise."""
    shutil.copyfile(run_dir / FILE, copy)
    with contextlib.suppress(FileNotFoundError):
        shutil.copyfile(run_dir / f"{FILE}-wal", f"{copy}-wal")
    with copy.open("r+b") as file:
        header = file.read(100)
        promised = int.from_bytes(header[16:18]) * int.from_bytes(header[28:32])
        if header.startswith(b"SQLite format 3\0") and copy.stat().st_size < promised <= _LARGEST:
            file.truncate(promised)
    return copy


def _copy_rows(source: sqlite3.Connection, target: Connection, table: Table) -> None:
    names = ", ".join(column.name for column in table.columns)
    marks = ", ".join("?" * len(table.columns))

    def readable() -> Iterator[tuple[Any, ...]]:
        with contextlib.suppress(sqlite3.Error):
            yield from source.execute(f"SELECT {names} FROM {table.name} NOT INDEXED ORDER BY rowid")

    cursor = target.connection.cursor()
    rows: Any = readable()  # streamed: the driver takes any iterator
    cursor.executemany(f"INSERT OR IGNORE INTO {table.name} ({names}) VALUES ({marks})", rows)


def _prefix(connection: Connection, run_dir: Path) -> Iterator[list[Event]]:
    """The events up to the first one that cannot be read, in pages."""
    after, size = 0, PAGE
    while True:
        try:
            with meanings(run_dir):
                events = read_page(connection, run_dir, after, size)
        except CulmenError:
            if size == 1:
                return
            size = 1
            continue
        if not events:
            return
        yield events
        after = events[-1].seq


def _whole(event: Event, blobs: Blobs) -> Event:
    """The event with its prompt and reply as texts; "" where they are lost, which no strategy ever reads."""
    result = event.entry.result
    if not isinstance(result, Proposal | Text):
        return event
    result = msgspec.structs.replace(result, prompt=_text(result.prompt, blobs), reply=_text(result.reply, blobs))
    return msgspec.structs.replace(event, entry=msgspec.structs.replace(event.entry, result=result))


def _text(ref: str, blobs: Blobs) -> str:
    try:
        return blobs.text(ref)
    except JournalDamaged:
        return ""
