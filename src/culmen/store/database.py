"""Access to the database of a run, and translation of its errors into culmen's."""

from __future__ import annotations

import errno
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote

import msgspec

from culmen.core.errors import CulmenError, JournalDamaged, Unavailable, UserError
from culmen.core.evaluation import Scoring
from culmen.core.extensions import GROUP, find_part
from culmen.core.json import JsonObject
from culmen.core.options import BankProgram, RunOptions
from culmen.core.task import Task
from culmen.core.usage import Budget
from culmen.store.address import FILE, Address, Owner, has_run, local_folder, read_pointer
from culmen.store.codec import decode_value, encode_value
from culmen.store.schema import FORMAT
from culmen.store.sql import Connection, Sqlite

if TYPE_CHECKING:
    from culmen.store.sql import Connection


def connect(path: Path, *, write: bool) -> Connection:
    """A connection to the SQLite file.

    One for reading (`write` False) never writes, locks or creates a file.
    """
    uri = _sqlite_uri(path, write)
    # The driver must not begin transactions on its own: `isolation_level`.
    raw = sqlite3.connect(
        uri, uri=True, check_same_thread=False, timeout=10.0, isolation_level=None
    )
    try:
        if write:
            raw.execute("PRAGMA journal_mode=WAL")
            raw.execute("PRAGMA synchronous=FULL")
        else:
            raw.execute("PRAGMA query_only=ON")
    except BaseException:
        raw.close()
        raise
    return Connection(
        raw, Sqlite(), partial(_transaction, raw, "BEGIN IMMEDIATE" if write else "BEGIN")
    )


@contextmanager
def _transaction(raw: sqlite3.Connection, begin: str) -> Iterator[None]:
    raw.execute(begin)
    try:
        yield
        raw.execute("COMMIT")
    except BaseException:
        if raw.in_transaction:
            raw.execute("ROLLBACK")
        raise


def _sqlite_uri(path: Path, write: bool) -> str:
    base = "file:" + quote(str(path.absolute()))
    if write:
        return base
    # Without a log no process is writing and nothing is pending, so SQLite need not create its side
    # files for a read.
    return f"{base}?mode=ro" + ("" if Path(f"{path}-wal").exists() else "&immutable=1")


@contextmanager
def open_snapshot(run: Path | str) -> Iterator[Connection]:
    """A connection that sees one consistent snapshot of the run.

    Raises `UserError` if there is no run, or if another version of culmen wrote it in a format that
    this one does not read, and `Unavailable` if a writer began in the middle of the read.
    """
    run_dir = Path(run)
    address = read_pointer(run_dir)
    if address is not None:
        with run_database(address).open_snapshot() as connection:
            connection.folder = run_dir
            check_format(connection)
            yield connection
        return
    with (
        readable_file(run_dir) as path,
        _tell_writing_from_damage(path, run_dir),
        translate_errors(run_dir),
        closing(connect(path, write=False)) as connection,
        connection.begin(),
    ):
        connection.folder = run_dir
        check_format(connection)
        yield connection


@contextmanager
def _tell_writing_from_damage(path: Path, run_dir: Path) -> Iterator[None]:
    """Raise `Unavailable` for a file that looks damaged and was written meanwhile.

    A file without a log is read without locks, so a writer that begins then may change its pages.
    """
    before = _file_state(path)
    try:
        yield
    except JournalDamaged as error:
        if _file_state(path) == before:
            raise
        raise Unavailable(
            "the run began to be written while it was read", where=run_dir, fix="try again"
        ) from error


@contextmanager
def readable_file(run_dir: Path) -> Iterator[Path]:
    """The database file to read: the run's own, or a temporary copy.

    SQLite cannot open a database with a log in a read-only folder, so that one is copied.
    """
    path = run_dir / FILE
    require_run(run_dir)
    if not Path(f"{path}-wal").exists() or Path(f"{path}-shm").exists():
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="culmen-") as folder:
        copy = Path(folder) / FILE
        shutil.copyfile(path, copy)
        try:
            shutil.copyfile(f"{path}-wal", f"{copy}-wal")
        except FileNotFoundError:  # a last writer that closes removes the index, then the log
            copy = path
        yield copy


def require_run(run_dir: Path) -> None:
    """Raise `UserError` unless the folder holds a journal."""
    if not has_run(run_dir):
        raise UserError(
            "there is no run here", where=run_dir, fix="culmen status lists the latest run"
        )


def read_meta(connection: Connection) -> RunMeta:
    """The run's settings; raises `JournalDamaged` if they are lost or cannot be decoded."""
    raw = connection.execute("SELECT meta FROM run").scalar()
    if raw is None:
        raise JournalDamaged("the settings of the run are lost")
    try:
        return unpack_meta(raw)
    except msgspec.DecodeError as error:
        raise JournalDamaged(f"the settings of the run make no sense ({error})") from error


def check_format(connection: Connection) -> None:
    """Raise `UserError` unless the run is in the format that this culmen reads and writes."""
    format = connection.execute("SELECT format FROM run").scalar()
    if format is None:
        raise JournalDamaged(
            "the journal names no run",
            where=connection.folder,
            fix="delete the folder, or restore it",
        )
    if format > FORMAT:
        raise UserError(
            f"this run was written by a newer culmen (format {format}; this one knows up to "
            f"{FORMAT})",
            where=connection.folder,
            fix="pip install --upgrade culmen",
        )
    if format < FORMAT:
        raise UserError(
            f"this run was written by an unreleased version of culmen (format {format}; formats "
            f"are readable from {FORMAT} on)",
            where=connection.folder,
            fix="read it with the version that wrote it, or search again: culmen run TASK",
        )


def run_folders(folder: Path) -> list[Path]:
    """The folders of runs directly inside a folder, by name.

    A folder that points to a database yields a folder for each of its runs.
    """
    address = read_pointer(folder)
    if address is not None and not address.name:
        return sorted(
            local_folder(Address(address.url, name), folder)
            for name in run_database(address).list_runs()
        )
    return sorted(entry for entry in folder.iterdir() if has_run(entry)) if folder.is_dir() else []


@contextmanager
def translate_errors(run_dir: Path) -> Iterator[None]:
    """Turn errors of the driver and of the disk into `Unavailable`, `JournalDamaged` or
    `UserError`.
    """
    try:
        yield
    except _driver_errors(run_dir) as error:
        known = _culmen_error_for(error, run_dir)
        if known is None:
            raise
        raise known from error
    except (
        UnicodeDecodeError
    ) as error:  # bytes in place of text, also in SQLite's message about them
        raise _damaged_error(error, run_dir) from error
    except OSError as error:
        if error.errno in NOT_ALLOWED and str(error.filename).startswith(str(run_dir)):
            raise may_not_write(error, run_dir) from error
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO):
            raise
        raise _disk_full_error(run_dir) from error


NOT_ALLOWED = (errno.EACCES, errno.EPERM, errno.EROFS)


def may_not_write(error: OSError, run_dir: Path) -> UserError:
    """The error for a file of a run that cannot be made or written."""
    return UserError(
        f"the run's folder cannot be written ({error.strerror}: {error.filename}); everything "
        "recorded so far is safe",
        where=run_dir,
        fix=(
            f"give yourself the right to write (chmod -R u+w {run_dir}), or work on a copy; "
            "reading is always possible"
        ),
    )


def _driver_errors(run_dir: Path) -> tuple[type[Exception], ...]:
    address = read_pointer(run_dir)
    return (sqlite3.Error,) if address is None else run_database(address).driver_errors()


def _culmen_error_for(error: Exception, run_dir: Path) -> CulmenError | None:
    address = read_pointer(run_dir)
    if address is not None:
        return run_database(address).culmen_error(error)
    code: int = getattr(error, "sqlite_errorcode", 0)
    if code in (sqlite3.SQLITE_IOERR_SHORT_READ, sqlite3.SQLITE_IOERR_CORRUPTFS):
        return _damaged_error(error, run_dir)
    make_error: Callable[[Exception, Path], CulmenError] | None = _MEANINGS.get(code & 0xFF)
    if make_error is None and ("no such table" in str(error) or "Could not decode" in str(error)):
        make_error = _damaged_error
    return make_error and make_error(error, run_dir)


def _disk_full_error(run_dir: Path) -> Unavailable:
    return Unavailable(
        "the disk is full or cannot be written; everything recorded so far is safe",
        where=run_dir,
        fix=f"make space, then: culmen resume {run_dir}",
    )


def _locked_error(_: Exception, run_dir: Path) -> Unavailable:
    return Unavailable(
        "the journal is locked by another program", where=run_dir, fix="close it and try again"
    )


def _damaged_error(error: Exception, run_dir: Path) -> JournalDamaged:
    return JournalDamaged(
        f"the journal is damaged ({getattr(error, 'orig', error)})",
        where=run_dir / FILE,
        fix=f"culmen runs recover {run_dir} copies what can be read into a new run",
    )


def _unopenable_error(error: Exception, run_dir: Path) -> UserError:
    return UserError(
        f"the journal cannot be opened ({getattr(error, 'orig', error)})",
        where=run_dir,
        fix="check the permissions of the folder and its files",
    )


_MEANINGS: dict[int, Callable[[Exception, Path], CulmenError]] = {
    sqlite3.SQLITE_FULL: lambda _, run_dir: _disk_full_error(run_dir),
    sqlite3.SQLITE_IOERR: lambda _, run_dir: _disk_full_error(run_dir),
    sqlite3.SQLITE_BUSY: _locked_error,
    sqlite3.SQLITE_LOCKED: _locked_error,
    sqlite3.SQLITE_CORRUPT: _damaged_error,
    sqlite3.SQLITE_NOTADB: _damaged_error,
    sqlite3.SQLITE_READONLY: _unopenable_error,
    sqlite3.SQLITE_CANTOPEN: _unopenable_error,
    sqlite3.SQLITE_PERM: _unopenable_error,
}


def _file_state(source: Path) -> tuple[object, ...]:
    """A value that changes when the database or its log does."""
    facts: list[object] = []
    for path in (source, Path(f"{source}-wal")):
        try:
            stat = path.stat()
            facts += [stat.st_size, stat.st_mtime_ns]
        except FileNotFoundError:
            facts.append(None)
    return tuple(facts)


# A run's task, its settings, and the platform it was made on.


class _StoredOptions(RunOptions, frozen=True, kw_only=True, omit_defaults=True):
    """The options with the values that a journal implies where it leaves them out."""

    model: str | dict[str, str] | None = None
    budget: Budget = Budget()
    workers: int = 1


class RunMeta(_StoredOptions, frozen=True, omit_defaults=True):
    """The settings of a run, sufficient to resume it: its options and the values derived.

    `strategy` is `{"path": "module:Class", "config": {...}}` and `proposer` has the same form;
    `models` maps a role to the name of its model, never to a key. `trial`: no cost is incurred
    before an initial program has scored. `created` is Unix seconds. `isolation` is the level found
    in force, `scoring` the level of trust in scores with its reason. `workers` is 0 until the run
    first starts if its cluster determines the number. `model` is None if the journal does not
    record it. `bank` lists the programs of recorded models when the run was made.
    `versions` are those of what decides (`run.recheck`); a missing one is 1. A checkpoint
    is due after `checkpoints` completions (0: never).
    """

    id: str
    task: Task
    strategy: JsonObject = msgspec.field(default_factory=dict)
    proposer: JsonObject = msgspec.field(default_factory=dict)
    models: dict[str, str] = msgspec.field(default_factory=dict)
    isolation: str = ""
    scoring: Scoring = Scoring()
    created: float = 0.0
    culmen: str = ""
    python: str = ""
    platform: str = ""
    trial: bool = False
    bank: tuple[BankProgram, ...] = ()
    versions: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    checkpoints: int = 0

    @property
    def options(self) -> RunOptions:
        """The options alone, for a new run with the same ones."""
        return RunOptions(**{name: getattr(self, name) for name in RunOptions.__struct_fields__})

    @property
    def model_name(self) -> str:
        """The model's name for display; "" if unknown."""
        return str(self.model or self.models.get("default", ""))


def pack_meta(meta: RunMeta) -> bytes:
    """The settings in stored form."""
    return encode_value(msgspec.to_builtins(meta))


def unpack_meta(raw: bytes) -> RunMeta:
    """The inverse of `pack_meta`; raises `msgspec.DecodeError` for bytes that cannot be decoded."""
    return msgspec.convert(decode_value(raw), RunMeta)


# Databases that hold runs: their protocol, and the one that an address names.

Make = Callable[["Connection"], None]
"""A function that makes the tables of a new run, on the connection of its lease."""


class WriteLease(Protocol):
    """The right to write a run, and the connection to its database.

    `files`: large blobs are files of the run's folder, and the lease cannot be lost while the
    process lives.
    """

    connection: Connection
    files: bool

    def renew(self) -> Connection:
        """Own the run again after the connection was lost; return the new connection."""
        ...

    def close(self) -> None:
        """Release the run."""
        ...


class RunDatabase(Protocol):
    """A database, or one run in it: the one that its address names.

    All methods but `list_runs` and those on errors need an address with a run's name, and raise
    `UserError` if there is no such run. They raise `Unavailable` if the database does not answer.
    """

    def list_runs(self) -> list[str]:
        """The names of all runs, newest first."""
        ...

    def open_snapshot(self) -> AbstractContextManager[Connection]:
        """A connection that sees one consistent snapshot of the run's tables."""
        ...

    def take_lease(self, make: Make | None) -> WriteLease:
        """Own the run; with `make`, a new run, whose tables it makes.

        Raises `RunLocked`, naming the owner, if another process is writing the run, and
        `UserError` for a new run whose name is taken.
        """
        ...

    def read_owner(self) -> Owner | None:
        """The process that writes the run now; None without one, or without such a run."""
        ...

    def read_signature(self) -> tuple[object, ...]:
        """A value that changes when the run does, and when it gets or loses an owner."""
        ...

    def insert_message(self, message: str, body: bytes) -> None:
        """Leave a message for the run's owner; its id `message` orders messages by time."""
        ...

    def message_bodies(self) -> list[bytes]:
        """The messages that were not removed, oldest first."""
        ...

    def delete_message(self, message: str) -> None:
        """Remove a message that was journaled; it may be gone already."""
        ...

    def measure_run(self) -> int:
        """The bytes that the run's tables and indexes take."""
        ...

    def vacuum_run(self, connection: Connection) -> None:
        """Free the run's unused space, on the connection of its lease."""
        ...

    def drop_run(self) -> None:
        """Delete the run; raises `RunLocked` if a process is writing it."""
        ...

    def driver_errors(self) -> tuple[type[Exception], ...]:
        """The classes of errors that the driver raises through a raw connection."""
        ...

    def culmen_error(self, error: object) -> CulmenError | None:
        """The culmen error for an error of the driver; None for a bug."""
        ...


def run_database(address: Address) -> RunDatabase:
    """The database at an address, by the scheme of its URL; nothing is connected yet.

    Raises `UserError` if no extension adds databases of this scheme.
    """
    scheme = address.url.partition("://")[0]
    make: Callable[[Address], RunDatabase] | None = find_part("journals", scheme)
    if make is None:
        raise UserError(
            f"no extension adds databases of '{scheme}'",
            where=address,
            fix=f"install the package that does (entry points {GROUP}, slot journals)",
        )
    return make(address)
