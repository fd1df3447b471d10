"""Which candidate is best before the engine's final choice has been made.

The best is the one with the highest lower confidence bound, mean - s / sqrt(n) (reward, higher is better), among the
candidates all of whose evaluations gave a score; if there is none, among all that ever scored. s is the standard
deviation within candidates, pooled over all of them, so one lucky sample of a noisy task does not win.
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

if TYPE_CHECKING:
    from sqlalchemy import Connection, Select

RULE = "highest mean minus one standard error (spread pooled over all candidates) among candidates that never failed"


class Standing(msgspec.Struct, frozen=True):
    """A candidate's place: mean score over `count` scored evaluations, and the bound it is ranked by (as a score)."""

    candidate: str
    mean: float
    count: int
    bound: float


class _Queries(NamedTuple):
    """Built once: making a statement costs more than running it."""

    pooled: Select[*tuple[Any, ...]]
    next_count: Select[*tuple[Any, ...]]
    next_failures: Select[*tuple[Any, ...]]
    earliest: Select[*tuple[Any, ...]]
    extreme: dict[str, Select[*tuple[Any, ...]]]


@cache
def _queries() -> _Queries:
    from sqlalchemy import bindparam, func, select

    from culmen.store.schema import tally

    failed, count, mean = tally.c.failed, tally.c.count, tally.c.mean
    group = select(failed, count).order_by(failed, count).limit(1)
    inside = (failed == bindparam("failed"), count == bindparam("count"))
    means = select(mean).where(*inside).limit(1)
    return _Queries(
        select(func.sum(tally.c.spread), func.sum(count - 1)).where(count > 1),
        group.where(failed == bindparam("failed"), count > bindparam("count")),
        group.where(failed > bindparam("failed"), count > 0),
        select(tally.c.candidate).where(*inside, mean == bindparam("mean")).order_by(tally.c.first).limit(1),
        {"max": means.order_by(mean.desc()), "min": means.order_by(mean)},
    )


def pooled_sd(connection: Connection) -> float:
    """Standard deviation of scores within candidates, pooled; 0.0 while no candidate was evaluated twice."""
    spread, degrees = connection.execute(_queries().pooled).one()
    return math.sqrt(max(0.0, spread) / degrees) if degrees else 0.0


def leader(connection: Connection, direction: str) -> Standing | None:
    """The best candidate so far, None if nothing has scored.

    Among candidates with equally many scores the bound follows the mean: one look into the index (failed, count, mean)
    for each count that occurs finds the best, however many candidates there are.
    """
    sd = pooled_sd(connection)
    return _leader(connection, direction, sd, 0) or _leader(connection, direction, sd, 1)


def _leader(connection: Connection, direction: str, sd: float, failures: int) -> Standing | None:
    sign = 1.0 if direction == "max" else -1.0
    best: Standing | None = None
    place = _next_group(connection, {"failed": failures, "count": 0}, more=failures > 0)
    while place is not None:
        mean: float = connection.execute(_queries().extreme[direction], place).scalar_one()
        bound = mean - sign * sd / math.sqrt(place["count"])
        if best is None or sign * bound > sign * best.bound:
            candidate = connection.execute(_queries().earliest, {**place, "mean": mean}).scalar_one()
            best = Standing(candidate, mean, place["count"], bound)
        place = _next_group(connection, place, more=failures > 0)
    return best


def _next_group(connection: Connection, place: dict[str, int], more: bool) -> dict[str, int] | None:
    """The next count > 0 that a candidate with so many failures has; with `more`, then those of more failures."""
    row = connection.execute(_queries().next_count, place).one_or_none()
    if row is None and more:
        row = connection.execute(_queries().next_failures, place).one_or_none()
    return None if row is None else {"failed": row[0], "count": row[1]}
