"""The log of a run: its events as they happened, notes of the strategy, places in time."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from culmen.core.brief import ANSWERED, LEARNT, UNANSWERED
from culmen.core.event import Event
from culmen.core.json import JsonObject
from culmen.store.codec import decode_value, escape_text, unescape_text
from culmen.store.database import open_snapshot
from culmen.store.reader import END, EVENTS, Texts, assemble_events


class StrategyNote(NamedTuple):
    """A note of the strategy: its kind and its fields (`note` among them)."""

    seq: int
    elapsed: float
    kind: str
    body: JsonObject


def log_events(
    run: Path | str, after: int = 0, limit: int = 100, kinds: Collection[str] = ()
) -> list[Event]:
    """At most `limit` events with seq > `after`, oldest first.

    `kinds`: only events of these kinds (empty: all kinds).
    """
    folder = Path(run)
    values: dict[str, object] = {"after": after, "limit": limit}
    query = f"{EVENTS} WHERE seq > :after"
    if kinds:
        query, values["kinds"] = f"{query} AND kind IN :kinds", list(kinds)
        if not {"started", "done"} & set(kinds):
            query += " AND topic IS NOT NULL"  # the index over the rare kinds
    with open_snapshot(folder) as connection:
        rows = connection.execute(f"{query} ORDER BY seq LIMIT :limit", **values).all()
        return assemble_events(connection, folder, rows, Texts())


def event_count(run: Path | str, kinds: Collection[str], before: int) -> int:
    """Number of events of these kinds with a smaller seq."""
    query = "SELECT count(seq) FROM event WHERE seq < :before AND kind IN :kinds"
    with open_snapshot(Path(run)) as connection:
        return connection.execute(query, before=before, kinds=list(kinds)).scalar()


def last_seq(run: Path | str) -> int:
    """Number of events: the cheapest way to notice that something happened."""
    with open_snapshot(Path(run)) as connection:
        return connection.execute("SELECT max(seq) FROM event").scalar() or 0


def seq_at(run: Path | str, elapsed: float) -> int:
    """The last event before `elapsed` active seconds; 0 if there is none.

    Found by bisection: elapsed time never decreases.
    """
    low, at = 0, "SELECT elapsed FROM event WHERE seq = :seq"
    with open_snapshot(Path(run)) as connection:
        high = connection.execute("SELECT max(seq) FROM event").scalar() or 0
        while low < high:
            middle = (low + high + 1) // 2
            before = connection.execute(at, seq=middle).scalar() < elapsed
            low, high = (middle, high) if before else (low, middle - 1)
    return low


def note_events(
    run: Path | str, kind: str | None = None, after: int = 0, limit: int = 1_000_000
) -> list[Event]:
    """Notes of the strategy, all or those of one kind, oldest first."""
    folder = Path(run)
    values: dict[str, object] = {"after": after, "limit": limit}
    query = f"{EVENTS} WHERE kind = 'note' AND topic IS NOT NULL AND seq > :after"
    if kind is not None:
        query, values["topic"] = f"{query} AND topic = :topic", escape_text(kind)
    with open_snapshot(folder) as connection:
        rows = connection.execute(f"{query} ORDER BY seq LIMIT :limit", **values).all()
        return assemble_events(connection, folder, rows, Texts())


def strategy_notes(run: Path | str, after: int = 0, last: int = END) -> list[StrategyNote]:
    """Notes of the strategy after event `after`, up to `last`, oldest first.

    The engine's own notes (seeds, candidates), and those on models, are left out.
    """
    query = (
        "SELECT seq, elapsed, topic, body FROM event WHERE kind = 'note' AND topic NOT IN "
        "('seeds', 'candidates', '', :learnt, :silent, :answered) "
        "AND seq > :after AND seq <= :last ORDER BY seq"
    )
    topics = {"learnt": LEARNT, "silent": UNANSWERED, "answered": ANSWERED}
    with open_snapshot(Path(run)) as connection:
        rows = connection.execute(query, after=after, last=last, **topics).all()
    return [
        StrategyNote(
            seq,
            elapsed,
            unescape_text(topic),
            {} if body is None else decode_value(body, JsonObject),
        )
        for seq, elapsed, topic, body in rows
    ]
