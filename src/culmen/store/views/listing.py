"""The table of candidates, filtered, sorted and paged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from culmen.core.candidate import Origin
from culmen.core.errors import UserError
from culmen.core.evaluation import LEVELS, trust_rank
from culmen.store.codec import decode_value, escape_text, island_in_origin, unescape_text
from culmen.store.database import open_snapshot
from culmen.store.evidence import MODELLED, Scores
from culmen.store.reader import PAGE, blobs_in
from culmen.store.sql import Connection
from culmen.store.views.candidates import (
    CandidateRow,
    fetch_rows,
    ids_best_first,
    row_of,
    select_ids,
)

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


class CandidateQuery(msgspec.Struct, frozen=True):
    """One page of the table.

    `sort` is one of `SORTS` or `LOOKED_UP`; `best` is the order of `candidate_rows`. `text` is
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
    sought, read, searched = text.lower(), 0, 0
    start = escape_text(text)
    named = "SELECT id FROM candidate WHERE substr(id, 1, :length) = :start ORDER BY seq, id"
    every = "SELECT id, origin, parts FROM candidate ORDER BY seq, id"
    with open_snapshot(run) as connection:
        found_ids = connection.execute(
            f"{named} LIMIT :limit", length=len(start), start=start, limit=limit
        )
        ids = found_ids.scalars()
        rows = connection.execute(every).all()
        blobs = blobs_in(connection)
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
        shown = line.strip()[:160]  # characters of a line that is shown
        if sought not in line.lower() or shown in seen:
            continue
        seen.add(shown)
        key = part, shown
        known = found.get(key)
        if known is not None:
            found[key] = msgspec.structs.replace(known, count=known.count + 1)
        elif len(found) < 400:  # different lines that are counted
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
    with open_snapshot(run) as connection:
        scores = Scores(connection, query.sort == "best")
        names, total = _page_ids(connection, query, scores, dollars or {})
        rows = [row_of(row, scores) for row in fetch_rows(connection, names)]
        return CandidatePage(
            tuple(_listed_candidates(connection, rows)), total, _candidate_count(connection)
        )


def _page_ids(
    connection: Connection, query: CandidateQuery, scores: Scores, dollars: Mapping[int, float]
) -> tuple[list[str], int]:
    """Ids of one page, escaped, and the number of candidates that pass the filters."""
    first, end = query.offset, query.offset + query.limit
    where, values = _conditions(connection, query)
    if query.sort == "best":
        if not where and not query.descending and end <= scores.ranked_count:
            ids = [escape_text(name) for name in scores.ranked_ids(first, end)]
            return ids, _candidate_count(connection)
        ids = ids_best_first(connection, where, values, scores)
        ids = ids[::-1] if query.descending else ids
    elif query.sort in (*LOOKED_UP, "island"):
        ids = _looked_up(connection, query, where, values, scores, dollars)
    else:
        # those without a value come last in either direction, ties in order of appearance
        key = _sort_key(connection, query.sort)
        order = f"{key} IS NULL, {key} {'DESC' * query.descending}, c.seq, c.id"
        ids = select_ids(connection, where, values, order)
    return ids[first:end], len(ids)


def _candidate_count(connection: Connection) -> int:
    return connection.execute("SELECT count(seq) FROM candidate").scalar()


def candidate_facets(run: Path | str) -> Facets:
    """Operators, models and islands of the run's candidates."""
    with open_snapshot(run) as connection:
        operators, models = (_text_counts(connection, name) for name in ("operator", "model"))
        origins = connection.execute("SELECT origin FROM candidate").scalars()
        islands = Counter(map(island_in_origin, origins))
        frequent = sorted(islands.items(), key=lambda item: (-item[1], item[0] or 0))[:_FACETS]
        named = sorted((island, n) for island, n in frequent if island is not None)
        return Facets(operators, models, tuple(named))


def _text_counts(connection: Connection, name: str) -> tuple[tuple[str, int], ...]:
    """The most frequent texts of a column with their numbers, without the empty one."""
    counts = connection.execute(f"SELECT {name}, count(*) FROM candidate GROUP BY {name}").all()
    frequent = sorted(counts, key=lambda item: (-item[1], item[0]))[:_FACETS]
    return tuple((unescape_text(text), n) for text, n in frequent if text)


def _conditions(
    connection: Connection, query: CandidateQuery
) -> tuple[list[str], dict[str, object]]:
    """The filters as conditions in SQL, and their values."""
    where, values = list[str](), dict[str, object]()
    if query.text:
        texts = (f"lower(c.{name})" for name in ("id", "parents", "operator", "model"))
        found = (connection.contains(text, "lower(:text)") for text in texts)
        where, values["text"] = [f"({' OR '.join(found)})"], escape_text(query.text)
    for name, wanted in (("operator", query.operator), ("model", query.model)):
        if wanted is not None:
            where.append(f"c.{name} = :{name}")
            values[name] = escape_text(wanted)
    if query.island is not None:  # in JSON, before another field or the last one
        found = (connection.contains("c.origin", name) for name in (":inner", ":last"))
        where.append(f"({' OR '.join(found)})")
        raw = f'"island":{query.island}'
        values |= {"inner": f"{raw},".encode(), "last": f"{raw}}}".encode()}
    if query.status:
        for name, among in (("count", ("scored", "mixed")), ("failed", ("mixed", "failed"))):
            where.append(f"coalesce(t.{name}, 0) {'>' if query.status in among else '='} 0")
    if query.trust or query.below:
        where += ["t.count > 0", "t.trust IS NOT NULL"]
    for level, sign in ((query.trust, "<="), (query.below, ">")):
        where += [f"t.trust {sign} {trust_rank(level)}"] if level else []
    return where, values


def _sort_key(connection: Connection, sort: str) -> str:
    """The key of a sort in SQL, NULL for candidates without a value."""
    if sort in ("mean", "trust"):
        return f"CASE WHEN t.count > 0 THEN coalesce(t.{sort}, -1) END"
    if sort in ("count", "failed"):
        return f"coalesce(t.{sort}, 0)"
    text = f"nullif(c.{sort}, '') {connection.dialect.byte_order}"
    return "c.seq" if sort == "seq" else text


def _looked_up(
    connection: Connection,
    query: CandidateQuery,
    where: list[str],
    conditions: dict[str, object],
    scores: Scores,
    dollars: Mapping[int, float],
) -> list[str]:
    """Ids by island or a key of `LOOKED_UP`, with missing values and ties as in `_page_ids`."""
    names = select_ids(connection, where, conditions)
    if len(names) > MODELLED and query.sort != "island":
        fix = f"filter first, or sort by one of {', '.join(SORTS)}"
        raise UserError(f"{len(names):,} candidates are too many to sort by {query.sort}", fix=fix)
    if query.sort == "expected":
        known = {name: scores.score_of(unescape_text(name)) for name in names}
        values = {name: score.score for name, score in known.items() if score}
    elif query.sort == "seconds":
        values = _mean_seconds(connection, None)
    elif query.sort == "size":
        parts = _parts_of(connection, names)
        sizes = _text_sizes(connection, list(parts.values()))
        values = {name: sizes[sha] for name, sha in parts.items()}
    else:
        rows = connection.execute("SELECT id, seq, origin FROM candidate").all()
        among = Counter(row.seq for row in rows)
        values = {row.id: dollars.get(row.seq, 0.0) / among[row.seq] for row in rows}
        if query.sort == "island":
            islands = ((row.id, island_in_origin(row.origin)) for row in rows)
            values = {name: island for name, island in islands if island is not None}
    sign = -1 if query.descending else 1
    return sorted(names, key=lambda name: (name not in values, sign * values.get(name, 0)))


def _parts_of(connection: Connection, ids: Sequence[str]) -> dict[str, bytes]:
    """The digest of the parts of each of these candidates."""
    found = dict[str, bytes]()
    for start in range(0, len(ids), PAGE):
        query = "SELECT id, parts FROM candidate WHERE id IN :ids"
        found.update(connection.execute(query, ids=ids[start : start + PAGE]))
    return found


def _text_sizes(connection: Connection, parts: Sequence[bytes]) -> dict[bytes, int]:
    """Number of characters of all texts of a candidate, by the digest of its parts."""
    texts = blobs_in(connection).get(parts)
    return {
        sha: sum(map(len, decode_value(each, dict[str, str]).values()))
        for sha, each in texts.items()
    }


def _mean_seconds(connection: Connection, ids: Sequence[str] | None) -> dict[str, float]:
    """Mean duration in seconds of the evaluations of these candidates, or of all."""
    only, values = ("", {}) if ids is None else ("WHERE candidate IN :ids", {"ids": list(ids)})
    times = f"SELECT candidate, avg(seconds) FROM observation {only} GROUP BY candidate"
    return dict(connection.execute(times, **values))


def _sibling_counts(connection: Connection, seqs: set[int]) -> dict[int, int]:
    """Number of candidates that each of these events brought."""
    counts = "SELECT seq, count(*) FROM candidate WHERE seq IN :seqs GROUP BY seq"
    return dict(connection.execute(counts, seqs=sorted(seqs)))


def _listed_candidates(connection: Connection, rows: list[CandidateRow]) -> list[ListedCandidate]:
    ids, seqs = [escape_text(row.id) for row in rows], {row.seq for row in rows}
    query = "SELECT id, origin, parts FROM candidate WHERE id IN :ids"
    stored_rows = connection.execute(query, ids=ids).all()
    sizes = _text_sizes(connection, [row.parts for row in stored_rows])
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
