"""Tables of cases: CSV, JSON, JSONL and parquet files as rows of named values.

Delimiter and encoding of a CSV file are found from its text. Each row has the line where it begins,
and every error names line and column.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from culmen.core.errors import TaskError, missing_extra
from culmen.core.foreign import boundary
from culmen.core.json import JsonObject
from culmen.tasks.reading import missing_file_error, one_of

DELIMITERS = (",", ";", "\t", "|")
PARQUET = (".parquet", ".pq")
JSON_LINES = (".jsonl", ".ndjson")
JSON = ".json"
SUFFIXES = (".csv", ".tsv", JSON, *PARQUET)
"""Suffixes of tables that a task.toml names as its cases, beside JSON lines."""

_NAMED = 5  # lines named in one message
_SETTINGS = (".yaml", ".yml", ".toml")
_SHEETS = (".xlsx", ".xls", ".ods", ".numbers")
_NAMED_DELIMITER = re.compile(r'"?sep=(.)"?(?=\r?\n)', re.IGNORECASE)
_INSIDE = ("vars", "_store")  # objects of a row with its values: promptfoo's, and DSPy's
_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


class TableRow(NamedTuple):
    """One row: the line where it begins (parquet and Python: its number), and values by column."""

    line: int
    values: JsonObject


class CaseTable(NamedTuple):
    """A table: the file's name for messages, its columns, rows, and notes on the reading."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[TableRow, ...]
    notes: tuple[str, ...] = ()

    def place_of(self, line: int, column: str = "") -> str:
        """A place in the file, for messages."""
        return f"{self.name}:{line}" + (f" (column {column})" if column else "")

    def require_column(self, name: str, where: str) -> str:
        """The column of this name in any case; raise `TaskError` with near names if none is."""
        if name in self.columns:
            return name
        alike = [each for each in self.columns if each.casefold() == name.strip().casefold()]
        if len(alike) == 1:
            return alike[0]
        raise TaskError(
            f"{self.name} has no column '{name}'", where=where, fix=one_of(name, self.columns)
        )


def read_table(path: Path, delimiter: str = "", encoding: str = "") -> CaseTable:
    """The table in a file, by its suffix; raise `TaskError` if it cannot be read or is empty.

    `delimiter` and `encoding` are those of a CSV file; "" to find them.
    """
    suffix = path.suffix.lower()
    if not path.is_file():
        raise missing_file_error(path)
    if suffix in _SHEETS:
        raise TaskError(
            f"{suffix} is a spreadsheet", where=str(path), fix="save it as CSV (UTF-8) first"
        )
    if suffix in _SETTINGS:
        fix = "write the cases as CSV, or as a JSON list of objects"
        raise TaskError(f"{suffix} is no table", where=str(path), fix=fix)
    if suffix in PARQUET:
        table = _read_parquet(path)
    else:
        text, notes = _decoded_text(path, encoding)
        is_json = suffix in (JSON, *JSON_LINES)
        reader = _read_json if is_json else _read_csv
        table = reader(str(path), text, delimiter)
        table = table._replace(notes=(*notes, *table.notes))
    if not table.rows:
        raise TaskError("the table has no rows", where=str(path), fix="add cases, one a row")
    return table


def table_of_rows(rows: Sequence[Mapping[str, Any]], name: str = "cases") -> CaseTable:
    """The table of mappings from Python; the first row is number 1."""
    columns = dict.fromkeys(str(key) for row in rows for key in row)
    numbered = (
        TableRow(number, {str(key): _plain_value(value) for key, value in row.items()})
        for number, row in enumerate(rows, 1)
    )
    return CaseTable(name, tuple(columns), tuple(numbered))


def list_lines(lines: Sequence[int]) -> str:
    """`line 4`, `lines 4, 9 and 12`, or the first few and the number of all."""
    shown = [str(line) for line in lines[:_NAMED]]
    if len(lines) > _NAMED:
        return f"lines {', '.join(shown)} and {len(lines) - _NAMED} more"
    if len(shown) == 1:
        return f"line {shown[0]}"
    return f"lines {', '.join(shown[:-1])} and {shown[-1]}"


def _decoded_text(path: Path, encoding: str) -> tuple[str, tuple[str, ...]]:
    """The text of a file, and a note if its encoding had to be guessed."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise TaskError(
            f"cannot be read: {error.strerror}", where=str(path), fix="check its rights"
        ) from None
    named = encoding or next((name for mark, name in _BOMS if data.startswith(mark)), "utf-8")
    try:
        return _without_nul(path, data.decode(named)), ()
    except LookupError:
        fix = "write for instance --encoding utf-8 or cp1252"
        raise TaskError(f"unknown encoding '{named}'", where="--encoding", fix=fix) from None
    except UnicodeDecodeError as error:
        if encoding:
            line = data.count(b"\n", 0, error.start) + 1
            what = f"byte {error.start} is not {encoding}"
            fix = "leave --encoding out, or name another one"
            raise TaskError(what, where=f"{path}:{line}", fix=fix) from None
    try:
        text, used = data.decode("cp1252"), "Windows-1252"
    except UnicodeDecodeError:
        text, used = data.decode("latin-1"), "Latin-1"
    note = f"{path.name} is not UTF-8: read as {used} (--encoding names another one)"
    return _without_nul(path, text), (note,)


def _without_nul(path: Path, text: str) -> str:
    if "\0" not in text:
        return text
    line = text.count("\n", 0, text.index("\0")) + 1
    raise TaskError(
        "the file holds NUL characters: it is no text, or UTF-16 without its mark",
        where=f"{path}:{line}",
        fix="save it as UTF-8, or name the encoding: --encoding utf-16-le",
    )


# CSV


@boundary()
def _read_csv(name: str, text: str, delimiter: str) -> CaseTable:
    if named := _NAMED_DELIMITER.match(text):  # by spreadsheets; the numbers of lines stay
        delimiter, text = delimiter or named[1], text[named.end() :]
    delimiter = delimiter or _find_delimiter(text)
    records = _iter_records(name, text, delimiter)
    try:
        _, header = next(records)
    except StopIteration:
        raise TaskError(
            "the file is empty", where=name, fix="the first line names the columns"
        ) from None
    columns = [column.strip() for column in header]
    _check_header(name, columns)
    kept = [index for index, column in enumerate(columns) if column]
    rows: list[TableRow] = []
    for line, fields in records:
        if len(fields) != len(columns):
            raise _ragged_error(name, line, fields, columns, delimiter)
        rows.append(TableRow(line, {columns[index]: fields[index] for index in kept}))
    unnamed = len(columns) - len(kept)
    notes = (f"{unnamed} column without a name is left out",) if unnamed else ()
    return CaseTable(name, tuple(columns[index] for index in kept), tuple(rows), notes)


def _find_delimiter(text: str) -> str:
    """The delimiter by which most of the first records have as many fields as the header."""

    def fitness(delimiter: str) -> tuple[bool, float, int]:
        widths: list[int] = []
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        try:
            for fields in reader:
                if fields:
                    widths.append(len(fields))
                if len(widths) == 50:  # records by which a delimiter is judged
                    break
        except csv.Error:
            return False, 0.0, 0
        first = widths[0] if widths else 0
        return first > 1, widths.count(first) / max(1, len(widths)), first

    return max(DELIMITERS, key=fitness)


def _iter_records(name: str, text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """The line where each record begins, and its fields; empty lines are left out."""
    csv.field_size_limit(16 << 20)  # characters of one field
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    while True:
        line = reader.line_num + 1
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            what = f"not valid CSV: {error}"
            if "end of data" in str(error):
                what = "a quotation mark that opens in this row is never closed"
            fix = "write every quotation mark inside a quoted value twice"
            raise TaskError(what, where=f"{name}:{line}", fix=fix) from None
        if any(field.strip() for field in fields):
            yield line, fields


def _check_header(name: str, columns: Sequence[str]) -> None:
    """Raise `TaskError` for two columns of one name, or no names at all."""
    doubled = next((each for each in columns if each and columns.count(each) > 1), "")
    if doubled:
        raise TaskError(
            f"two columns are called '{doubled}'",
            where=f"{name}:1 (column {doubled})",
            fix="give every column its own name",
        )


def _ragged_error(
    name: str, line: int, fields: Sequence[str], columns: Sequence[str], delimiter: str
) -> TaskError:
    """The error for a row with another number of values than the header."""
    shown = {"\t": "a tab"}.get(delimiter, f"'{delimiter}'")
    if len(fields) > len(columns):
        place = f"after column {columns[-1]}"
        fix = f"put values that contain {shown} into quotation marks"
    else:
        place = f"column {columns[len(fields)]}"
        fix = f"write the missing value, if only as an empty one after {shown}"
    return TaskError(
        f"this row has {len(fields)} values, the header names {len(columns)} columns",
        where=f"{name}:{line} ({place})",
        fix=fix,
    )


# JSON and parquet


def _read_json(name: str, text: str, delimiter: str) -> CaseTable:
    """Objects one a line, or in an array, which may be the one list of an object."""
    try:
        whole: object = json.loads(text)
    except (ValueError, RecursionError):
        whole = None
    if isinstance(whole, dict):
        content = cast("JsonObject", whole)
        lists = [each for each in content.values() if isinstance(each, list) and each]
        whole = lists[0] if len(lists) == 1 and isinstance(lists[0][0], dict) else None
        if whole is None and name.lower().endswith(JSON):
            fix = 'write a list of rows: [{"ticket": "...", "team": "..."}, ...]'
            raise TaskError("the file holds one object, and no list of rows", where=name, fix=fix)
    if not isinstance(whole, list):
        return _read_json_lines(name, text, delimiter)
    elements = cast("list[object]", whole)
    wrong = next((n for n, row in enumerate(elements, 1) if not isinstance(row, dict)), 0)
    if wrong:
        fix = 'write for instance {"ticket": "...", "team": "..."}'
        raise TaskError(f"row {wrong} must be a JSON object", where=name, fix=fix)
    rows = [_flat_row(cast("JsonObject", row)) for row in elements]
    return table_of_rows(rows, name)


def _flat_row(row: JsonObject) -> JsonObject:
    """A row whose values lie in an object of its own, beside what another tool keeps of it."""
    inside = next((row[name] for name in _INSIDE if isinstance(row.get(name), dict)), None)
    if inside is None:
        return row
    checks = row.get("assert")
    expected = [
        f"{check.get('type', 'equals')}:{check.get('value', '')}"
        for check in (checks if isinstance(checks, list) else [])
        if isinstance(check, dict)
    ]
    names = ["__expected", *(f"__expected{n}" for n in range(2, len(expected) + 1))]
    return {**inside, **dict(zip(names, expected))}


@boundary()
def _read_json_lines(name: str, text: str, delimiter: str) -> CaseTable:
    rows: list[TableRow] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            value: object = json.loads(line)
        except (ValueError, RecursionError) as error:
            column = error.colno if isinstance(error, json.JSONDecodeError) else 1
            reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
            raise TaskError(
                f"not valid JSON: {reason}",
                where=f"{name}:{number}:{column}",
                fix="write one JSON object a line",
            ) from None
        if not isinstance(value, dict):
            fix = 'write for instance {"ticket": "...", "team": "..."}'
            raise TaskError("a row must be a JSON object", where=f"{name}:{number}", fix=fix)
        rows.append(TableRow(number, _flat_row(cast("JsonObject", value))))
    columns = dict.fromkeys(key for row in rows for key in row.values)
    return CaseTable(name, tuple(columns), tuple(rows))


def _read_parquet(path: Path) -> CaseTable:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        error = missing_extra("reading parquet files", "pyarrow", "parquet", str(path))
        raise TaskError(error.what, where=error.where, fix=error.fix) from None
    try:
        records: list[JsonObject] = parquet.read_table(path).to_pylist()
    except (ArrowException, OSError) as error:
        raise TaskError(
            f"not a parquet file: {error}", where=str(path), fix="write it again, or use CSV"
        ) from None
    return table_of_rows(records, str(path))


def _plain_value(value: object) -> object:
    """A value as JSON has it: dates, decimals and the like as texts."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list):
        return [_plain_value(each) for each in cast("list[object]", value)]
    if isinstance(value, dict):
        return {str(key): _plain_value(each) for key, each in cast("JsonObject", value).items()}
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return str(value)
