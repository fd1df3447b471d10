"""Events from the database, page by page, with all the data they refer to."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import msgspec

from culmen.core.brief import Proposal, Text
from culmen.core.candidate import Candidate, Origin
from culmen.core.errors import JournalDamaged
from culmen.core.evaluation import Observation
from culmen.core.event import Entry, Event, Result
from culmen.core.json import JsonObject
from culmen.store.codec import (
    Blobs,
    StoredRow,
    blobs_of,
    bytes_text,
    decode_value,
    decompress,
    escape_text,
    is_reference,
    parse_result,
    restore_result,
    unescape_text,
)
from culmen.store.database import open_snapshot
from culmen.store.schema import TABLES
from culmen.store.sql import Connection, Row

END = 2**63 - 1
"""A number beyond the last event, and beyond every number of rows."""

PAGE = 500
# events of a replay's page, if 500 of them have at most this many bytes of texts
_REPLAYED, _SHORT = 2000, 2_000_000
_SHAPE, _RESULT, _DATA = 8, 10, 11  # places in a row of `event`
EventRow = tuple[
    int,
    float,
    str,
    str,
    str | None,
    int,
    str,
    float,
    str | None,
    bytes | None,
    bytes | None,
    bytes | None,
]
"""A row of `event`, with the columns in the order of the table, without the hash."""
_UNSEEN = {
    "body": "'started', 'note', 'done'",
    **dict.fromkeys(("shape", "result", "data"), "'note'"),
}


_COLUMNS = TABLES["event"][:-1]  # without the hash
EVENTS = f"SELECT {', '.join(_COLUMNS)} FROM event"
"""The beginning of a statement for rows of `event`."""

_PAGE_OF = "FROM event WHERE seq > {mark} ORDER BY seq LIMIT {mark}"
WHOLE = f"SELECT {', '.join(_COLUMNS)} {_PAGE_OF}"
"""The statement for a page of events, with values by position."""

_REPLAYED_COLUMNS = ", ".join(
    f"CASE WHEN kind IN ({_UNSEEN[name]}) THEN NULL ELSE {name} END" if name in _UNSEEN else name
    for name in _COLUMNS
)
REPLAYED = f"SELECT {_REPLAYED_COLUMNS} {_PAGE_OF}"
"""Events without the parts that a replay never reads, which are not decoded.

See `core.ports.Journal.retrace`.
"""


_BLOBS = "SELECT sha, dictionary, data FROM blob WHERE sha IN :shas"


def lookup_in(connection: Connection) -> Callable[[Iterable[bytes]], dict[bytes, bytes]]:
    """A function that fetches blobs of the table through this connection."""

    dictionaries = {0: b""}

    def lookup(shas: Iterable[bytes]) -> dict[bytes, bytes]:
        rows, wanted = list[tuple[bytes, int, bytes]](), list(shas)
        for start in range(0, len(wanted), PAGE):
            page = wanted[start : start + PAGE]
            rows += connection.execute(_BLOBS, shas=page).all()
        missing = {number for _, number, _ in rows} - dictionaries.keys()
        if missing:
            query = "SELECT number, data FROM dictionary WHERE number IN :numbers"
            found = connection.execute(query, numbers=sorted(missing))
            dictionaries.update((number, decompress(data)) for number, data in found)
        return {sha: decompress(data, dictionaries.get(number, b"")) for sha, number, data in rows}

    return lookup


def blobs_in(connection: Connection) -> Blobs:
    """The blobs of the run, read through this connection."""
    return Blobs(connection.folder / "blobs", lookup_in(connection))


class Texts:
    """A cache of candidates' parts by blob, of the last few thousand.

    Candidates that recur share their texts in memory.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[bytes, dict[str, str]] = OrderedDict()
        self.fetched = 0  # bytes of blobs, for the last page

    def is_cached(self, sha: bytes) -> bool:
        """True if the parts are in the cache."""
        return sha in self._kept

    def get(self, sha: bytes, raw: Callable[[bytes], bytes]) -> dict[str, str]:
        """The parts; `raw` fetches the blob if it is not in the cache."""
        parts = self._kept.get(sha)
        if parts is None:
            parts = self._kept[sha] = decode_value(raw(sha), dict[str, str])
            if len(self._kept) > 2048:
                self._kept.popitem(last=False)
        return parts


def read_events(
    snapshot: Callable[[], AbstractContextManager[Connection]],
    after: int,
    page: int = PAGE,
    *,
    whole: bool = False,
    query: str = WHOLE,
) -> Iterator[Event]:
    """Events with seq > `after`, read in pages.

    Each page is a short read of its own, so that a slow consumer holds no transaction. A replay
    reads all events, so its pages may be larger: opening the database costs as much as reading 100
    events.
    """
    texts, last, least = Texts(), max(after, 0), page
    while True:
        with snapshot() as connection:
            rows = read_rows(connection, last, page, query)
            events = assemble_events(connection, rows, texts, whole=whole)
        if not events:
            return
        yield from events
        last = events[-1].seq
        if query is REPLAYED:
            page = _REPLAYED if texts.fetched * least <= _SHORT * len(events) else least


def read_page(connection: Connection, after: int, limit: int) -> list[Event]:
    """At most `limit` events with seq > `after`.

    Raises `JournalDamaged` at a gap or at bytes that cannot be decoded.
    """
    rows = read_rows(connection, after, limit)
    return assemble_events(connection, rows)


def read_rows(
    connection: Connection, after: int, limit: int, query: str = WHOLE
) -> Sequence[EventRow]:
    """The raw rows of `event`; raises `JournalDamaged` at a gap."""
    cursor = connection.cursor()
    cursor.execute(query.format(mark=connection.dialect.mark), (after, limit))
    rows = cursor.fetchall()
    for expected_seq, row in enumerate(rows, after + 1):
        if row[0] != expected_seq:
            raise gap_error(expected_seq, connection.folder)
    return rows


def assemble_events(
    connection: Connection,
    rows: Sequence[EventRow],
    texts: Texts | None = None,
    *,
    whole: bool = False,
) -> list[Event]:
    """Events from rows of `event` with all columns in their order."""
    texts = texts or Texts()
    with translate_decode_errors(connection.folder):
        return [
            _build_event(row, result)
            for row, result in zip(rows, restore_results(connection, rows, texts, whole))
        ]


def select_events(connection: Connection, rest: str, **values: object) -> list[Event]:
    """The events that meet a condition; `rest` is the statement after WHERE."""
    rows, texts = connection.execute(f"{EVENTS} WHERE {rest}", **values).all(), Texts()
    pages = (rows[start : start + PAGE] for start in range(0, len(rows), PAGE))
    return [event for page in pages for event in assemble_events(connection, page, texts)]


def stream_events(run: Path | str, rest: str, **values: object) -> Iterator[Event]:
    """The events of a run that meet a condition, in pages, each a short read of its own.

    `rest` is the statement after WHERE, for the page behind event `:last`.
    """
    last = 0
    while last >= 0:
        with open_snapshot(run) as connection:
            events = select_events(connection, rest, last=last, **values)
        yield from events
        last = events[-1].seq if events else -1


def restore_results(
    connection: Connection,
    rows: Sequence[EventRow],
    texts: Texts,
    whole: bool = False,
) -> list[Result | None]:
    """Results in rows of `event`, None for a row without one.

    The blobs of all rows are fetched at once. With `whole`, prompts and replies are texts, not
    references. To be called inside `translate_decode_errors`.
    """
    blobs = blobs_in(connection)
    parsed = [_parse_row(row, blobs) for row in rows]
    wanted = {
        sha
        for each in parsed
        if each is not None
        for sha in blobs_of(each)
        if not texts.is_cached(sha)
    }
    fetched = blobs.get(wanted) if wanted else {}
    texts.fetched = sum(map(len, fetched.values()))

    def raw(sha: bytes) -> bytes:
        return fetched[sha] if sha in fetched else blobs.get([sha])[sha]

    def parts(sha: bytes) -> dict[str, str]:
        return texts.get(sha, raw)

    results = [
        None if each is None else restore_result(each, row[_DATA], raw, parts)
        for row, each in zip(rows, parsed)
    ]
    return _resolve_texts(results, blobs) if whole else results


@contextmanager
def translate_decode_errors(run_dir: Path) -> Iterator[None]:
    """Turn errors from bytes that cannot be decoded into `JournalDamaged`."""
    try:
        yield
    except (ValueError, KeyError, TypeError) as error:  # msgspec's are ValueErrors, too
        raise JournalDamaged(f"an event makes no sense ({error})", where=run_dir) from error


def gap_error(seq: int, run_dir: Path) -> JournalDamaged:
    """The error for a missing event."""
    return JournalDamaged(
        f"event {seq} is missing from the journal",
        where=run_dir,
        fix=f"culmen runs recover {run_dir} copies what can be read into a new run",
    )


def _resolve_texts(results: list[Result | None], blobs: Blobs) -> list[Result | None]:
    """The results with the texts of prompts and replies, which are fetched at once."""
    answers = [each for each in results if isinstance(each, Proposal | Text)]
    wanted = {text for each in answers for text in (each.prompt, each.reply) if is_reference(text)}
    if not wanted:
        return results
    raw = blobs.get(bytes.fromhex(text[5:]) for text in wanted)
    texts = {text: bytes_text(raw[bytes.fromhex(text[5:])]) for text in wanted}

    def with_texts(result: Result | None) -> Result | None:
        if not isinstance(result, Proposal | Text) or not (
            result.prompt in texts or result.reply in texts
        ):
            return result
        prompt, reply = (
            texts.get(result.prompt, result.prompt),
            texts.get(result.reply, result.reply),
        )
        return msgspec.structs.replace(result, prompt=prompt, reply=reply)

    return [with_texts(each) for each in results]


def _parse_row(row: EventRow, blobs: Blobs) -> StoredRow | None:
    shape, raw = row[_SHAPE], row[_RESULT]
    if shape is None:
        return None
    if raw is None:
        raise ValueError(f"event {row[0]} has no result")
    if raw[:5] == b"blob:":
        sha = bytes.fromhex(raw[5:].decode())
        raw = blobs.get([sha])[sha]
    return parse_result(shape, raw)


def _build_event(row: EventRow, result: Result | None) -> Event:
    seq, when, kind, effect, _, key, mark, elapsed, _, body, _, _ = row
    plain_body = {} if body is None else decode_value(body, JsonObject)
    return Event(
        seq,
        when,
        Entry(kind, key, unescape_text(mark), unescape_text(effect), plain_body, result, elapsed),
    )


# A run's journal as the observation store of its own search.

_FOUND = 64  # candidates at hand that were read


class JournalObservations:
    """`core.ports.ObservationStore` on the journal in `run_dir`.

    The last `at_hand` observations that were made or asked for are cached. Raises `JournalDamaged`
    if the journal cannot be decoded.
    """

    def __init__(self, run_dir: Path, at_hand: int = 1024) -> None:
        self._run_dir, self._at_hand = run_dir, at_hand
        self._recent: OrderedDict[str, Observation] = OrderedDict()
        self._found: dict[str, Candidate] = {}  # those read last

    def keep(self, mark: str, candidate: Candidate, observation: Observation) -> None:
        """Cache the observation; the journal holds it already."""
        self._recent.setdefault(mark, observation)
        if len(self._recent) > self._at_hand:
            self._recent.popitem(last=False)

    def candidate(self, id: str) -> Candidate:
        """The candidate as it first appeared; raises `KeyError` for an unknown id."""
        if id in self._found:
            return self._found[id]
        with open_snapshot(self._run_dir) as connection:
            row = connection.execute("SELECT * FROM candidate WHERE id = :id", id=id).first()
            if row is None:
                raise KeyError(id)
            candidate = candidate_of(connection, row)
        if len(self._found) >= _FOUND:
            self._found.clear()
        self._found[id] = candidate
        return candidate

    def observation(self, candidate: str, mark: str) -> Observation:
        """The first observation of this candidate under this mark; `KeyError` without one."""
        if mark in self._recent:
            self._recent.move_to_end(mark)
            return self._recent[mark]
        query = (
            f"{EVENTS} WHERE seq IN (SELECT seq FROM observation WHERE candidate = :candidate) "
            "AND mark = :mark ORDER BY seq LIMIT 1"
        )
        with open_snapshot(self._run_dir) as connection:
            rows = connection.execute(query, candidate=candidate, mark=escape_text(mark)).all()
            if not rows:
                raise KeyError(f"{candidate} {mark}")
            with translate_decode_errors(self._run_dir):
                (result,) = restore_results(connection, rows, Texts())
        if not isinstance(result, Observation):
            raise JournalDamaged(f"event {rows[0][0]} is not an observation", where=self._run_dir)
        self._recent[mark] = result
        return result


def candidate_of(connection: Connection, row: Row) -> Candidate:
    """The candidate in a row of its table."""
    parts = blobs_in(connection).get([row.parts])[row.parts]
    parents = tuple(unescape_text(row.parents).split())
    origin = decode_value(row.origin, Origin)
    candidate = Candidate.of(decode_value(parts, dict[str, str]), parents, origin)
    if candidate.id != unescape_text(row.id):
        raise JournalDamaged(
            f"the text kept of candidate {row.id} is another one's",
            where=connection.folder,
            fix=f"culmen runs recover {connection.folder} copies what can be read into a new run",
        )
    return candidate
