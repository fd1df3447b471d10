"""Statements on a run's database: SQL as text, for SQLite and PostgreSQL.

A statement names its values `:name`; the driver gets them apart from the text, so no value is ever
read as SQL. A list stands for its elements: `id IN :ids`.
"""

from __future__ import annotations

import re
from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import Any, Protocol

Row = Any
"""A row of a result: a named tuple with the columns that the statement selects."""


class RowCursor(Protocol):
    """The parts of a driver's cursor that are used here."""

    @property
    def description(self) -> Sequence[Sequence[Any]] | None:
        """Name and type of each column of the result."""
        ...

    def execute(self, statement: str, values: Any = ..., /) -> object:
        """Execute a statement with values."""
        ...

    def executemany(self, statement: str, rows: Iterable[Any], /) -> object:
        """Execute a statement once for each row of values."""
        ...

    def fetchone(self) -> Row:
        """The next row; None after the last."""
        ...

    def fetchmany(self, size: int, /) -> list[Row]:
        """At most `size` further rows."""
        ...

    def fetchall(self) -> list[Row]:
        """All further rows."""
        ...

    def close(self) -> None:
        """Give up the rest of the result."""
        ...


class Dialect(Protocol):
    """The spelling of one database, where they differ."""

    name: str
    mark: str  # of a value by position
    fence: str  # after a SELECT of the row that only one writer may hold
    byte_order: str  # after a text: it is sorted by its bytes

    def name_mark(self, name: str) -> str:
        """The mark of a value by name."""
        ...

    def contains(self, whole: str, part: str) -> str:
        """The condition that a text or bytes contain others."""
        ...

    def streaming_cursor(self, raw: Any) -> RowCursor:
        """A cursor that never holds all rows of a large result."""
        ...


class Sqlite:
    """SQLite's spelling."""

    name, mark, fence, byte_order = "sqlite", "?", "", ""

    def name_mark(self, name: str) -> str:
        """The mark of a value by name."""
        return f":{name}"

    def contains(self, whole: str, part: str) -> str:
        """The condition that a text or bytes contain others."""
        return f"instr({whole}, {part}) > 0"

    def streaming_cursor(self, raw: Any) -> RowCursor:
        """A cursor that never holds all rows of a large result."""
        return raw.cursor()


class Connection:
    """A connection to the database of a run; rows are named tuples.

    `raw` is the driver's connection, and `begin` opens one transaction on it. `folder` is that of
    the run which is read.
    """

    folder = Path()

    def __init__(
        self, raw: Any, dialect: Dialect, begin: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self.raw, self.dialect, self.begin = raw, dialect, begin

    def cursor(self) -> RowCursor:
        """A cursor of the driver, for statements that are executed often or for many rows."""
        return self.raw.cursor()

    def execute(self, statement: str, **values: object) -> Rows:
        """Execute one statement with its values."""
        text, named = _spell(statement, values, self.dialect)
        cursor = self.cursor()
        cursor.execute(text, named)
        return Rows(cursor)

    def contains(self, whole: str, part: str) -> str:
        """The condition that a text or bytes contain others, both of the same type."""
        return self.dialect.contains(whole, part)

    def close(self) -> None:
        """Close the connection."""
        self.raw.close()


class Rows:
    """The result of a statement, read on demand; `names` are those of its columns."""

    def __init__(self, cursor: RowCursor) -> None:
        self._cursor = cursor
        self.names = tuple(str(column[0]) for column in cursor.description or ())
        self._make = _row_class(self.names)._make

    def __iter__(self) -> Iterator[Row]:
        while rows := self._cursor.fetchmany(PAGE):
            yield from map(self._make, rows)

    def all(self) -> list[Row]:
        """All rows."""
        return list(map(self._make, self._cursor.fetchall()))

    def first(self) -> Row | None:
        """The first row; None without one."""
        row = self._cursor.fetchone()
        return None if row is None else self._make(row)

    def one(self) -> Row:
        """The first row; raises `LookupError` without one."""
        row = self.first()
        if row is None:
            raise LookupError("the statement selects no row")
        return row

    def scalar(self) -> Any:
        """The first column of the first row; None without one."""
        row = self._cursor.fetchone()
        return None if row is None else row[0]

    def scalars(self) -> list[Any]:
        """The first column of all rows."""
        return [row[0] for row in self._cursor.fetchall()]


PAGE = 1000
"""Rows that are fetched or inserted at once."""


@cache
def _row_class(names: tuple[str, ...]) -> Any:
    return namedtuple("Row", names, rename=True)


_NAMED = re.compile(r"(?<![:\w]):([a-z_]\w*)")


def _spell(
    statement: str, values: dict[str, object], dialect: Dialect
) -> tuple[str, dict[str, object]]:
    """The statement in the database's spelling, and its values; lists become single values."""
    lists = {name: value for name, value in values.items() if isinstance(value, list | tuple)}
    if not lists:
        return _spell_marks(statement, dialect), values
    single = {name: value for name, value in values.items() if name not in lists}
    for name, value in lists.items():
        numbered = {f"{name}_{place}": each for place, each in enumerate(value)}
        marks = ", ".join(f":{each}" for each in numbered) or "NULL"
        statement = re.sub(rf"(?<![:\w]):{name}\b", f"({marks})", statement)
        single |= numbered
    return _NAMED.sub(lambda found: dialect.name_mark(found[1]), statement), single


@cache
def _spell_marks(statement: str, dialect: Dialect) -> str:
    return _NAMED.sub(lambda found: dialect.name_mark(found[1]), statement)


# Inserts, executed for many rows at once: values by position, in the order of the columns.


def insert_into(table: str, columns: Sequence[str], dialect: Dialect, conflict: str = "") -> str:
    """The statement that inserts a row; `conflict` is the clause for one that is there."""
    names = ", ".join(f'"{name}"' for name in columns)
    marks = ", ".join([dialect.mark] * len(columns))
    return f"INSERT INTO {table} ({names}) VALUES ({marks}) {conflict}".rstrip()


def insert_rows(cursor: RowCursor, statement: str, rows: Iterable[Sequence[object]]) -> None:
    """Insert the rows, if there are any."""
    rows = rows if isinstance(rows, list) else list(rows)
    if rows:
        cursor.executemany(statement, rows)
