"""Notes of one kind, inside one reading of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from culmen.store.codec import decode, escape

if TYPE_CHECKING:
    from sqlalchemy import Connection


def latest(connection: Connection, topic: str) -> dict[str, Any]:
    """The fields of the last note of a kind; {} without one."""
    return next(iter(newest(connection, topic, 1)), {})


def newest(connection: Connection, topic: str, most: int) -> list[dict[str, Any]]:
    """The fields of the last notes of a kind, the newest first."""
    from sqlalchemy import select

    from culmen.store.schema import event

    notes = select(event.c.body).where(event.c.kind == "note", event.c.topic == escape(topic))
    rows = connection.execute(notes.order_by(event.c.seq.desc()).limit(most)).scalars()
    return [decode(raw, dict[str, Any]) for raw in rows]


def number(connection: Connection, topic: str) -> int:
    """How many notes of a kind there are."""
    from sqlalchemy import func, select

    from culmen.store.schema import event

    query = select(func.count(event.c.seq)).where(event.c.kind == "note", event.c.topic == escape(topic))
    return connection.execute(query).scalar_one()
