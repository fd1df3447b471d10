"""Events as they happened: the log, notes, observations, and the best-so-far series."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

import msgspec

from culmen.core.evaluation import Observation
from culmen.core.event import Event
from culmen.store.codec import escape
from culmen.store.database import read_meta, reading
from culmen.store.ranking import leader
from culmen.store.reader import PAGE, Texts, assemble


class Point(msgspec.Struct, frozen=True):
    """The best candidate after so many evaluations: its mean score then (or its certified value), over `count` of its
    own; `seq` is the event after which it was so."""

    evaluations: int
    elapsed: float
    candidate: str
    mean: float
    count: int
    seq: int = 0


def log(run: Path | str, after: int = 0, limit: int = 100, kinds: Collection[str] = ()) -> list[Event]:
    """At most `limit` events with seq > `after`, oldest first; of the given kinds only, if any are given."""
    from sqlalchemy import select

    from culmen.store.schema import event

    folder = Path(run)
    query = select(event).where(event.c.seq > after).order_by(event.c.seq).limit(limit)
    if kinds:
        query = query.where(event.c.kind.in_(list(kinds)))
        if not {"started", "done"} & set(kinds):
            query = query.where(event.c.topic.is_not(None))  # the index over the rare kinds
    with reading(folder) as connection:
        return assemble(connection, folder, connection.execute(query).all(), Texts())


def notes(run: Path | str, kind: str | None = None, after: int = 0, limit: int = 1_000_000) -> list[Event]:
    """Notes that the strategy left, all or those of one kind, oldest first."""
    from sqlalchemy import select

    from culmen.store.schema import event

    folder = Path(run)
    query = select(event).where(event.c.kind == "note", event.c.topic.is_not(None), event.c.seq > after)
    if kind is not None:
        query = query.where(event.c.topic == escape(kind))
    with reading(folder) as connection:
        rows = connection.execute(query.order_by(event.c.seq).limit(limit)).all()
        return assemble(connection, folder, rows, Texts())


def observations(run: Path | str, candidate: str | None = None) -> Iterator[Observation]:
    """All observations, or those of one candidate (full id), in the order they were made; streamed."""
    from sqlalchemy import select

    from culmen.store.schema import event, observation

    folder, last = Path(run), 0
    query = select(event).join(observation, observation.c.seq == event.c.seq).order_by(observation.c.seq).limit(PAGE)
    if candidate is not None:
        query = query.where(observation.c.candidate == escape(candidate))
    while True:
        with reading(folder) as connection:
            rows = connection.execute(query.where(observation.c.seq > last)).all()
            found = assemble(connection, folder, rows, Texts())
        if not found:
            return
        for each in found:
            if isinstance(each.entry.result, Observation):
                yield each.entry.result
        last = found[-1].seq


def progress(run: Path | str) -> list[Point]:
    """The best candidate as the run went on, at most a few hundred points per tenfold of evaluations; the last is now.

    A mean may fall from one point to the next: more evaluations of the same candidate can be worse than the first.
    """
    from sqlalchemy import func, select

    from culmen.store.schema import counter, event
    from culmen.store.schema import progress as table

    with reading(Path(run)) as connection:
        columns = (table.c.evaluations, table.c.elapsed, table.c.candidate, table.c.mean, table.c.count, table.c.seq)
        points = [Point(*row) for row in connection.execute(select(*columns).order_by(table.c.seq))]
        made = int(
            connection.execute(select(func.sum(counter.c.value)).where(counter.c.scope == "status")).scalar() or 0
        )
        best = leader(connection, read_meta(connection).task.objective.direction)
        if best is not None and (not points or points[-1].evaluations < made):
            last = connection.execute(select(event.c.elapsed, event.c.seq).order_by(event.c.seq.desc()).limit(1)).one()
            points.append(Point(made, last.elapsed, best.candidate, best.value, best.count, last.seq))
        return points
