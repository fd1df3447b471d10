"""Events as they happened: the log, notes, observations, effects."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from culmen.core.evaluation import Observation
from culmen.core.event import Event, Vectors
from culmen.core.faults import EvaluationRow, EvaluatorFault, evaluator_faults
from culmen.core.json import JsonObject
from culmen.core.usage import Usage
from culmen.store import packs, sql
from culmen.store.codec import decode_value, escape_text, unescape_text
from culmen.store.costs import EffectCost, costs_of, costs_where, running_dollars
from culmen.store.database import open_snapshot
from culmen.store.evidence import Scores
from culmen.store.reader import PAGE, Texts, assemble_events

if TYPE_CHECKING:
    from sqlalchemy import Connection, Select
    from sqlalchemy import Row as SqlRow


def log_events(
    run: Path | str, after: int = 0, limit: int = 100, kinds: Collection[str] = ()
) -> list[Event]:
    """At most `limit` events with seq > `after`, oldest first.

    `kinds`: only events of these kinds (empty: all kinds).
    """
    folder = Path(run)
    query = (
        sql.select(sql.event).where(sql.event.c.seq > after).order_by(sql.event.c.seq).limit(limit)
    )
    if kinds:
        query = query.where(sql.event.c.kind.in_(list(kinds)))
        if not {"started", "done"} & set(kinds):
            query = query.where(sql.event.c.topic.is_not(None))  # the index over the rare kinds
    with open_snapshot(folder) as connection:
        return assemble_events(connection, folder, connection.execute(query).all(), Texts())


def event_count(run: Path | str, kinds: Collection[str], before: int) -> int:
    """Number of events of these kinds with a smaller seq."""
    event = sql.event.c
    query = sql.select(sql.func.count(event.seq)).where(
        event.seq < before, event.kind.in_(list(kinds))
    )
    with open_snapshot(Path(run)) as connection:
        return connection.execute(query).scalar_one()


def note_events(
    run: Path | str, kind: str | None = None, after: int = 0, limit: int = 1_000_000
) -> list[Event]:
    """Notes of the strategy, all or those of one kind, oldest first."""
    folder = Path(run)
    query = sql.select(sql.event).where(
        sql.event.c.kind == "note", sql.event.c.topic.is_not(None), sql.event.c.seq > after
    )
    if kind is not None:
        query = query.where(sql.event.c.topic == escape_text(kind))
    with open_snapshot(folder) as connection:
        rows = connection.execute(query.order_by(sql.event.c.seq).limit(limit)).all()
        return assemble_events(connection, folder, rows, Texts())


def stream_observations(
    run: Path | str, candidate: str | None = None, phase: Literal["search", "final"] | None = None
) -> Iterator[Observation]:
    """All observations, or those of one candidate (full id), in journal order; streamed.

    `phase`: only those of the final choice, or only those of the search (None: both).
    """
    folder, last = Path(run), 0
    query = (
        sql.select(sql.event)
        .join(sql.observation, sql.observation.c.seq == sql.event.c.seq)
        .order_by(sql.observation.c.seq)
        .limit(PAGE)
    )
    if candidate is not None:
        query = query.where(sql.observation.c.candidate == escape_text(candidate))
    if phase is not None:
        final = sql.observation.c.phase != ""
        query = query.where(final if phase == "final" else ~final)
    while True:
        with open_snapshot(folder) as connection:
            rows = connection.execute(query.where(sql.observation.c.seq > last)).all()
            events = assemble_events(connection, folder, rows, Texts())
        if not events:
            return
        for each in events:
            if isinstance(each.entry.result, Observation):
                yield each.entry.result
        last = events[-1].seq


def newest_observations(
    run: Path | str, limit: int, scored_below: float | None = None
) -> list[tuple[int, Observation]]:
    """The newest observations and their events' numbers, newest first.

    With `scored_below` only those without a score of at least that.
    """
    folder, o = Path(run), sql.observation.c
    newest = sql.select(o.seq).order_by(o.seq.desc())
    if scored_below is not None:
        newest = newest.where(sql.or_(o.score.is_(None), o.score < scored_below))
    named = newest.limit(limit).subquery()
    query = sql.select(sql.event).join(named, named.c.seq == sql.event.c.seq)
    with open_snapshot(folder) as connection:
        rows = connection.execute(query.order_by(sql.event.c.seq.desc())).all()
        events = assemble_events(connection, folder, rows, Texts())
    found = [(each.seq, each.entry.result) for each in events]
    return [(seq, seen) for seq, seen in found if isinstance(seen, Observation)]


class FailureCauses(msgspec.Struct, frozen=True):
    """Counts of failures in a run.

    Of `candidates` evaluated in the search, `fruitless` never scored. `kinds` counts the latest
    failures by reason and last line of the feedback, joined by a line feed.
    """

    candidates: int
    fruitless: int
    kinds: dict[str, int] = {}


_CAUSES = 200  # failed evaluations looked at


def failure_causes(run: Path | str) -> FailureCauses:
    """Number of candidates that failed, and the causes, most frequent first."""
    folder, t, o = Path(run), sql.tally.c, sql.observation.c
    with open_snapshot(folder) as connection:
        failed = _status_count(connection, ("ok", "lost"))
        latest = (
            sql.select(o.seq)
            .where(o.status.not_in(["ok", "lost"]))
            .order_by(o.seq.desc())
            .limit(min(_CAUSES, failed))  # none is looked for beyond the last
            .subquery()
        )
        every = connection.execute(sql.select(sql.func.count(t.candidate))).scalar_one()
        barren = sql.select(sql.func.count(t.candidate)).where(t.count == 0, t.failed > t.lost)
        barren = barren.where(t.failed > 0)  # for the index
        fruitless = connection.execute(barren).scalar_one()
        rows = connection.execute(
            sql.select(sql.event).where(sql.event.c.seq.in_(sql.select(latest.c.seq)))
        ).all()
        found = assemble_events(connection, folder, rows, Texts())
    results = (event.entry.result for event in found)
    kinds = Counter(
        f"{r.reason or r.status.value}\n{r.last_words}"
        for r in results
        if isinstance(r, Observation)
    )
    return FailureCauses(every, fruitless, dict(kinds.most_common()))


def _status_count(connection: Connection, without: Sequence[str]) -> int:
    """Number of observations with another status than these, as the writer counts them."""
    c = sql.counter.c
    query = sql.select(sql.func.sum(c.value)).where(c.scope == "status", c.name.not_in(without))
    return int(connection.execute(query).scalar() or 0)


def partial_faults(run: Path | str) -> list[EvaluatorFault]:
    """Lines of the evaluator that raised for initial programs or for several candidates.

    Covers the search and the final choice (`core.faults`). Empty for older journals, which record
    no kinds of failures.
    """
    o, c = sql.observation.c, sql.candidate.c
    placed = sql.select(o.seq).where(o.kind.contains(" @ ")).limit(1)
    every = sql.select(o.candidate, o.case, o.kind, o.status).order_by(o.seq)
    with open_snapshot(Path(run)) as connection:
        if not _status_count(connection, ("ok",)) or connection.execute(placed).first() is None:
            return []
        initial = connection.execute(sql.select(c.id).where(c.operator == "seed")).scalars().all()
        rows = connection.execute(every).all()
    seen = (
        EvaluationRow(
            unescape_text(row.candidate),
            unescape_text(row.case),
            _failure_kind(row.kind, row.status),
        )
        for row in rows
    )
    return evaluator_faults(seen, {unescape_text(name) for name in initial})


def _failure_kind(kind: str, status: str) -> str:
    return unescape_text(kind) or ("" if status == "ok" else status)


# The run over time: starts and ends of effects, their costs, embeddings, and the family tree.

_END = 2**63 - 1  # beyond the last event
_OTHERS = ("proposal", "text", "vectors", "custom", "edits")  # every shape but observations


class EffectMark(NamedTuple):
    """A start (`started`) or an end (`done`, `torn`) of an effect.

    `stop` and `state` end all effects in flight.
    """

    seq: int
    kind: str
    effect: str
    key: int
    elapsed: float
    time: float


class JournalPiece(NamedTuple):
    """The marks and costs of the events after `first`, up to `last`."""

    first: int
    last: int
    marks: list[EffectMark]
    costs: list[EffectCost]


class EmbeddedCandidates(NamedTuple):
    """Candidates and their embeddings: consecutive rows of `width` little-endian float32."""

    seq: int
    candidates: tuple[str, ...]
    width: int
    data: bytes


class StrategyNote(NamedTuple):
    """A note of the strategy: its kind and its fields (`note` among them)."""

    seq: int
    elapsed: float
    kind: str
    body: JsonObject


class FamilyNode(NamedTuple):
    """A candidate in the family tree: its first parent ("" for a root), and its score so far.

    `others` are its further parents: of a merge, or programs that the model was shown.
    """

    id: str
    seq: int
    parent: str
    operator: str
    count: int
    mean: float | None
    failed: int
    model: str = ""
    island: int | None = None
    others: tuple[str, ...] = ()


def last_seq(run: Path | str) -> int:
    """Number of events: the cheapest way to notice that something happened."""
    with open_snapshot(Path(run)) as connection:
        return connection.execute(sql.select(sql.func.max(sql.event.c.seq))).scalar() or 0


def effect_marks(run: Path | str, after: int = 0, last: int = _END) -> list[EffectMark]:
    """Starts and ends of all effects after event `after`, up to `last`, in journal order."""
    with open_snapshot(Path(run)) as connection:
        return _marks_of(connection, after, last)


def journal_pieces(
    run: Path | str, first: int, last: int, count: int, size: int
) -> list[JournalPiece]:
    """At most `count` pieces of `size` events each, evenly spread over `first` to `last`."""
    count = max(1, min(count, (last - first + 1) // size))
    pieces: list[JournalPiece] = []
    with open_snapshot(Path(run)) as connection:
        for index in range(count):
            after = first - 1 + round(index * max(0, last - first + 1 - size) / max(1, count - 1))
            until = min(last, after + size)
            marks = _marks_of(connection, after, until)
            pieces.append(
                JournalPiece(after, until, marks, costs_of(connection, Path(run), after, until))
            )
    return pieces


def seq_at(run: Path | str, elapsed: float) -> int:
    """The last event before `elapsed` active seconds; 0 if there is none.

    Found by bisection: elapsed time never decreases.
    """
    low, at = 0, sql.select(sql.event.c.elapsed)
    with open_snapshot(Path(run)) as connection:
        high = connection.execute(sql.select(sql.func.max(sql.event.c.seq))).scalar() or 0
        while low < high:
            middle = (low + high + 1) // 2
            before = connection.execute(at.where(sql.event.c.seq == middle)).scalar_one() < elapsed
            low, high = (middle, high) if before else (low, middle - 1)
    return low


def in_flight(run: Path | str) -> list[EffectMark]:
    """Starts of the effects that have not ended, oldest first.

    The journal is read from its end, because effects in flight began recently, until as many are
    found as the writer counts.
    """
    ended, starts, before = set[int](), list[EffectMark](), _END
    with open_snapshot(Path(run)) as connection:
        c = sql.counter.c
        query = sql.select(c.value).where(c.scope == "session", c.name == "in_flight")
        count = connection.execute(query).scalar() or 0
        while len(starts) < count:
            query = (
                _marks_query()
                .where(sql.event.c.seq < before)
                .order_by(sql.event.c.seq.desc())
                .limit(PAGE)
            )
            page = [EffectMark(*row) for row in connection.execute(query)]
            for mark in page:
                if mark.kind in ("state", "stop"):
                    return starts[::-1]
                if mark.kind == "started" and mark.key not in ended:
                    starts.append(mark)
                ended.add(mark.key)
            if len(page) < PAGE:
                break
            before = page[-1].seq
    return starts[::-1]


def cut_off_evaluations(run: Path | str) -> list[float]:
    """Seconds of evaluations that had no result when the search ended, longest first.

    Looked for among the last effects before that; empty while the search runs.
    """
    c = sql.event.c
    with open_snapshot(Path(run)) as connection:
        query = _marks_query().where(c.kind == "stop").order_by(c.seq.desc()).limit(1)
        stop = connection.execute(query).first()
        if stop is None:
            return []
        before = _marks_query().where(c.seq < stop.seq).order_by(c.seq.desc()).limit(PAGE)
        ends = _marks_query().where(c.seq > stop.seq, c.kind == "done").limit(PAGE)
        ended = {EffectMark(*row).key for row in connection.execute(ends)}
        marks = [EffectMark(*row) for row in connection.execute(before)]
    found: list[float] = []
    for mark in marks:
        if mark.kind == "state":
            break
        if mark.kind == "started" and mark.effect == "evaluate" and mark.key not in ended:
            found.append(max(0.0, stop.elapsed - mark.elapsed))
        ended.add(mark.key)
    return sorted(found, reverse=True)


def effect_subjects(run: Path | str, seqs: Sequence[int]) -> dict[int, dict[str, str]]:
    """The candidate (`of`) and the `case` of each of these starts.

    Starts that record neither are left out.
    """
    query = sql.select(sql.event.c.seq, sql.event.c.body).where(sql.event.c.seq.in_(list(seqs)))
    with open_snapshot(Path(run)) as connection:
        rows = connection.execute(query).all()
    return {row.seq: decode_value(row.body, dict[str, str]) for row in rows if row.body}


def _marks_of(connection: Connection, after: int, last: int) -> list[EffectMark]:
    query = (
        _marks_query()
        .where(sql.event.c.seq > after, sql.event.c.seq <= last)
        .order_by(sql.event.c.seq)
    )
    return [EffectMark(*row) for row in connection.execute(query).all()]


def _marks_query() -> Select[*tuple[object, ...]]:
    columns = (
        sql.event.c.seq,
        sql.event.c.kind,
        sql.event.c.effect,
        sql.event.c.key,
        sql.event.c.elapsed,
        sql.event.c.time,
    )
    return sql.select(*columns).where(sql.event.c.kind.not_in(("note", "tell")))


def effect_costs(run: Path | str, after: int = 0, last: int = _END) -> list[EffectCost]:
    """Costs of model calls and other effects after event `after`, up to `last`.

    Includes evaluations that asked models. Effects that cost nothing are left out, unless they had
    faults.
    """
    with open_snapshot(Path(run)) as connection:
        return costs_of(connection, Path(run), after, last)


def costs_of_events(run: Path | str, seqs: Iterable[int]) -> list[EffectCost]:
    """Costs of these events, as `effect_costs`."""
    with open_snapshot(Path(run)) as connection:
        return costs_where(connection, Path(run), sql.event.c.seq.in_(sorted(seqs)))


def spending_by_event(run: Path | str, last: int = _END) -> Callable[[int], Usage]:
    """A function that returns all costs up to an event, of events up to `last`."""
    costs = effect_costs(run, 0, last)
    sums = [Usage(), *accumulate(cost.usage for cost in costs)]

    def spent_at(seq: int) -> Usage:
        return sums[bisect_right(costs, seq, key=lambda cost: cost.seq)]

    return spent_at


def dollars_at(run: Path | str, seqs: Sequence[int]) -> list[float] | None:
    """Dollars spent up to each of these events; None if the run does not keep them.

    They are kept of each packed observation; what was spent between it and the event is added.
    """
    folder = Path(run)
    with open_snapshot(folder) as connection:
        kept = packs.PackReader(connection).read_spent()
        if kept is None or not seqs:
            return [] if kept else None
        last, dollars = int(kept[0][-1]), float(kept[1][-1])
        behind = running_dollars(connection, folder, last, max(seqs), dollars)
        found: list[float] = []
        for seq, place in zip(seqs, (kept[0].searchsorted(seqs, "right") - 1).tolist()):
            before, dollars = int(kept[0][place]), float(kept[1][place])
            if seq > last:
                dollars = behind[bisect_right(behind, seq, key=lambda pair: pair[0]) - 1][1]
            elif seq > before:
                dollars = running_dollars(connection, folder, before, seq, dollars)[-1][1]
            found.append(dollars)
        return found


def evaluation_seqs(run: Path | str, after: int = 0, last: int = _END) -> list[int]:
    """Events that are observations, after event `after`, up to `last`."""
    seq = sql.observation.c.seq
    query = sql.select(seq).where(seq > after, seq <= last).order_by(seq)
    with open_snapshot(Path(run)) as connection:
        return list(connection.execute(query).scalars())


class EvaluationMark(NamedTuple):
    """One finished evaluation: its number from 1, its events, and what it evaluated.

    `seq` is the event of its result and `started` that of its start (0 if the result was taken over
    from another run), `key` the number of its effect; it was the `nth` of the candidate. `phase` is
    "" in the search.
    """

    number: int
    seq: int
    started: int
    key: int
    candidate: str
    nth: int
    case: str
    phase: str


def evaluation_mark(
    run: Path | str, number: int | None = None, candidate: str = ""
) -> EvaluationMark | None:
    """The finished evaluation with this number.

    Without a number the first one of a candidate, without both the last one; None if there is none.
    """
    o, e = sql.observation.c, sql.event.c
    query = sql.select(o.seq, o.candidate, o.case, o.phase).limit(1)
    if number is not None:
        query = query.order_by(o.seq).offset(number - 1)
    elif candidate:
        query = query.where(o.candidate == escape_text(candidate)).order_by(o.seq)
    else:
        query = query.order_by(o.seq.desc())
    with open_snapshot(Path(run)) as connection:
        row = connection.execute(query).first()
        if row is None:
            return None
        counts = sql.select(sql.func.count(o.seq)).where(o.seq <= row.seq)
        nth = counts.where(o.candidate == row.candidate)
        key = connection.execute(sql.select(e.key).where(e.seq == row.seq)).scalar_one()
        starts = sql.select(sql.func.max(e.seq)).where(
            e.kind == "started", e.key == key, e.seq < row.seq
        )
        return EvaluationMark(
            connection.execute(counts).scalar_one(),
            row.seq,
            connection.execute(starts).scalar() or 0,
            key,
            unescape_text(row.candidate),
            connection.execute(nth).scalar_one(),
            unescape_text(row.case),
            unescape_text(row.phase),
        )


def strategy_notes(run: Path | str, after: int = 0, last: int = _END) -> list[StrategyNote]:
    """Notes of the strategy after event `after`, up to `last`, oldest first.

    The engine's own notes (seeds, candidates) are left out.
    """
    columns = (sql.event.c.seq, sql.event.c.elapsed, sql.event.c.topic, sql.event.c.body)
    query = sql.select(*columns).where(
        sql.event.c.kind == "note", sql.event.c.topic.not_in(("seeds", "candidates", ""))
    )
    with open_snapshot(Path(run)) as connection:
        rows = connection.execute(
            query.where(sql.event.c.seq > after, sql.event.c.seq <= last).order_by(sql.event.c.seq)
        ).all()
    return [
        StrategyNote(
            seq,
            elapsed,
            unescape_text(topic),
            {} if body is None else decode_value(body, JsonObject),
        )
        for seq, elapsed, topic, body in rows
    ]


def candidate_embeddings(run: Path | str, after: int = 0) -> list[EmbeddedCandidates]:
    """Embeddings made after event `after` for which the journal names the candidates."""
    columns = (sql.event.c.seq, sql.event.c.body, sql.event.c.result, sql.event.c.data)
    query = (
        sql.select(*columns)
        .where(sql.others, sql.event.c.seq > after, sql.event.c.shape == "vectors")
        .order_by(sql.event.c.seq)
    )
    embeddings: list[EmbeddedCandidates] = []
    with open_snapshot(Path(run)) as connection:
        for seq, body, result, data in connection.execute(query):
            names = tuple(decode_value(body, JsonObject).get("candidates", ())) if body else ()
            vectors = decode_value(result, Vectors)
            if len(names) == vectors.count:
                embeddings.append(EmbeddedCandidates(seq, names, vectors.width, data or b""))
    return embeddings


def effect_results(
    run: Path | str, prefix: str, after: int = 0, limit: int = 10_000
) -> list[Event]:
    """Finished effects after event `after` whose kind begins with `prefix`, oldest first.

    Evaluations are left out.
    """
    folder = Path(run)
    query = sql.select(sql.event).where(
        sql.others, sql.event.c.shape.in_(_OTHERS), sql.event.c.seq > after
    )
    query = query.where(sql.event.c.kind == "done", sql.event.c.effect.startswith(prefix))
    with open_snapshot(folder) as connection:
        rows = connection.execute(query.order_by(sql.event.c.seq).limit(limit)).all()
        texts, events = Texts(), list[Event]()
        for start in range(0, len(rows), PAGE):
            events += assemble_events(connection, folder, rows[start : start + PAGE], texts)
        return events


def family_tree(run: Path | str) -> list[FamilyNode]:
    """Every candidate with its first parent, in order of appearance."""
    columns = (
        sql.candidate.c.id,
        sql.candidate.c.seq,
        sql.candidate.c.parents,
        sql.candidate.c.operator,
        sql.candidate.c.model,
        sql.candidate.c.origin,
        sql.tally.c.count,
        sql.tally.c.mean,
        sql.tally.c.failed,
    )
    query = sql.select(*columns).select_from(
        sql.candidate.outerjoin(sql.tally, sql.tally.c.candidate == sql.candidate.c.id)
    )
    with open_snapshot(Path(run)) as connection:
        rows = connection.execute(query.order_by(sql.candidate.c.seq, sql.candidate.c.id)).all()
        scores = Scores(connection, Path(run))
    return [_family_node(row, scores) for row in rows]


def _family_node(row: SqlRow[*tuple[object, ...]], scores: Scores) -> FamilyNode:
    name, (parent, *others) = unescape_text(row.id), unescape_text(row.parents).split(" ")
    score = scores.score_of(name)
    count, mean = (0, None) if score is None else (score.count, score.score)
    island = decode_value(row.origin, _OriginIsland).island
    about = (row.failed or 0, unescape_text(row.model), island, tuple(others))
    return FamilyNode(name, row.seq, parent, unescape_text(row.operator), count, mean, *about)


class _OriginIsland(msgspec.Struct):
    """The part of a stored origin that is needed here."""

    island: int | None = None
