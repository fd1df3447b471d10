"""A connection to the queue that is made again whenever it is lost, and the queue's set-up."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, LiteralString

from culmen.cluster.postgres import LIVENESS, culmen_error_for
from culmen.cluster.queue_schema import MIGRATIONS
from culmen.core.errors import CulmenError, Unavailable, UserError
from culmen.core.json import JsonObject
from culmen.store.address import Address

if TYPE_CHECKING:
    import psycopg
    from psycopg.rows import TupleRow

_LOCK = 0x63756C71  # advisory lock while the schema is made
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0  # seconds between attempts to connect
_CONNECT_SECONDS = 30.0  # for one attempt, packets lost on the way included
_FORGOTTEN = {"PGPASSWORD": "password", "PGSSLKEY": "sslkey"}
"""Variables of libpq that a worker removes from its environment before it evaluates."""


class QueueLink:
    """One connection for one task: nothing else calls it while a call is under way.

    `patience` bounds, in seconds, the time without a connection; infinity for a worker. `wake` is
    set by notifications, with their channels in `heard`, and by others that have work for the task.
    `connections` counts those made. `durable` commits are waited for; the others of the last second
    are lost if the server crashes, which the next connection shows.
    """

    def __init__(
        self,
        address: Address,
        channels: Sequence[str],
        patience: float,
        on_message: Callable[[str], None],
        *,
        durable: bool = True,
    ) -> None:
        self.wake, self.heard, self.connections = asyncio.Event(), set[str](), 0
        self._durable = durable
        self._address, self._channels = address, channels
        self._patience, self._on_message = patience, on_message
        self._login = {
            name: os.environ[variable]
            for variable, name in _FORGOTTEN.items()
            if variable in os.environ
        }
        self._connection: psycopg.AsyncConnection | None = None

    async def call(self, statement: LiteralString, values: Sequence[object] = ()) -> list[TupleRow]:
        """Rows of one statement, repeated over a new connection if the old one was lost.

        So a statement must bear being made twice. Raises `UserError` if the server refuses the
        login, and `Unavailable` after `patience`.
        """
        import psycopg

        lost_at, pause = 0.0, _FIRST_PAUSE
        while True:
            try:
                connection = self._connection or await self._connect()
                cursor = await connection.execute(statement, values)
                rows = await cursor.fetchall() if cursor.description else []
            except (psycopg.Error, TimeoutError) as error:
                await self.close()
                self._require_passing(error)
                self._require_patience(error, lost_at)
                if not lost_at:
                    lost_at = time.monotonic()
                    self._on_message(f"The queue does not answer ({_first_line(error)}).")
                await asyncio.sleep(pause * (0.5 + secrets.randbelow(1000) / 1000))
                pause = min(2 * pause, _LONGEST_PAUSE)
                continue
            if lost_at:
                self._on_message("The queue answers again.")
            return rows

    async def _connect(self) -> psycopg.AsyncConnection:
        import psycopg
        from psycopg import sql

        async with asyncio.timeout(_CONNECT_SECONDS):
            connection = await psycopg.AsyncConnection.connect(
                connection_text(self._address, self._login), autocommit=True
            )
            connection.add_notify_handler(self._on_notify)
            if not self._durable:
                await connection.execute("SET synchronous_commit = off")
            for channel in self._channels:
                await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
        self.wake.set()  # notifications may have been missed
        self._connection = connection
        self.connections += 1
        return connection

    def _on_notify(self, notification: psycopg.Notify) -> None:
        self.heard.add(notification.channel)
        self.wake.set()

    def _require_passing(self, error: Exception) -> None:
        """Raise an error that will not pass by itself: a `UserError`, or a bug."""
        import psycopg

        known = queue_error(error, self._address)
        if known is not None and not isinstance(known, Unavailable):
            raise known from None
        passing = (psycopg.OperationalError, psycopg.InterfaceError, TimeoutError)
        if known is None and not isinstance(error, passing):
            raise error

    def _require_patience(self, error: Exception, lost_at: float) -> None:
        if lost_at and time.monotonic() - lost_at > self._patience:
            raise Unavailable(
                f"the queue does not answer ({_first_line(error)})",
                where=str(self._address),
                fix="once it does: culmen resume",
            ) from None

    async def wait(self, seconds: float) -> None:
        """Wait until `wake` is set or the server sends something, at most `seconds`."""
        loop, connection = asyncio.get_running_loop(), self._connection
        number = -1 if connection is None or connection.closed else connection.fileno()
        if number >= 0:
            loop.add_reader(number, self.wake.set)
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.wake.wait(), seconds)
        finally:
            if number >= 0:
                loop.remove_reader(number)
        self.wake.clear()

    async def close(self) -> None:
        """Close the connection; the next call makes another one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()


def connection_text(address: Address, login: Mapping[str, str] | None = None) -> str:
    """The settings of a connection for libpq, password included; never show them."""
    from psycopg.conninfo import conninfo_to_dict, make_conninfo

    given = conninfo_to_dict("postgresql://" + address.secret_url.partition("://")[2])
    usual = {**LIVENESS, "application_name": "culmen", **(login or {})}
    return make_conninfo("", **(usual | given))


def queue_error(error: object, address: Address) -> CulmenError | None:
    """The culmen error for an error of psycopg; None for one that is unknown."""
    state, where = getattr(error, "sqlstate", None), str(address)
    if state == "CQ001":
        fix = f"culmen queue token '{address}' NAME, as the queue's owner"
        return UserError("the queue refuses the worker's token", where=where, fix=fix)
    if state in ("3F000", "42703", "42883", "42P01"):
        fix = f"culmen queue setup '{address}', as its owner; the same culmen on both sides"
        return UserError("the database has no queue of this version", where=where, fix=fix)
    return culmen_error_for(error, address)


def prepare_queue(address: Address) -> int:
    """Make the queue's schema, or bring it up to this version; the number of scripts that ran.

    Raises `UserError` for a schema of a newer culmen, and if the user may not make schemas.
    """
    with _owner_connection(address) as connection:
        connection.execute("SELECT pg_advisory_xact_lock(%s, 0)", (_LOCK,))
        version = _schema_version(connection)
        if version > len(MIGRATIONS):
            raise UserError(
                f"the queue was made by a newer culmen (version {version} of its tables)",
                where=str(address),
                fix="pip install --upgrade culmen",
            )
        connection.execute("SET LOCAL search_path TO culmen_queue, pg_temp")
        for script in MIGRATIONS[version:]:
            connection.execute(script)
        if version < len(MIGRATIONS):
            connection.execute("DELETE FROM format")
            connection.execute("INSERT INTO format VALUES (%s)", (len(MIGRATIONS),))
        return len(MIGRATIONS) - version


@contextlib.contextmanager
def _owner_connection(address: Address) -> Iterator[psycopg.Connection]:
    """A connection whose block is one transaction; errors of psycopg become culmen's."""
    import psycopg

    try:
        with psycopg.connect(connection_text(address)) as connection:
            yield connection
    except psycopg.Error as error:
        if (known := queue_error(error, address)) is None:
            raise
        raise known from None


def _schema_version(connection: psycopg.Connection) -> int:
    row = connection.execute("SELECT to_regclass('culmen_queue.format') IS NOT NULL").fetchone()
    if row is None or not row[0]:
        connection.execute("CREATE SCHEMA IF NOT EXISTS culmen_queue")
        return 0
    row = connection.execute("SELECT max(version) FROM culmen_queue.format").fetchone()
    return int(row[0]) if row and row[0] is not None else 0


def new_token(address: Address, name: str, runs: Sequence[str] | None, trusted: bool) -> str:
    """A token for the worker `name`, which replaces an older one; only its hash is stored."""
    token = secrets.token_urlsafe(32)
    change_queue(
        address,
        "INSERT INTO culmen_queue.worker (name, token, runs, trusted) VALUES (%s, %s, %s, %s) ON "
        "CONFLICT (name) DO UPDATE SET token = excluded.token, runs = excluded.runs, trusted = "
        "excluded.trusted, revoked = false",
        (name, hashlib.sha256(token.encode()).digest(), list(runs) if runs else None, trusted),
    )
    return token


def change_queue(
    address: Address, statement: LiteralString, values: Sequence[object] = ()
) -> list[TupleRow]:
    """Rows of one statement of the queue's owner, for a queue that is made if it is not there."""
    prepare_queue(address)
    return ask_queue(address, statement, values)


def ask_queue(
    address: Address, statement: LiteralString, values: Sequence[object] = ()
) -> list[TupleRow]:
    """Rows of one statement of the queue's owner, over a connection of its own."""
    with _owner_connection(address) as connection:
        cursor = connection.execute(statement, values)
        return cursor.fetchall() if cursor.description else []


_STATES: LiteralString = """
SELECT run.name, count(item.id) FILTER (WHERE state = 0) AS ready,
    count(item.id) FILTER (WHERE state = 1) AS leased,
    count(item.id) FILTER (WHERE state = 2) AS answered,
    count(item.id) FILTER (WHERE state = 3) AS lost
FROM culmen_queue.run LEFT JOIN culmen_queue.item ON item.run = run.id
GROUP BY run.id ORDER BY run.id"""
_WORKERS: LiteralString = """
SELECT name, trusted, revoked, place, count(process.id) AS processes,
    coalesce(sum(slots), 0) AS slots
FROM culmen_queue.worker LEFT JOIN culmen_queue.process ON process.worker = worker.id
    AND process.seen > clock_timestamp() - interval '1 minute'
GROUP BY worker.id ORDER BY name"""
_FINDINGS: LiteralString = """
SELECT to_char(at, 'YYYY-MM-DD HH24:MI:SS') AS at, run.name AS run, text
FROM culmen_queue.finding JOIN culmen_queue.run ON run.id = finding.run ORDER BY finding.id"""


def read_queue(address: Address) -> dict[str, list[JsonObject]]:
    """Runs, workers and findings of a queue, each as tables of plain data."""
    return {
        "runs": _read_table(address, _STATES),
        "workers": _read_table(address, _WORKERS),
        "findings": _read_table(address, _FINDINGS),
    }


def _read_table(address: Address, statement: LiteralString) -> list[JsonObject]:
    from psycopg.rows import dict_row

    with _owner_connection(address) as connection:
        cursor = connection.cursor(row_factory=dict_row)
        return [JsonObject(row) for row in cursor.execute(statement).fetchall()]


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
