"""Runs in PostgreSQL: connections, the right to write, and translation of errors.

The writer of a run holds a session's advisory lock on the connection that it writes through: both
are lost together, and both are released when the process dies, for whatever reason. Readers share a
few pooled connections per database.
"""

from __future__ import annotations

import os
import re
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote, urlsplit

import msgspec

from culmen.core.errors import CulmenError, JournalDamaged, RunLocked, Unavailable, UserError
from culmen.store.address import VARIABLE, Address, Owner
from culmen.store.database import Make, RunDatabase
from culmen.store.schema import TABLES
from culmen.store.sql import Connection, Row, RowCursor

if TYPE_CHECKING:
    import psycopg

_PATIENCE = 2.0  # seconds; the server needs a moment to notice that an owner's process is gone
LIVENESS = {  # a peer silent for longer counts as gone: seconds, seconds, times, milliseconds
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
    "connect_timeout": "10",
}
_SERVER = (
    "SELECT set_config(name, most::text, false) FROM (VALUES ('tcp_keepalives_idle', 30),\n"
    "('tcp_keepalives_interval', 10), ('tcp_keepalives_count', 3), ('tcp_user_timeout', 60000)) "
    "AS wanted (name, most)\n"
    "WHERE (SELECT setting::integer FROM pg_settings WHERE pg_settings.name = wanted.name) "
    "NOT BETWEEN 1 AND most"
)
"""The same limits for the server, which holds the lock while it considers the connection alive;
stricter settings of the server stay. Without tcp_user_timeout the server would wait about a
quarter of an hour for a peer that owes it an answer.
"""
_DURABLE = (
    "SELECT set_config('synchronous_commit', 'on', false) WHERE "
    "current_setting('synchronous_commit') = 'off'"
)
_KEPT = 4  # idle connections for reading that are kept for each database
_readers: dict[str, list[Connection]] = {}


class Postgres:
    """PostgreSQL's spelling of the statements in `culmen.store.sql`."""

    name, mark, fence = "postgresql", "%s", "FOR UPDATE"
    byte_order = 'COLLATE "C"'

    def name_mark(self, name: str) -> str:
        """The mark of a value by name."""
        return f"%({name})s"

    def contains(self, whole: str, part: str) -> str:
        """The condition that a text or bytes contain others."""
        return f"position({part} in {whole}) > 0"

    def streaming_cursor(self, raw: psycopg.Connection[Any]) -> RowCursor:
        """A cursor that never holds all rows of a large result."""
        return cast("RowCursor", raw.cursor("copied"))


def _connect(address: Address) -> Connection:
    """A connection whose transactions are opened by `Connection.begin`."""
    try:
        import psycopg
        from psycopg.conninfo import conninfo_to_dict
    except ModuleNotFoundError:
        raise UserError(
            "PostgreSQL needs the package psycopg",
            where=str(address),
            fix="pip install 'culmen[postgres]'",
        ) from None
    url, password = address.url.replace("+psycopg", "", 1), urlsplit(address.secret_url).password
    known = conninfo_to_dict(url)
    settings: dict[str, Any] = {k: v for k, v in LIVENESS.items() if k not in known}
    if password is not None:  # beside the URL, which errors repeat
        settings["password"] = unquote(password)
    raw = psycopg.connect(url, **settings, application_name="culmen")
    return Connection(raw, Postgres(), lambda: _transaction(raw))


@contextmanager
def _transaction(raw: psycopg.Connection[Any]) -> Iterator[None]:
    try:
        yield
        raw.commit()
    except BaseException:
        if not raw.closed:
            raw.rollback()
        raise


os.register_at_fork(after_in_child=_readers.clear)  # a child must not use its parent's connections


@contextmanager
def _reader(address: Address) -> Iterator[Connection]:
    """A connection for short reads, kept for the next one if it still works."""
    idle = _readers.setdefault(address.url, [])
    connection = _living(idle.pop()) if idle else None
    connection = connection or _connect(address)
    try:
        yield connection
    except BaseException:
        connection.close()
        raise
    if len(idle) < _KEPT:
        idle.append(connection)
    else:
        connection.close()


def _living(connection: Connection) -> Connection | None:
    """The connection if the server still answers through it."""
    errors = PostgresDatabase.driver_errors()
    try:
        with connection.begin():
            connection.execute("SELECT 1")
    except errors:
        connection.close()
        return None
    return connection


@contextmanager
def catalogue_session(address: Address, *, write: bool = False) -> Iterator[Connection]:
    """One transaction on the catalogue of a database, with a consistent snapshot."""
    with translate_driver_errors(address), _reader(address) as connection, connection.begin():
        access = "READ WRITE" if write else "READ ONLY"
        connection.execute(f"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, {access}")
        yield connection


class PostgresDatabase(RunDatabase):
    """A PostgreSQL database, or one run in it."""

    def __init__(self, address: Address) -> None:
        self._address = address

    def list_runs(self) -> list[str]:
        """The names of all runs, newest first."""
        with catalogue_session(self._address) as connection:
            return database_runs(connection)

    @contextmanager
    def open_snapshot(self) -> Iterator[Connection]:
        """A connection that sees one consistent snapshot of the run's tables."""
        with catalogue_session(self._address) as connection:
            enter_run(connection, number_of(connection, self._address), local=True)
            yield connection

    def take_lease(self, make: Make | None) -> DatabaseLease:
        """Own the run; with `make`, a new run, whose tables it makes."""
        return DatabaseLease.take(self._address, make)

    def read_owner(self) -> Owner | None:
        """The process that writes the run now; None without one."""
        with catalogue_session(self._address) as connection:
            return run_owner(connection, self._address)

    def read_signature(self) -> tuple[object, ...]:
        """A value that changes when the run does, and when it gets or loses an owner."""
        with self.open_snapshot() as connection:
            holder = run_owner(connection, self._address)
            row = connection.execute(_SIGNATURE).one()
            return (*row, holder is not None)

    def insert_message(self, message: str, body: bytes) -> None:
        """Leave a message for the run's owner."""
        with catalogue_session(self._address, write=True) as connection:
            number = number_of(connection, self._address)
            connection.execute(
                "INSERT INTO culmen.message (run, id, body) VALUES (:run, :id, :body)",
                run=number,
                id=message,
                body=body,
            )

    def message_bodies(self) -> list[bytes]:
        """Messages not yet journaled, oldest first."""
        with catalogue_session(self._address) as connection:
            query = "SELECT body FROM culmen.message WHERE run = :run ORDER BY id"
            return connection.execute(query, run=number_of(connection, self._address)).scalars()

    def delete_message(self, message: str) -> None:
        """Remove a message that was journaled."""
        with catalogue_session(self._address, write=True) as connection:
            number = number_of(connection, self._address)
            query = "DELETE FROM culmen.message WHERE run = :run AND id = :id"
            connection.execute(query, run=number, id=message)

    def measure_run(self) -> int:
        """The bytes that the run's tables and indexes take."""
        with self.open_snapshot() as connection:
            return int(connection.execute(_SIZE).scalar())

    def vacuum_run(self, connection: Connection) -> None:
        """Write the run's tables anew, without their unused space."""
        raw: psycopg.Connection[Any] = connection.raw
        raw.rollback()
        raw.autocommit = True  # VACUUM cannot run inside a transaction
        for table in TABLES:
            connection.execute(f'VACUUM (FULL, ANALYZE) "{table}"')
        raw.autocommit = False

    def drop_run(self) -> None:
        """Delete the run and all its tables."""
        with (
            closing(self.take_lease(None)),
            catalogue_session(self._address, write=True) as connection,
        ):
            number = number_of(connection, self._address)
            connection.execute(f'DROP SCHEMA "{schema_of(number)}" CASCADE')
            connection.execute("DELETE FROM culmen.run WHERE id = :number", number=number)

    @staticmethod
    def driver_errors() -> tuple[type[Exception], ...]:
        """The base class of psycopg's errors, if psycopg is loaded."""
        psycopg = sys.modules.get("psycopg")
        return (psycopg.Error,) if psycopg else ()

    def culmen_error(self, error: object) -> CulmenError | None:
        """The culmen error for an error of psycopg; None for a bug."""
        return culmen_error_for(error, self._address)


_SIGNATURE = "SELECT max(seq), (SELECT max(epoch) FROM run) FROM event"
_SIZE = (
    "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c JOIN "
    "pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind = 'r' AND n.nspname = "
    "current_schema()"
)


class DatabaseLease:
    """The right to write a run, and the connection that holds it."""

    files = False  # large blobs are in the table like all others

    def __init__(self, address: Address, connection: Connection, number: int) -> None:
        self.address, self.connection, self._number = address, connection, number

    @classmethod
    def take(cls, address: Address, make: Make | None) -> DatabaseLease:
        """Own a run; with `make`, a new run, whose tables it makes.

        Raises `RunLocked`, naming the owner, if another process is writing the run.
        """
        with translate_driver_errors(address):
            connection = _connect(address)
            try:
                number = _acquire_run(connection, address, make)
            except BaseException:
                connection.close()
                raise
            return cls(address, connection, number)

    def renew(self) -> Connection:
        """Own the run again after the connection was lost; raises the errors of `take`."""
        self.connection.close()  # it is lost anyway
        again = DatabaseLease.take(self.address, None)
        self.connection = again.connection
        return self.connection

    def close(self) -> None:
        """Release the run."""
        with suppress(*PostgresDatabase.driver_errors()):  # a lost connection released it
            self.connection.raw.rollback()
            with self.connection.begin():
                set_owner(self.connection, self._number, None)
                self.connection.execute("SELECT pg_advisory_unlock_all()")
        self.connection.close()


def _acquire_run(connection: Connection, address: Address, make: Make | None) -> int:
    with connection.begin():
        connection.execute(_SERVER)
        connection.execute(_DURABLE)
        if make is not None:
            prepare_catalogue(connection)
            number = register_run(connection, address)
        else:
            number = number_of(connection, address)
        _lock_run(connection, address, number)
        set_owner(connection, number, Owner(os.getpid(), socket.gethostname(), time.time()))
        enter_run(connection, number, local=False)
        if make is not None:
            make(connection)
    return number


def _lock_run(connection: Connection, address: Address, number: int) -> None:
    query, deadline = (
        f"SELECT pg_try_advisory_lock({LOCKS}, {number})",
        time.monotonic() + _PATIENCE,
    )
    while not connection.execute(query).scalar():
        if time.monotonic() >= deadline:
            raise RunLocked(
                "another process is writing this run: "
                f"{PostgresDatabase(address).read_owner() or 'its connection is still open'}",
                where=str(address),
                fix=(
                    "wait for it or stop it (Ctrl-C there); reading is always possible: culmen "
                    "status"
                ),
            )
        time.sleep(0.05)


@contextmanager
def translate_driver_errors(address: Address) -> Iterator[None]:
    """Turn the driver's errors into culmen's."""
    try:
        yield
    except PostgresDatabase.driver_errors() as error:
        known = culmen_error_for(error, address)
        if known is None:
            raise
        # the message has the driver's text, and the chain may hold the connection's settings
        raise known from None


# Errors of PostgreSQL and its driver as culmen's: the driver's own message, the database, and a
# command that tells more.

_SAFE = "everything recorded so far is safe"
_UNREACHED = ("OperationalError", "ConnectionTimeout", "InterfaceError")

# errors before there is a connection have no code; waiting does not help with these
_MISTAKE = re.compile(
    r"authentication failed|no password supplied|pg_hba\.conf|does not exist|not permitted|"
    r"certificate|SSL|invalid (connection option|port|integer value|URI)"
)


def culmen_error_for(error: object, address: Address) -> CulmenError | None:
    """The culmen error for an error of psycopg; None for a bug."""
    state = cast("str | None", getattr(error, "sqlstate", None))
    message, where = str(error).strip().partition("\n")[0], str(address)
    url = address.url.replace("+psycopg", "", 1)
    if state == "42P01":
        return JournalDamaged(f"the tables of the run are damaged ({message})", where=where)
    if _is_refusal(error, state):
        return UserError(
            f"the database refuses: {message}",
            where=where,
            fix=f"psql '{url}' has to work; a password is read from ~/.pgpass, PGPASSWORD, or the "
            f"URL in {VARIABLE}",
        )
    is_away = state is None and type(error).__name__ in _UNREACHED
    if is_away or (state or "").startswith(("08", "53", "57P")):
        return Unavailable(
            f"the database does not answer, or has no room ({message}); {_SAFE}",
            where=where,
            fix=f"pg_isready -d '{url}' says whether it does; then: culmen resume, with the run's "
            "folder or address",
        )
    return None


def _is_refusal(error: object, state: str | None) -> bool:
    """True for a missing right, a read-only server, a wrong URL, login or database."""
    if state is None:
        return _MISTAKE.search(str(error)) is not None
    return state in ("42501", "25006", "3D000") or state.startswith("28")


# The runs of a database: one row each in the schema `culmen`, the tables of each in a schema of its
# own.

FORMAT = 1
LOCKS = 0x63756C6D
"""First half of every advisory lock's key.

The second half is the run's number, or 0 while the catalogue is made.
"""

_CATALOGUE = (
    "CREATE SCHEMA IF NOT EXISTS culmen",
    "CREATE TABLE culmen.catalogue (format INTEGER PRIMARY KEY)",
    # `owner` is the last writer; the lock shows if it is still writing
    "CREATE TABLE culmen.run (id INTEGER GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, "
    "name TEXT NOT NULL UNIQUE, created DOUBLE PRECISION NOT NULL, owner BYTEA)",
    "CREATE TABLE culmen.message (run INTEGER REFERENCES culmen.run (id) ON DELETE CASCADE, "
    "id TEXT, body BYTEA NOT NULL, PRIMARY KEY (run, id))",
    f"INSERT INTO culmen.catalogue (format) VALUES ({FORMAT})",
)

_held = (
    "EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 2"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND "
    f"classid = {LOCKS}"
    " AND objid = run.id::bigint::oid) AS held"
)


def schema_of(number: int) -> str:
    """The schema that holds the tables of a run."""
    return f"culmen_run_{number}"


def enter_run(connection: Connection, number: int, *, local: bool) -> None:
    """Resolve unqualified table names to this run's tables.

    `local`: for this transaction only; otherwise for the lifetime of the connection.
    """
    connection.execute(f'SET {"LOCAL " if local else ""}search_path TO "{schema_of(number)}"')


def prepare_catalogue(connection: Connection) -> None:
    """Make the catalogue if it is missing; concurrent callers wait for each other."""
    if not _has_catalogue(connection):
        connection.execute(f"SELECT pg_advisory_xact_lock({LOCKS}, 0)")
        if not _has_catalogue(connection):
            for statement in _CATALOGUE:
                connection.execute(statement)
    _check_catalogue_format(connection)


def register_run(connection: Connection, address: Address) -> int:
    """Register a new run and make its schema; raises `UserError` if the name is taken."""
    query = (
        "INSERT INTO culmen.run (name, created) VALUES (:name, :created) "
        "ON CONFLICT DO NOTHING RETURNING id"
    )
    number = connection.execute(query, name=address.name, created=time.time()).scalar()
    if number is None:
        raise UserError(
            f"there is a run '{address.name}' in this database already",
            where=str(address),
            fix="resume it, or choose another name: --db URL#NAME",
        )
    connection.execute(f'CREATE SCHEMA "{schema_of(number)}"')
    return int(number)


def number_of(connection: Connection, address: Address) -> int:
    """The run's number; raises `UserError` if there is no such run."""
    number = (
        connection.execute(_number, name=address.name).scalar()
        if _has_catalogue(connection)
        else None
    )
    if number is None:
        raise UserError(
            f"there is no run '{address.name}' in this database",
            where=str(address),
            fix=f"culmen runs db list '{address.url}'",
        )
    return int(number)


def database_runs(connection: Connection) -> list[str]:
    """The names of all runs of the database, newest first."""
    if not _has_catalogue(connection):
        return []
    _check_catalogue_format(connection)
    newest = "SELECT name FROM culmen.run ORDER BY created DESC, id DESC"
    return connection.execute(newest).scalars()


def run_owner(connection: Connection, address: Address) -> Owner | None:
    """The process that holds the run's lock now; None without one."""
    row = (
        connection.execute(_own, name=address.name).first() if _has_catalogue(connection) else None
    )
    return None if row is None else _owner_in_row(row)


def set_owner(connection: Connection, number: int, holder: Owner | None) -> None:
    """Record the process that writes the run; None for none."""
    raw = None if holder is None else msgspec.json.encode(holder)
    query = "UPDATE culmen.run SET owner = :owner WHERE id = :number"
    connection.execute(query, owner=raw, number=number)


_number = "SELECT id FROM culmen.run WHERE name = :name"
_own = f"SELECT owner, {_held} FROM culmen.run WHERE name = :name"
_there = "SELECT to_regclass('culmen.catalogue') IS NOT NULL"


def _has_catalogue(connection: Connection) -> bool:
    return bool(connection.execute(_there).scalar())


def _check_catalogue_format(connection: Connection) -> None:
    format = connection.execute("SELECT format FROM culmen.catalogue").scalar()
    if format is not None and format > FORMAT:
        raise UserError(
            f"this database was written by a newer culmen (format {format}; this one knows up "
            f"to {FORMAT})",
            fix="pip install --upgrade culmen",
        )


def _owner_in_row(row: Row) -> Owner | None:
    return (
        msgspec.json.decode(row.owner, type=Owner) if row.held and row.owner is not None else None
    )
