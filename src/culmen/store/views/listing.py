"""The table of candidates, filtered, sorted and paged by the database.

Its cost therefore hardly depends on the number of candidates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from culmen.core.candidate import Origin
from culmen.core.errors import UserError
from culmen.core.evaluation import LEVELS, trust_rank
from culmen.store import sql
from culmen.store.codec import Blobs, decode_value, escape_text, unescape_text
from culmen.store.database import open_snapshot
from culmen.store.evidence import MODELLED, Scores
from culmen.store.reader import lookup_in
from culmen.store.views.candidates import CandidateRow, best_page, fetch_rows, row_of

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection, Select

T = TypeVar("T")

SORTS = (
    "best",
    "seq",
    "id",
    "mean",
    "count",
    "failed",
    "operator",
    "model",
    "island",
    "parents",
    "trust",
)
LOOKED_UP = ("expected", "seconds", "size", "dollars")
"""Sort keys that no table holds.

They are computed for all candidates that pass the filters, of which there may be at most
`MODELLED`.
"""
STATUSES = ("scored", "mixed", "failed", "unseen")
_FACETS = 40  # values of one column that are listed to choose from
_AT_ONCE = 200  # candidates whose texts are read together
_LINE = 160  # characters of a line that is shown
_FOUND = 400  # different lines that are counted


class CandidateQuery(msgspec.Struct, frozen=True):
    """One page of the table.

    `sort` is one of `SORTS` or `LOOKED_UP`; `best` is the order of `views.candidates`. `text` is
    searched for in ids, parents, operators and models. `status`: scored (every evaluation gave a
    score), mixed, failed (none did) or unseen (not evaluated). `trust` keeps scored candidates
    whose weakest score is at least at that level, `below` those whose weakest score is lower.
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


class ListedCandidate(msgspec.Struct, frozen=True):
    """One row of the table: a candidate with its statistics and its origin.

    `seconds` is the mean duration of its evaluations (None: no evaluations), `size` the number of
    characters of all its texts, `among` the number of candidates that the same event brought.
    """

    row: CandidateRow
    island: int | None
    note: str
    seconds: float | None = None
    size: int = 0
    among: int = 1


class CandidatePage(msgspec.Struct, frozen=True):
    """Rows from `offset` on; `total` candidates pass the filters, of `all` in the run."""

    rows: tuple[ListedCandidate, ...]
    total: int
    all: int


class Facets(msgspec.Struct, frozen=True):
    """Values that occur, each with its number of candidates, the most frequent first."""

    operators: tuple[tuple[str, int], ...]
    models: tuple[tuple[str, int], ...]
    islands: tuple[tuple[int, int], ...]


class TextMatch(msgspec.Struct, frozen=True):
    """A remark or a line of code that holds a searched text.

    `id` is the first candidate with it, `count` the number of candidates with it. `part` and `line`
    tell where it stands; of a remark they are "" and 0.
    """

    id: str
    text: str
    part: str = ""
    line: int = 0
    count: int = 1


class SearchResult(msgspec.Struct, frozen=True):
    """Matches of a text: candidates by id, remarks, lines of code; each in order of appearance.

    Remarks and code of the first `searched` of `all` candidates were read.
    """

    ids: tuple[str, ...]
    remarks: tuple[TextMatch, ...]
    lines: tuple[TextMatch, ...]
    searched: int
    all: int


def search_candidates(
    run: Path | str, text: str, limit: int = 8, max_bytes: int = 40_000_000
) -> SearchResult:
    """Search ids, remarks and code of candidates, without regard to case.

    At most `limit` matches of each kind; reading stops after `max_bytes` bytes of code.
    """
    found: dict[tuple[str, str], TextMatch] = {}
    c, sought, read, searched = sql.candidate.c, text.lower(), 0, 0
    with open_snapshot(Path(run)) as connection:
        named = sql.select(c.id).where(c.id.startswith(escape_text(text), autoescape=True))
        ids = connection.execute(named.order_by(c.seq, c.id).limit(limit)).scalars().all()
        query = sql.select(c.id, c.origin, c.parts).order_by(c.seq, c.id)
        rows = connection.execute(query).all()
        blobs = Blobs(Path(run) / "blobs", lookup_in(connection))
        for start in range(0, len(rows), _AT_ONCE):
            some = rows[start : start + _AT_ONCE]
            texts = blobs.get([row.parts for row in some])
            for row in some:
                _note_matches(found, row.id, decode_value(row.origin, Origin).note, "", sought)
                for part, code in decode_value(texts[row.parts], dict[str, str]).items():
                    _note_matches(found, row.id, code, part, sought)
            searched, read = start + len(some), read + sum(map(len, texts.values()))
            if read > max_bytes:
                break
    remarks = tuple(each for each in found.values() if not each.part)[:limit]
    lines = tuple(each for each in found.values() if each.part)[:limit]
    return SearchResult(tuple(map(unescape_text, ids)), remarks, lines, searched, len(rows))


def _note_matches(
    found: dict[tuple[str, str], TextMatch], name: str, text: str, part: str, sought: str
) -> None:
    """Add the lines of a text that hold `sought` to `found`, each counted once for a candidate."""
    if sought not in text.lower():
        return
    seen: set[str] = set()
    for number, line in enumerate(text.splitlines(), start=1):
        shown = line.strip()[:_LINE]
        if sought not in line.lower() or shown in seen:
            continue
        seen.add(shown)
        key = part, shown
        known = found.get(key)
        if known is not None:
            found[key] = msgspec.structs.replace(known, count=known.count + 1)
        elif len(found) < _FOUND:
            found[key] = TextMatch(unescape_text(name), shown, part, number if part else 0)


def candidate_page(
    run: Path | str, query: CandidateQuery, dollars: Mapping[int, float] | None = None
) -> CandidatePage:
    """One page of candidates; raises `UserError` for an unknown sort, status or level.

    `dollars`: cost by event, for the sort of that name.
    """
    if query.sort not in (*SORTS, *LOOKED_UP) or query.status not in ("", *STATUSES):
        fix = f"use {', '.join((*SORTS, *LOOKED_UP))}"
        raise UserError("no such sort or status", where=f"{query.sort} {query.status}", fix=fix)
    if not {query.trust, query.below} <= {"", *LEVELS}:
        raise UserError(
            "no such level", where=f"{query.trust} {query.below}", fix=f"use {', '.join(LEVELS)}"
        )
    with open_snapshot(Path(run)) as connection:
        sql.register_island(connection)
        scores = Scores(connection, Path(run), query.sort == "best")
        joined = sql.candidate.outerjoin(sql.tally, sql.tally.c.candidate == sql.candidate.c.id)
        wanted = _filter_conditions(query)
        count = sql.select(sql.func.count()).select_from(joined).where(*wanted)
        total = connection.execute(count).scalar_one()
        everything = connection.execute(
            sql.select(sql.func.count()).select_from(sql.candidate)
        ).scalar_one()
        if query.sort in LOOKED_UP:
            page = _looked_up(connection, Path(run), wanted, query, scores, dollars or {})
        elif query.sort == "best":
            page = _best_page(
                connection,
                sql.select(sql.candidate.c.id).select_from(joined).where(*wanted),
                query,
                scores,
                total,
            )
        else:
            ids = _sort_query(
                sql.select(sql.candidate.c.id).select_from(joined).where(*wanted), query
            )
            page = connection.execute(ids.offset(query.offset).limit(query.limit)).scalars().all()
        rows = [row_of(row, scores) for row in fetch_rows(connection, page)]
        return CandidatePage(
            tuple(_listed_candidates(connection, Path(run), rows)), total, everything
        )


def candidate_facets(run: Path | str) -> Facets:
    """Operators, models and islands of the run's candidates."""

    def value_counts(connection: Connection, column: ColumnElement[T]) -> list[tuple[T, int]]:
        number = sql.func.count().label("n")
        query = (
            sql.select(column.label("v"), number)
            .select_from(sql.candidate)
            .group_by("v")
            .order_by(number.desc(), "v")
        )
        return [
            (row[0], row[1])
            for row in connection.execute(query.limit(_FACETS))
            if row[0] not in (None, "")
        ]

    with open_snapshot(Path(run)) as connection:
        sql.register_island(connection)
        return Facets(
            operators=tuple(
                (unescape_text(name), n)
                for name, n in value_counts(connection, sql.candidate.c.operator)
            ),
            models=tuple(
                (unescape_text(name), n)
                for name, n in value_counts(connection, sql.candidate.c.model)
            ),
            islands=tuple(sorted(value_counts(connection, sql.island(sql.candidate.c.origin)))),
        )


def _filter_conditions(query: CandidateQuery) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = []
    if query.text:
        text = escape_text(query.text)
        columns = (
            sql.candidate.c.id,
            sql.candidate.c.parents,
            sql.candidate.c.operator,
            sql.candidate.c.model,
        )
        conditions.append(sql.or_(*(column.icontains(text, autoescape=True) for column in columns)))
    if query.operator is not None:
        conditions.append(sql.candidate.c.operator == escape_text(query.operator))
    if query.model is not None:
        conditions.append(sql.candidate.c.model == escape_text(query.model))
    if query.island is not None:
        conditions.append(sql.island(sql.candidate.c.origin) == query.island)
    count, failed = (
        sql.func.coalesce(sql.tally.c.count, 0),
        sql.func.coalesce(sql.tally.c.failed, 0),
    )
    conditions += {
        "": [],
        "scored": [count > 0, failed == 0],
        "mixed": [count > 0, failed > 0],
        "failed": [count == 0, failed > 0],
        "unseen": [count == 0, failed == 0],
    }[query.status]
    if query.trust:
        conditions += [count > 0, sql.tally.c.trust <= trust_rank(query.trust)]
    if query.below:
        conditions += [count > 0, sql.tally.c.trust > trust_rank(query.below)]
    return conditions


def _best_page(
    connection: Connection,
    ids: Select[str],
    query: CandidateQuery,
    scores: Scores,
    total: int,
) -> list[str]:
    """One page in the order of `views.candidates`, or in the reverse order."""
    filtered = query != msgspec.structs.replace(
        CandidateQuery(), descending=query.descending, offset=query.offset, limit=query.limit
    )
    if not query.descending:
        return best_page(connection, ids, scores, filtered, query.offset, query.limit)
    first = max(0, total - query.offset - query.limit)
    count = max(0, min(query.limit, total - query.offset))
    return best_page(connection, ids, scores, filtered, first, count)[::-1]


def _sort_query(ids: Select[str], query: CandidateQuery) -> Select[str]:
    """The query in the order of `query.sort`.

    Candidates without a value come last in either direction; ties are in order of appearance.
    """
    unscored = sql.case((sql.func.coalesce(sql.tally.c.count, 0) == 0, 1), else_=0)
    keys: dict[str, tuple[ColumnElement[int] | int, ColumnElement[str] | ColumnElement[int]]] = {
        "mean": (unscored, sql.tally.c.mean),
        "count": (0, sql.func.coalesce(sql.tally.c.count, 0)),
        "failed": (0, sql.func.coalesce(sql.tally.c.failed, 0)),
        "seq": (0, sql.candidate.c.seq),
        "id": (0, sql.candidate.c.id),
        "operator": (
            sql.case((sql.candidate.c.operator == "", 1), else_=0),
            sql.candidate.c.operator,
        ),
        "model": (sql.case((sql.candidate.c.model == "", 1), else_=0), sql.candidate.c.model),
        "parents": (sql.case((sql.candidate.c.parents == "", 1), else_=0), sql.candidate.c.parents),
        "island": (
            sql.case((sql.island(sql.candidate.c.origin).is_(None), 1), else_=0),
            sql.island(sql.candidate.c.origin),
        ),
        "trust": (unscored, sql.tally.c.trust),
    }
    last, key = keys[query.sort]
    order = [key.desc() if query.descending else key, sql.candidate.c.seq, sql.candidate.c.id]
    return ids.order_by(*([] if isinstance(last, int) else [last]), *order)


def _looked_up(
    connection: Connection,
    folder: Path,
    wanted: list[ColumnElement[bool]],
    query: CandidateQuery,
    scores: Scores,
    dollars: Mapping[int, float],
) -> list[str]:
    """Ids of one page by a key of `LOOKED_UP`, with missing values and ties as in `_sorted`."""
    c, tally = sql.candidate.c, sql.tally.c
    joined = sql.candidate.outerjoin(sql.tally, tally.candidate == c.id)
    query_all = (
        sql.select(c.id, c.seq, c.parts, tally.count, tally.mean).select_from(joined).where(*wanted)
    )
    rows = connection.execute(query_all).all()
    if len(rows) > MODELLED:
        fix = f"filter first, or sort by one of {', '.join(SORTS)}"
        raise UserError(f"{len(rows):,} candidates are too many to sort by {query.sort}", fix=fix)
    if query.sort == "expected":
        known = {row.id: scores.score_of(unescape_text(row.id)) for row in rows}
        values = {name: score.score for name, score in known.items() if score}
    elif query.sort == "seconds":
        values = _mean_seconds(connection, None)
    elif query.sort == "size":
        sizes = _text_sizes(connection, folder, [row.parts for row in rows])
        values = {row.id: sizes[row.parts] for row in rows}
    else:
        among = _sibling_counts(connection, None)
        values = {row.id: dollars.get(row.seq, 0.0) / among[row.seq] for row in rows}
    sign = -1 if query.descending else 1
    rows = sorted(
        rows, key=lambda row: (row.id not in values, sign * values.get(row.id, 0), row.seq, row.id)
    )
    return [row.id for row in rows[query.offset : query.offset + query.limit]]


def _text_sizes(connection: Connection, folder: Path, parts: Sequence[bytes]) -> dict[bytes, int]:
    """Number of characters of all texts of a candidate, by the digest of its parts."""
    texts = Blobs(folder / "blobs", lookup_in(connection)).get(parts)
    return {
        sha: sum(map(len, decode_value(each, dict[str, str]).values()))
        for sha, each in texts.items()
    }


def _mean_seconds(connection: Connection, ids: Sequence[str] | None) -> dict[str, float]:
    """Mean duration in seconds of the evaluations of these candidates, or of all."""
    seen = sql.observation.c
    times = sql.select(seen.candidate, sql.func.avg(seen.seconds)).group_by(seen.candidate)
    times = times if ids is None else times.where(seen.candidate.in_(ids))
    return {name: mean for name, mean in connection.execute(times)}


def _sibling_counts(connection: Connection, seqs: set[int] | None) -> dict[int, int]:
    """Number of candidates that each of these events brought, or every event."""
    born = sql.candidate.c.seq
    counts = sql.select(born, sql.func.count()).group_by(born)
    counts = counts if seqs is None else counts.where(born.in_(seqs))
    return {seq: count for seq, count in connection.execute(counts)}


def _listed_candidates(
    connection: Connection, folder: Path, rows: list[CandidateRow]
) -> list[ListedCandidate]:
    c = sql.candidate.c
    ids, seqs = [escape_text(row.id) for row in rows], {row.seq for row in rows}
    stored_rows = connection.execute(sql.select(c.id, c.origin, c.parts).where(c.id.in_(ids))).all()
    sizes = _text_sizes(connection, folder, [row.parts for row in stored_rows])
    seconds, among = _mean_seconds(connection, ids), _sibling_counts(connection, seqs)
    known = {row.id: (decode_value(row.origin, Origin), sizes[row.parts]) for row in stored_rows}
    lines: list[ListedCandidate] = []
    for row in rows:
        origin, size = known[escape_text(row.id)]
        lines.append(
            ListedCandidate(
                row,
                origin.island,
                origin.note,
                seconds.get(escape_text(row.id)),
                size,
                among.get(row.seq, 1),
            )
        )
    return lines
