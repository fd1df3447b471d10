"""Candidates: lists with statistics, and one in full."""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from culmen.core.brief import Proposal
from culmen.core.candidate import Candidate
from culmen.core.errors import UserError
from culmen.core.evaluation import LEVELS, Observation
from culmen.core.usage import Usage
from culmen.store.blobs import Blobs
from culmen.store.codec import unescape
from culmen.store.database import read_meta, reading
from culmen.store.ranking import place, pooled_sd
from culmen.store.reader import PAGE, Texts, assemble, lookup_in
from culmen.store.shelf import candidate_of

if TYPE_CHECKING:
    from sqlalchemy import Connection, Select
    from sqlalchemy import Row as SqlRow

Order = Literal["best", "score", "worst", "count", "new", "old"]


class Row(msgspec.Struct, frozen=True):
    """A candidate with the statistics of its scores (in the task's own direction).

    `count` scored evaluations with `mean`, `sd` (None below two) and standard error `se` (from the spread pooled over
    all candidates; None if it is not known); `bound` is what `best` orders by. `statuses` counts what gave no score.
    `trust` is the level of the weakest score (`core.trust`; "": there is none), `certified` the worst value that the
    verifier certified (None: not asked, or not all accepted). `grave`: it showed a grave sign, `barred`: and was
    rejected for it.
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
    bound: float | None
    failed: int
    statuses: dict[str, int]
    trust: str = ""
    certified: float | None = None
    barred: bool = False
    grave: bool = False


class Detail(msgspec.Struct, frozen=True):
    """One candidate in full. `prompt`, `reply`, `hypothesis` and `usage` are those of the proposal it came with, which
    brought `among` candidates; empty if it came with none."""

    candidate: Candidate
    row: Row
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
        """Its texts by name."""
        return self.candidate.parts


def candidates(
    run: Path | str,
    order: Order = "best",
    offset: int = 0,
    limit: int | None = 50,
    *,
    operator: str | None = None,
    model: str | None = None,
    failed: bool | None = None,
) -> list[Row]:
    """One page of candidates (`limit` None: all the rest).

    `best`: by the rule of store/ranking.py · `score`, `worst`: by mean · `count`: most evaluated · `new`, `old`: by
    appearance. `failed` True keeps those with a failed evaluation, False those without.
    """
    from sqlalchemy import func, select

    from culmen.store.schema import candidate as table
    from culmen.store.schema import tally

    with reading(Path(run)) as connection:
        direction, sd = read_meta(connection).task.objective.direction, pooled_sd(connection)
        if order not in ("new", "old") and operator is model is failed is None:
            # Candidates never evaluated come last: while the page is full without them, tallies alone will do.
            short = _ordered(select(tally.c.candidate), order, direction, sd).offset(offset).limit(limit)
            rows = fetch(connection, connection.execute(short).scalars().all())
            if len(rows) == limit:
                return [row_of(row, direction, sd) for row in rows]
        names = select(table.c.id).select_from(table.outerjoin(tally, tally.c.candidate == table.c.id))
        query = _ordered(names.order_by(tally.c.candidate.is_(None)), order, direction, sd)
        if operator is not None:
            query = query.where(table.c.operator == operator)
        if model is not None:
            query = query.where(table.c.model == model)
        if failed is not None:
            failures = func.coalesce(tally.c.failed, 0)
            query = query.where(failures > 0 if failed else failures == 0)
        page = connection.execute(query.offset(offset).limit(limit)).scalars().all()
        return [row_of(row, direction, sd) for row in fetch(connection, page)]


def find_candidate(run: Path | str, prefix: str) -> str:
    """The full id that begins with `prefix`; raises `UserError` with suggestions if none or several do."""
    with reading(Path(run)) as connection:
        return resolve(connection, Path(run), prefix)


def candidate(run: Path | str, id_prefix: str, *, observations: int = 200) -> Detail:
    """One candidate with its newest `observations` (in the order they were made)."""
    from sqlalchemy import select

    from culmen.store.schema import candidate as table
    from culmen.store.schema import event

    folder = Path(run)
    with reading(folder) as connection:
        name = resolve(connection, folder, id_prefix)
        found = connection.execute(select(table).where(table.c.id == name)).one()
        blobs = Blobs(folder / "blobs", lookup_in(connection))
        whole = candidate_of(connection, folder, found)
        direction, sd = read_meta(connection).task.objective.direction, pooled_sd(connection)
        row = row_of(connection.execute(with_tallies().where(table.c.id == name)).one(), direction, sd)
        first = connection.execute(select(event).where(event.c.seq == found.seq)).all()
        source = assemble(connection, folder, first, Texts())[0].entry.result if first else None
        source = source if isinstance(source, Proposal) else Proposal()
        told = (blobs.text(source.prompt), blobs.text(source.reply), source.hypothesis, source.usage)
        seen = _observations(connection, folder, name, observations)
        return Detail(whole, row, seen, _children(connection, name), *told, among=len(source.candidates))


def with_tallies() -> Select[*tuple[Any, ...]]:
    """Candidates beside their tallies; those never evaluated have NULLs."""
    from sqlalchemy import select

    from culmen.store.schema import candidate as table
    from culmen.store.schema import tally

    columns = (table.c.id, table.c.seq, table.c.operator, table.c.model, table.c.parents)
    sums = [column for column in tally.c if column.name not in ("candidate", "first")]
    joined = table.outerjoin(tally, tally.c.candidate == table.c.id)
    return select(*columns, *sums).select_from(joined)


def fetch(connection: Connection, names: Sequence[str]) -> list[SqlRow[*tuple[Any, ...]]]:
    """Rows by id, in that order: sorting ids first and fetching a page of them is faster than sorting whole rows."""
    from culmen.store.schema import candidate as table

    found: dict[str, SqlRow[*tuple[Any, ...]]] = {}
    for start in range(0, len(names), PAGE):
        rows = connection.execute(with_tallies().where(table.c.id.in_(names[start : start + PAGE])))
        found.update((row.id, row) for row in rows)
    return [found[name] for name in names if name in found]


def _ordered(query: Select[*tuple[Any, ...]], order: Order, direction: str, sd: float) -> Select[*tuple[Any, ...]]:
    from sqlalchemy import case, func

    from culmen.store.schema import candidate as table
    from culmen.store.schema import tally

    sign = 1.0 if direction == "max" else -1.0
    unscored = case((func.coalesce(tally.c.count, 0) == 0, 1), else_=0)
    reward, (rank, value) = tally.c.mean * sign, place(direction, sd)
    keys: dict[str, tuple[Any, ...]] = {
        "best": (unscored, rank, value.desc()),
        "score": (unscored, reward.desc()),
        "worst": (unscored, reward),
        "count": (func.coalesce(tally.c.count, 0).desc(),),
    }
    if order == "new":
        return query.order_by(None).order_by(table.c.seq.desc(), table.c.id)
    if order == "old":
        return query.order_by(None).order_by(table.c.seq, table.c.id)
    return query.order_by(*keys[order], tally.c.first, tally.c.candidate)


def row_of(row: SqlRow[*tuple[Any, ...]], direction: str, sd: float) -> Row:
    """A fetched row as a `Row`."""
    count = row._mapping["count"] or 0
    mean = row.mean if count else None
    se = sd / math.sqrt(count) if count and sd else None
    sign = 1.0 if direction == "max" else -1.0
    worst = row.low if direction == "max" else row.high
    certified = worst if count and row.accepted == row.asked else None
    bound = None if mean is None else mean - sign * (se or 0.0)
    return Row(
        id=unescape(row.id),
        seq=row.seq,
        operator=unescape(row.operator),
        model=unescape(row.model),
        parents=tuple(unescape(row.parents).split()),
        count=count,
        mean=mean,
        sd=math.sqrt(row.spread / (count - 1)) if count > 1 else None,
        se=se,
        bound=bound if certified is None else certified,
        failed=row.failed or 0,
        statuses={name: n for name in ("invalid", "error", "timeout", "rejected", "lost") if (n := getattr(row, name))},
        trust="" if row.trust is None else LEVELS[row.trust],
        certified=certified,
        barred=bool(row.barred),
        grave=row.grave is not None,
    )


def resolve(connection: Connection, folder: Path, prefix: str) -> str:
    """The full id that begins with `prefix`; raises `UserError` if none or several do."""
    from sqlalchemy import select

    from culmen.store.schema import candidate as table

    matches: list[str] = []
    if prefix and all(letter in "0123456789abcdef" for letter in prefix):
        inside = select(table.c.id).where(table.c.id >= prefix[:12], table.c.id < prefix[:12] + "g")
        matches = list(connection.execute(inside.order_by(table.c.id).limit(9)).scalars())
    if len(matches) == 1:
        return matches[0]
    if matches:
        more = ", ".join(matches[:8]) + (", ..." if len(matches) > 8 else "")
        raise UserError(f"several candidates begin with '{prefix}'", where=str(folder), fix=f"give one of: {more}")
    known = list(connection.execute(select(table.c.id).order_by(table.c.seq.desc()).limit(5000)).scalars())
    close = difflib.get_close_matches(prefix, known, n=3, cutoff=0.5) or known[:3]
    fix = f"did you mean {', '.join(close)}?" if close else "the run has no candidates yet"
    raise UserError(f"there is no candidate '{prefix}'", where=str(folder), fix=fix)


def _observations(connection: Connection, folder: Path, name: str, limit: int) -> tuple[Observation, ...]:
    from sqlalchemy import select

    from culmen.store.schema import event, observation

    newest = select(observation.c.seq).where(observation.c.candidate == name)
    newest = newest.order_by(observation.c.seq.desc()).limit(limit).subquery()
    rows = connection.execute(select(event).join(newest, newest.c.seq == event.c.seq).order_by(event.c.seq)).all()
    results = [event.entry.result for event in assemble(connection, folder, rows, Texts())]
    return tuple(result for result in results if isinstance(result, Observation))


def _children(connection: Connection, name: str) -> tuple[str, ...]:
    from sqlalchemy import select

    from culmen.store.schema import candidate as table

    query = select(table.c.id).where(table.c.parents.contains(name)).order_by(table.c.seq)
    return tuple(connection.execute(query.limit(100)).scalars())
