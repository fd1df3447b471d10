"""SQLAlchemy's functions and the tables of a run under one name, loaded at first use.

`from culmen.store import sql` costs nothing; `sql.select(sql.event)` loads SQLAlchemy. That takes a
few tenths of a second, which a program that reads no run should not pay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy import (
        Float,
        Integer,
        bindparam,
        case,
        delete,
        distinct,
        func,
        insert,
        or_,
        select,
        text,
    )

    from culmen.store.schema import (
        blob,
        candidate,
        counter,
        event,
        holds,
        judged,
        link,
        observation,
        others,
        pack,
        progress,
        run,
        seal,
        spend,
        tally,
    )

    __all__ = [
        "Float",
        "Integer",
        "bindparam",
        "blob",
        "candidate",
        "case",
        "counter",
        "delete",
        "distinct",
        "event",
        "func",
        "holds",
        "insert",
        "judged",
        "link",
        "observation",
        "or_",
        "others",
        "pack",
        "progress",
        "run",
        "seal",
        "select",
        "spend",
        "tally",
        "text",
    ]


def __getattr__(name: str) -> object:
    import sqlalchemy

    from culmen.store import schema

    value = globals()[name] = getattr(schema if hasattr(schema, name) else sqlalchemy, name)
    return value
