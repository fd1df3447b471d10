"""Candidates of a run: lists with statistics, and one candidate in full."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
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
from culmen.store import sql
from culmen.store.codec import Blobs, decode_value, escape_text, unescape_text
from culmen.store.database import open_snapshot, read_meta
from culmen.store.evidence import Scores, evidence_of, last_state
from culmen.store.reader import PAGE, Texts, assemble_events, candidate_of, lookup_in

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from sqlalchemy import ColumnElement, Connection, Select
    from sqlalchemy import Row as SqlRow

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
    """

    candidate: Candidate
    row: CandidateRow
    observations: tuple[Observation, ...]
    children: tuple[str, ...]
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
    model: str | None = None,
    failed: bool | None = None,
) -> list[CandidateRow]:
    """One page of candidates (`limit` None: all that remain).

    `best`: by expected score, the reported candidate first · `score`, `worst`: by mean · `count`:
    most evaluated · `new`, `old`: by appearance. `failed` True keeps candidates with a failed
    evaluation, False those without one.
    """
    with open_snapshot(Path(run)) as connection:
        scores = Scores(connection, Path(run), order == "best")
        query = sql.select(sql.candidate.c.id).select_from(
            sql.candidate.outerjoin(sql.tally, sql.tally.c.candidate == sql.candidate.c.id)
        )
        if operator is not None:
            query = query.where(sql.candidate.c.operator == operator)
        if model is not None:
            query = query.where(sql.candidate.c.model == model)
        if failed is not None:
            failures = sql.func.coalesce(sql.tally.c.failed, 0)
            query = query.where(failures > 0 if failed else failures == 0)
        if order == "best":
            filtered = not operator is model is failed is None
            page = _best_page(connection, query, scores, filtered, offset, limit)
            return [row_of(row, scores) for row in fetch_rows(connection, page)]
        query = _order_query(
            query.order_by(sql.tally.c.candidate.is_(None)), order, scores.direction
        )
        page = connection.execute(query.offset(offset).limit(limit)).scalars().all()
        return [row_of(row, scores) for row in fetch_rows(connection, page)]


def _best_page(
    connection: Connection,
    query: Select[str],
    scores: Scores,
    filtered: bool,
    offset: int,
    limit: int | None,
) -> list[str]:
    """Ids (escaped as in the tables) of one page of the candidates of `query`, best first.

    Candidates that cannot be the best come last: scored ones first, then in order of appearance.
    """
    end = None if limit is None else offset + limit
    if not filtered and end is not None and end <= scores.ranked_count:
        return [escape_text(name) for name in scores.ranked_ids(offset, end)]
    c, t = sql.candidate.c, sql.tally.c
    unscored = sql.case((sql.func.coalesce(t.count, 0) == 0, 1), else_=0)
    first = sql.func.coalesce(t.first, -1)  # databases differ in where they put NULL
    names = connection.execute(query.order_by(unscored, first, c.seq, c.id)).scalars().all()
    ranked = scores.ranked_ids(0, scores.ranked_count)
    ranks = {escape_text(name): rank for rank, name in enumerate(ranked)}
    return sorted(names, key=lambda name: ranks.get(name, len(ranks)))[offset:end]


def find_candidate(run: Path | str, prefix: str) -> str:
    """The full id that begins with `prefix`.

    Raises `UserError`, with suggestions, if no id or several ids do.
    """
    with open_snapshot(Path(run)) as connection:
        return resolve_id(connection, Path(run), prefix)


def candidate_detail(
    run: Path | str, id_prefix: str, *, observations: int = 200, children: int = 100
) -> CandidateDetail:
    """One candidate with its newest `observations` and its first `children`.

    The observations are in the order of the journal. A search for children scans all candidates, so
    pass 0 if they are not needed.
    """
    folder = Path(run)
    with open_snapshot(folder) as connection:
        name = resolve_id(connection, folder, id_prefix)
        stored = connection.execute(
            sql.select(sql.candidate).where(sql.candidate.c.id == name)
        ).one()
        blobs = Blobs(folder / "blobs", lookup_in(connection))
        candidate = candidate_of(connection, folder, stored)
        found_row = connection.execute(with_tallies().where(sql.candidate.c.id == name)).one()
        row = row_of(found_row, Scores(connection, folder))
        first = connection.execute(sql.select(sql.event).where(sql.event.c.seq == stored.seq)).all()
        proposal = (
            assemble_events(connection, folder, first, Texts())[0].entry.result if first else None
        )
        proposal = proposal if isinstance(proposal, Proposal) else Proposal()
        proposal_fields = (
            blobs.resolve_text(proposal.prompt),
            blobs.resolve_text(proposal.reply),
            proposal.hypothesis,
            proposal.usage,
        )
        shown = _newest_observations(connection, folder, name, observations)
        child_ids = _child_ids(connection, name, children) if children else ()
        return CandidateDetail(
            candidate, row, shown, child_ids, *proposal_fields, among=len(proposal.candidates)
        )


def with_tallies() -> Select[*tuple[object, ...]]:
    """A query for candidates with their tallies; NULLs for candidates never evaluated."""
    columns = (
        sql.candidate.c.id,
        sql.candidate.c.seq,
        sql.candidate.c.operator,
        sql.candidate.c.model,
        sql.candidate.c.parents,
    )
    sums = [column for column in sql.tally.c if column.name not in ("candidate", "first")]
    joined = sql.candidate.outerjoin(sql.tally, sql.tally.c.candidate == sql.candidate.c.id)
    return sql.select(*columns, *sums).select_from(joined)


def fetch_rows(connection: Connection, names: Sequence[str]) -> list[SqlRow[*tuple[object, ...]]]:
    """The rows of these ids, in their order.

    Sorting ids first and fetching one page of them is faster than sorting whole rows.
    """
    rows_by_id: dict[str, SqlRow[*tuple[object, ...]]] = {}
    for start in range(0, len(names), PAGE):
        rows = connection.execute(
            with_tallies().where(sql.candidate.c.id.in_(names[start : start + PAGE]))
        )
        rows_by_id.update((row.id, row) for row in rows)
    return [rows_by_id[name] for name in names if name in rows_by_id]


def _order_query(query: Select[str], order: Order, direction: str) -> Select[str]:
    unscored = sql.case((sql.func.coalesce(sql.tally.c.count, 0) == 0, 1), else_=0)
    reward = sql.tally.c.mean * (1.0 if direction == "max" else -1.0)
    keys: dict[str, tuple[ColumnElement[int] | ColumnElement[float], ...]] = {
        "score": (unscored, reward.desc()),
        "worst": (unscored, reward),
        "count": (sql.func.coalesce(sql.tally.c.count, 0).desc(),),
    }
    if order == "new":
        return query.order_by(None).order_by(sql.candidate.c.seq.desc(), sql.candidate.c.id)
    if order == "old":
        return query.order_by(None).order_by(sql.candidate.c.seq, sql.candidate.c.id)
    return query.order_by(*keys[order], sql.tally.c.first, sql.tally.c.candidate)


def row_of(row: SqlRow[*tuple[object, ...]], scores: Scores) -> CandidateRow:
    """A fetched row as a `CandidateRow`."""
    name, searched = unescape_text(row.id), row._mapping["count"] or 0
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


def resolve_id(connection: Connection, folder: Path, prefix: str) -> str:
    """The full id that begins with `prefix`; raises `UserError` if no id or several do."""
    matches: list[str] = []
    if prefix and all(letter in "0123456789abcdef" for letter in prefix):
        inside = sql.select(sql.candidate.c.id).where(
            sql.candidate.c.id >= prefix[:12], sql.candidate.c.id < prefix[:12] + "g"
        )
        matches = list(connection.execute(inside.order_by(sql.candidate.c.id).limit(9)).scalars())
    if len(matches) == 1:
        return matches[0]
    if matches:
        more = ", ".join(matches[:8]) + (", ..." if len(matches) > 8 else "")
        raise UserError(
            f"several candidates begin with '{prefix}'",
            where=str(folder),
            fix=f"give one of: {more}",
        )
    known = list(
        connection.execute(
            sql.select(sql.candidate.c.id).order_by(sql.candidate.c.seq.desc()).limit(5000)
        ).scalars()
    )
    close = difflib.get_close_matches(prefix, known, n=3, cutoff=0.5) or known[:3]
    fix = f"did you mean {', '.join(close)}?" if close else "the run has no candidates yet"
    raise UserError(f"there is no candidate '{prefix}'", where=str(folder), fix=fix)


def _newest_observations(
    connection: Connection, folder: Path, name: str, limit: int
) -> tuple[Observation, ...]:
    newest = sql.select(sql.observation.c.seq).where(sql.observation.c.candidate == name)
    newest = newest.order_by(sql.observation.c.seq.desc()).limit(limit).subquery()
    rows = connection.execute(
        sql.select(sql.event)
        .join(newest, newest.c.seq == sql.event.c.seq)
        .order_by(sql.event.c.seq)
    ).all()
    results = [each.entry.result for each in assemble_events(connection, folder, rows, Texts())]
    return tuple(result for result in results if isinstance(result, Observation))


def _child_ids(connection: Connection, name: str, limit: int) -> tuple[str, ...]:
    query = (
        sql.select(sql.candidate.c.id)
        .where(sql.candidate.c.parents.contains(name))
        .order_by(sql.candidate.c.seq)
    )
    return tuple(connection.execute(query.limit(limit)).scalars())


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
    folder = Path(run)
    with open_snapshot(folder) as connection:
        objective = read_meta(connection).task.objective
        chain = _rows_with_notes(
            connection, folder, _lineage_ids(connection, resolve_id(connection, folder, id_prefix))
        )
    steps: list[Step] = []
    for row, note in chain:
        before, now = (steps[-1].row.mean if steps else None), row.mean
        gain = (
            None
            if before is None or now is None
            else objective.reward(now) - objective.reward(before)
        )
        steps.append(Step(row, gain, note))
    return steps


def _lineage_ids(connection: Connection, name: str) -> list[str]:
    """Ids from the initial program to `name`.

    One recursive query; its UNION stops if the parents form a cycle.
    """
    columns = (sql.candidate.c.id, sql.func.substr(sql.candidate.c.parents, 1, _ID).label("parent"))
    line = sql.select(*columns).where(sql.candidate.c.id == name).cte("line", recursive=True)
    line = line.union(sql.select(*columns).join(line, sql.candidate.c.id == line.c.parent))
    parents = {
        row.id: row.parent for row in connection.execute(sql.select(line.c.id, line.c.parent))
    }
    chain: list[str] = []
    while name in parents:
        chain.append(name)
        name = parents.pop(name)
    return chain[::-1]


def _rows_with_notes(
    connection: Connection, folder: Path, names: list[str]
) -> list[tuple[CandidateRow, str]]:
    """Each candidate with its statistics and the note of its origin, in the order of `names`."""
    scores, query = Scores(connection, folder), with_tallies().add_columns(sql.candidate.c.origin)
    rows_by_id: dict[str, tuple[CandidateRow, str]] = {}
    for start in range(0, len(names), PAGE):
        for row in connection.execute(
            query.where(sql.candidate.c.id.in_(names[start : start + PAGE]))
        ):
            rows_by_id[row.id] = (row_of(row, scores), decode_value(row.origin, Origin).note)
    return [rows_by_id[name] for name in names]


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
    folder = Path(run)
    with open_snapshot(folder) as connection:
        objective = read_meta(connection).task.objective
        if not objective.metrics:
            return None
        from culmen.evidence.front_verdict import FrontVerdict  # numpy comes with it

        winner = last_state(connection).get("winner")
        final = winner.get("front") if isinstance(winner, dict) else None
        members = tuple(msgspec.convert(each, FrontPoint) for each in final or ())
        model = start = None
        if history or not final:
            with evidence_of(connection, folder) as found:
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
