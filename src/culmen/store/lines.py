"""The journal as lines of JSON, made from its rows a page at a time: what an export writes.

A line is what `json.dumps` makes of the event: ASCII, no spaces, Python's way to write numbers. msgspec writes most of
it, several times as fast; documents that it would write otherwise are found beforehand and given to `json`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from culmen.core.evaluation import Observation
from culmen.store.codec import decode, unescape
from culmen.store.reader import PAGE, Texts, read_rows, results, sense
from culmen.store.rows import parse

if TYPE_CHECKING:
    from sqlalchemy import Connection

_MOST = 8 * PAGE
_LITTLE, _MUCH = 1 << 20, 1 << 23  # bytes of a page after which the next is made longer, or shorter
_LEAST, _GREATEST = 1e-4, 1e16  # from here to there numbers are written alike: without an exponent
_SHAPE, _RESULT = 8, 10  # places in a row of `event`
_EMPTY, _NULL = msgspec.Raw(b"{}"), msgspec.Raw(b"null")
_odd = re.compile(rb"[:,\[]-?[0-9][0-9.]*e|0\.0000|null|\x7f").search  # exponents, small numbers, NaN (or None), DEL
_encoder = msgspec.json.Encoder()
_slow = json.JSONEncoder(separators=(",", ":")).encode


class _Line(msgspec.Struct):
    """One event as it is written; what is written already is `Raw`."""

    seq: int
    time: float
    kind: str
    key: int
    mark: Any
    effect: Any
    body: msgspec.Raw
    result: Any
    elapsed: Any


def pages(snapshot: Callable[[], AbstractContextManager[Connection]], run_dir: Path) -> Iterator[tuple[int, bytes]]:
    """All events in order, a page at a time: how many, and their lines. Each page is its own short read.

    Raises `JournalDamaged` where the journal cannot be read.
    """
    texts, last, size = Texts(), 0, PAGE
    while True:
        with snapshot() as connection:
            rows = read_rows(connection, run_dir, last, size)
            with sense(run_dir):
                page = _page(list(map(_line, rows, _came(connection, run_dir, rows, texts))))
        if not rows:
            return
        yield len(rows), page
        last = rows[-1][0]
        size = min(2 * size, _MOST) if len(page) < _LITTLE else max(size // 2, 1) if len(page) > _MUCH else size


def _page(lines: list[_Line]) -> bytes:
    with suppress(UnicodeEncodeError):
        page = _encoder.encode_lines(lines)
        if page.isascii() and b"\x7f" not in page:
            return page
    for line in lines:
        line.mark, line.effect = document(line.mark), document(line.effect)
        if isinstance(line.result, Observation):
            line.result = document(line.result)
    return _encoder.encode_lines(lines)


def _came(connection: Connection, run_dir: Path, rows: Sequence[Sequence[Any]], texts: Texts) -> list[Any]:
    """The results of rows. Most are observations that refer to nothing: they need no more than a look."""
    found, others = list[Any]([_NULL]) * len(rows), list[int]()
    for place, row in enumerate(rows):
        shape = row[_SHAPE]
        if shape is None:
            continue
        raw = row[_RESULT]
        if shape == "observation" and raw[:1] == b"{" and b"blob:" not in raw:
            seen = parse(shape, raw)
            found[place] = seen if b'"usage"' not in raw and _alike(seen) else document(seen)
        else:
            others.append(place)
    for place, result in zip(others, results(connection, run_dir, [rows[place] for place in others], texts, True)):
        found[place] = document(result)
    return found


def _alike(seen: Observation) -> bool:
    """Whether an observation without costs holds only numbers that are written alike."""
    for number in (seen.score, seen.seconds, seen.certified, *seen.metrics.values()):
        if number and not _LEAST <= abs(number) < _GREATEST:
            return False
    return True


def _line(row: Sequence[Any], came: Any) -> _Line:
    seq, when, kind, effect, _, key, mark, elapsed, _, body, _, _ = row
    told = _EMPTY if body is None else document(decode(body, dict[str, Any]))
    if not _LEAST <= elapsed < _GREATEST:
        elapsed = msgspec.Raw(repr(elapsed).encode())
    return _Line(seq, when, kind, key, unescape(mark), unescape(effect), told, came, elapsed)


def document(value: Any) -> msgspec.Raw:
    """A struct or plain data as `json.dumps(msgspec.to_builtins(value), separators=(",", ":"))`."""
    try:
        raw = _encoder.encode(value)
    except UnicodeEncodeError:  # a lone surrogate, which json writes as \udXXX
        raw = b"null"
    if not raw.isascii() or _odd(raw):
        raw = _slow(msgspec.to_builtins(value)).encode("ascii")
    return msgspec.Raw(raw)
