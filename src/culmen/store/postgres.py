"""Runs in PostgreSQL: connections, who may write, and what the server's errors mean.

The writer of a run holds a session's advisory lock through the connection that it writes by: the two are lost together,
and a process that dies, however it does, gives both back. Readers share a few pooled connections for each database.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from sqlalchemy import create_engine, delete, exc, insert, make_url, pool, select, text

from culmen.core.errors import RunLocked, UserError
from culmen.store import catalogue
from culmen.store.address import Address
from culmen.store.lock import Owner
from culmen.store.postgres_errors import meaning

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

_PATIENCE = 2.0  # seconds; the server needs a moment to notice that an owner's process has gone
_LIVENESS = {  # a peer that is silent this long is gone: seconds, seconds, times, milliseconds
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
    "connect_timeout": "10",
}
_SERVER = """SELECT set_config(name, most::text, false) FROM (VALUES ('tcp_keepalives_idle', 30),
('tcp_keepalives_interval', 10), ('tcp_keepalives_count', 3), ('tcp_user_timeout', 60000)) AS wanted (name, most)
WHERE (SELECT setting::integer FROM pg_settings WHERE pg_settings.name = wanted.name) NOT BETWEEN 1 AND most"""
"""The same for the server, which holds the lock as long as it believes in the connection; where it is stricter already,
it stays so. Without the last one it would believe for a quarter of an hour in a peer that owes it an answer."""
_DURABLE = "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
_readers: dict[str, Engine] = {}


def _engine(address: Address, **settings: Any) -> Engine:
    url = make_url(address.secret_url)
    missing = {name: value for name, value in _LIVENESS.items() if name not in url.query}
    try:
        return create_engine(
            url, connect_args={**missing, "application_name": "culmen"}, hide_parameters=True, **settings
        )
    except ModuleNotFoundError:
        raise UserError(
            "PostgreSQL needs the package psycopg", where=str(address), fix="pip install 'culmen[postgres]'"
        ) from None


def _shared(address: Address) -> Engine:
    """The engine for short looks; made once for each database and process."""
    engine = _readers.get(address.url)
    if engine is None:
        engine = _readers[address.url] = _engine(
            address, isolation_level="REPEATABLE READ", pool_size=4, max_overflow=12, pool_pre_ping=True
        )
    return engine


os.register_at_fork(after_in_child=_readers.clear)  # a child must not speak on its parent's connections


@contextmanager
def session(address: Address, *, write: bool = False) -> Iterator[Connection]:
    """One transaction in a database, on its catalogue; it sees one moment."""
    with errors(address):
        with _shared(address).connect() as connection:
            connection = connection.execution_options(postgresql_readonly=not write)
            with connection.begin():
                yield connection


@contextmanager
def reading(address: Address) -> Iterator[Connection]:
    """One moment of a run."""
    with session(address) as connection:
        catalogue.enter(connection, catalogue.number_of(connection, address), local=True)
        yield connection


def owner(address: Address) -> Owner | None:
    """Who writes a run right now, None if nobody does."""
    with session(address) as connection:
        return catalogue.owner(connection, address)


def signature(address: Address) -> tuple[object, ...]:
    """Something that changes when the run does."""
    with reading(address) as connection:
        holder = catalogue.owner(connection, address)
        row = connection.execute(text("SELECT max(seq), (SELECT max(epoch) FROM run) FROM event")).one()
        return (*row, holder is not None)


def send(address: Address, message: str, body: bytes) -> None:
    """Leave a message for the owner of a run."""
    with session(address, write=True) as connection:
        number = catalogue.number_of(connection, address)
        connection.execute(insert(catalogue.message).values(run=number, id=message, body=body))


def sent(address: Address) -> list[bytes]:
    """Messages that nobody took yet, oldest first."""
    with session(address) as connection:
        mine = catalogue.message.c.run == catalogue.number_of(connection, address)
        query = select(catalogue.message.c.body).where(mine).order_by(catalogue.message.c.id)
        return list(connection.execute(query).scalars())


def forget(address: Address, message: str) -> None:
    """Remove a message that was journaled."""
    with session(address, write=True) as connection:
        mine = catalogue.message.c.run == catalogue.number_of(connection, address)
        connection.execute(delete(catalogue.message).where(mine, catalogue.message.c.id == message))


class Seat:
    """The right to write a run, and the connection that it hangs on."""

    files = False  # large blobs are in the table like the others

    def __init__(self, address: Address, connection: Connection, number: int) -> None:
        self.address, self.connection, self._number = address, connection, number

    @classmethod
    def take(cls, address: Address, make: Callable[[Connection], None] | None) -> Seat:
        """Own a run; with `make`, a new one, whose tables it makes. Raises `RunLocked`, naming the owner."""
        with errors(address):
            connection = _engine(address, poolclass=pool.NullPool).connect()
            try:
                number = _sit_down(connection, address, make)
            except BaseException:
                connection.close()
                raise
            return cls(address, connection, number)

    def renew(self) -> Connection:
        """Own the run again after the connection was lost; raises like `take`."""
        with suppress(exc.SQLAlchemyError):  # whatever it says, it is of no use any more
            self.connection.invalidate()
            self.connection.close()
        again = Seat.take(self.address, None)
        self.connection = again.connection
        return self.connection

    def close(self) -> None:
        """Give the run back."""
        engine = self.connection.engine
        with suppress(exc.DBAPIError, exc.InvalidRequestError):
            if not self.connection.invalidated:
                self.connection.rollback()
                with self.connection.begin():
                    catalogue.set_owner(self.connection, self._number, None)
                    self.connection.execute(text("SELECT pg_advisory_unlock_all()"))
        self.connection.close()
        engine.dispose()


def _sit_down(connection: Connection, address: Address, make: Callable[[Connection], None] | None) -> int:
    with connection.begin():
        connection.exec_driver_sql(_SERVER)
        connection.execute(text(_DURABLE))
        if make is not None:
            catalogue.prepare(connection)
            number = catalogue.register(connection, address)
        else:
            number = catalogue.number_of(connection, address)
        _lock(connection, address, number)
        catalogue.set_owner(connection, number, Owner(os.getpid(), socket.gethostname(), time.time()))
        catalogue.enter(connection, number, local=False)
        if make is not None:
            make(connection)
    return number


def _lock(connection: Connection, address: Address, number: int) -> None:
    query, deadline = text("SELECT pg_try_advisory_lock(:locks, :number)"), time.monotonic() + _PATIENCE
    while not connection.execute(query, {"locks": catalogue.LOCKS, "number": number}).scalar():
        if time.monotonic() >= deadline:
            raise RunLocked(
                f"another process is writing this run: {owner(address) or 'its connection is still open'}",
                where=str(address),
                fix="wait for it or stop it (Ctrl-C there); reading is always possible: culmen status",
            )
        time.sleep(0.05)


@contextmanager
def errors(address: Address) -> Iterator[None]:
    """Turn the driver's errors into culmen's."""
    try:
        yield
    except exc.DBAPIError as error:
        known = meaning(error.orig, address)
        if known is None:
            raise
        raise known from None  # the driver's own words are in it, and its chain may hold the connection's settings
