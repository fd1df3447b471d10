"""Costs of effects, read from their events."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import msgspec

from culmen.core.usage import Usage
from culmen.store.codec import decode_value
from culmen.store.reader import EVENTS, PAGE, Texts, assemble_events
from culmen.store.schema import OTHERS
from culmen.store.sql import Connection

# results that may carry a usage, beside observations
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
    return costs_where(connection, run, "seq > :after AND seq <= :last", after=after, last=last)


def costs_where(
    connection: Connection, run: Path, condition: str, **values: object
) -> list[EffectCost]:
    """Costs of the effects whose last event meets a condition in SQL, in order."""
    asked = connection.execute("SELECT role FROM spend WHERE effect = 'ask' LIMIT 1").first()
    shapes = [*_COSTLY, "observation"] if asked else [*_COSTLY]
    query = (
        "SELECT seq, elapsed, body, result FROM event WHERE kind = 'done' AND shape IN :shapes "
        f"AND {'1 = 1' if asked else OTHERS} AND {condition} ORDER BY seq"
    )
    rows = connection.execute(query, shapes=shapes, **values).all()
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
        page = wanted[start : start + PAGE]
        rows = connection.execute(f"{EVENTS} WHERE seq IN :page", page=page).all()
        for event in assemble_events(connection, folder, rows, Texts()):
            result = event.entry.result
            usage, faults = getattr(result, "usage", _FREE), getattr(result, "faults", {})
            shares = _usage_shares(str(event.entry.body.get("role", "")), result)
            costs.append(EffectCost(event.seq, event.entry.elapsed, usage, faults, shares))
    return costs
