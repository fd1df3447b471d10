"""What went on when: starts and ends of effects, what each cost, embeddings, and the family tree.

Everything is asked for from a place in the journal on, so that a reader that stays need not read anything twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from culmen.core.event import Event, Vectors
from culmen.core.usage import Usage
from culmen.store.codec import decode, unescape
from culmen.store.database import reading
from culmen.store.reader import PAGE, Texts, assemble

if TYPE_CHECKING:
    from sqlalchemy import Connection, Select

_END = 2**63 - 1  # beyond the last event
_OTHERS = ("proposal", "text", "vectors", "custom", "edits")  # every shape but observations
_COSTLY = ("proposal", "text", "vectors", "custom")  # results that may carry a usage; observations: see `spend`


class Mark(NamedTuple):
    """A start (`started`), an end (`done`, `torn`), or what ends everything in flight (`stop`, `state`)."""

    seq: int
    kind: str
    effect: str
    key: int
    elapsed: float
    time: float


class Cost(NamedTuple):
    """What one effect cost, and what went wrong on the way by kind; `seq` is where its result stands."""

    seq: int
    elapsed: float
    usage: Usage
    faults: dict[str, int]


class Embedded(NamedTuple):
    """Candidates and their embeddings: rows of `width` little-endian float32, one after another."""

    seq: int
    candidates: tuple[str, ...]
    width: int
    data: bytes


class Remark(NamedTuple):
    """A note of the strategy: its kind and its fields (`note` among them)."""

    seq: int
    elapsed: float
    kind: str
    body: dict[str, Any]


class Node(NamedTuple):
    """A candidate in the family tree: its first parent ("" for a root), and its scores so far."""

    id: str
    seq: int
    parent: str
    operator: str
    count: int
    mean: float | None
    failed: int


def pulse(run: Path | str) -> int:
    """The number of events: the cheapest way to see that something happened."""
    from sqlalchemy import func, select

    from culmen.store.schema import event

    with reading(Path(run)) as connection:
        return connection.execute(select(func.max(event.c.seq))).scalar() or 0


def marks(run: Path | str, after: int = 0, last: int = _END) -> list[Mark]:
    """Starts and ends of all effects beyond `after`, up to `last`, in the order of the journal."""
    from culmen.store.schema import event

    with reading(Path(run)) as connection:
        query = _marks().where(event.c.seq > after, event.c.seq <= last).order_by(event.c.seq)
        return [Mark(*row) for row in connection.execute(query)]


def in_flight(run: Path | str) -> list[Mark]:
    """The starts of what has not ended, oldest first. Read from the end: what is in flight began not long ago."""
    from culmen.store.schema import event

    ended, found, before = set[int](), list[Mark](), _END
    with reading(Path(run)) as connection:
        while True:
            query = _marks().where(event.c.seq < before).order_by(event.c.seq.desc()).limit(PAGE)
            page = [Mark(*row) for row in connection.execute(query)]
            for mark in page:
                if mark.kind in ("state", "stop"):
                    return found[::-1]
                if mark.kind == "started" and mark.key not in ended:
                    found.append(mark)
                ended.add(mark.key)
            if len(page) < PAGE:
                return found[::-1]
            before = page[-1].seq


def _marks() -> Select[*tuple[Any, ...]]:
    from sqlalchemy import select

    from culmen.store.schema import event

    columns = (event.c.seq, event.c.kind, event.c.effect, event.c.key, event.c.elapsed, event.c.time)
    return select(*columns).where(event.c.kind.not_in(("note", "tell")))


def costs(run: Path | str, after: int = 0, last: int = _END) -> list[Cost]:
    """What calls of models and effects of other kinds cost, beyond `after`, up to `last`; without those that cost
    nothing, unless something went wrong."""
    from sqlalchemy import select

    from culmen.store.schema import event, others

    columns = (event.c.seq, event.c.elapsed, event.c.shape, event.c.result)
    query = select(*columns).where(others, event.c.seq > after, event.c.kind == "done", event.c.shape.in_(_COSTLY))
    with reading(Path(run)) as connection:
        rows = connection.execute(query.where(event.c.seq <= last).order_by(event.c.seq)).all()
        plain = [Cost(row.seq, row.elapsed, *_usage(row.result)) for row in rows if row.result[:5] != b"blob:"]
        large = {row.seq for row in rows} - {cost.seq for cost in plain}
        found = [cost for cost in (*plain, *_large(connection, Path(run), large)) if cost.faults or cost.usage != _FREE]
    return sorted(found, key=lambda cost: cost.seq)


def evaluated(run: Path | str, after: int = 0, last: int = _END) -> list[int]:
    """The events that are observations, beyond `after`, up to `last`."""
    from sqlalchemy import select

    from culmen.store.schema import observation

    seq = observation.c.seq
    query = select(seq).where(seq > after, seq <= last).order_by(seq)
    with reading(Path(run)) as connection:
        return list(connection.execute(query).scalars())


def remarks(run: Path | str, after: int = 0, last: int = _END) -> list[Remark]:
    """Notes of the strategy beyond `after`, up to `last`, oldest first; without the engine's (seeds, candidates)."""
    from sqlalchemy import select

    from culmen.store.schema import event

    columns = (event.c.seq, event.c.elapsed, event.c.topic, event.c.body)
    query = select(*columns).where(event.c.kind == "note", event.c.topic.not_in(("seeds", "candidates", "")))
    with reading(Path(run)) as connection:
        rows = connection.execute(query.where(event.c.seq > after, event.c.seq <= last).order_by(event.c.seq)).all()
    return [
        Remark(seq, elapsed, unescape(topic), {} if body is None else decode(body, dict[str, Any]))
        for seq, elapsed, topic, body in rows
    ]


def embeddings(run: Path | str, after: int = 0) -> list[Embedded]:
    """What was embedded beyond `after`, where the journal says which candidates that were."""
    from sqlalchemy import select

    from culmen.store.schema import event, others

    columns = (event.c.seq, event.c.body, event.c.result, event.c.data)
    query = select(*columns).where(others, event.c.seq > after, event.c.shape == "vectors").order_by(event.c.seq)
    found: list[Embedded] = []
    with reading(Path(run)) as connection:
        for seq, body, result, data in connection.execute(query):
            names = tuple(decode(body, dict[str, Any]).get("candidates", ())) if body else ()
            vectors = decode(result, Vectors)
            if len(names) == vectors.count:
                found.append(Embedded(seq, names, vectors.width, data or b""))
    return found


def results(run: Path | str, prefix: str, after: int = 0, limit: int = 10_000) -> list[Event]:
    """Finished effects whose kind begins with `prefix` (and that are no evaluations), beyond `after`, oldest first."""
    from sqlalchemy import select

    from culmen.store.schema import event, others

    folder = Path(run)
    query = select(event).where(others, event.c.shape.in_(_OTHERS), event.c.seq > after)
    query = query.where(event.c.kind == "done", event.c.effect.startswith(prefix))
    with reading(folder) as connection:
        rows: Sequence[Any] = connection.execute(query.order_by(event.c.seq).limit(limit)).all()
        texts, found = Texts(), list[Event]()
        for start in range(0, len(rows), PAGE):
            found += assemble(connection, folder, rows[start : start + PAGE], texts)
        return found


def family(run: Path | str) -> list[Node]:
    """Every candidate with its first parent, in order of appearance."""
    from sqlalchemy import select

    from culmen.store.schema import candidate as born
    from culmen.store.schema import tally

    columns = (born.c.id, born.c.seq, born.c.parents, born.c.operator, tally.c.count, tally.c.mean, tally.c.failed)
    query = select(*columns).select_from(born.outerjoin(tally, tally.c.candidate == born.c.id))
    with reading(Path(run)) as connection:
        rows = connection.execute(query.order_by(born.c.seq, born.c.id)).all()
    return [
        Node(
            unescape(name),
            seq,
            unescape(parents).partition(" ")[0],
            unescape(operator),
            count or 0,
            mean if count else None,
            failed or 0,
        )
        for name, seq, parents, operator, count, mean, failed in rows
    ]


class _Priced(msgspec.Struct):
    """Only the part of a stored result that is wanted here: nothing else need be decoded."""

    usage: Usage = Usage()
    faults: dict[str, int] = {}


_FREE = Usage()


def _usage(raw: bytes) -> tuple[Usage, dict[str, int]]:
    if b'"usage"' not in raw and b'"faults"' not in raw:
        return _FREE, {}
    found = decode(raw, _Priced)
    return found.usage, found.faults


def _large(connection: Connection, folder: Path, seqs: set[int]) -> list[Cost]:
    from sqlalchemy import select

    from culmen.store.schema import event

    found: list[Cost] = []
    wanted = sorted(seqs)
    for start in range(0, len(wanted), PAGE):
        rows = connection.execute(select(event).where(event.c.seq.in_(wanted[start : start + PAGE]))).all()
        for each in assemble(connection, folder, rows, Texts()):
            result = each.entry.result
            usage, faults = getattr(result, "usage", _FREE), getattr(result, "faults", {})
            found.append(Cost(each.seq, each.entry.elapsed, usage, faults))
    return found
