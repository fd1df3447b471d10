"""The runs of a database: one row each in the schema `culmen`, the tables of each in a schema of its own.

Imports SQLAlchemy, so import this module late. What people send to a run is kept here too, for its owner to take in.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

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
    delete,
    insert,
    select,
    text,
    update,
)
from sqlalchemy.dialects.postgresql import insert as fresh

from culmen.core.errors import UserError
from culmen.store.lock import Owner

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from culmen.store.address import Address

FORMAT = 1
LOCKS = 0x63756C6D
"""First half of every advisory lock's key; the second is the run's number, 0 while the catalogue is made."""

metadata = MetaData(schema="culmen")

about = Table("catalogue", metadata, Column("format", Integer, primary_key=True, autoincrement=False))

run = Table(
    "run",
    metadata,
    Column("id", Integer, Identity(), primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("created", Float, nullable=False),
    Column("owner", LargeBinary),  # who wrote last; whether it still does, its lock says
)

message = Table(
    "message",
    metadata,
    Column("run", Integer, ForeignKey(run.c.id, ondelete="CASCADE"), primary_key=True),
    Column("id", Text, primary_key=True),
    Column("body", LargeBinary, nullable=False),
)

_held = text(
    "EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 2"
    f" AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND classid = {LOCKS}"
    " AND objid = run.id::bigint::oid) AS held"
)


class Line(NamedTuple):
    """One run: its number, its name, when it was made (Unix seconds), and who writes it now."""

    number: int
    name: str
    created: float
    owner: Owner | None


def schema_of(number: int) -> str:
    """The schema that holds the tables of a run."""
    return f"culmen_run_{number}"


def enter(connection: Connection, number: int, *, local: bool) -> None:
    """Let unqualified names mean this run's tables: for this transaction, or for as long as the connection lasts."""
    connection.exec_driver_sql(f'SET {"LOCAL " if local else ""}search_path TO "{schema_of(number)}"')


def prepare(connection: Connection) -> None:
    """Make the catalogue where there is none; two at once wait for each other."""
    if not _exists(connection):
        connection.execute(text("SELECT pg_advisory_xact_lock(:locks, 0)"), {"locks": LOCKS})
        if not _exists(connection):
            connection.execute(text("CREATE SCHEMA IF NOT EXISTS culmen"))
            metadata.create_all(connection)
            connection.execute(insert(about).values(format=FORMAT))
    _check(connection)


def register(connection: Connection, address: Address) -> int:
    """Enter a new run and make its schema; raises `UserError` if the name is taken."""
    row = fresh(run).values(name=address.name, created=time.time()).on_conflict_do_nothing().returning(run.c.id)
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
    """The run's number; raises `UserError` where there is no such run."""
    number = connection.execute(_number, {"name": address.name}).scalar() if _exists(connection) else None
    if number is None:
        raise UserError(
            f"there is no run '{address.name}' in this database",
            where=str(address),
            fix=f"culmen db list '{address.url}'",
        )
    return int(number)


def lines(connection: Connection) -> list[Line]:
    """All runs, newest first."""
    if not _exists(connection):
        return []
    _check(connection)
    rows = connection.execute(select(run, _held).order_by(run.c.created.desc(), run.c.id.desc()))
    return [Line(row.id, row.name, row.created, _owner(row)) for row in rows]


def owner(connection: Connection, address: Address) -> Owner | None:
    """Who holds the run's lock right now."""
    row = connection.execute(_own, {"name": address.name}).one_or_none() if _exists(connection) else None
    return None if row is None else _owner(row)


def set_owner(connection: Connection, number: int, holder: Owner | None) -> None:
    """Note who writes the run."""
    raw = None if holder is None else msgspec.json.encode(holder)
    connection.execute(update(run).where(run.c.id == number).values(owner=raw))


def drop(connection: Connection, number: int) -> None:
    """Delete a run and everything in it."""
    connection.execute(text(f'DROP SCHEMA "{schema_of(number)}" CASCADE'))
    connection.execute(delete(run).where(run.c.id == number))


_number = select(run.c.id).where(run.c.name == bindparam("name"))
_own = select(run, _held).where(run.c.name == bindparam("name"))
_there = text("SELECT to_regclass('culmen.catalogue') IS NOT NULL")


def _exists(connection: Connection) -> bool:
    return bool(connection.execute(_there).scalar())


def _check(connection: Connection) -> None:
    found = connection.execute(select(about.c.format)).scalar()
    if found is not None and found > FORMAT:
        raise UserError(
            f"this database was written by a newer culmen (format {found}; this one knows up to {FORMAT})",
            fix="pip install --upgrade culmen",
        )


def _owner(row: Any) -> Owner | None:
    return msgspec.json.decode(row.owner, type=Owner) if row.held and row.owner is not None else None
