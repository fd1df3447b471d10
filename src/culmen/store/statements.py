"""The hot inserts: compiled once by SQLAlchemy, run by the driver's `executemany`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import Table, case, func, insert, literal_column
from sqlalchemy.dialects import postgresql, sqlite

from culmen.store import schema

if TYPE_CHECKING:
    from sqlalchemy import Dialect

_UPSERT: dict[str, Any] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}


class Inserts:
    """SQL texts for one dialect. Rows are tuples in the order of the table's columns."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        fresh = _UPSERT[dialect.name]
        self.event = self._compile(insert(schema.event), schema.event)
        self.observation = self._compile(insert(schema.observation), schema.observation)
        self.progress = self._compile(insert(schema.progress), schema.progress)
        self.blob = self._compile(fresh(schema.blob).on_conflict_do_nothing(), schema.blob)
        self.candidate = self._compile(fresh(schema.candidate).on_conflict_do_nothing(), schema.candidate)
        self.tally = self._compile(_merge_tally(fresh(schema.tally)), schema.tally)
        self.spend = self._compile(_add(fresh(schema.spend), schema.spend), schema.spend)
        self.counter = self._compile(_add(fresh(schema.counter), schema.counter), schema.counter)

    def _compile(self, statement: Any, table: Table) -> str:
        return compiled(statement, table, self._dialect)


def compiled(statement: Any, table: Table, dialect: Dialect) -> str:
    """The text of an insert whose parameters are by place, in the order of the table's columns."""
    by_place = dialect if dialect.name == "sqlite" else type(dialect)(paramstyle="format")  # pyright: ignore
    names = [column.name for column in table.columns]
    made = statement.compile(dialect=by_place, column_keys=names)
    if list(made.positiontup or ()) != names:
        raise RuntimeError(f"unexpected parameter order for {table.name}: {made.positiontup}")
    return str(made)


def run_many(cursor: Any, sql: str, rows: Iterable[Sequence[Any]]) -> None:
    """Insert rows, if there are any."""
    rows = rows if isinstance(rows, list) else list(rows)
    if rows:
        cursor.executemany(sql, rows)


def _add(statement: Any, table: Table) -> Any:
    keys = list(table.primary_key.columns)
    sums = {c.name: c + statement.excluded[c.name] for c in table.columns if not c.primary_key}
    return statement.on_conflict_do_update(index_elements=keys, set_=sums)


def _merge_tally(statement: Any) -> Any:
    """Merge two samples: Chan, Golub and LeVeque's pairwise update of mean and sum of squared deviations."""
    old, new, zero = schema.tally.c, statement.excluded, literal_column("0")
    both = func.nullif(old.count + new.count, zero)
    delta = new.mean - old.mean
    merged = {
        "count": old.count + new.count,
        "mean": old.mean + func.coalesce(delta * new.count / both, zero),
        "spread": old.spread + new.spread + func.coalesce(delta * delta * old.count * new.count / both, zero),
    }
    merged["low"] = case((old.low < new.low, old.low), else_=func.coalesce(new.low, old.low))
    merged["high"] = case((old.high > new.high, old.high), else_=func.coalesce(new.high, old.high))
    merged["trust"] = case((old.trust > new.trust, old.trust), else_=func.coalesce(new.trust, old.trust))
    merged["grave"] = func.coalesce(old.grave, new.grave)
    sums = {c.name: c + new[c.name] for c in old if c.name not in ("candidate", "first", *merged)}
    return statement.on_conflict_do_update(index_elements=[old.candidate], set_=merged | sums)
