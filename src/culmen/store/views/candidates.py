"""Candidates of a run: lists with statistics, and one candidate in full."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from culmen.core.brief import Proposal
from culmen.core.candidate import Candidate, Origin
from culmen.core.errors import UserError
from culmen.core.evaluation import LEVELS, Observation
from culmen.core.result import FrontPoint
from culmen.core.task import Constraint, MetricGoal, Objective, parse_constraint
from culmen.core.usage import Usage
from culmen.store.codec import decode_value, escape_text, unescape_text
from culmen.store.database import open_snapshot, read_meta
from culmen.store.evidence import Scores, evidence_of, last_state
from culmen.store.reader import END, PAGE, blobs_in, candidate_of, select_events
from culmen.store.schema import TABLES
from culmen.store.sql import Connection, Row

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from culmen.evidence.front import Floats, FrontModel


Order = Literal["best", "score", "worst", "count", "new", "old"]


class CandidateRow(msgspec.Struct, frozen=True):
    """A candidate with the statistics of its scores (in the task's own direction).

    `mean` over `count` evaluations is the score to show for the candidate
    (`culmen.store.evidence.Scores`), with standard error `se` and `margin`, half the width of the
    95 % interval (None: unknown). It is the mean of these evaluations; if `expected`, the search's
    estimate from these and from relatives' evaluations; if `fresh`, the mean measured by the final
    choice, where `fresh_failures` evaluations gave no score. `search_mean` over `search_count` is
    the mean in the search, `sd` the standard deviation of these scores (None for fewer than two);
    `statuses` counts the search's evaluations without a score by status. `trust` is the level of
    the weakest score ("": no score), `certified` the worst value that the verifier certified (None:
    not asked, or not all accepted). `grave`: the candidate showed a grave sign; `barred`: it was
    rejected for that.
    """

    id: str
    seq: int
    operator: str
    model: str
    parents: tuple[str, ...]
    count: int
    mean: float | None
    sd: float | None
    se: float | None
    failed: int
    statuses: dict[str, int]
    trust: str = ""
    certified: float | None = None
    barred: bool = False
    grave: bool = False
    margin: float | None = None
    fresh: bool = False
    fresh_failures: int = 0
    search_mean: float | None = None
    search_count: int = 0
    expected: bool = False


class CandidateDetail(msgspec.Struct, frozen=True):
    """One candidate in full.

    `prompt`, `reply`, `hypothesis` and `usage` are those of the proposal that made the candidate,
    which contained `among` candidates; they are empty for a candidate without a proposal.
    `phases` has the phase of each of the `observations` ("" in the search), `outcomes` counts all
    its evaluations by status, those of the final choice among them.
    """

    candidate: Candidate
    row: CandidateRow
    observations: tuple[Observation, ...]
    children: tuple[str, ...]
    phases: tuple[str, ...] = ()
    outcomes: dict[str, int] = {}
    prompt: str = ""
    reply: str = ""
    hypothesis: str = ""
    usage: Usage = Usage()
    among: int = 0

    @property
    def id(self) -> str:
        """The candidate's id."""
        return self.candidate.id

    @property
    def parts(self) -> dict[str, str]:
        """Texts of the candidate by name of the part."""
        return self.candidate.parts


def candidate_rows(
    run: Path | str,
    order: Order = "best",
    offset: int = 0,
    limit: int | None = 50,
    *,
    operator: str | None = None,
    failed: bool | None = None,
) -> list[CandidateRow]:
    """One page of candidates (`limit` None: all that remain).

    `best`: by expected score, the reported candidate first · `score`, `worst`: by mean · `count`:
    most evaluated · `new`, `old`: by appearance. `failed` True keeps candidates with a failed
    evaluation, False those without one.
    """
    with open_snapshot(run) as connection:
        scores = Scores(connection, order == "best")
        values = {} if operator is None else {"operator": operator}
        where = ["c.operator = :operator"] if values else []
        if failed is not None:
            where.append(f"coalesce(t.failed, 0) {'> 0' if failed else '= 0'}")
        end = END if limit is None else offset + limit
        if order != "best":
            keys = _order_keys(order, scores.direction)
            keys += f" LIMIT {END if limit is None else limit} OFFSET {offset}"
            page = select_ids(connection, where, values, keys)
        elif where or end > scores.ranked_count:
            page = ids_best_first(connection, where, values, scores)[offset:end]
        else:
            page = [escape_text(name) for name in scores.ranked_ids(offset, end)]
        return [row_of(row, scores) for row in fetch_rows(connection, page)]


def select_ids(
    connection: Connection,
    where: Sequence[str],
    values: Mapping[str, object],
    order: str = "c.seq, c.id",
) -> list[str]:
    """Ids, escaped as in the tables, of the candidates that meet conditions on `c` and `t`.

    `c` is a candidate, `t` its tally; `order` is the statement after ORDER BY.
    """
    query = f"SELECT c.id {_WITH_TALLY} WHERE {' AND '.join(where) or '1 = 1'} ORDER BY {order}"
    return connection.execute(query, **values).scalars()


def ids_best_first(
    connection: Connection, where: Sequence[str], values: Mapping[str, object], scores: Scores
) -> list[str]:
    """As `select_ids`, best first.

    Candidates that cannot be the best come last: scored, failed, never evaluated ones.
    """
    keys = f"{_UNSCORED}, t.candidate IS NULL, t.first, c.seq, c.id"
    names = select_ids(connection, where, values, keys)
    ranked = scores.ranked_ids(0, scores.ranked_count)
    ranks = {escape_text(name): rank for rank, name in enumerate(ranked)}
    return sorted(names, key=lambda name: ranks.get(name, len(ranks)))


def find_candidate(run: Path | str, prefix: str) -> str:
    """The full id that begins with `prefix`.

    Raises `UserError`, with suggestions, if no id or several ids do.
    """
    with open_snapshot(run) as connection:
        return resolve_id(connection, prefix)


def candidate_detail(
    run: Path | str, id_prefix: str, *, observations: int = 200, children: int = 100
) -> CandidateDetail:
    """One candidate with its newest `observations` and its first `children`.

    The observations are in the order of the journal. A search for children scans all candidates, so
    pass 0 if they are not needed.
    """
    with open_snapshot(run) as connection:
        name = resolve_id(connection, id_prefix)
        stored = connection.execute("SELECT * FROM candidate WHERE id = :id", id=name).one()
        blobs = blobs_in(connection)
        candidate = candidate_of(connection, stored)
        row = row_of(fetch_rows(connection, [name])[0], Scores(connection))
        (first,) = select_events(connection, "seq = :seq", seq=stored.seq) or [None]
        result = first and first.entry.result
        proposal = result if isinstance(result, Proposal) else Proposal()
        proposal_fields = (
            blobs.resolve_text(proposal.prompt),
            blobs.resolve_text(proposal.reply),
            proposal.hypothesis,
            proposal.usage,
        )
        shown, phases = _newest_observations(connection, name, observations)
        counts = "SELECT status, count(*) FROM observation WHERE candidate = :id GROUP BY status"
        outcomes: dict[str, int] = dict(connection.execute(counts, id=name))
        child_ids = _child_ids(connection, name, children) if children else ()
        about = candidate, row, shown, child_ids, phases, outcomes
        return CandidateDetail(*about, *proposal_fields, among=len(proposal.candidates))


_WITH_TALLY = "FROM candidate c LEFT JOIN tally t ON t.candidate = c.id"
_UNSCORED = "CASE WHEN coalesce(t.count, 0) = 0 THEN 1 ELSE 0 END"
# Candidates with their tallies; NULLs for candidates never evaluated.
_SUMS = ", ".join(f"t.{name}" for name in TABLES["tally"] if name not in ("candidate", "first"))
_ROWS = (
    f"SELECT c.id, c.seq, c.operator, c.model, c.parents, c.origin, {_SUMS} {_WITH_TALLY} "
    "WHERE c.id IN :ids"
)


def fetch_rows(connection: Connection, names: Sequence[str]) -> list[Row]:
    """The rows of these ids, in their order.

    Sorting ids first and fetching one page of them is faster than sorting whole rows.
    """
    rows_by_id: dict[str, Row] = {}
    for start in range(0, len(names), PAGE):
        rows = connection.execute(_ROWS, ids=list(names[start : start + PAGE]))
        rows_by_id.update((row.id, row) for row in rows)
    return [rows_by_id[name] for name in names if name in rows_by_id]


def _order_keys(order: Order, direction: str) -> str:
    """The keys of an order in SQL; candidates that were never evaluated come last."""
    falls, rises = ("DESC", "ASC") if direction == "max" else ("ASC", "DESC")
    keys = {
        "score": f"{_UNSCORED}, t.mean {falls}, c.seq, c.id",
        "worst": f"{_UNSCORED}, t.mean {rises}, c.seq, c.id",
        "count": "coalesce(t.count, 0) DESC, c.seq, c.id",
        "new": "c.seq DESC, c.id",
        "old": "c.seq, c.id",
    }
    return keys[order] if order in ("new", "old") else f"t.candidate IS NULL, {keys[order]}"


def row_of(row: Row, scores: Scores) -> CandidateRow:
    """A fetched row as a `CandidateRow`."""
    name, searched = unescape_text(row.id), row.count or 0
    score = scores.score_of(name)
    worst = row.low if scores.direction == "max" else row.high
    certified = worst if score is not None and row.accepted == row.asked else None
    return CandidateRow(
        id=name,
        seq=row.seq,
        operator=unescape_text(row.operator),
        model=unescape_text(row.model),
        parents=tuple(unescape_text(row.parents).split()),
        count=score.count if score else 0,
        mean=score.score if score else None,
        sd=math.sqrt(row.spread / (searched - 1)) if searched > 1 else None,
        se=score.se if score else None,
        failed=row.failed or 0,
        statuses={
            name: n
            for name in ("invalid", "error", "timeout", "rejected", "lost")
            if (n := getattr(row, name))
        },
        trust="" if row.trust is None else LEVELS[row.trust],
        certified=certified,
        barred=bool(row.barred),
        grave=row.grave is not None,
        margin=score.margin if score else None,
        fresh=bool(score and score.fresh),
        fresh_failures=score.failures if score else 0,
        search_mean=row.mean if searched else None,
        search_count=searched,
        expected=bool(score and score.expected),
    )


def resolve_id(connection: Connection, prefix: str) -> str:
    """The full id that begins with `prefix`; raises `UserError` if no id or several do."""
    matches: list[str] = []
    if prefix and all(letter in "0123456789abcdef" for letter in prefix):
        inside = "SELECT id FROM candidate WHERE id >= :low AND id < :high ORDER BY id LIMIT 9"
        low = prefix[:12]
        matches = connection.execute(inside, low=low, high=f"{low}g").scalars()
    if len(matches) == 1:
        return matches[0]
    if matches:
        more = ", ".join(matches[:8]) + (", ..." if len(matches) > 8 else "")
        raise UserError(
            f"several candidates begin with '{prefix}'",
            where=connection.folder,
            fix=f"give one of: {more}",
        )
    known = connection.execute("SELECT id FROM candidate ORDER BY seq DESC LIMIT 5000").scalars()
    import difflib

    close = difflib.get_close_matches(prefix, known, n=3, cutoff=0.5)
    latest = f"the latest are {', '.join(known[:3])}" if known else "the run has no candidates yet"
    fix = f"did you mean {', '.join(close)}?" if close else latest
    raise UserError(f"there is no candidate '{prefix}'", where=connection.folder, fix=fix)


def first_score_of(run: Path | str, candidates: Iterable[str]) -> Observation | None:
    """The first evaluation of the run that gave one of these candidates (ids) a score, if any."""
    names = [escape_text(name) for name in candidates]
    first = "SELECT min(seq) FROM observation WHERE candidate IN :ids AND score IS NOT NULL"
    with open_snapshot(run) as connection:
        events = select_events(connection, f"seq = ({first})", ids=names)
    result = events[0].entry.result if events else None
    return result if isinstance(result, Observation) else None


def _newest_observations(
    connection: Connection, name: str, limit: int
) -> tuple[tuple[Observation, ...], tuple[str, ...]]:
    """The newest observations of a candidate, in order, and the phase of each."""
    newest = "SELECT seq FROM observation WHERE candidate = :id ORDER BY seq DESC LIMIT :limit"
    events = select_events(connection, f"seq IN ({newest}) ORDER BY seq", id=name, limit=limit)
    found = [each.entry for each in events]
    seen = tuple(each.result for each in found if isinstance(each.result, Observation))
    return seen, tuple(str(each.body.get("phase", "")) for each in found)


def _child_ids(connection: Connection, name: str, limit: int) -> tuple[str, ...]:
    is_child = connection.contains("parents", ":id")
    query = f"SELECT id FROM candidate WHERE {is_child} ORDER BY seq LIMIT :limit"
    return tuple(connection.execute(query, id=name, limit=limit).scalars())


# Lineage of a candidate.

_ID = 12  # characters of a candidate's id; `parents` holds ids with a space between them


class Step(msgspec.Struct, frozen=True):
    """One ancestor in a lineage.

    `gain` is the change of mean reward from the previous ancestor (None if either has no score).
    """

    row: CandidateRow
    gain: float | None
    note: str = ""


def lineage_steps(run: Path | str, id_prefix: str) -> list[Step]:
    """The candidate's ancestors from the initial program to itself, by first parents."""
    with open_snapshot(run) as connection:
        names = _lineage_ids(connection, resolve_id(connection, id_prefix))
        rows, scores = fetch_rows(connection, names), Scores(connection)
    steps: list[Step] = []
    for each in rows:
        row, note = row_of(each, scores), decode_value(each.origin, Origin).note
        before, now = (steps[-1].row.mean if steps else None), row.mean
        gain = None if before is None or now is None else now - before
        steps.append(Step(row, gain, note))
    return steps


def _lineage_ids(connection: Connection, name: str) -> list[str]:
    """Ids from the initial program to `name`.

    One recursive query; its UNION stops if the parents form a cycle.
    """
    query = (
        "WITH RECURSIVE line (id, parent) AS ("
        f"SELECT id, substr(parents, 1, {_ID}) FROM candidate WHERE id = :id UNION "
        f"SELECT c.id, substr(c.parents, 1, {_ID}) FROM candidate c JOIN line ON c.id = line.parent"
        ") SELECT id, parent FROM line"
    )
    parents = dict(connection.execute(query, id=name))
    chain: list[str] = []
    while name in parents:
        chain.append(name)
        name = parents.pop(name)
    return chain[::-1]


# The Pareto front of a run with several objectives, and how its hypervolume grew.

_POINTS = 60  # of the line of hypervolume


class Front(msgspec.Struct, frozen=True):
    """The Pareto front of a run: candidates that no other one dominates.

    `members` are sorted by the first objective, best first. `confirmed`: measured by evaluations
    made after the search; otherwise the search's estimate so far. `hypervolume` is that of the
    members' means, measured from `reference` (in the task's own directions; if the task names no
    reference it is derived from the candidates, so hypervolumes are comparable within one run
    only). `growth` holds (candidates tried, hypervolume) pairs, judged by the estimates at the end.
    `others` are the candidates that are not on the front. `choice` is the id of the default choice,
    `choose()`; `start` the initial program as measured beside the members, else as estimated.
    """

    objectives: tuple[MetricGoal, ...]
    constraints: tuple[Constraint, ...]
    members: tuple[FrontPoint, ...]
    reference: dict[str, float]
    hypervolume: float
    confirmed: bool
    growth: tuple[tuple[int, float], ...] = ()
    others: tuple[FrontPoint, ...] = ()
    choice: str = ""
    start: FrontPoint | None = None

    def choose(
        self, weights: Mapping[str, float] | None = None, limits: Sequence[str] = ()
    ) -> FrontPoint:
        """The member that fits these trade-offs best.

        Of the members whose means satisfy the `limits` ("latency <= 20"), the one nearest to the
        best value of every objective, by `weights` (objectives not named weigh 0; None: equal
        weights). Raises `UserError` for unknown names and for limits that no member satisfies.
        """
        from culmen.evidence.front import nearest_to_ideal

        named = [goal.name for goal in self.objectives]
        for name, value in (weights or {}).items():
            if name not in named or not 0 <= value < float("inf"):
                what = f"{name}={value:g} is not a weight of an objective"
                raise UserError(
                    what, where="weights", fix=f"give numbers from 0 for {', '.join(named)}"
                )
        if weights is not None and not any(weights.values()):
            raise UserError("no objective has a weight", where="weights", fix=f"{named[0]}=1")
        asked = [parse_constraint(limit, "limit") for limit in limits]
        for each in asked:
            if not any(each.metric in member.metrics for member in self.members):
                raise UserError(
                    f"no metric is called '{each.metric}'",
                    where="limit",
                    fix=f"use {', '.join(named)}",
                )
        left = [
            m
            for m in self.members
            if not any(each.excess(m.metrics[each.metric]) for each in asked)
        ]
        if not left:
            raise UserError(
                f"no member of the front holds {', '.join(map(str, asked))}",
                where="limit",
                fix="relax it",
            )
        return nearest_to_ideal(
            left,
            self.objectives,
            [1.0 if weights is None else weights.get(name, 0.0) for name in named],
        )


def pareto_front(run: Path | str, history: bool = False) -> Front | None:
    """The Pareto front of a run; None if the task has a single score.

    With `history`, includes the growth of the front and the other candidates.
    """
    with open_snapshot(run) as connection:
        objective = read_meta(connection).task.objective
        if not objective.metrics:
            return None
        from culmen.evidence.front import FrontVerdict  # numpy comes with it

        winner = last_state(connection).get("winner")
        final = winner.get("front") if isinstance(winner, dict) else None
        members = tuple(msgspec.convert(each, FrontPoint) for each in final or ())
        with evidence_of(connection) as found:
            model, verdict = found.evidence.front, found.evidence.verdict
            result = None if final else found.evidence.result()
            members = members if result is None else result.front
            start = verdict.initial_point() if isinstance(verdict, FrontVerdict) else None
    first = objective.metrics[0]
    members = tuple(sorted(members, key=lambda m: -first.reward(m.metrics[first.name])))
    return _front_of_members(objective, members, start, model if history else None)


def _front_of_members(
    objective: Objective,
    members: tuple[FrontPoint, ...],
    start: FrontPoint | None,
    model: FrontModel | None,
) -> Front:
    """The front with its measures; with a model also its growth and the other candidates."""
    from culmen.evidence.front import hypervolume, nearest_to_ideal, reference_point, reward_rows

    goals, growth, others = objective.metrics, (), ()
    points = reward_rows(members, goals)
    origin = reference_point(points, goals)
    if model is not None:
        rewards, _ = model.posterior_rewards()
        # without those that have no number yet
        known = (rewards == rewards).all(axis=1).nonzero()[0]
        growth = _hypervolume_growth(rewards, known, origin)
        on = {member.id for member in members}
        others = tuple(model.front_point(row) for row in known.tolist() if model.ids[row] not in on)
    return Front(
        goals,
        objective.constraints,
        members,
        {goal.name: goal.reward(float(value)) for goal, value in zip(goals, origin)},
        hypervolume(points, origin) if len(points) else 0.0,
        bool(members) and all(member.confirmed for member in members),
        growth,
        others,
        nearest_to_ideal(members, goals, [1.0] * len(points.T)).id if members else "",
        start,
    )


def _hypervolume_growth(
    rewards: Floats, known: NDArray[np.int64], origin: Floats
) -> tuple[tuple[int, float], ...]:
    import numpy as np

    from culmen.evidence.front import hypervolume, nondominated_rows

    grown: list[tuple[int, float]] = []
    step, kept, height = max(1, -(-len(known) // _POINTS)), known[:0], 0.0
    for start in range(0, len(known), step):
        kept = np.append(kept, known[start : start + step])
        kept = kept[nondominated_rows(rewards[kept])]
        height = max(height, hypervolume(rewards[kept], origin))  # never falls by rounding
        grown.append((min(start + step, len(known)), height))
    return tuple(grown)
