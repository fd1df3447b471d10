"""Exports of a run: events as JSON lines, observations as CSV, best candidates as files."""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import IO, Literal
from urllib.parse import quote

import msgspec

from culmen.core.errors import UserError
from culmen.core.evaluation import Observation
from culmen.core.json import JsonObject
from culmen.store import views
from culmen.store.codec import decode_value, parse_result, text_bytes, unescape_text
from culmen.store.database import open_snapshot
from culmen.store.journal import SqlJournal
from culmen.store.reader import (
    PAGE,
    EventRow,
    Texts,
    read_rows,
    restore_results,
    translate_decode_errors,
)
from culmen.store.sql import Connection

Format = Literal["jsonl", "csv", "files"]


def export_run(run: Path | str, format: Format, out: Path | str, *, count: int = 10) -> int:
    """Export the run to `out`; return the number of events, observations or candidates.

    jsonl: one event a line, with texts in full · csv: one observation a line · files: the `count`
    best candidates, each in a folder of its own with `about.json`. For jsonl and csv, `out` is a
    file, or `-` for standard output. Raises `UserError` for an unknown format, and `JournalDamaged`
    if the journal is not as culmen wrote it.
    """
    writers = {"jsonl": _write_jsonl, "csv": _write_csv}
    if format != "files" and format not in writers:
        raise UserError(
            f"unknown format '{format}'", where="--format", fix="use jsonl, csv or files"
        )
    SqlJournal.open(run).check()
    if format == "files":
        return _write_candidates(Path(run), Path(out), count)
    with _open_output(out) as file:
        return writers[format](Path(run), file)


@contextmanager
def _open_output(out: Path | str) -> Iterator[IO[str]]:
    if str(out) == "-":
        yield sys.stdout
        return
    path = Path(out)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        yield file


def _write_jsonl(run: Path, file: IO[str]) -> int:
    count = 0
    for events, page in json_pages(SqlJournal.open(run)):
        count += events
        file.write(page.decode("ascii"))
    return count


def _write_csv(run: Path, file: IO[str]) -> int:
    query = (
        "SELECT o.*, c.operator, c.model, c.parents FROM observation o "
        "LEFT JOIN candidate c ON c.id = o.candidate ORDER BY o.seq"
    )
    count = 0
    with open_snapshot(run) as connection:
        rows = connection.execute(query)
        writer = csv.writer(file)
        writer.writerow(rows.names)
        for row in rows:
            count += 1
            writer.writerow(map(inert_cell, row))
    return count


def inert_cell(value: object) -> object:
    """A cell that no spreadsheet computes: an apostrophe before a text that begins a formula."""
    if not isinstance(value, str) or not value.startswith(("=", "+", "-", "@", "\t", "\r")):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def _write_candidates(run: Path, out: Path, count: int) -> int:
    rows = views.candidate_rows(run, "best", limit=count)
    for rank, row in enumerate(rows, 1):
        detail = views.candidate_detail(run, row.id, observations=0, children=0)
        folder = out / f"{rank:0{len(str(count))}d}-{row.id}"
        for name, text in detail.parts.items():
            path = folder / _safe_part_path(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text_bytes(text))
        facts: JsonObject = {
            **msgspec.to_builtins(row),
            "origin": msgspec.to_builtins(detail.candidate.origin),
        }
        (folder / "about.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    return len(rows)


def _safe_part_path(name: str) -> PurePosixPath:
    """A relative path for a part: its name, if safe, or the name quoted.

    A name is unsafe if its path would leave the folder or overwrite `about.json`.
    """
    path = PurePosixPath(name)
    safe = path.parts and not path.is_absolute() and ".." not in path.parts and "\x00" not in name
    if safe and str(path) != "about.json" and name.isprintable():
        return path
    return PurePosixPath("part-" + quote(text_bytes(name), safe=""))


# The journal as lines of JSON, made from its rows a page at a time, for exports.

_MOST = 8 * PAGE
# bytes of a page below or above which the next one is longer or shorter
_LITTLE, _MUCH = 1 << 20, 1 << 23
# in this range both encoders write numbers alike: without an exponent
_LEAST, _GREATEST = 1e-4, 1e16
_SHAPE, _RESULT = 8, 10  # places in a row of `event`
_EMPTY, _NULL = msgspec.Raw(b"{}"), msgspec.Raw(b"null")
_odd = re.compile(
    rb"[:,\[]-?[0-9][0-9.]*e|0\.0000|null|\x7f"
).search  # exponents, small numbers, NaN (or None), DEL
_encoder = msgspec.json.Encoder()
_slow = json.JSONEncoder(separators=(",", ":")).encode


class _Line(msgspec.Struct):
    """One event to be written; parts that are encoded already are `Raw`."""

    seq: int
    time: float
    kind: str
    key: int
    mark: str | msgspec.Raw
    effect: str | msgspec.Raw
    body: msgspec.Raw
    result: Observation | msgspec.Raw
    elapsed: float | msgspec.Raw


def json_pages(journal: SqlJournal) -> Iterator[tuple[int, bytes]]:
    """All events in order, a page at a time, as (number of events, their lines).

    Each page is a short read of its own. Raises `JournalDamaged` if the journal cannot be read.
    """
    run_dir, texts, last, size = journal.run_dir, Texts(), 0, PAGE
    while True:
        with journal.snapshot() as connection:
            rows = read_rows(connection, last, size)
            with translate_decode_errors(run_dir):
                page = _encode_page(
                    list(map(_export_line, rows, _encodable_results(connection, rows, texts)))
                )
        if not rows:
            return
        yield len(rows), page
        last = rows[-1][0]
        size = (
            min(2 * size, _MOST)
            if len(page) < _LITTLE
            else max(size // 2, 1)
            if len(page) > _MUCH
            else size
        )


def _encode_page(lines: list[_Line]) -> bytes:
    with suppress(UnicodeEncodeError):
        page = _encoder.encode_lines(lines)
        if page.isascii() and b"\x7f" not in page:
            return page
    for line in lines:
        line.mark, line.effect = encode_standard_json(line.mark), encode_standard_json(line.effect)
        if isinstance(line.result, Observation):
            line.result = encode_standard_json(line.result)
    return _encoder.encode_lines(lines)


def _encodable_results(
    connection: Connection, rows: Sequence[EventRow], texts: Texts
) -> list[Observation | msgspec.Raw]:
    """Results of the rows, ready for encoding.

    Most are observations without references, which need no further look-up.
    """
    encodable: list[Observation | msgspec.Raw] = [_NULL] * len(rows)
    others: list[int] = []
    for index, row in enumerate(rows):
        shape = row[_SHAPE]
        if shape is None:
            continue
        raw = row[_RESULT]
        if shape == "observation" and raw is not None and raw[:1] == b"{" and b"blob:" not in raw:
            observation = parse_result(shape, raw)
            free = b'"usage"' not in raw
            encodable[index] = (
                observation
                if free and isinstance(observation, Observation) and _encodes_alike(observation)
                else encode_standard_json(observation)
            )
        else:
            others.append(index)
    for index, result in zip(
        others, restore_results(connection, [rows[index] for index in others], texts, True)
    ):
        encodable[index] = encode_standard_json(result)
    return encodable


def _encodes_alike(observation: Observation) -> bool:
    """True if both JSON encoders write the numbers of an observation without costs alike."""
    numbers = (observation.score, observation.seconds, observation.certified)
    for number in (*numbers, *observation.metrics.values()):
        if number and not _LEAST <= abs(number) < _GREATEST:
            return False
    return True


def _export_line(row: EventRow, result: Observation | msgspec.Raw) -> _Line:
    seq, when, kind, effect, _, key, mark, elapsed, _, body, _, _ = row
    raw_body = _EMPTY if body is None else encode_standard_json(decode_value(body, JsonObject))
    written = elapsed
    if not _LEAST <= elapsed < _GREATEST:
        written = msgspec.Raw(repr(elapsed).encode())
    return _Line(
        seq, when, kind, key, unescape_text(mark), unescape_text(effect), raw_body, result, written
    )


def encode_standard_json(value: object) -> msgspec.Raw:
    """A struct or plain data, encoded exactly like the standard `json` module.

    The bytes are those of `json.dumps(msgspec.to_builtins(value), separators=(",", ":"))`.
    """
    try:
        raw = _encoder.encode(value)
    except UnicodeEncodeError:  # a lone surrogate, which json writes as \udXXX
        raw = b"null"
    if not raw.isascii() or _odd(raw):
        raw = _slow(msgspec.to_builtins(value)).encode("ascii")
    return msgspec.Raw(raw)
