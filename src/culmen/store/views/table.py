"""The table of candidates: filtered, sorted and paged by the database, so that its length does not matter."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from culmen.core.candidate import Origin
from culmen.core.errors import UserError
from culmen.core.evaluation import LEVELS, rank
from culmen.store.codec import decode, escape, unescape
from culmen.store.database import read_meta, reading
from culmen.store.ranking import place, pooled_sd
from culmen.store.views.candidates import Row, fetch, row_of

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection, Select

SORTS = ("best", "seq", "id", "mean", "count", "failed", "operator", "model", "island", "parents", "trust")
STATUSES = ("scored", "mixed", "failed", "unseen")
_FACETS = 40  # values of one column that are listed to choose from


class Query(msgspec.Struct, frozen=True):
    """One page of the table.

    `sort` is one of `SORTS`; `best` is the order of store/ranking.py. `text` is looked for in ids, parents, operators
    and models. `status`: scored (every evaluation gave a score), mixed, failed (none did) or unseen (not evaluated).
    `trust` keeps candidates all of whose scores are at least at that level (`core.trust`), `below` those that are not.
    """

    sort: str = "best"
    descending: bool = False
    offset: int = 0
    limit: int = 50
    text: str = ""
    operator: str | None = None
    model: str | None = None
    island: int | None = None
    status: str = ""
    trust: str = ""
    below: str = ""


class Listed(msgspec.Struct, frozen=True):
    """One line: the candidate with its statistics, and its origin."""

    row: Row
    island: int | None
    note: str


class Page(msgspec.Struct, frozen=True):
    """Lines from `offset` on, of `total` that pass the filters, of `all` there are."""

    rows: tuple[Listed, ...]
    total: int
    all: int


class Facets(msgspec.Struct, frozen=True):
    """Values that occur, with how many candidates have them, the most frequent first."""

    operators: tuple[tuple[str, int], ...]
    models: tuple[tuple[str, int], ...]
    islands: tuple[tuple[int, int], ...]


def table(run: Path | str, query: Query) -> Page:
    """One page of candidates; raises `UserError` for an unknown sort or status."""
    from sqlalchemy import func, select

    from culmen.store.schema import candidate, tally
    from culmen.store.views.portable import taught

    if query.sort not in SORTS or query.status not in ("", *STATUSES):
        raise UserError("no such sort or status", where=f"{query.sort} {query.status}", fix=f"use {', '.join(SORTS)}")
    if not {query.trust, query.below} <= {"", *LEVELS}:
        raise UserError("no such level", where=f"{query.trust} {query.below}", fix=f"use {', '.join(LEVELS)}")
    with reading(Path(run)) as connection:
        taught(connection)
        direction, sd = read_meta(connection).task.objective.direction, pooled_sd(connection)
        joined = candidate.outerjoin(tally, tally.c.candidate == candidate.c.id)
        wanted = _conditions(query)
        count = select(func.count()).select_from(joined).where(*wanted)
        total = connection.execute(count).scalar_one()
        everything = connection.execute(select(func.count()).select_from(candidate)).scalar_one()
        ids = _sorted(select(candidate.c.id).select_from(joined).where(*wanted), query, direction, sd)
        page = connection.execute(ids.offset(query.offset).limit(query.limit)).scalars().all()
        rows = [row_of(row, direction, sd) for row in fetch(connection, page)]
        origins = _origins(connection, page)
        listed = [Listed(row, origins[escape(row.id)].island, origins[escape(row.id)].note) for row in rows]
        return Page(tuple(listed), total, everything)


def facets(run: Path | str) -> Facets:
    """What the columns hold."""
    from sqlalchemy import func, select

    from culmen.store.schema import candidate
    from culmen.store.views.portable import island, taught

    def counted(connection: Connection, column: Any) -> list[tuple[Any, int]]:
        number = func.count().label("n")
        query = select(column.label("v"), number).select_from(candidate).group_by("v").order_by(number.desc(), "v")
        return [(row[0], row[1]) for row in connection.execute(query.limit(_FACETS)) if row[0] not in (None, "")]

    with reading(Path(run)) as connection:
        taught(connection)
        return Facets(
            operators=tuple((unescape(name), n) for name, n in counted(connection, candidate.c.operator)),
            models=tuple((unescape(name), n) for name, n in counted(connection, candidate.c.model)),
            islands=tuple(sorted(counted(connection, island(candidate.c.origin)))),
        )


def _conditions(query: Query) -> list[ColumnElement[bool]]:
    from sqlalchemy import func, or_

    from culmen.store.schema import candidate, tally
    from culmen.store.views.portable import island

    found: list[ColumnElement[bool]] = []
    if query.text:
        text = escape(query.text)
        places = (candidate.c.id, candidate.c.parents, candidate.c.operator, candidate.c.model)
        found.append(or_(*(place.icontains(text, autoescape=True) for place in places)))
    if query.operator is not None:
        found.append(candidate.c.operator == escape(query.operator))
    if query.model is not None:
        found.append(candidate.c.model == escape(query.model))
    if query.island is not None:
        found.append(island(candidate.c.origin) == query.island)
    count, failed = func.coalesce(tally.c.count, 0), func.coalesce(tally.c.failed, 0)
    found += {
        "": [],
        "scored": [count > 0, failed == 0],
        "mixed": [count > 0, failed > 0],
        "failed": [count == 0, failed > 0],
        "unseen": [count == 0, failed == 0],
    }[query.status]
    if query.trust:
        found += [count > 0, tally.c.trust <= rank(query.trust)]
    if query.below:
        found += [count > 0, tally.c.trust > rank(query.below)]
    return found


def _sorted(ids: Select[*tuple[Any, ...]], query: Query, direction: str, sd: float) -> Select[*tuple[Any, ...]]:
    """Candidates without a value come last, whichever way the others go; ties are in order of appearance."""
    from sqlalchemy import case, func

    from culmen.store.schema import candidate, tally
    from culmen.store.views.portable import island

    unscored = case((func.coalesce(tally.c.count, 0) == 0, 1), else_=0)
    clean, value = place(direction, sd)
    keys: dict[str, tuple[Any, Any]] = {
        "best": (unscored, -value),
        "mean": (unscored, tally.c.mean),
        "count": (0, func.coalesce(tally.c.count, 0)),
        "failed": (0, func.coalesce(tally.c.failed, 0)),
        "seq": (0, candidate.c.seq),
        "id": (0, candidate.c.id),
        "operator": (case((candidate.c.operator == "", 1), else_=0), candidate.c.operator),
        "model": (case((candidate.c.model == "", 1), else_=0), candidate.c.model),
        "parents": (case((candidate.c.parents == "", 1), else_=0), candidate.c.parents),
        "island": (case((island(candidate.c.origin).is_(None), 1), else_=0), island(candidate.c.origin)),
        "trust": (unscored, tally.c.trust),
    }
    last, key = keys[query.sort]
    order = [key.desc() if query.descending else key, candidate.c.seq, candidate.c.id]
    if query.sort == "best":  # the same to the last tie as `views.candidates`
        order[:0] = [clean.desc() if query.descending else clean]
        order[2:2] = [tally.c.first]
        return ids.order_by(tally.c.candidate.is_(None), last, *order)
    return ids.order_by(*([] if isinstance(last, int) else [last]), *order)


def _origins(connection: Connection, ids: Any) -> dict[str, Origin]:
    from sqlalchemy import select

    from culmen.store.schema import candidate

    rows = connection.execute(select(candidate.c.id, candidate.c.origin).where(candidate.c.id.in_(ids)))
    return {row.id: decode(row.origin, Origin) for row in rows}
