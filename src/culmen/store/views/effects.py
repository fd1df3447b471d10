"""Effects of a run: their starts and ends, results, costs and embeddings."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import msgspec

from culmen.core.event import Event, Vectors
from culmen.core.json import JsonObject
from culmen.core.usage import Usage
from culmen.store.codec import decode_value
from culmen.store.database import open_snapshot
from culmen.store.reader import END, PAGE, select_events
from culmen.store.schema import OTHERS
from culmen.store.sql import Connection

_OTHERS = ("proposal", "text", "vectors", "custom", "edits")  # every shape but observations


class EffectMark(NamedTuple):
    """A start (`started`) or an end (`done`, `torn`) of an effect.

    `stop` and `state` end all effects in flight.
    """

    seq: int
    kind: str
    effect: str
    key: int
    elapsed: float
    time: float


class EmbeddedCandidates(NamedTuple):
    """Candidates and their embeddings: consecutive rows of `width` little-endian float32."""

    seq: int
    candidates: tuple[str, ...]
    width: int
    data: bytes


def effect_marks(run: Path | str, after: int = 0, last: int = END) -> list[EffectMark]:
    """Starts and ends of all effects after event `after`, up to `last`, in journal order."""
    with open_snapshot(run) as connection:
        return _marks_of(connection, after, last)


def in_flight(run: Path | str) -> list[EffectMark]:
    """Starts of the effects that have not ended, oldest first.

    The journal is read from its end, because effects in flight began recently, until as many are
    found as the writer counts.
    """
    ended, starts, before = set[int](), list[EffectMark](), END
    with open_snapshot(run) as connection:
        query = "SELECT value FROM counter WHERE scope = 'session' AND name = 'in_flight'"
        count = connection.execute(query).scalar() or 0
        while len(starts) < count:
            page = _marks_where(
                connection, f"seq < :before ORDER BY seq DESC {_LIMIT}", before=before
            )
            for mark in page:
                if mark.kind in ("state", "stop"):
                    return starts[::-1]
                if mark.kind == "started" and mark.key not in ended:
                    starts.append(mark)
                ended.add(mark.key)
            if len(page) < PAGE:
                break
            before = page[-1].seq
    return starts[::-1]


def cut_off_evaluations(run: Path | str) -> list[float]:
    """Seconds of evaluations that had no result when the search ended, longest first.

    Looked for among the last effects before that; empty while the search runs.
    """
    with open_snapshot(run) as connection:
        stops = _marks_where(connection, "kind = 'stop' ORDER BY seq DESC LIMIT 1")
        if not stops:
            return []
        stop = stops[0]
        ends = _marks_where(connection, f"seq > :stop AND kind = 'done' {_LIMIT}", stop=stop.seq)
        before = f"seq < :stop ORDER BY seq DESC {_LIMIT}"
        marks = _marks_where(connection, before, stop=stop.seq)
    ended = {end.key for end in ends}
    found: list[float] = []
    for mark in marks:
        if mark.kind == "state":
            break
        if mark.kind == "started" and mark.effect == "evaluate" and mark.key not in ended:
            found.append(max(0.0, stop.elapsed - mark.elapsed))
        ended.add(mark.key)
    return sorted(found, reverse=True)


def effect_subjects(run: Path | str, seqs: Sequence[int]) -> dict[int, dict[str, str]]:
    """The candidate (`of`) and the `case` of each of these starts.

    Starts that record neither are left out.
    """
    query = "SELECT seq, body FROM event WHERE seq IN :seqs"
    with open_snapshot(run) as connection:
        rows = connection.execute(query, seqs=list(seqs)).all()
    return {row.seq: decode_value(row.body, dict[str, str]) for row in rows if row.body}


def _marks_of(connection: Connection, after: int, last: int) -> list[EffectMark]:
    between = "seq > :after AND seq <= :last ORDER BY seq"
    return _marks_where(connection, between, after=after, last=last)


_LIMIT = f"LIMIT {PAGE}"


def _marks_where(connection: Connection, rest: str, **values: object) -> list[EffectMark]:
    """The marks that meet a condition; `rest` is the statement from there on."""
    query = (
        "SELECT seq, kind, effect, key, elapsed, time FROM event "
        f"WHERE kind NOT IN ('note', 'tell') AND {rest}"
    )
    return [EffectMark(*row) for row in connection.execute(query, **values).all()]


def effect_results(
    run: Path | str, prefix: str, after: int = 0, limit: int = 10_000
) -> list[Event]:
    """Finished effects after event `after` whose kind begins with `prefix`, oldest first.

    Evaluations are left out.
    """
    query = (
        f"{OTHERS} AND shape IN :shapes AND seq > :after AND kind = 'done' "
        "AND substr(effect, 1, :length) = :prefix ORDER BY seq LIMIT :limit"
    )
    values = {"shapes": _OTHERS, "after": after, "length": len(prefix), "prefix": prefix}
    with open_snapshot(run) as connection:
        return select_events(connection, query, **values, limit=limit)


def candidate_embeddings(run: Path | str, after: int = 0) -> list[EmbeddedCandidates]:
    """Embeddings made after event `after` for which the journal names the candidates."""
    query = (
        f"SELECT seq, body, result, data FROM event WHERE {OTHERS} AND seq > :after "
        "AND shape = 'vectors' ORDER BY seq"
    )
    embeddings: list[EmbeddedCandidates] = []
    with open_snapshot(run) as connection:
        for seq, body, result, data in connection.execute(query, after=after):
            names = tuple(decode_value(body, JsonObject).get("candidates", ())) if body else ()
            vectors = decode_value(result, Vectors)
            if len(names) == vectors.count:
                embeddings.append(EmbeddedCandidates(seq, names, vectors.width, data or b""))
    return embeddings


def effect_costs(run: Path | str, after: int = 0, last: int = END) -> list[EffectCost]:
    """Costs of model calls and other effects after event `after`, up to `last`.

    Includes evaluations that asked models. Effects that cost nothing are left out, unless they had
    faults.
    """
    with open_snapshot(run) as connection:
        return costs_of(connection, after, last)


def costs_of_events(run: Path | str, seqs: Iterable[int]) -> list[EffectCost]:
    """Costs of these events, as `effect_costs`."""
    with open_snapshot(run) as connection:
        return costs_where(connection, "seq IN :seqs", seqs=sorted(seqs))


def spending_by_event(run: Path | str, last: int = END) -> Callable[[int], Usage]:
    """A function that returns all costs up to an event, of events up to `last`."""
    costs = effect_costs(run, 0, last)
    sums = [Usage(), *accumulate(cost.usage for cost in costs)]

    def spent_at(seq: int) -> Usage:
        return sums[bisect_right(costs, seq, key=lambda cost: cost.seq)]

    return spent_at


# Costs of effects, read from their events.

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


def costs_of(connection: Connection, after: int, last: int) -> list[EffectCost]:
    """Costs of the effects that ended after one event, up to another, in order."""
    return costs_where(connection, "seq > :after AND seq <= :last", after=after, last=last)


def costs_where(connection: Connection, condition: str, **values: object) -> list[EffectCost]:
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
        for cost in (*plain, *_large_costs(connection, large))
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


def _large_costs(connection: Connection, seqs: set[int]) -> list[EffectCost]:
    costs: list[EffectCost] = []
    wanted = sorted(seqs)
    for start in range(0, len(wanted), PAGE):
        page = wanted[start : start + PAGE]
        for event in select_events(connection, "seq IN :page", page=page):
            result = event.entry.result
            usage, faults = getattr(result, "usage", _FREE), getattr(result, "faults", {})
            shares = _usage_shares(str(event.entry.body.get("role", "")), result)
            costs.append(EffectCost(event.seq, event.entry.elapsed, usage, faults, shares))
    return costs
