"""Expressions that databases spell differently: each is written once here, and read alike everywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import Boolean, Integer
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import GenericFunction

from culmen.core.candidate import Origin
from culmen.store.codec import decode

if TYPE_CHECKING:
    from sqlalchemy import Connection


class island(GenericFunction[int]):
    """The island that the column of an origin names; NULL without one. SQLite has to be `taught` it."""

    type = Integer()
    inherit_cache = True


class holds(GenericFunction[bool]):
    """Whether a column of bytes holds these bytes."""

    type = Boolean()
    inherit_cache = True


def taught(connection: Connection) -> Connection:
    """The same connection; on SQLite it knows `island` from here on."""
    if connection.dialect.name == "sqlite":
        raw: Any = connection.connection.dbapi_connection
        raw.create_function("island", 1, _island, deterministic=True)
    return connection


@compiles(island, "postgresql")
def _island_in_postgresql(element: Any, compiler: Any, **options: Any) -> str:
    """By a pattern: PostgreSQL's JSON refuses texts with NUL. In a text its quotes would be escaped."""
    origin = compiler.process(element.clauses, **options)
    return f"""CAST(substring(convert_from({origin}, 'UTF8') from '"island":(-?[0-9]+)') AS INTEGER)"""


@compiles(holds)
def _holds(element: Any, compiler: Any, **options: Any) -> str:
    column, wanted = (compiler.process(each, **options) for each in element.clauses)
    return f"(instr({column}, {wanted}) > 0)"


@compiles(holds, "postgresql")
def _holds_in_postgresql(element: Any, compiler: Any, **options: Any) -> str:
    column, wanted = (compiler.process(each, **options) for each in element.clauses)
    return f"(position({wanted} in {column}) > 0)"


def _island(origin: bytes) -> int | None:
    if b'"island"' not in origin:  # most have none: not worth decoding
        return None
    return decode(origin, Origin).island
