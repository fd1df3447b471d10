"""The journal of a run: RUN/journal.db, RUN/blobs/, RUN/lock, or a database.

The database is the one that RUN/database.json names. One process writes (guarded by a lock, and by
an epoch that is checked inside every transaction). Any number of processes read, without waiting
for the writer and without making it wait. `append` is one transaction in a write-ahead log that is
synced before it returns.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from culmen.core.errors import JournalDamaged, UserError
from culmen.core.event import Entry, Event
from culmen.store.address import (
    PART,
    POINTER,
    has_run,
    parse_address,
    read_pointer,
    require_local,
    write_pointer,
)
from culmen.store.codec import check_entry
from culmen.store.database import RunMeta, open_snapshot, read_meta, require_run

if TYPE_CHECKING:
    from culmen.store.sql import Connection
    from culmen.store.writer import JournalWriter, Standing


_BEGUN = (POINTER, "lock", PART, f"{PART}-wal", f"{PART}-shm")
"""Files left by a process that was killed while it made a run."""


def _make_folder(folder: Path) -> None:
    """Make the folder of a new run.

    Raises `UserError` if the folder cannot be made or written, or if it holds other files.
    """
    fix = "name a folder that is new or empty: --run-dir DIR (Python: run_dir=)"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        inside = next((path.name for path in folder.iterdir() if path.name not in _BEGUN), None)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, "Permission denied")
    except OSError as error:
        raise UserError(
            f"no run can be written here: {error.strerror}", where=folder, fix=fix
        ) from None
    if inside is not None:
        raise UserError(f"the folder holds other files ({inside})", where=folder, fix=fix)


class SqlJournal:
    """`core.ports.Journal` on SQLite or PostgreSQL, made by `create` or `open`.

    The events that `append` returns and `read` yields are equal. Their prompt and reply of a
    `Proposal` or `Text` may be references (`blob:<sha256>`, see `text`) if longer than 256
    characters; everything else is in full. Each `Candidate` in a body under `candidate` or
    `candidates` is stored too and replaced by its id.
    """

    def __init__(self, run_dir: Path, meta: RunMeta, writer: JournalWriter | None) -> None:
        self.run_dir, self.meta, self._writer = run_dir, meta, writer

    @classmethod
    def create(cls, run_dir: Path | str, meta: RunMeta, db: str | None = None) -> SqlJournal:
        """A new run in a folder that holds none; raises `UserError` otherwise.

        With `db`, the URL of a database, the journal is kept there as the run `URL#name` (default
        name: the folder's).
        """
        from culmen.store.writer import JournalWriter

        folder = Path(run_dir)
        if has_run(folder):
            raise UserError("there is a run already", where=folder, fix=f"culmen resume {folder}")
        _make_folder(folder)
        meta = msgspec.structs.replace(meta, created=meta.created or time.time())
        if db is None:
            require_local(folder)
            return cls(folder, meta, JournalWriter.open(folder, meta)[0])
        write_pointer(folder, parse_address(db, folder.name))
        try:
            return cls(folder, meta, JournalWriter.open(folder, meta)[0])
        except BaseException:
            (folder / POINTER).unlink()  # a pointer without a run would make the next attempt fail
            raise

    @classmethod
    def open(cls, run_dir: Path | str, write: bool = False) -> SqlJournal:
        """An existing run; with `write`, raises `RunLocked` if another process is writing it."""
        folder = Path(run_dir)
        require_run(folder)
        try:
            return cls._open_run(folder, write)
        except JournalDamaged as error:
            from culmen.store.chain import JournalAltered

            if read_pointer(folder) is not None or isinstance(error, JournalAltered):
                raise
            from culmen.store.transfer import recoverable_damage

            raise recoverable_damage(folder, error) from error

    @classmethod
    def _open_run(cls, folder: Path, write: bool) -> SqlJournal:
        if write:
            from culmen.store.writer import JournalWriter

            if read_pointer(folder) is None:
                require_local(folder)
            writer, meta = JournalWriter.open(folder)
            return cls(folder, meta, writer)
        with open_snapshot(folder) as connection:
            return cls(folder, read_meta(connection), None)

    def record_leader(self, standing: Standing) -> None:
        """Record the leader from time to time, as reported by the search that writes here."""
        self._required_writer.standing = standing

    def append(self, entries: Sequence[Entry]) -> list[Event]:
        """Append entries to the journal in one transaction.

        They are durable on return; if this raises, none is stored. Raises `Unavailable` (disk full;
        try again later), `RunLocked` (another process took the run over), `ValueError` (an entry
        that breaks the contract).
        """
        return self._required_writer.append(entries) if entries else []

    def read(self, after: int = 0, *, whole: bool = False) -> Iterator[Event]:
        """Events with seq > `after`, in order.

        With `whole`, prompts and replies are texts, never references. Raises `JournalDamaged` if
        the journal cannot be read.
        """

        from culmen.store.reader import read_events

        return read_events(self.snapshot, after, whole=whole)

    def retrace(self, after: int = 0) -> Iterator[Event]:
        """Events with seq > `after`, without the parts that a replay never reads.

        These are the bodies of `started`, `note` and `done`, and the results of notes. Raises
        `JournalDamaged` if the journal cannot be read.
        """
        from culmen.store.reader import REPLAYED, read_events

        return read_events(self.snapshot, after, query=REPLAYED)

    def check(self) -> None:
        """Read the whole journal; raise `JournalDamaged` unless it is as culmen wrote it."""
        from culmen.store.chain import check_journal

        with open_snapshot(self.run_dir) as connection:
            check_journal(connection)

    def text(self, ref: str) -> str:
        """The text behind a `blob:` reference; any other text is returned unchanged."""
        from culmen.store.reader import blobs_in

        with open_snapshot(self.run_dir) as connection:
            return blobs_in(connection).resolve_text(ref)

    def set_meta(self, **changes: object) -> RunMeta:
        """Change fields of `meta`, durably; raises `TypeError` for an unknown field."""
        self.meta = msgspec.structs.replace(self.meta, **changes)
        self._required_writer.save_meta(self.meta)
        return self.meta

    def close(self) -> None:
        """Release the run; a second call does nothing."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def __enter__(self) -> SqlJournal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def snapshot(self) -> AbstractContextManager[Connection]:
        """A connection for reading that sees one consistent snapshot of the run."""
        return open_snapshot(self.run_dir)

    @property
    def _required_writer(self) -> JournalWriter:
        if self._writer is None:
            raise ValueError("this journal is closed, or was opened for reading")
        return self._writer


# A journal in memory, for simulations and tests: nothing survives the process.


class MemoryJournal:
    """A journal in memory that keeps the entries it is given.

    `clock` supplies the wall time of events (Unix seconds).
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._events: list[Event] = []
        self._closed = False

    def append(self, entries: Sequence[Entry]) -> list[Event]:
        """Append all entries or, if one is refused (`ValueError`), none."""
        if self._closed:
            raise ValueError("this journal is closed")
        for entry in entries:
            check_entry(entry)
        first, now = len(self._events) + 1, self._clock()
        events = [Event(first + index, now, entry) for index, entry in enumerate(entries)]
        self._events += events
        return events

    def read(self, after: int = 0) -> Iterator[Event]:
        """Events with `seq` > `after`, in order, including those appended while reading."""
        index = max(after, 0)
        while index < len(self._events):
            yield self._events[index]
            index += 1

    def retrace(self, after: int = 0) -> Iterator[Event]:
        """Events with seq > `after`, complete, as from `read`."""
        return self.read(after)

    def close(self) -> None:
        """Refuse further appends; reading stays possible."""
        self._closed = True
