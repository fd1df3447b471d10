"""Costs of effects, read from their events."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from culmen.core.usage import Usage
from culmen.store import sql
from culmen.store.codec import decode_value
from culmen.store.reader import PAGE, Texts, assemble_events

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection

# results that may carry a usage; see also `spend`
_COSTLY = ("proposal", "text", "vectors", "custom")


class EffectCost(NamedTuple):
    """Cost of one effect and its faults by kind.

    `seq` is the event of its result. `shares` splits the cost by role and model.
    """

    seq: int
    elapsed: float
    usage: Usage
    faults: dict[str, int]
    shares: tuple[tuple[str, str, Usage], ...] = ()


def costs_of(connection: Connection, run: Path, after: int, last: int) -> list[EffectCost]:
    """Costs of the effects that ended after one event, up to another, in order."""
    seq = sql.event.c.seq
    return costs_where(connection, run, seq > after, seq <= last)


def costs_where(
    connection: Connection, run: Path, *conditions: ColumnElement[bool]
) -> list[EffectCost]:
    """Costs of the effects whose last event meets these conditions, in order."""
    columns = (sql.event.c.seq, sql.event.c.elapsed, sql.event.c.body, sql.event.c.result)
    query = sql.select(*columns).where(sql.event.c.kind == "done", *conditions)
    asked = connection.execute(
        sql.select(sql.spend.c.role).where(sql.spend.c.effect == "ask").limit(1)
    ).first()
    shapes = (
        [sql.event.c.shape.in_((*_COSTLY, "observation"))]
        if asked
        else [sql.others, sql.event.c.shape.in_(_COSTLY)]
    )
    query = query.where(*shapes)
    rows = connection.execute(query.order_by(sql.event.c.seq)).all()
    plain = [
        EffectCost(row.seq, row.elapsed, *_stored_usage(row.body, row.result))
        for row in rows
        if row.result[:5] != b"blob:"
    ]
    large = {row.seq for row in rows} - {cost.seq for cost in plain}
    costs = [
        cost
        for cost in (*plain, *_large_costs(connection, run, large))
        if cost.faults or cost.usage != _FREE
    ]
    return sorted(costs, key=lambda cost: cost.seq)


def running_dollars(
    connection: Connection, run: Path, after: int, last: int, dollars: float = 0.0
) -> list[tuple[int, float]]:
    """Events and the dollars spent up to each, from an event with these dollars up to another."""
    found = [(after, dollars)]
    for cost in costs_of(connection, run, after, last):
        dollars += cost.usage.dollars
        found.append((cost.seq, dollars))
    return found


class _ModelCall(msgspec.Struct):
    """The part of a model call's record that is needed here."""

    role: str = ""
    model: str = ""
    usage: Usage = Usage()


class _ResultUsage(msgspec.Struct):
    """The part of a stored result that is needed here; the rest is not decoded."""

    usage: Usage = Usage()
    faults: dict[str, int] = {}
    model: str = ""
    asked: tuple[_ModelCall, ...] = ()


class _EffectRole(msgspec.Struct):
    """The part of a stored effect that is needed here."""

    role: str = ""


_FREE = Usage()


def _stored_usage(
    body: bytes | None, raw: bytes
) -> tuple[Usage, dict[str, int], tuple[tuple[str, str, Usage], ...]]:
    if b'"usage"' not in raw and b'"faults"' not in raw:
        return _FREE, {}, ()
    stored = decode_value(raw, _ResultUsage)
    return (
        stored.usage,
        stored.faults,
        _usage_shares(decode_value(body, _EffectRole).role if body else "", stored),
    )


def _usage_shares(role: str, result: object) -> tuple[tuple[str, str, Usage], ...]:
    if asked := getattr(result, "asked", ()):  # an evaluation that asked models
        return tuple((each.role, each.model, each.usage) for each in asked)
    return ((role, getattr(result, "model", ""), getattr(result, "usage", _FREE)),)


def _large_costs(connection: Connection, folder: Path, seqs: set[int]) -> list[EffectCost]:
    costs: list[EffectCost] = []
    wanted = sorted(seqs)
    for start in range(0, len(wanted), PAGE):
        rows = connection.execute(
            sql.select(sql.event).where(sql.event.c.seq.in_(wanted[start : start + PAGE]))
        ).all()
        for event in assemble_events(connection, folder, rows, Texts()):
            result = event.entry.result
            usage, faults = getattr(result, "usage", _FREE), getattr(result, "faults", {})
            shares = _usage_shares(str(event.entry.body.get("role", "")), result)
            costs.append(EffectCost(event.seq, event.entry.elapsed, usage, faults, shares))
    return costs
