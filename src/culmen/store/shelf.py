"""A run's journal as the shelf of its own search: what was evaluated is looked up where it is durable."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from culmen.core.candidate import Candidate, Origin
from culmen.core.evaluation import Observation
from culmen.store.blobs import Blobs
from culmen.store.codec import decode, escape, unescape
from culmen.store.database import reading
from culmen.store.reader import Texts, lookup_in, results, sense

if TYPE_CHECKING:
    from sqlalchemy import Connection


class JournalShelf:
    """Implements `core.ports.Shelf` on the journal in `run_dir`. Raises `JournalDamaged` where that makes no sense.

    Some `at_hand` observations, those made or asked for last, need no looking up.
    """

    def __init__(self, run_dir: Path, at_hand: int = 1024) -> None:
        self._run_dir, self._at_hand = run_dir, at_hand
        self._recent: OrderedDict[str, Observation] = OrderedDict()

    def keep(self, mark: str, candidate: Candidate, observation: Observation) -> None:
        """It is in the journal; the last ones are kept at hand."""
        self._recent.setdefault(mark, observation)
        if len(self._recent) > self._at_hand:
            self._recent.popitem(last=False)

    def candidate(self, id: str) -> Candidate:
        """The candidate as it first appeared."""
        from sqlalchemy import select

        from culmen.store.schema import candidate as table

        with reading(self._run_dir, tables=False) as connection:
            row = connection.execute(select(table).where(table.c.id == id)).one_or_none()
            if row is None:
                raise KeyError(id)
            return candidate_of(connection, self._run_dir, row)

    def observation(self, candidate: str, mark: str) -> Observation:
        """The first observation of this candidate under this mark."""
        from sqlalchemy import select

        from culmen.store.schema import event, observation

        if mark in self._recent:
            self._recent.move_to_end(mark)
            return self._recent[mark]
        seen = select(observation.c.seq).where(observation.c.candidate == candidate)
        query = select(event).where(event.c.seq.in_(seen), event.c.mark == escape(mark)).order_by(event.c.seq).limit(1)
        with reading(self._run_dir, tables=False) as connection:
            rows = connection.execute(query).all()
            if not rows:
                raise KeyError(f"{candidate} {mark}")
            with sense(self._run_dir):
                found: Observation = results(connection, self._run_dir, rows, Texts())[0]
        self._recent[mark] = found
        return found


def candidate_of(connection: Connection, run_dir: Path, row: Any) -> Candidate:
    """The candidate in a row of its table."""
    parts = Blobs(run_dir / "blobs", lookup_in(connection)).get([row.parts])[row.parts]
    parents = tuple(unescape(row.parents).split())
    return Candidate.of(decode(parts, dict[str, str]), parents, decode(row.origin, Origin))
