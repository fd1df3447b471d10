"""Access to the database of a run, and translation of its errors into culmen's."""

from __future__ import annotations

import errno
import math
import shutil
import sqlite3
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import closing, contextmanager
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

import msgspec

from culmen.core.errors import CulmenError, JournalDamaged, Unavailable, UserError
from culmen.core.evaluation import Scoring
from culmen.core.json import JsonObject
from culmen.core.options import BankProgram, RunOptions, TaskDefaults
from culmen.core.task import Task
from culmen.core.usage import Budget
from culmen.store.address import FILE, Address, has_run, local_folder, read_pointer
from culmen.store.codec import decode_value, encode_value
from culmen.store.databases import run_database

if TYPE_CHECKING:
    from alembic.config import Config
    from sqlalchemy import Connection, Dialect, Engine


def engine_for(path: Path, *, write: bool) -> Engine:
    """A SQLAlchemy engine on the SQLite file.

    A read-only engine (`write` False) never writes, locks or creates a file.
    """
    return (
        _make_sqlite_engine(_sqlite_uri(path, write), True)
        if write
        else _reader_engine(_sqlite_uri(path, write))
    )


@lru_cache(64)
def _reader_engine(uri: str) -> Engine:
    """A cached read-only engine: it holds compiled statements, not a connection."""
    return _make_sqlite_engine(uri, False)


@cache
def _shared_dialect() -> tuple[Dialect, MutableMapping[object, object]]:
    """The dialect and the compiled statements of all engines on files.

    Every run has engines of its own; without this, each would compile the same statements.
    """
    from sqlalchemy import create_engine, util

    first = create_engine("sqlite://")
    first.connect().close()  # it learns what this SQLite can do
    first.dispose()
    return first.dialect, util.LRUCache(1000)


def _make_sqlite_engine(uri: str, write: bool) -> Engine:
    from sqlalchemy import Engine, event, make_url, pool

    dialect, compiled = _shared_dialect()
    connections = pool.NullPool(
        partial(sqlite3.connect, uri, uri=True, check_same_thread=False, timeout=10.0),  # pyright: ignore
        dialect=dialect,
    )
    engine = Engine(connections, dialect, make_url("sqlite://"))
    engine.update_execution_options(compiled_cache=compiled)

    @event.listens_for(engine, "connect")
    def _configure(raw: sqlite3.Connection, _record: object) -> None:
        raw.isolation_level = None  # the driver must not begin transactions on its own
        if write:
            raw.execute("PRAGMA journal_mode=WAL")
            raw.execute("PRAGMA synchronous=FULL")
        else:
            raw.execute("PRAGMA query_only=ON")
            _add_sqrt(raw)

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    return engine


def _sqlite_uri(path: Path, write: bool) -> str:
    base = "file:" + quote(str(path.absolute()))
    if write:
        return base
    # Without a log no process is writing and nothing is pending, so SQLite need not create its side
    # files for a read.
    return f"{base}?mode=ro" + ("" if Path(f"{path}-wal").exists() else "&immutable=1")


def _add_sqrt(raw: sqlite3.Connection) -> None:
    """Add a square root to a SQLite built without one; the built-in one is faster."""
    try:
        raw.execute("SELECT sqrt(1.0)")
    except sqlite3.OperationalError:
        raw.create_function("sqrt", 1, _sqrt_or_none, deterministic=True)


def _sqrt_or_none(value: float | None) -> float | None:
    return None if value is None else math.sqrt(value)


@contextmanager
def open_snapshot(run_dir: Path, *, tables: bool = True) -> Iterator[Connection]:
    """A connection that sees one consistent snapshot of the run.

    A run written by an older culmen is not changed: the connection is to an upgraded copy, unless
    `tables` is False (for readers of events, blobs and settings, which are alike in every format).
    In a database such a run is refused instead.

    Raises `UserError` if there is no run, or if a newer culmen wrote it, and `Unavailable` if a
    writer began in the middle of the read.
    """
    address = read_pointer(run_dir)
    if address is not None:
        with _open_database_snapshot(address, run_dir, tables) as connection:
            yield connection
        return
    with (
        readable_file(run_dir) as path,
        _tell_writing_from_damage(path, run_dir),
        translate_errors(run_dir),
    ):
        engine = engine_for(path, write=False)
        with engine.connect() as connection, connection.begin():
            check_format(connection, run_dir)
            if not tables or _is_current(connection):
                yield connection
                return
        engine = engine_for(upgraded_copy(path, _sqlite_uri(path, False), FILE), write=False)
        with engine.connect() as connection, connection.begin():
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
            "the run began to be written while it was read", where=str(run_dir), fix="try again"
        ) from error


@contextmanager
def _open_database_snapshot(address: Address, run_dir: Path, tables: bool) -> Iterator[Connection]:
    with run_database(address).open_snapshot() as connection:
        check_format(connection, run_dir)
        if tables and not _is_current(connection):
            fix = f"culmen db migrate '{address.url}'"
            raise UserError(
                "an older culmen made the tables of this run", where=str(address), fix=fix
            )
        yield connection


def _is_current(connection: Connection) -> bool:
    from sqlalchemy import select

    from culmen.store import schema

    return connection.execute(select(schema.version.c.version_num)).scalar() == schema.REVISION


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
            "there is no run here", where=str(run_dir), fix="culmen status lists the latest run"
        )


def read_meta(connection: Connection) -> RunMeta:
    """The run's settings; raises `JournalDamaged` if they are lost or cannot be decoded."""
    from sqlalchemy import select
    from sqlalchemy.exc import NoResultFound

    from culmen.store import schema

    try:
        return unpack_meta(connection.execute(select(schema.run.c.meta)).scalar_one())
    except NoResultFound:
        raise JournalDamaged("the settings of the run are lost") from None
    except msgspec.DecodeError as error:
        raise JournalDamaged(f"the settings of the run make no sense ({error})") from error


def check_format(connection: Connection, run_dir: Path) -> None:
    """Raise `UserError` if the run was written by a newer culmen."""
    from sqlalchemy import select

    from culmen.store import schema

    format = connection.execute(select(schema.run.c.format)).scalar()
    if format is None:
        raise JournalDamaged(
            "the journal names no run", where=str(run_dir), fix="delete the folder, or restore it"
        )
    if format > FORMAT:
        raise UserError(
            f"this run was written by a newer culmen (format {format}; this one knows up to "
            f"{FORMAT})",
            where=str(run_dir),
            fix="pip install --upgrade culmen",
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
    from sqlalchemy.exc import DBAPIError

    try:
        yield
    except (DBAPIError, *_driver_errors(run_dir)) as error:
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
        where=str(run_dir),
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
        return run_database(address).culmen_error(getattr(error, "orig", error))
    code: int = getattr(getattr(error, "orig", error), "sqlite_errorcode", 0)
    if code in (sqlite3.SQLITE_IOERR_SHORT_READ, sqlite3.SQLITE_IOERR_CORRUPTFS):
        return _damaged_error(error, run_dir)
    make_error: Callable[[Exception, Path], CulmenError] | None = _MEANINGS.get(code & 0xFF)
    if make_error is None and ("no such table" in str(error) or "Could not decode" in str(error)):
        make_error = _damaged_error
    return make_error and make_error(error, run_dir)


def _disk_full_error(run_dir: Path) -> Unavailable:
    return Unavailable(
        "the disk is full or cannot be written; everything recorded so far is safe",
        where=str(run_dir),
        fix=f"make space, then: culmen resume {run_dir}",
    )


def _locked_error(_: Exception, run_dir: Path) -> Unavailable:
    return Unavailable(
        "the journal is locked by another program", where=str(run_dir), fix="close it and try again"
    )


def _damaged_error(error: Exception, run_dir: Path) -> JournalDamaged:
    return JournalDamaged(
        f"the journal is damaged ({getattr(error, 'orig', error)})",
        where=str(run_dir / FILE),
        fix=f"culmen recover {run_dir} copies what can be read into a new run",
    )


def _unopenable_error(error: Exception, run_dir: Path) -> UserError:
    return UserError(
        f"the journal cannot be opened ({getattr(error, 'orig', error)})",
        where=str(run_dir),
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


# Upgrade a run's tables (Alembic, revisions in store/migrations).


def upgrade_tables(connection: Connection) -> None:
    """Upgrade to the newest revision inside the connection's transaction.

    Alembic is loaded only if an upgrade is due.
    """
    from sqlalchemy import inspect

    if inspect(connection).has_table("alembic_version") and _is_current(connection):
        return
    from alembic import command

    command.upgrade(alembic_configuration(connection), "head")


def alembic_configuration(connection: Connection) -> Config:
    """Alembic's settings for one run, on an open connection."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "culmen.store:migrations")
    config.attributes["connection"] = connection
    return config


# Upgraded copies of runs that an older culmen wrote: made once, shared by all readers.

_MOST = 4  # copies kept at once


class _UpgradedCopy(NamedTuple):
    state: tuple[object, ...]
    folder: tempfile.TemporaryDirectory[str]
    file: Path


_lock = threading.Lock()  # Alembic knows one migration at a time
_kept: OrderedDict[Path, _UpgradedCopy] = OrderedDict()


def upgraded_copy(source: Path, uri: str, name: str) -> Path:
    """A copy of the tables of `source` (opened by `uri`), upgraded, in a file called `name`.

    The copy is cached and made anew if the source changed.
    """
    with _lock:
        state = _file_state(source)
        known = _kept.pop(source, None)
        if known is None or known.state != state or not known.file.is_file():
            known = _make_copy(state, uri, name)
        _kept[source] = known
        while len(_kept) > _MOST:
            _kept.popitem(last=False)  # its folder goes with it
        return known.file


def _make_copy(state: tuple[object, ...], uri: str, name: str) -> _UpgradedCopy:
    folder = tempfile.TemporaryDirectory(prefix="culmen-")
    file = Path(folder.name) / name
    with closing(sqlite3.connect(uri, uri=True)) as old, closing(sqlite3.connect(file)) as new:
        old.backup(new)
    engine: Engine = engine_for(file, write=True)
    with engine.connect() as connection, connection.begin():
        upgrade_tables(connection)
    return _UpgradedCopy(state, folder, file)


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

FORMAT = 3
"""Version of the journal's format that this program writes; it also reads all older ones."""

_APART = (
    "model",
    "models_file",
    "require",
    "backend",
    "embedder",
    "integrity",
    "stop_at",
    "fork_of",
)


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
    `versions` are those of what decides (`culmen.run.versions`); a missing one is 1. A checkpoint
    is due after `checkpoints` completions (0: never, as in runs of before there were any).
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
    format: int = FORMAT
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
    """The settings in stored form: some of the options are in a table `extra`."""
    plain = msgspec.to_builtins(meta)
    extra = {name: plain.pop(name) for name in _APART if name in plain}
    return encode_value({**plain, "extra": extra} if extra else plain)


def unpack_meta(raw: bytes) -> RunMeta:
    """The inverse of `pack`; raises `msgspec.DecodeError` for bytes that cannot be decoded."""
    plain = decode_value(raw)
    if isinstance(plain, dict):
        extra = plain.pop("extra", {})
        plain |= {name: extra[name] for name in _APART if extra.get(name) is not None}
        if isinstance(task := plain.get("task"), dict) and "defaults" in task:
            task["defaults"] = _read_defaults(task["defaults"])
    return msgspec.convert(plain, RunMeta)


def _read_defaults(stored: JsonObject) -> TaskDefaults:
    """A task's defaults; those that an earlier version stored are `foreign`.

    No session of a run depends on them: its options have what was chosen.
    """
    try:
        return msgspec.convert(stored, TaskDefaults)
    except msgspec.ValidationError:
        return TaskDefaults(foreign=stored)
