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
from urllib.parse import parse_qs, urlsplit

import msgspec
from sqlalchemy import (
    Column,
    Float,
    ForeignKey,
    Identity,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    bindparam,
    create_engine,
    delete,
    exc,
    insert,
    make_url,
    pool,
    select,
    text,
    update,
)
from sqlalchemy.dialects.postgresql import insert as fresh

from culmen.core.errors import CulmenError, JournalDamaged, RunLocked, Unavailable, UserError
from culmen.store.address import VARIABLE, Address, Owner
from culmen.store.databases import Make, RunDatabase
from culmen.store.schema import metadata as run_metadata

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine, Row


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
_readers: dict[str, Engine] = {}

for _index in (index for table in run_metadata.tables.values() for index in table.indexes):
    # The schema states conditions of partial indexes for SQLite alone: see store/schema.py.
    _index.dialect_options["postgresql"]["where"] = _index.dialect_options["sqlite"]["where"]


def _make_database_engine(address: Address, **settings: Any) -> Engine:
    url = make_url(address.secret_url)
    missing = {name: value for name, value in LIVENESS.items() if name not in url.query}
    try:
        return create_engine(
            url,
            connect_args={**missing, "application_name": "culmen"},
            hide_parameters=True,
            **settings,
        )
    except ModuleNotFoundError:
        raise UserError(
            "PostgreSQL needs the package psycopg",
            where=str(address),
            fix="pip install 'culmen[postgres]'",
        ) from None


def _shared_engine(address: Address) -> Engine:
    """The engine for short reads; made once per database and process."""
    engine = _readers.get(address.url)
    if engine is None:
        engine = _readers[address.url] = _make_database_engine(
            address,
            isolation_level="REPEATABLE READ",
            pool_size=4,
            max_overflow=12,
            pool_pre_ping=True,
        )
    return engine


os.register_at_fork(after_in_child=_readers.clear)  # a child must not use its parent's connections


@contextmanager
def catalogue_session(address: Address, *, write: bool = False) -> Iterator[Connection]:
    """One transaction on the catalogue of a database, with a consistent snapshot."""
    with translate_driver_errors(address):
        with _shared_engine(address).connect() as connection:
            connection = connection.execution_options(postgresql_readonly=not write)
            with connection.begin():
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
            row = connection.execute(
                text("SELECT max(seq), (SELECT max(epoch) FROM run) FROM event")
            ).one()
            return (*row, holder is not None)

    def insert_message(self, message: str, body: bytes) -> None:
        """Leave a message for the run's owner."""
        with catalogue_session(self._address, write=True) as connection:
            number = number_of(connection, self._address)
            connection.execute(insert(message_table).values(run=number, id=message, body=body))

    def message_bodies(self) -> list[bytes]:
        """Messages not yet journaled, oldest first."""
        with catalogue_session(self._address) as connection:
            mine = message_table.c.run == number_of(connection, self._address)
            query = select(message_table.c.body).where(mine).order_by(message_table.c.id)
            return list(connection.execute(query).scalars())

    def delete_message(self, message: str) -> None:
        """Remove a message that was journaled."""
        with catalogue_session(self._address, write=True) as connection:
            mine = message_table.c.run == number_of(connection, self._address)
            connection.execute(delete(message_table).where(mine, message_table.c.id == message))

    def measure_run(self) -> int:
        """The bytes that the run's tables and indexes take."""
        with self.open_snapshot() as connection:
            return int(connection.execute(_SIZE).scalar_one())

    def vacuum_run(self, connection: Connection) -> None:
        """Write the run's tables anew, without their unused space."""
        raw: Any = connection.connection.driver_connection
        raw.rollback()
        raw.autocommit = True  # VACUUM cannot run inside a transaction
        for table in run_metadata.sorted_tables:
            raw.execute(f'VACUUM (FULL, ANALYZE) "{table.name}"')
        raw.autocommit = False

    def drop_run(self) -> None:
        """Delete the run and all its tables."""
        with (
            closing(self.take_lease(None)),
            catalogue_session(self._address, write=True) as connection,
        ):
            number = number_of(connection, self._address)
            connection.execute(text(f'DROP SCHEMA "{schema_of(number)}" CASCADE'))
            connection.execute(delete(run_table).where(run_table.c.id == number))

    def driver_errors(self) -> tuple[type[Exception], ...]:
        """The base class of psycopg's errors, if psycopg is loaded."""
        return (sys.modules["psycopg"].Error,) if "psycopg" in sys.modules else ()

    def culmen_error(self, error: object) -> CulmenError | None:
        """The culmen error for an error of psycopg; None for a bug."""
        return culmen_error_for(error, self._address)


_SIZE = text(
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
            connection = _make_database_engine(address, poolclass=pool.NullPool).connect()
            try:
                number = _acquire_run(connection, address, make)
            except BaseException:
                connection.close()
                raise
            return cls(address, connection, number)

    def renew(self) -> Connection:
        """Own the run again after the connection was lost; raises the errors of `take`."""
        with suppress(exc.SQLAlchemyError):  # the connection is lost anyway
            self.connection.invalidate()
            self.connection.close()
        again = DatabaseLease.take(self.address, None)
        self.connection = again.connection
        return self.connection

    def close(self) -> None:
        """Release the run."""
        engine = self.connection.engine
        with suppress(exc.DBAPIError, exc.InvalidRequestError):
            if not self.connection.invalidated:
                self.connection.rollback()
                with self.connection.begin():
                    set_owner(self.connection, self._number, None)
                    self.connection.execute(text("SELECT pg_advisory_unlock_all()"))
        self.connection.close()
        engine.dispose()


def _acquire_run(connection: Connection, address: Address, make: Make | None) -> int:
    with connection.begin():
        connection.exec_driver_sql(_SERVER)
        connection.execute(text(_DURABLE))
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
        text("SELECT pg_try_advisory_lock(:locks, :number)"),
        time.monotonic() + _PATIENCE,
    )
    while not connection.execute(query, {"locks": LOCKS, "number": number}).scalar():
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
    except exc.DBAPIError as error:
        known = culmen_error_for(error.orig, address)
        if known is None:
            raise
        # the message has the driver's text, and the chain may hold the connection's settings
        raise known from None


# Errors of PostgreSQL and its driver as culmen's: the problem, the database, and the remedy.

_SAFE = "everything recorded so far is safe"
_RESUME = "once it does, continue a run with: culmen resume, with its folder or address"
_UNREACHED = ("OperationalError", "ConnectionTimeout", "InterfaceError")
_REFUSED = re.compile(
    r"authentication failed|pg_hba\.conf|role .* (does not exist|is not permitted)"
)


_UNTRUSTED = re.compile(
    "certificate verify failed|server certificate for .* does not match host name .*"
    "|root certificate file .* does not exist|server does not support SSL, but SSL was required"
)


def culmen_error_for(error: object, address: Address) -> CulmenError | None:
    """The culmen error for an error of psycopg; None for a bug."""
    state, message = cast("str | None", getattr(error, "sqlstate", None)), _error_line(str(error))
    if state is None:
        return _connection_error(error, message, address)
    where = str(address)
    if state.startswith(("08", "57P")):
        return Unavailable(
            f"the connection to the database was lost ({message}); {_SAFE}",
            where=where,
            fix=_RESUME,
        )
    if state.startswith("53"):
        fix = "make room there, or raise max_connections"
        return Unavailable(f"the database has no room ({message}); {_SAFE}", where=where, fix=fix)
    if state == "42P01":
        return JournalDamaged(f"the tables of the run are damaged ({message})", where=where)
    if state == "42501":
        return UserError(
            f"the database refuses: {message}", where=where, fix=_rights_fix(message, address)
        )
    if state == "25006":
        return UserError(
            f"the database is read-only: {message}",
            where=where,
            fix="name the primary server in the URL",
        )
    if state.startswith("28") or state == "3D000":
        return UserError(
            f"the database refuses: {message}",
            where=where,
            fix="check user, password, name and rights",
        )
    return None


def _connection_error(error: object, message: str, address: Address) -> CulmenError | None:
    """The culmen error for an error of the driver itself, mostly before it connected."""
    where, user = str(address), _user_name(address)
    if found := _UNTRUSTED.search(str(error)):
        fix = "name its root certificate, and the host as the certificate has it: sslrootcert=FILE"
        what = f"the server is not the one that the URL expects ({found[0]})"
        return UserError(what, where=where, fix=fix)
    if "password authentication failed" in message:
        fix = f"give another with ~/.pgpass, PGPASSWORD, or the URL in {VARIABLE}"
        return UserError(
            f"the database refuses the password of {user} ({message})", where=where, fix=fix
        )
    if "no password supplied" in message:
        fix = f"give it with ~/.pgpass, PGPASSWORD, or the URL in {VARIABLE}"
        return UserError(
            f"the database requires a password for {user} ({message})", where=where, fix=fix
        )
    if re.search("database .* does not exist", message):
        fix = f"make it: createdb {_server_options(address)} {_database_name(address)}"
        return UserError(f"the server has no such database ({message})", where=where, fix=fix)
    if _REFUSED.search(message):
        fix = "name another user in the URL, or have the server let this one in (pg_hba.conf)"
        return UserError(f"the database refuses {user} ({message})", where=where, fix=fix)
    if (
        "invalid connection option" in message
        or "invalid port" in message
        or "invalid integer value" in message
    ):
        fix = "leave it out; after the ? are options of libpq, such as host, port, sslmode"
        return UserError(f"the URL cannot be used ({message})", where=where, fix=fix)
    if type(error).__name__ in _UNREACHED:
        fix = f"pg_isready {_server_options(address)} says whether it does; {_RESUME}"
        return Unavailable(
            f"the database does not answer ({message}); {_SAFE}", where=where, fix=fix
        )
    return None


def _error_line(text: str) -> str:
    """The first line, without the prefix common to connection errors."""
    line = text.strip().partition("\n")[0]
    return re.sub(r"^connection (failed|is bad): (?=connection to server)", "", line)


def _rights_fix(message: str, address: Address) -> str:
    if "for database" in message:
        return (
            f"as its owner: GRANT CREATE ON DATABASE {_database_name(address)} "
            f"TO {_user_name(address)}"
        )
    return (
        "connect as the user who made these runs, or as that user: GRANT <that user> TO "
        f"{_user_name(address)}"
    )


def _user_name(address: Address) -> str:
    login = urlsplit(address.url).netloc.rpartition("@")[0]
    return login or "you"


def _database_name(address: Address) -> str:
    return urlsplit(address.url).path.strip("/")


def _server_options(address: Address) -> str:
    """Command-line options that point the server's own programs to it."""
    parts = urlsplit(address.url)
    host = parts.hostname or next(iter(parse_qs(parts.query).get("host", [])), "")
    options = [f"-h {host}" if host else "", f"-p {parts.port}" if parts.port else ""]
    login = parts.netloc.rpartition("@")[0]
    return " ".join(filter(None, [*options, f"-U {login}" if login else ""]))


# The runs of a database: one row each in the schema `culmen`, the tables of each in a schema of its
# own.

FORMAT = 1
LOCKS = 0x63756C6D
"""First half of every advisory lock's key.

The second half is the run's number, or 0 while the catalogue is made.
"""

metadata = MetaData(schema="culmen")

catalogue_table = Table(
    "catalogue", metadata, Column("format", Integer, primary_key=True, autoincrement=False)
)

run_table = Table(
    "run",
    metadata,
    Column("id", Integer, Identity(), primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("created", Float, nullable=False),
    Column("owner", LargeBinary),  # the last writer; the lock shows if it is still writing
)

message_table = Table(
    "message",
    metadata,
    Column("run", Integer, ForeignKey(run_table.c.id, ondelete="CASCADE"), primary_key=True),
    Column("id", Text, primary_key=True),
    Column("body", LargeBinary, nullable=False),
)

_held = text(
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
    connection.exec_driver_sql(
        f'SET {"LOCAL " if local else ""}search_path TO "{schema_of(number)}"'
    )


def prepare_catalogue(connection: Connection) -> None:
    """Make the catalogue if it is missing; concurrent callers wait for each other."""
    if not _has_catalogue(connection):
        connection.execute(text("SELECT pg_advisory_xact_lock(:locks, 0)"), {"locks": LOCKS})
        if not _has_catalogue(connection):
            connection.execute(text("CREATE SCHEMA IF NOT EXISTS culmen"))
            metadata.create_all(connection)
            connection.execute(insert(catalogue_table).values(format=FORMAT))
    _check_catalogue_format(connection)


def register_run(connection: Connection, address: Address) -> int:
    """Register a new run and make its schema; raises `UserError` if the name is taken."""
    row = (
        fresh(run_table)
        .values(name=address.name, created=time.time())
        .on_conflict_do_nothing()
        .returning(run_table.c.id)
    )
    number = connection.execute(row).scalar()
    if number is None:
        raise UserError(
            f"there is a run '{address.name}' in this database already",
            where=str(address),
            fix="resume it, or choose another name: --db URL#NAME",
        )
    connection.execute(text(f'CREATE SCHEMA "{schema_of(number)}"'))
    return int(number)


def number_of(connection: Connection, address: Address) -> int:
    """The run's number; raises `UserError` if there is no such run."""
    number = (
        connection.execute(_number, {"name": address.name}).scalar()
        if _has_catalogue(connection)
        else None
    )
    if number is None:
        raise UserError(
            f"there is no run '{address.name}' in this database",
            where=str(address),
            fix=f"culmen db list '{address.url}'",
        )
    return int(number)


def database_runs(connection: Connection) -> list[str]:
    """The names of all runs of the database, newest first."""
    if not _has_catalogue(connection):
        return []
    _check_catalogue_format(connection)
    newest = (run_table.c.created.desc(), run_table.c.id.desc())
    return list(connection.execute(select(run_table.c.name).order_by(*newest)).scalars())


def run_owner(connection: Connection, address: Address) -> Owner | None:
    """The process that holds the run's lock now; None without one."""
    row = (
        connection.execute(_own, {"name": address.name}).one_or_none()
        if _has_catalogue(connection)
        else None
    )
    return None if row is None else _owner_in_row(row)


def set_owner(connection: Connection, number: int, holder: Owner | None) -> None:
    """Record the process that writes the run; None for none."""
    raw = None if holder is None else msgspec.json.encode(holder)
    connection.execute(update(run_table).where(run_table.c.id == number).values(owner=raw))


_number = select(run_table.c.id).where(run_table.c.name == bindparam("name"))
_own = select(run_table, _held).where(run_table.c.name == bindparam("name"))
_there = text("SELECT to_regclass('culmen.catalogue') IS NOT NULL")


def _has_catalogue(connection: Connection) -> bool:
    return bool(connection.execute(_there).scalar())


def _check_catalogue_format(connection: Connection) -> None:
    format = connection.execute(select(catalogue_table.c.format)).scalar()
    if format is not None and format > FORMAT:
        raise UserError(
            f"this database was written by a newer culmen (format {format}; this one knows up "
            f"to {FORMAT})",
            fix="pip install --upgrade culmen",
        )


def _owner_in_row(row: Row[*tuple[object, ...]]) -> Owner | None:
    return (
        msgspec.json.decode(row.owner, type=Owner) if row.held and row.owner is not None else None
    )
