"""Which candidate is best before the engine's final choice has been made, by the scores of the search.

The best is the one with the highest lower bound, one standard deviation below what the value model lets expect
(`store.estimates`; failures at the floor), so one lucky sample of a noisy task does not win. Where scores are exact, or
the run is too long for the model, and for orders by the database, the bound is mean - s / sqrt(n) (reward, higher is
better), among the candidates all of whose evaluations gave a score; if there is none, among all that ever scored. s is
the standard deviation within candidates, pooled over all of them.

Where the exact verifier certified a candidate's outputs, the worst certified value stands in place of the bound; one
whose outputs it did not accept counts as one that failed. A candidate rejected for its integrity is never the best.
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from culmen.store import sql
from culmen.store.codec import escape, unescape

if TYPE_CHECKING:
    from sqlalchemy import Connection, Select

    from culmen.store.estimates import Estimates

RULE = (
    "certified value where there is one, else highest mean minus one standard error (spread pooled over all "
    "candidates), among candidates that never failed"
)
EXPECTED_RULE = (
    "certified value where there is one, else highest score to be expected, minus one standard deviation, from its own "
    "evaluations and those of its relatives, failures at the floor"
)


class Standing(msgspec.Struct, frozen=True):
    """A candidate's place: mean score over `count` scored evaluations, and the bound it is ranked by (as a score).

    `certified` is the worst value that the verifier certified (then it is the bound), `strict` whether all its outputs
    passed as given; None: it was not asked.
    """

    candidate: str
    mean: float
    count: int
    bound: float
    certified: float | None = None
    strict: bool | None = None

    @property
    def value(self) -> float:
        """What is to be shown as its score: certified, or else the mean."""
        return self.mean if self.certified is None else self.certified


class _Queries(NamedTuple):
    """Built once: making a statement costs more than running it."""

    pooled: Any
    next_count: Select[*tuple[Any, ...]]
    next_failures: Select[*tuple[Any, ...]]
    earliest: Select[*tuple[Any, ...]]
    extreme: dict[str, Select[*tuple[Any, ...]]]
    certified: dict[str, Select[*tuple[Any, ...]]]
    refused: dict[str, Select[*tuple[Any, ...]]]


_POOLED = """
WITH RECURSIVE level(failed) AS (
  SELECT min(failed) FROM tally
  UNION ALL SELECT (SELECT min(failed) FROM tally WHERE failed > level.failed) FROM level WHERE level.failed IS NOT NULL
)
SELECT sum(tally.spread), sum(tally.count - 1) FROM level JOIN tally ON tally.failed = level.failed AND tally.count > 1
"""  # level by level through the index: of a million candidates that were scored once each, none is looked at


@cache
def _queries() -> _Queries:
    t = sql.tally.c
    failed, count, mean = t.failed, t.count, t.mean
    group = sql.select(failed, count).order_by(failed, count).limit(1)
    inside = (failed == sql.bindparam("failed"), count == sql.bindparam("count"), t.asked == 0, t.barred == 0)
    means = sql.select(mean).where(*inside).limit(1)
    columns = (t.candidate, mean, count.label("n"), t.low, t.high, t.asked, t.accepted, t.strict)
    few = sql.select(*columns).where(
        sql.judged, count + 0 > 0, t.asked > 0, t.barred == 0
    )  # + 0: not by the other index
    vouched = few.where(t.accepted == t.asked, failed + 0 == 0).limit(1)
    refused = few.limit(1)
    return _Queries(
        sql.text(_POOLED),
        group.where(failed == sql.bindparam("failed"), count > sql.bindparam("count")),
        group.where(failed > sql.bindparam("failed"), count > 0),
        sql.select(t.candidate).where(*inside, mean == sql.bindparam("mean")).order_by(t.first).limit(1),
        {"max": means.order_by(mean.desc()), "min": means.order_by(mean)},
        {"max": vouched.order_by(t.low.desc(), t.first), "min": vouched.order_by(t.high, t.first)},
        {"max": refused.order_by(mean.desc(), t.first), "min": refused.order_by(mean, t.first)},
    )


def pooled_sd(connection: Connection) -> float:
    """Standard deviation of scores within candidates, pooled; 0.0 while no candidate was evaluated twice."""
    spread, degrees = tuple[Any, ...](connection.execute(_queries().pooled).one())
    return math.sqrt(max(0.0, spread) / degrees) if degrees else 0.0


def leader(connection: Connection, direction: str, model: Estimates | None = None) -> Standing | None:
    """The best candidate so far, None if nothing has scored; with a `model`, by what it lets expect.

    Among candidates with equally many scores the bound follows the mean: one look into the index (failed, count, mean)
    for each count that occurs finds the best, however many candidates there are. Those few that a verifier or a guard
    has judged have an index of their own.
    """
    sd = pooled_sd(connection)
    sign = 1.0 if direction == "max" else -1.0
    expected = None if model is None else _expected(connection, direction, model)
    clean = [expected or _leader(connection, direction, sd, 0), _judged(connection, direction, _queries().certified)]
    found = [standing for standing in clean if standing is not None]
    if found:
        return max(found, key=lambda standing: sign * standing.bound)
    return _leader(connection, direction, sd, 1) or _judged(connection, direction, _queries().refused)


def _expected(connection: Connection, direction: str, model: Estimates) -> Standing | None:
    """The best by the model among those that no verifier was asked about and no guard barred."""
    sign, t = (1.0 if direction == "max" else -1.0), sql.tally.c
    judged = sql.select(t.candidate).where(sql.judged, sql.or_(t.asked > 0, t.barred > 0))
    name = model.leader(set(map(unescape, connection.execute(judged).scalars())))
    value = None if name is None else model.value(name)
    if name is None or value is None:
        return None
    columns = (t.candidate, t.mean, t.count.label("n"))
    row = connection.execute(sql.select(*columns).where(t.candidate == escape(name))).one()
    return Standing(row.candidate, row.mean, row.n, sign * (value[0] - value[1]))


def _judged(connection: Connection, direction: str, queries: dict[str, Select[*tuple[Any, ...]]]) -> Standing | None:
    """The best of those that the verifier was asked about."""
    row = connection.execute(queries[direction]).one_or_none()
    if row is None:
        return None
    worst = row.low if direction == "max" else row.high
    certified = worst if row.accepted == row.asked else None
    bound = row.mean if certified is None else certified
    return Standing(row.candidate, row.mean, row.n, bound, certified, row.strict == row.asked)


def _leader(connection: Connection, direction: str, sd: float, failures: int) -> Standing | None:
    sign = 1.0 if direction == "max" else -1.0
    best: Standing | None = None
    place = _next_group(connection, {"failed": failures, "count": 0}, more=failures > 0)
    while place is not None:
        mean: float | None = connection.execute(_queries().extreme[direction], place).scalar()
        bound = None if mean is None else mean - sign * sd / math.sqrt(place["count"])
        if mean is not None and bound is not None and (best is None or sign * bound > sign * best.bound):
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


_GROUPS = 200


def leading(connection: Connection, direction: str, most: int) -> list[str]:
    """Candidates (as the tables have them) among which the first `most` are, found through the index: the highest means
    for each count among those that never failed, and all that were judged. Empty where that need not be so."""
    t, found = sql.tally.c, list[str]()
    order = (t.mean.desc() if direction == "max" else t.mean, t.first)
    group = _next_group(connection, {"failed": 0, "count": 0}, more=False)
    for _ in range(_GROUPS):
        if group is None:
            break
        alike = (t.failed == 0, t.count == group["count"], t.asked == 0, t.barred == 0)
        found += connection.execute(sql.select(t.candidate).where(*alike).order_by(*order).limit(most)).scalars()
        group = _next_group(connection, group, more=False)
    if len(found) < most or group is not None:
        return []
    return found + list(connection.execute(sql.select(t.candidate).where(sql.judged)).scalars())


def place(direction: str, sd: float) -> tuple[Any, Any]:
    """What candidates are ordered by beside their tallies: a class (lower first), and a reward (higher first)."""
    t, sign = sql.tally.c, 1.0 if direction == "max" else -1.0
    rank = sql.case((t.barred > 0, 2), (t.failed > 0, 1), (t.accepted < t.asked, 1), else_=0)
    worst = (t.low if direction == "max" else t.high) * sign
    vouched = sql.case((t.accepted == t.asked, worst))
    return rank, sql.func.coalesce(vouched, t.mean * sign - _error(sd, t.count))


def _error(sd: float, count: Any) -> Any:
    """The standard error of a mean of so many; NULL for none, also where dividing by zero is an error."""
    return sd / sql.func.nullif(sql.func.sqrt(count, type_=sql.Float), 0.0, type_=sql.Float)


def findings(connection: Connection) -> tuple[int, int | None]:
    """How many candidates showed a grave sign, and the event in which the first one did."""
    seen = sql.select(sql.func.count(), sql.func.min(sql.tally.c.grave)).where(
        sql.judged, sql.tally.c.grave.is_not(None)
    )
    count, first = connection.execute(seen).one()
    return count, first


def leader_before(connection: Connection, direction: str, seq: int) -> Standing | None:
    """The best by the same rule from what was seen before event `seq`, among candidates without a grave sign."""
    sd, sign = pooled_sd(connection), 1.0 if direction == "max" else -1.0
    seen = sql.observation.c
    failures = sql.func.sum(seen.status.not_in(("ok", "lost")).cast(sql.Integer)).label("failed")
    count, mean = sql.func.count(seen.score).label("count"), sql.func.avg(seen.score).label("mean")
    made = (
        sql.select(seen.candidate, count, mean, failures)
        .where(seen.seq < seq, seen.phase != "final")
        .group_by(seen.candidate)
        .subquery()
    )
    worst = sql.tally.c.low if direction == "max" else sql.tally.c.high
    value = sql.func.coalesce(worst * sign, made.c.mean * sign - _error(sd, made.c.count))
    query = sql.select(
        made.c.candidate, made.c.mean, made.c.count.label("n"), worst.label("worst"), value.label("value")
    )
    query = query.join(sql.tally, sql.tally.c.candidate == made.c.candidate).where(
        made.c.count > 0, sql.tally.c.grave.is_(None)
    )
    row = connection.execute(query.order_by(made.c.failed > 0, value.desc(), sql.tally.c.first).limit(1)).one_or_none()
    return None if row is None else Standing(row.candidate, row.mean, row.n, sign * row.value, row.worst)
