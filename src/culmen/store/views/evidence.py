"""What speaks of a run's integrity beside its observations: scores that moved, and what proposers and agents wrote."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from culmen.core.brief import Proposal
from culmen.core.event import Custom, Event
from culmen.store.codec import unescape
from culmen.store.database import reading
from culmen.store.reader import PAGE, Texts, assemble

_WORDS = ("reflections", "notes", "word", "reports", "note")  # keys of sessions' results that hold prose


class Prose(msgspec.Struct, frozen=True):
    """A text somebody wrote: the event it came with, the candidate it is of ("": none in particular), what it is."""

    seq: int
    candidate: str
    source: str
    text: str


class Moved(msgspec.Struct, frozen=True):
    """A candidate whose score on one case with one random seed was not always the same."""

    candidate: str
    case: str
    low: float
    high: float
    count: int


def moved(run: Path | str, limit: int = 200) -> list[Moved]:
    """Scores that moved though case and random seed were the same, the widest first."""
    from sqlalchemy import func, select

    from culmen.store.schema import observation as seen

    low, high, count = func.min(seen.c.score), func.max(seen.c.score), func.count()
    query = select(seen.c.candidate, seen.c.case, low, high, count).where(seen.c.score.is_not(None))
    query = query.group_by(seen.c.candidate, seen.c.case, seen.c.seed).having(high > low)
    with reading(Path(run)) as connection:
        rows = connection.execute(query.order_by((high - low).desc()).limit(limit)).all()
    return [Moved(unescape(row[0]), unescape(row[1]), row[2], row[3], row[4]) for row in rows]


def prose(run: Path | str) -> Iterator[Prose]:
    """What proposers said of their candidates, and what agents wrote in their sessions, oldest first."""
    from sqlalchemy import select

    from culmen.store.schema import event, others

    folder, last = Path(run), 0
    wanted = (others, event.c.shape.in_(("proposal", "custom")))
    query = select(event).where(*wanted).order_by(event.c.seq).limit(PAGE)
    while True:
        with reading(folder, tables=False) as connection:
            found = assemble(connection, folder, connection.execute(query.where(event.c.seq > last)).all(), Texts())
        if not found:
            return
        for each in found:
            yield from _told(each)
        last = found[-1].seq


def _told(event: Event) -> Iterator[Prose]:
    result = event.entry.result
    if isinstance(result, Proposal) and result.hypothesis:
        first = result.candidates[0].id if result.candidates else ""
        yield Prose(event.seq, first, "hypothesis", result.hypothesis)
    if isinstance(result, Custom):
        yield from (Prose(event.seq, "", name, text) for name, text in _words("", result.data))


def _words(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """Texts under the keys that hold prose, wherever they are."""
    if isinstance(value, str) and name in _WORDS and value.strip():
        yield name, value
    elif isinstance(value, list):
        for item in value:
            yield from _words(name, item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _words(str(key), item)
