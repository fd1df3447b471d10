"""Columns of a run's rows as arrays, for views that draw or sum over all rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from culmen.core.candidate import key_of
from culmen.store.codec import unescape_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from culmen.store.sql import Connection

Array: TypeAlias = "NDArray[Any]"
Columns = dict[str, "Array"]
"""Arrays of one length by the name of the column."""


class _Column(NamedTuple):
    """A column: its type in numpy, or `t` for texts of few values.

    `source` is the column of the table that it is made of, by `convert`.
    """

    form: str
    source: str = ""
    convert: Callable[..., object] | None = None


class _Table(NamedTuple):
    name: str
    order: str
    columns: dict[str, _Column]


def _stored_key(name: str) -> int:
    return key_of(unescape_text(name))


def _trust_or_none(trust: int | None) -> int:
    return -1 if trust is None else trust


OBSERVATIONS = _Table(
    "observation",
    "seq",
    {
        "seq": _Column("i8"),
        "score": _Column("f8"),
        **dict.fromkeys(("status", "phase", "culprit"), _Column("t")),
    },
)
"""Observations in the order of their events."""

TALLIES = _Table(
    "tally",
    "first, candidate",
    {
        "key": _Column("u8", "candidate", _stored_key),
        "first": _Column("i8"),
        **dict.fromkeys(
            ("count", "failed", "asked", "accepted", "strict", "barred"), _Column("u4")
        ),
        **dict.fromkeys(("mean", "spread", "low", "high"), _Column("f8")),
        "trust": _Column("i1", "trust", _trust_or_none),
    },
)
"""Tallies in the order of first evaluations; `key` is `key_of` a candidate, `trust` -1: none."""


def read_columns(connection: Connection, table: _Table, *names: str) -> Columns:
    """These columns of all rows as arrays, all columns without a name; missing numbers are nan.

    Texts of few values are pairs of columns: `NAME` has places in the list `NAME+`.
    """
    import numpy as np

    wanted = names or tuple(table.columns)
    sources = ", ".join(table.columns[name].source or name for name in wanted)
    cursor = connection.cursor()
    cursor.execute(f"SELECT {sources} FROM {table.name} ORDER BY {table.order}")
    found: Columns = {}
    for name, values in zip(wanted, list(zip(*cursor.fetchall())) or [()] * len(wanted)):
        column = table.columns[name]
        if column.form == "t":
            known: dict[str, int] = {}
            places = [known.setdefault(text, len(known)) for text in values]
            found[name] = np.array(places, np.uint32)
            found[f"{name}+"] = np.array([*known], object)
        else:
            values = values if column.convert is None else tuple(map(column.convert, values))
            found[name] = np.array(values, np.dtype(column.form))
    return found
