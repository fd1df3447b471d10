"""Columns of a run's rows in packs: views of a very long run need not read row by row.

Each time some thousand rows were added to `observation` and `candidate`, their columns are written
to `pack`, one array for each column, in the transaction that added the last of them. Rows behind
the last pack are read from their tables. Tallies change after they were packed: the changed ones
are named in `loose`, read from `tally`, and packed again when there are many.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec

from culmen.core.candidate import key_of
from culmen.store.codec import island_in_origin, unescape_text
from culmen.store.costs import running_dollars

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from sqlalchemy import Connection
    from sqlalchemy.engine.interfaces import DBAPICursor

ROWS = 4096
"""New observations and candidates after which they are packed."""

SPENT = "observation.spent"
"""Name of the packs with the dollars up to each observation, and to the end of the pack."""

LOOSE, _LOOSE_PART = 32_768, 16  # changed tallies that are packed again: at least, and of all
_END = 2**62  # beyond the last event
NO_ISLAND = -(2**63)

Row = tuple[Any, ...]
"""Values of a row or of a column, as a database gives them."""

Array: TypeAlias = "NDArray[Any]"
Columns = dict[str, "Array"]
"""Arrays of one length by the name of the column."""


class _Table(NamedTuple):
    """The columns packed of a table, each with its form, and the query for rows by event.

    A form is a type code of `array`, `t` for texts of few values or `s` for other texts.
    """

    name: str
    columns: tuple[tuple[str, str], ...]
    query: str
    convert: Callable[[Row], Row] = tuple


_SUMS = ("first", "count", "failed", "mean", "spread", "low", "high")
_SUMS += ("asked", "accepted", "strict", "barred", "trust")
_TALLY = ", ".join(f"t.{name}" for name in ("candidate", *_SUMS))


def _tally_values(row: Row) -> Row:
    *values, trust = row[1:]
    return key_of(unescape_text(row[0])), *values, -1 if trust is None else trust


def _candidate_values(row: Row) -> Row:
    island = island_in_origin(row[5])
    key = key_of(unescape_text(row[0]))
    return *row[:5], key, NO_ISLAND if island is None else island


OBSERVATIONS = _Table(
    "observation",
    tuple(zip(("seq", "score", "status", "phase", "culprit"), "qdttt")),
    "SELECT seq, score, status, phase, culprit FROM observation "
    "WHERE seq > {mark} AND seq <= {mark} ORDER BY seq",
)
"""Observations in the order of their events."""

TALLIES = _Table(
    "tally",
    tuple(zip(("key", *_SUMS), "QqIIddddIIIIb")),
    f"SELECT {_TALLY} FROM observation o JOIN tally t ON t.candidate = o.candidate "
    "WHERE o.seq > {mark} AND o.seq <= {mark} AND t.first = o.seq ORDER BY o.seq",
    _tally_values,
)
"""Tallies in the order of first evaluations; `key` is `key_of` a candidate, `trust` -1: none."""

CANDIDATES = _Table(
    "candidate",
    tuple(zip(("id", "seq", "operator", "model", "parents", "key", "island"), "sqttsQq")),
    "SELECT id, seq, operator, model, parents, origin FROM candidate "
    "WHERE seq > {mark} AND seq <= {mark} ORDER BY seq, id",
    _candidate_values,
)
"""Candidates in the order of their appearance; texts are escaped as in the table."""

_LOOSE_ROWS = f"SELECT {_TALLY} FROM loose l JOIN tally t ON t.candidate = l.candidate"
_MARK = {"sqlite": "?", "postgresql": "%s"}


# One array of a pack as bytes: one value stands for any number of equal ones.


def _array_bytes(form: str, values: Row) -> bytes:
    if form == "d":
        values = tuple(float("nan") if value is None else value for value in values)
    packed = array(form, values)
    if sys.byteorder == "big":
        packed.byteswap()
    raw = packed.tobytes()
    first = raw[: packed.itemsize]
    return first if raw == first * len(values) else raw


def _pack_column(form: str, values: Row) -> bytes:
    if form == "t":
        known: dict[str, int] = {}
        codes = tuple(known.setdefault(value, len(known)) for value in values)
        return msgspec.json.encode(list(known)) + b"\n" + _array_bytes("I", codes)
    if form == "s":
        texts = [value.encode() for value in values]
        width = max(map(len, texts))
        same = texts[:1] if texts.count(texts[0]) == len(texts) else texts
        return width.to_bytes(4, "little") + b"".join(text.ljust(width, b"\0") for text in same)
    return _array_bytes(form, values)


def _pack_rows(table: _Table, rows: Sequence[Row]) -> dict[str, bytes]:
    """The columns of these rows, at least one, as bytes by name."""
    columns = zip(*map(table.convert, rows))
    return {
        name: _pack_column(form, values) for (name, form), values in zip(table.columns, columns)
    }


# Writing, inside the transaction of an append.


class PackState(NamedTuple):
    """Progress of packing: all up to event `last`; behind it are `waiting` rows.

    `spent` are the dollars up to each observation behind it, `dollars` those up to now; None if an
    older culmen began the run.
    """

    last: int = 0
    waiting: int = 0
    spent: tuple[float, ...] = ()
    dollars: float | None = 0.0


class Packer:
    """Packs the rows of one run as they are appended; `state` is the committed one."""

    def __init__(self, dialect: str) -> None:
        self.state = PackState()
        mark = _MARK[dialect]
        self._queries = {
            table.name: table.query.format(mark=mark)
            for table in (OBSERVATIONS, TALLIES, CANDIDATES)
        }
        self._insert = f"INSERT INTO pack (name, seq, data) VALUES ({mark}, {mark}, {mark})"
        self._replace = f"UPDATE pack SET data = {mark} WHERE name = {mark} AND seq = {mark}"
        self._pack = f"SELECT data FROM pack WHERE name = {mark} AND seq = {mark}"
        self._loosen = "INSERT INTO loose (candidate) SELECT candidate FROM tally WHERE candidate"
        self._loosen += f" = {mark} AND first <= {mark} ON CONFLICT DO NOTHING"
        self._tighten = f"DELETE FROM loose WHERE candidate = {mark}"

    def load(self, connection: Connection, run_dir: Path) -> PackState:
        """Load the state from the tables, and return it."""
        cursor = connection.connection.cursor()
        cursor.execute("SELECT max(seq) FROM pack")
        row = cursor.fetchone()
        last = (row[0] if row else None) or 0
        cursor.execute(f"SELECT count(*) FROM candidate WHERE seq > {last}")
        row = cursor.fetchone()
        cursor.execute(f"SELECT seq FROM observation WHERE seq > {last} ORDER BY seq")
        seqs = [seq for (seq,) in cursor.fetchall()]
        self.state = PackState(last, len(seqs) + (row[0] if row else 0), (), None)
        dollars = self._packed_dollars(cursor, last)
        if dollars is not None:
            course = running_dollars(connection, run_dir, last, _END, dollars)
            places = (bisect_right(course, seq, key=lambda pair: pair[0]) - 1 for seq in seqs)
            spent = tuple(course[place][1] for place in places)
            self.state = self.state._replace(spent=spent, dollars=course[-1][1])
        return self.state

    def _packed_dollars(self, cursor: DBAPICursor, last: int) -> float | None:
        """Dollars up to the last pack; None if they are not kept."""
        if not last:
            return 0.0
        cursor.execute(self._pack, (SPENT, last))
        row = cursor.fetchone()
        return None if row is None else float(_unpack_array("d", row[0])[-1])

    def add_rows(
        self,
        cursor: DBAPICursor,
        seq: int,
        candidates: int,
        tallies: Iterable[tuple[str, bool]],
        spent: tuple[Sequence[float], float | None],
    ) -> PackState:
        """Note what an append up to event `seq` added; pack if it is time.

        `tallies` are the candidates whose tally changed, each with True if it may have been made
        without an observation; `spent` are the dollars up to each new observation and at the end.
        Returns the state once this is committed.
        """
        last, waiting, before, _ = self.state
        changed = [(name, _END if alone else last) for name, alone in tallies]
        if changed := [each for each in changed if each[1]]:
            cursor.executemany(self._loosen, changed)
        waiting, before = waiting + candidates + len(spent[0]), (*before, *spent[0])
        if waiting < ROWS:
            return PackState(last, waiting, before, spent[1])
        self.pack_until(cursor, last, seq)
        if spent[1] is not None:  # those at the end as well, from which the next pack goes on
            cursor.execute(self._insert, (SPENT, seq, _array_bytes("d", (*before, spent[1]))))
        self._pack_loose(cursor)
        return PackState(seq, 0, (), spent[1])

    def pack_until(self, cursor: DBAPICursor, after: int, last: int) -> None:
        """Pack the rows after one event up to another."""
        for table in (OBSERVATIONS, TALLIES, CANDIDATES):
            cursor.execute(self._queries[table.name], (after, last))
            if rows := cursor.fetchall():
                columns = _pack_rows(table, rows)
                cursor.executemany(
                    self._insert,
                    [(f"{table.name}.{name}", last, data) for name, data in columns.items()],
                )

    def _pack_loose(self, cursor: DBAPICursor) -> None:
        """Pack changed tallies again if there are many, each in its place."""
        cursor.execute("SELECT (SELECT count(*) FROM loose), (SELECT count(*) FROM candidate)")
        row = cursor.fetchone()
        if row is None or row[0] <= max(LOOSE, row[1] // _LOOSE_PART):
            return
        cursor.execute(_LOOSE_ROWS)
        changed = {row[1]: row for row in cursor.fetchall()}
        cursor.execute("SELECT seq FROM pack WHERE name = 'tally.first' ORDER BY seq")
        for (seq,) in cursor.fetchall():
            self._pack_again(cursor, seq, changed)

    def _pack_again(self, cursor: DBAPICursor, seq: int, changed: Mapping[int, Row]) -> None:
        """Put changed tallies, by the event of their first observation, into one pack."""
        columns: dict[str, array[float]] = {}
        count = 0
        for name, form in TALLIES.columns[1:] + TALLIES.columns[:1]:  # `first` has no equal values
            cursor.execute(self._pack, (f"tally.{name}", seq))
            row = cursor.fetchone()
            values = _unpack_array(form, b"" if row is None else row[0])
            count = count or len(values)
            columns[name] = values if len(values) == count else values * count
        done: list[tuple[str]] = []
        for place, first in enumerate(columns["first"]):
            row = changed.get(int(first))
            values = None if row is None else _tally_values(row)
            if row is None or values is None or values[0] != columns["key"][place]:
                continue
            done.append((row[0],))
            for (name, _), value in zip(TALLIES.columns, values):
                columns[name][place] = float("nan") if value is None else value
        if done:
            packed = {
                name: _array_bytes(form, tuple(columns[name])) for name, form in TALLIES.columns
            }
            rows = [(data, f"tally.{name}", seq) for name, data in packed.items()]
            cursor.executemany(self._replace, rows)
            cursor.executemany(self._tighten, done)


def pack_all(connection: Connection) -> None:
    """Pack the rows of a run that was written without packs, inside this transaction."""
    cursor = connection.connection.cursor()
    packer, last = Packer(connection.dialect.name), 0
    cursor.execute("SELECT seq FROM observation ORDER BY seq")
    seqs = [row[0] for row in cursor.fetchall()]
    for seq in seqs[ROWS - 1 :: ROWS]:
        packer.pack_until(cursor, last, seq)
        last = seq


def altered_column(connection: Connection) -> str:
    """Name of a packed column that is not what its rows say; "" if all agree.

    Packs of tallies may be behind those that are named in `loose`.
    """
    cursor, mark = connection.connection.cursor(), _MARK[connection.dialect.name]
    cursor.execute("SELECT candidate FROM loose")
    loose = {key_of(unescape_text(row[0])) for row in cursor.fetchall()}
    cursor.execute("SELECT DISTINCT seq FROM pack ORDER BY seq")
    after = 0
    for seq in [row[0] for row in cursor.fetchall()]:
        cursor.execute(f"SELECT name, data FROM pack WHERE seq = {mark}", (seq,))
        stored = {row[0]: row[1] for row in cursor.fetchall() if row[0] != SPENT}
        for table in (OBSERVATIONS, TALLIES, CANDIDATES):
            cursor.execute(table.query.format(mark=mark), (after, seq))
            rows = cursor.fetchall()
            for name, packed in (_pack_rows(table, rows) if rows else {}).items():
                own = stored.pop(f"{table.name}.{name}", b"")
                if own != packed and not (
                    table is TALLIES and _is_behind(name, own, packed, rows, loose)
                ):
                    return f"{table.name}.{name}"
        if stored:
            return min(stored)
        after = seq
    return ""


def _is_behind(
    name: str, stored: bytes, packed: bytes, rows: Sequence[Row], loose: Collection[int]
) -> bool:
    """True if a column of tallies differs from its rows only in those that are `loose`."""
    form, count = dict(TALLIES.columns)[name], len(rows)
    width = array(form).itemsize
    if name in ("key", "first") or len(stored) not in (width, count * width):
        return False
    before, now = (_join_pieces(name, form, [(raw, count)])[name] for raw in (stored, packed))
    differs = (before != now) & ~((before != before) & (now != now))  # nan equals nan
    return all(_tally_values(row)[0] in loose for row, each in zip(rows, differs.tolist()) if each)


# Reading, as arrays of numpy.


class PackReader:
    """Reader of a run's columns in a snapshot; it reads the rows behind the last pack once."""

    def __init__(self, connection: Connection) -> None:
        self._cursor, self._mark = connection.connection.cursor(), _MARK[connection.dialect.name]
        self._cursor.execute("SELECT max(seq) FROM pack")
        row = self._cursor.fetchone()
        self._packed: int = (row[0] if row else None) or 0
        self._rest: dict[str, tuple[dict[str, bytes], int]] = {}
        self._counts: dict[str, dict[int, int]] = {}

    def read(self, table: _Table, *names: str) -> Columns:
        """These columns of all rows as arrays; missing numbers are nan.

        Texts of few values are pairs of columns: `NAME` has places in the list `NAME+`.
        """
        rest, behind = self._rows_behind(table)
        counts = self._pack_counts(table)
        found: Columns = {}
        for name, form in table.columns:
            if name in names:
                stored = self._stored_pieces(table, name)
                pieces = [(data, counts[seq]) for seq, data in stored.items()]
                if behind:
                    pieces.append((rest[name], behind))
                found |= _join_pieces(name, form, pieces)
        return found

    def read_tallies(self) -> Columns:
        """All columns of all tallies, in the order of first evaluations."""
        import numpy as np

        found = self.read(TALLIES, *(name for name, _ in TALLIES.columns))
        self._cursor.execute(f"{_LOOSE_ROWS} ORDER BY t.first")
        rows = self._cursor.fetchall()
        if not rows:
            return found
        changed: Columns = {}
        for (name, form), data in zip(TALLIES.columns, _pack_rows(TALLIES, rows).values()):
            changed |= _join_pieces(name, form, [(data, len(rows))])
        places = np.searchsorted(found["first"], changed["first"])
        known = places < len(found["first"])
        for name in ("key", "first"):
            known[known] &= found[name][places[known]] == changed[name][known]
        for name, values in changed.items():
            found[name][places[known]] = values[known]
            found[name] = np.append(found[name], values[~known])
        order = np.argsort(found["first"], kind="stable")
        return {name: values[order] for name, values in found.items()}

    def read_spent(self) -> tuple[NDArray[np.int64], NDArray[np.float64]] | None:
        """Events and the dollars up to each, in order: event 0, each packed observation and pack.

        None if the dollars were not kept.
        """
        import numpy as np

        counts, pieces = self._pack_counts(OBSERVATIONS), self._stored_pieces(OBSERVATIONS, "spent")
        if self._packed not in pieces and self._packed:
            return None
        seqs, spent = [np.zeros(1, np.int64)], [np.zeros(1)]
        stored = self._stored_pieces(OBSERVATIONS, "seq")
        for seq, data in pieces.items():
            count = counts.get(seq, 0)
            seqs += [np.array(_unpack_array("q", stored.get(seq, b"")), np.int64), np.array([seq])]
            spent.append(_spread(np.frombuffer(data, "<f8"), count + 1))
        return np.concatenate(seqs), np.concatenate(spent)

    def _rows_behind(self, table: _Table) -> tuple[dict[str, bytes], int]:
        """The columns of the rows behind the last pack, and their number."""
        if table.name not in self._rest:
            self._cursor.execute(table.query.format(mark=self._mark), (self._packed, _END))
            rows = self._cursor.fetchall()
            self._rest[table.name] = _pack_rows(table, rows) if rows else {}, len(rows)
        return self._rest[table.name]

    def _pack_counts(self, table: _Table) -> dict[int, int]:
        """The number of rows of each pack, by its event."""
        if table.name not in self._counts:
            column = "seq" if table is OBSERVATIONS else "key"  # of which no two are equal
            pieces = self._stored_pieces(table, column)
            self._counts[table.name] = {seq: len(data) // 8 for seq, data in pieces.items()}
        return self._counts[table.name]

    def _stored_pieces(self, table: _Table, name: str) -> dict[int, bytes]:
        query = f"SELECT seq, data FROM pack WHERE name = {self._mark} ORDER BY seq"
        self._cursor.execute(query, (f"{table.name}.{name}",))
        return {row[0]: row[1] for row in self._cursor.fetchall()}


def _unpack_array(form: str, raw: bytes) -> array[float]:
    values = array(form, raw)
    if sys.byteorder == "big":
        values.byteswap()
    return values  # pyright: ignore[reportReturnType]


def _join_pieces(name: str, form: str, pieces: Sequence[tuple[bytes, int]]) -> Columns:
    """One column from its packs, each with its number of rows."""
    import numpy as np

    arrays: list[Array] = []
    known: dict[str, int] = {}
    for raw, count in pieces:
        if form == "s":
            width = int.from_bytes(raw[:4], "little")
            values = np.frombuffer(raw[4:], f"S{width}") if width else np.zeros(1, "S1")
        elif form == "t":
            texts, _, codes = raw.partition(b"\n")
            own = [known.setdefault(text, len(known)) for text in msgspec.json.decode(texts)]
            values = np.array(own, np.uint32)[np.frombuffer(codes, "<u4")]
        else:
            values = np.frombuffer(raw, np.dtype(form).newbyteorder("<"))
        arrays.append(_spread(values, count))
    empty = np.zeros(0, {"s": "S1", "t": "u4"}.get(form, form))
    joined = np.concatenate(arrays) if arrays else empty
    return {name: joined, f"{name}+": np.array([*known], object)} if form == "t" else {name: joined}


def _spread(values: Array, count: int) -> Array:
    """Array of `count` values: a single one stands for any number of equal ones."""
    import numpy as np

    return values if len(values) == count else np.full(count, values[0])
