"""The table of candidates, filtered, sorted and paged by columns of all of them.

The columns are read as arrays (`store.columns`), the rows of one page from their tables.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from culmen.core.candidate import Origin
from culmen.core.errors import UserError
from culmen.core.evaluation import LEVELS, trust_rank
from culmen.store import columns
from culmen.store.codec import Blobs, decode_value, escape_text, unescape_text
from culmen.store.columns import NO_ISLAND
from culmen.store.database import open_snapshot
from culmen.store.evidence import MODELLED, Scores
from culmen.store.reader import PAGE, lookup_in
from culmen.store.sql import Connection
from culmen.store.views.candidates import CandidateRow, fetch_rows, row_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from culmen.store.evidence import Scores

    Places = NDArray[np.int64]
    Column = columns.Array

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
    with open_snapshot(Path(run)) as connection:
        found_ids = connection.execute(
            f"{named} LIMIT :limit", length=len(start), start=start, limit=limit
        )
        ids = found_ids.scalars()
        rows = connection.execute(every).all()
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
    with open_snapshot(Path(run)) as connection:
        scores = Scores(connection, Path(run), query.sort == "best")
        table = TableColumns(connection)
        names, total = _page_ids(connection, Path(run), table, query, scores, dollars or {})
        rows = [row_of(row, scores) for row in fetch_rows(connection, names)]
        listed = tuple(_listed_candidates(connection, Path(run), rows))
        return CandidatePage(listed, total, _candidate_count(connection))


def _page_ids(
    connection: Connection,
    folder: Path,
    table: TableColumns,
    query: CandidateQuery,
    scores: Scores,
    dollars: Mapping[int, float],
) -> tuple[list[str], int]:
    """Ids of one page, escaped, and the number of candidates that pass the filters."""
    first, end = query.offset, query.offset + query.limit
    everything = msgspec.structs.replace(CandidateQuery(), offset=first, limit=query.limit)
    if query == everything and end <= scores.ranked_count:  # needs no columns
        ids = [escape_text(name) for name in scores.ranked_ids(first, end)]
        return ids, _candidate_count(connection)
    places = _filtered_places(table, query)
    if query.sort in LOOKED_UP:
        ids = _looked_up(connection, folder, table, places, query, scores, dollars)
        return ids[first:end], len(places)
    order = _sort_places(table, places, query, scores)
    return table.ids_at(order[first:end]), len(places)


def _candidate_count(connection: Connection) -> int:
    return connection.execute("SELECT count(seq) FROM candidate").scalar()


def candidate_facets(run: Path | str) -> Facets:
    """Operators, models and islands of the run's candidates."""
    with open_snapshot(Path(run)) as connection:
        table = TableColumns(connection)
        operators, models = (
            tuple((unescape_text(text), n) for text, n in _text_counts(table, name))
            for name in ("operator", "model")
        )
        islands = Counter(table.column("island").tolist())
        frequent = sorted(islands.items(), key=lambda item: (-item[1], item[0]))[:_FACETS]
        named = sorted((island, n) for island, n in frequent if island != NO_ISLAND)
        return Facets(operators, models, tuple(named))


def _text_counts(table: TableColumns, name: str) -> list[tuple[str, int]]:
    """The most frequent texts of a column with their numbers, without the empty one."""
    import numpy as np

    texts = table.texts(name)
    counts = np.bincount(table.column(name), minlength=len(texts)).tolist()
    frequent = sorted(zip(texts, counts), key=lambda item: (-item[1], item[0]))[:_FACETS]
    return [(text, n) for text, n in frequent if text]


def _filtered_places(table: TableColumns, query: CandidateQuery) -> Places:
    """Places of the candidates that pass the filters, in the order of appearance."""
    import numpy as np

    passed = np.full(len(table), True)
    if query.text:
        passed &= table.places_with(query.text)
    for name, wanted in (("operator", query.operator), ("model", query.model)):
        if wanted is not None:
            texts = table.texts(name)
            known = escape_text(wanted)
            passed &= table.column(name) == (texts.index(known) if known in texts else len(texts))
    if query.island is not None:
        passed &= table.column("island") == query.island
    if query.status:
        scored, failed = table.tally("count") > 0, table.tally("failed") > 0
        passed &= scored == (query.status in ("scored", "mixed"))
        passed &= failed == (query.status in ("mixed", "failed"))
    if query.trust or query.below:
        level = table.tally("trust")
        passed &= (table.tally("count") > 0) & (level >= 0)
        if query.trust:
            passed &= level <= trust_rank(query.trust)
        if query.below:
            passed &= level > trust_rank(query.below)
    return np.flatnonzero(passed)


def _sort_places(
    table: TableColumns, places: Places, query: CandidateQuery, scores: Scores
) -> Places:
    """These places in the order of the query.

    Candidates without a value come last in either direction; ties are in order of appearance. The
    order of `best` is that of `candidate_rows`, or the reverse.
    """
    import numpy as np

    if query.sort == "best":
        unscored, first = table.tally("count") == 0, table.tally("first")
        keys = [table.ranks(scores), unscored, first < 0, first]
        order = places[np.lexsort([key[places] for key in reversed(keys)])]
        return order[::-1] if query.descending else order
    missing, values = _sort_keys(table, query.sort)
    values = [~value if query.descending else value for value in values]
    order = np.lexsort([key[places] for key in (*reversed(values), missing)])
    return places[order]


def _sort_keys(table: TableColumns, sort: str) -> tuple[Column, list[Column]]:
    """True for candidates without a value, and whole numbers to sort the others by."""
    import numpy as np

    never = np.full(len(table), False)
    if sort in ("operator", "model"):
        ranks = text_ranks(table.texts(sort))[table.column(sort)]
        texts = table.texts(sort)
        empty = texts.index("") if "" in texts else -1
        return table.column(sort) == empty, [ranks]
    if sort in ("id", "parents"):
        texts = table.column(sort)
        return (texts == b"") if sort == "parents" else never, text_words(texts)
    if sort == "island":
        return table.column("island") == NO_ISLAND, [table.column("island")]
    if sort == "seq":
        return never, [table.column("seq")]
    if sort in ("count", "failed"):
        return never, [table.tally(sort).astype(np.int64)]
    unscored = table.tally("count") == 0
    values = float_ranks(table.tally("mean")) if sort == "mean" else table.tally("trust")
    return unscored, [np.where(unscored, 0, values)]


def _looked_up(
    connection: Connection,
    folder: Path,
    table: TableColumns,
    places: Places,
    query: CandidateQuery,
    scores: Scores,
    dollars: Mapping[int, float],
) -> list[str]:
    """Ids by a key of `LOOKED_UP`, with missing values and ties as in `_sort_places`."""
    if len(places) > MODELLED:
        fix = f"filter first, or sort by one of {', '.join(SORTS)}"
        raise UserError(f"{len(places):,} candidates are too many to sort by {query.sort}", fix=fix)
    ids, seqs = table.ids_at(places), table.column("seq")[places].tolist()
    if query.sort == "expected":
        known = {name: scores.score_of(unescape_text(name)) for name in ids}
        values = {name: score.score for name, score in known.items() if score}
    elif query.sort == "seconds":
        values = _mean_seconds(connection, None)
    elif query.sort == "size":
        parts = _parts_of(connection, ids)
        sizes = _text_sizes(connection, folder, list(parts.values()))
        values = {name: sizes[sha] for name, sha in parts.items()}
    else:
        among = Counter(table.column("seq").tolist())
        values = {name: dollars.get(seq, 0.0) / among[seq] for name, seq in zip(ids, seqs)}
    sign = -1 if query.descending else 1
    return sorted(ids, key=lambda name: (name not in values, sign * values.get(name, 0)))


def _parts_of(connection: Connection, ids: Sequence[str]) -> dict[str, bytes]:
    """The digest of the parts of each of these candidates."""
    found = dict[str, bytes]()
    for start in range(0, len(ids), PAGE):
        query = "SELECT id, parts FROM candidate WHERE id IN :ids"
        found.update(connection.execute(query, ids=ids[start : start + PAGE]))
    return found


def _text_sizes(connection: Connection, folder: Path, parts: Sequence[bytes]) -> dict[bytes, int]:
    """Number of characters of all texts of a candidate, by the digest of its parts."""
    texts = Blobs(folder / "blobs", lookup_in(connection)).get(parts)
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


def _listed_candidates(
    connection: Connection, folder: Path, rows: list[CandidateRow]
) -> list[ListedCandidate]:
    ids, seqs = [escape_text(row.id) for row in rows], {row.seq for row in rows}
    query = "SELECT id, origin, parts FROM candidate WHERE id IN :ids"
    stored_rows = connection.execute(query, ids=ids).all()
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


# Columns of all candidates, in the order of appearance, for the table of candidates.


class TableColumns:
    """Arrays with a value for each candidate; each column is read when it is first needed."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._read: columns.Columns = {}

    def __len__(self) -> int:
        return len(self.column("seq"))

    def column(self, name: str) -> Column:
        """A column of the table `candidate`; of texts with few values, places in `texts`."""
        if name not in self._read:
            self._read |= columns.read_columns(self._connection, columns.CANDIDATES, name)
        return self._read[name]

    def texts(self, name: str) -> list[str]:
        """The different texts of a column with few values."""
        self.column(name)
        return self._read[f"{name}+"].tolist()

    def ids_at(self, places: Places) -> list[str]:
        """Ids of the candidates at these places, escaped as in the tables."""
        return [name.decode() for name in self.column("id")[places].tolist()]

    def tally(self, name: str) -> Column:
        """A column of `tally`: 0, or -1 for `first` and `trust`, for a candidate without one."""
        import numpy as np

        places, tallies = self._tallies
        values = tallies[name]
        found = np.full(len(self), -1 if name in ("first", "trust") else 0, values.dtype)
        found[places[places >= 0]] = values[places >= 0]
        return found

    def ranks(self, scores: Scores) -> Column:
        """The rank of each candidate; of those that cannot be the best, one behind all."""
        import numpy as np

        keys, ranks = scores.ranks()
        places = self._places_of(keys)
        found = np.full(len(self), scores.ranked_count)
        found[places[places >= 0]] = ranks[places >= 0]
        return found

    def places_with(self, text: str) -> Column:
        """True for candidates with this text in id, parents, operator or model, in any case."""
        import numpy as np

        texts = ("id", "parents", "operator", "model")
        sought = (self._connection.contains(f"lower({each})", "lower(:text)") for each in texts)
        query = f"SELECT id FROM candidate WHERE {' OR '.join(sought)}"
        found = self._connection.execute(query, text=escape_text(text)).scalars()
        names = [name.encode() for name in found]
        return np.isin(self.column("id"), np.array(names, "S"))

    @cached_property
    def _tallies(self) -> tuple[Places, columns.Columns]:
        """All tallies, and the place of the candidate of each (-1: none)."""
        tallies = columns.read_columns(self._connection, columns.TALLIES)
        return self._places_of(tallies["key"]), tallies

    def _places_of(self, keys: Column) -> Places:
        """Places of the candidates with these keys, -1 for unknown ones."""
        import numpy as np

        if not len(self):
            return np.full(len(keys), -1)
        own, asked = self._key_order, np.argsort(keys)  # both in order: memory is read in order
        known = self.column("key")[own]
        at = np.minimum(np.searchsorted(known, keys[asked]), len(known) - 1)
        found = np.full(len(keys), -1)
        found[asked] = np.where(known[at] == keys[asked], own[at], -1)
        return found

    @cached_property
    def _key_order(self) -> Places:
        import numpy as np

        return np.argsort(self.column("key"))


def text_words(values: Column) -> list[Column]:
    """Fixed-width byte texts as numbers of 64 bits, the first ones first, that sort alike."""
    import numpy as np

    width = -(-values.dtype.itemsize // 8) * 8
    words = values.astype(f"S{width}").view(">u8").reshape(len(values), width // 8)
    return [words[:, number].astype(np.uint64) for number in range(width // 8)]


def text_ranks(texts: list[str]) -> Column:
    """The rank of each of these texts among them."""
    import numpy as np

    ranks = {text: rank for rank, text in enumerate(sorted(texts))}
    return np.array([ranks[text] for text in texts], np.int64)


def float_ranks(values: Column) -> Column:
    """Whole numbers that sort as these floats do."""
    import numpy as np

    raw = (values + 0.0).view(np.int64)  # -0.0 becomes 0.0
    return np.where(raw < 0, np.iinfo(np.int64).min - raw - 1, raw)
