"""How far a strategy with agents has come, from its notes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from culmen.store.codec import decode, escape

if TYPE_CHECKING:
    from sqlalchemy import Connection


class Agents(msgspec.Struct, frozen=True):
    """`begun` of `of` agents, of which `ended` had their turn; `experiments` by all of them, seeds included; `best` is
    the score that counts for thresholds: certified where the task has a verifier."""

    begun: int
    of: int
    ended: int
    experiments: int
    best: float | None
    program: str = ""


def agents(connection: Connection) -> Agents | None:
    """The agents of a run; None if its strategy has none, or none has begun."""
    told, tried = _latest(connection, "agent"), _latest(connection, "experiment")
    if not told and not tried:
        return None
    return Agents(
        begun=_number(connection, "agent"),
        of=int(told.get("agents") or tried.get("agents") or 0),
        ended=_number(connection, "agent ended"),
        experiments=int(tried.get("n", 0)),
        best=tried.get("best"),
        program=str(told.get("program", "")),
    )


def _latest(connection: Connection, topic: str) -> dict[str, Any]:
    """The fields of the last note of a kind."""
    from sqlalchemy import select

    from culmen.store.schema import event

    notes = select(event.c.body).where(event.c.kind == "note", event.c.topic == escape(topic))
    raw = connection.execute(notes.order_by(event.c.seq.desc()).limit(1)).scalar()
    return {} if raw is None else decode(raw, dict[str, Any])


def _number(connection: Connection, topic: str) -> int:
    """How many notes of a kind there are: each agent leaves one when it begins and one when it ended."""
    from sqlalchemy import func, select

    from culmen.store.schema import event

    query = select(func.count(event.c.seq)).where(event.c.kind == "note", event.c.topic == escape(topic))
    return connection.execute(query).scalar_one()
