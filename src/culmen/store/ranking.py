"""Which candidate is best before the engine's final choice has been made.

The best is the one with the highest lower confidence bound, mean - s / sqrt(n) (reward, higher is better), among the
candidates all of whose evaluations gave a score; if there is none, among all that ever scored. s is the standard
deviation within candidates, pooled over all of them, so one lucky sample of a noisy task does not win.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from sqlalchemy import Connection

RULE = "highest mean minus one standard error (spread pooled over all candidates) among candidates that never failed"


class Standing(msgspec.Struct, frozen=True):
    """A candidate's place: mean score over `count` scored evaluations, and the bound it is ranked by (as a score)."""

    candidate: str
    mean: float
    count: int
    bound: float


def pooled_sd(connection: Connection) -> float:
    """Standard deviation of scores within candidates, pooled; 0.0 while no candidate was evaluated twice."""
    from sqlalchemy import func, select

    from culmen.store.schema import tally

    spread, degrees = connection.execute(
        select(func.sum(tally.c.spread), func.sum(tally.c.count - 1)).where(tally.c.count > 1)
    ).one()
    return math.sqrt(max(0.0, spread) / degrees) if degrees else 0.0


def leader(connection: Connection, direction: str) -> Standing | None:
    """The best candidate so far, None if nothing has scored.

    Among candidates with equally many scores the bound follows the mean: one look into the index (failed, count, mean)
    for each count that occurs finds the best, however many candidates there are.
    """
    sd = pooled_sd(connection)
    return _leader(connection, direction, sd, failed=False) or _leader(connection, direction, sd, failed=True)


def _leader(connection: Connection, direction: str, sd: float, failed: bool) -> Standing | None:
    sign = 1.0 if direction == "max" else -1.0
    best: Standing | None = None
    place = (0, 0) if not failed else (1, 0)
    while (place := _next_group(connection, place, failed)) is not None:
        candidate, mean = _top_of(connection, place, direction)
        bound = mean - sign * sd / math.sqrt(place[1])
        if best is None or sign * bound > sign * best.bound:
            best = Standing(candidate, mean, place[1], bound)
    return best


def _next_group(connection: Connection, place: tuple[int, int], failed: bool) -> tuple[int, int] | None:
    """The next (failures, count) with count > 0 that any candidate has."""
    from sqlalchemy import select

    from culmen.store.schema import tally

    failures, count = place
    order = (tally.c.failed, tally.c.count)
    query = select(*order).where(tally.c.failed == failures, tally.c.count > count).order_by(*order).limit(1)
    row = connection.execute(query).one_or_none()
    if row is None and failed:
        query = select(*order).where(tally.c.failed > failures, tally.c.count > 0).order_by(*order).limit(1)
        row = connection.execute(query).one_or_none()
    return None if row is None else (row[0], row[1])


def _top_of(connection: Connection, place: tuple[int, int], direction: str) -> tuple[str, float]:
    from sqlalchemy import select

    from culmen.store.schema import tally

    query = select(tally.c.candidate, tally.c.mean).where(tally.c.failed == place[0], tally.c.count == place[1])
    best = tally.c.mean.desc() if direction == "max" else tally.c.mean.asc()
    row = connection.execute(query.order_by(best, tally.c.candidate).limit(1)).one()
    return row[0], row[1]
