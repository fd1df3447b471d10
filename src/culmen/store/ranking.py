"""What candidates are worth by a run's journal: which is best, what the search knows of each, the one number shown.

Before the engine's final choice has been made, the best is the one with the highest lower bound, one standard
deviation below what the value model lets expect (`Estimates`; failures at the floor), so one lucky sample of a noisy
task does not win. Where scores are exact, or
the run is too long for the model, and for orders by the database, the bound is mean - s / sqrt(n) (reward, higher is
better), among the candidates all of whose evaluations gave a score; if there is none, among all that ever scored. s is
the standard deviation within candidates, pooled over all of them.

Where the exact verifier certified a candidate's outputs, the worst certified value stands in place of the bound; one
whose outputs it did not accept counts as one that failed. A candidate rejected for its integrity is never the best.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Iterable
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from culmen.core.task import Task
from culmen.store import sql
from culmen.store.codec import decode, escape, unescape
from culmen.store.database import read_meta

if TYPE_CHECKING:
    from sqlalchemy import Connection, Dialect, Select

    from culmen.evidence.pedigree import StepLaw, ValueModel


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


def _first(connection: Connection, statement: Any, values: dict[str, Any] | None = None) -> tuple[Any, ...] | None:
    """The first row of one of these statements, from the driver: SQLAlchemy takes several times as long, and the
    journal asks with every few evaluations. Begins no transaction."""
    made = _made(statement, connection.dialect)
    known = made.construct_params(values)
    cursor = connection.connection.cursor()
    cursor.execute(str(made), [known[name] for name in made.positiontup or ()] if made.positional else known)
    return cursor.fetchone()


@lru_cache(128)
def _made(statement: Any, dialect: Dialect) -> Any:
    return statement.compile(dialect=dialect)


def pooled_sd(connection: Connection) -> float:
    """Standard deviation of scores within candidates, pooled; 0.0 while no candidate was evaluated twice."""
    spread, degrees = _first(connection, _queries().pooled) or (0.0, 0)
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
    row = _first(connection, queries[direction])
    if row is None:
        return None
    candidate, mean, count, low, high, asked, accepted, strict = row
    worst = low if direction == "max" else high
    certified = worst if accepted == asked else None
    return Standing(candidate, mean, count, mean if certified is None else certified, certified, strict == asked)


def _leader(connection: Connection, direction: str, sd: float, failures: int) -> Standing | None:
    sign = 1.0 if direction == "max" else -1.0
    best: Standing | None = None
    place = _next_group(connection, {"failed": failures, "count": 0}, more=failures > 0)
    while place is not None:
        found = _first(connection, _queries().extreme[direction], place)
        mean: float | None = None if found is None else found[0]
        bound = None if mean is None else mean - sign * sd / math.sqrt(place["count"])
        if mean is not None and bound is not None and (best is None or sign * bound > sign * best.bound):
            earliest = _first(connection, _queries().earliest, {**place, "mean": mean})
            assert earliest is not None, "the candidate whose mean this is"
            best = Standing(earliest[0], mean, place["count"], bound)
        place = _next_group(connection, place, more=failures > 0)
    return best


def _next_group(connection: Connection, place: dict[str, int], more: bool) -> dict[str, int] | None:
    """The next count > 0 that a candidate with so many failures has; with `more`, then those of more failures."""
    row = _first(connection, _queries().next_count, place)
    if row is None and more:
        row = _first(connection, _queries().next_failures, place)
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


# What a run's search knows of its candidates' true rewards: the value model (`evidence.pedigree`) made from the tables.
#
# It is kept while a run is looked at again and again, and then only told what is new.

MODELLED = 20_000  # evaluations up to which it is made
_KEPT = 8

_lock = threading.Lock()
_kept: OrderedDict[str, Estimates] = OrderedDict()


def estimates(connection: Connection, folder: Path, task: Task) -> Estimates | None:
    """The search's estimates so far; None where they would tell nothing more than the scores themselves (these are
    exact and there is one case at most), or where the run is too long for the model."""
    seen = sql.observation.c
    some = sql.select(seen.seq).limit(MODELLED + 1).subquery()  # a million need not be counted
    count = connection.execute(sql.select(sql.func.count()).select_from(some)).scalar_one()
    name = str(folder.absolute())
    if not count or count > MODELLED:
        with _lock:
            _kept.pop(name, None)  # it will not be asked for again
        return None
    last = connection.execute(sql.select(sql.func.max(seen.seq))).scalar_one()
    with _lock:
        found = _kept.pop(name, None)
        if found is None or not found.refresh(connection, count, last):
            found = Estimates(task)
            found.refresh(connection, count, last)
        _kept[name] = found
        while len(_kept) > _KEPT:
            _kept.popitem(last=False)
    return None if found.noiseless else found


def step_law(connection: Connection, task: Task) -> StepLaw | None:
    """What the search of this run learnt of steps and noise; None without scores."""
    seen, found = sql.observation.c, Estimates(task)
    count, last = connection.execute(sql.select(sql.func.count(), sql.func.max(seen.seq))).one()
    found.refresh(connection, count, last or 0)
    return found.law


class Arrival(NamedTuple):
    """A candidate, its parents, and the event it came with."""

    candidate: str
    parents: list[str]
    seq: int


class ScoreRow(NamedTuple):
    """A score of a candidate on a case (None: it failed), whether the search's estimates count it, and its event."""

    candidate: str
    score: float | None
    case: str
    counts: bool
    seq: int


def arrivals(connection: Connection, after: int, last: int) -> list[Arrival]:
    """The candidates of the events after `after`, up to `last`, in the order in which the model takes them."""
    born = sql.candidate.c
    query = sql.select(born.id, born.parents, born.seq).where(born.seq > after, born.seq <= last)
    rows = connection.execute(query.order_by(born.seq, born.id)).all()
    return [Arrival(unescape(name), unescape(parents).split(), seq) for name, parents, seq in rows]


def score_rows(connection: Connection, after: int, last: int) -> list[ScoreRow]:
    """The scores of these events; those of the final choice and lost ones do not count."""
    seen = sql.observation.c
    made = sql.select(seen.candidate, seen.score, seen.case, seen.phase, seen.status, seen.seq)
    rows = connection.execute(made.where(seen.seq > after, seen.seq <= last).order_by(seen.seq)).all()
    return [
        ScoreRow(unescape(name), score, unescape(case), phase != "final" and status != "lost", seq)
        for name, score, case, phase, status, seq in rows
    ]


class Estimates:
    """The value model of one run; for any thread."""

    def __init__(self, task: Task) -> None:
        from culmen.evidence.pedigree import ValueModel

        self._reward = task.objective.reward
        self._model: ValueModel = ValueModel(task.objective.floor, task.deterministic)
        self._lock = threading.Lock()
        self._count = self._last = self._born = 0
        self.noiseless = True

    @property
    def law(self) -> StepLaw | None:
        """What was learnt of steps and noise; None without scores."""
        with self._lock:
            return self._model.law

    def value(self, candidate: str) -> tuple[float, float] | None:
        """Reward to be expected of a candidate and its standard deviation; None while nothing is known of it."""
        with self._lock:
            value = self._model.value(candidate) if candidate in self._model.index else None
        return (value.mean, value.sd) if value is not None and math.isfinite(value.mean) else None

    def count(self, candidate: str) -> int:
        """How often it was evaluated."""
        with self._lock:
            return self._model.value(candidate).count if candidate in self._model.index else 0

    def leader(self, without: set[str]) -> str | None:
        """Of the candidates that scored, but for these, the one with the highest value minus one deviation."""
        with self._lock:
            bound = self._model.worth() - self._model.variance**0.5
            for name in without & self._model.index.keys():
                bound[self._model.index[name]] = -math.inf
            return self._model.ids[int(bound.argmax())] if len(bound) and math.isfinite(bound.max()) else None

    def refresh(self, connection: Connection, count: int, last: int) -> bool:
        """Learn what is new, of `count` observations up to event `last`. False if this is not the run it was: then
        begin anew."""
        with self._lock:
            if (count, last) == (self._count, self._last):
                return True
            self._enter(arrivals(connection, self._born, last))
            self._observe(score_rows(connection, self._last, last))
            self._last = last
            return self._count == count

    def learn(self, born: Iterable[Arrival], seen: Iterable[ScoreRow]) -> None:
        """Learn what somebody else has read: candidates, then scores, each in their order."""
        with self._lock:
            self._enter(born)
            self._observe(seen)

    def _enter(self, born: Iterable[Arrival]) -> None:
        for name, parents, seq in born:
            self._model.add(name, parents)
            self._born = seq

    def _observe(self, seen: Iterable[ScoreRow]) -> None:
        for name, score, case, counts, _ in seen:
            self._count += 1
            if counts:
                self._model.observe(name, None if score is None else self._reward(score), case)
        self.noiseless = self._model.noiseless


# The one number of a candidate: what every list, page and report shows as its score, with its count.
#
# For the winner and the initial program it is what the final choice measured, on evaluations made after the choice; for
# all others, and before the final choice, what the search's evaluations let expect: the posterior mean of the value
# model (`store.ranking`), or the mean itself where that tells nothing more. What the final choice evaluated is never
# mixed into it.

Z = 1.959963984540054  # standard errors to either side: the 95 % interval of a normal mean


class Score(msgspec.Struct, frozen=True, omit_defaults=True):
    """A candidate's score (in the task's own direction) over `count` evaluations, with standard error and `margin`,
    half the width of its 95 % interval (None: not known).

    `expected`: the value model's, from these evaluations and those of relatives; else the mean of these. `fresh`:
    measured by the final choice; then `failures` of the `count` gave no score and count as the floor.
    """

    value: float
    count: int
    se: float | None = None
    margin: float | None = None
    fresh: bool = False
    failures: int = 0
    expected: bool = False


class Scores:
    """The scores of a run's candidates at one moment. `model` is None where means tell all that is known."""

    def __init__(self, connection: Connection, folder: Path) -> None:
        task = read_meta(connection).task
        self._objective, self.direction = task.objective, task.objective.direction
        self.model = estimates(connection, folder, task)
        self.sd = pooled_sd(connection)
        winner = last_state(connection).get("winner")
        self.winner = str(winner["id"]) if isinstance(winner, dict) else ""
        self._fresh = fresh_scores(winner) if isinstance(winner, dict) else {}

    def of(self, candidate: str, count: int | None, mean: float | None) -> Score | None:
        """The score of a candidate (its id) whose `count` scored evaluations in the search have this mean; None if
        there is none."""
        if candidate in self._fresh:
            return self._fresh[candidate]
        if not count or mean is None:
            return None
        value = None if self.model is None else self.model.value(candidate)
        if value is None:
            return search_score(mean, count, self.sd)
        return Score(self._objective.score(value[0]), count, value[1], Z * value[1], expected=True)


def search_score(mean: float, count: int, sd: float) -> Score:
    """The score of a candidate from `count` evaluations of the search, whose deviation is `sd` (0: not known)."""
    error = sd / math.sqrt(count) if sd else None
    return Score(mean, count, error, None if error is None else Z * error)


def fresh_scores(winner: dict[str, Any]) -> dict[str, Score]:
    """By id, what the final choice says, as the state event tells it: of the winner and the initial program."""
    initial = winner.get("initial")
    fresh = bool(winner.get("confirmed") or winner.get("failures"))
    found = {str(initial["id"]): _score(initial, True)} if initial else {}
    return found | {str(winner["id"]): _score(winner, fresh)}


def _score(told: dict[str, Any], fresh: bool) -> Score:
    failures = int(told.get("failures", 0))
    return Score(float(told["score"]), int(told["count"]), told.get("se"), margin_of(told), fresh, failures)


def margin_of(told: dict[str, Any]) -> float | None:
    """Half the width of the 95 % interval; from the standard error alone where a run was made before it was told."""
    error = told.get("se")
    return told.get("margin", None if error is None else Z * float(error))


def last_state(connection: Connection) -> dict[str, Any]:
    """The newest state event's body."""
    states = sql.select(sql.event.c.body).where(sql.event.c.kind == "state", sql.event.c.topic.is_not(None))
    raw = connection.execute(states.order_by(sql.event.c.seq.desc()).limit(1)).scalar()
    return {} if raw is None else decode(raw, dict[str, Any])
