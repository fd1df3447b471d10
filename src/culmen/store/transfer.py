"""Copies of runs between folders and databases: table by table, then compared by counts and hashes.

What is copied is one moment of the source, which may go on. The hash of a table is the sum, modulo 2**256, of the
SHA-256 of each of its rows: it does not depend on the order in which a database gives them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from culmen.core.errors import JournalDamaged, UserError
from culmen.store.address import Address, anchor, has_run, is_address, parse, pointer
from culmen.store.blobs import Blobs
from culmen.store.database import meanings, read_meta, reading, run_folders
from culmen.store.reader import lookup_in

if TYPE_CHECKING:
    from sqlalchemy import Connection, Table

_PAGE = 1000


class Sum(msgspec.Struct, frozen=True):
    """What a table holds: how many rows, and their hash."""

    rows: int
    digest: str


class Copied(msgspec.Struct, frozen=True):
    """A copy whose tables were read again and are the source's: `tables` by name, blobs that are files among `blob`."""

    source: str
    target: str
    tables: dict[str, Sum]


def sources(text: str, find: Any) -> list[Path]:
    """The run that a person names, or all runs of a folder or a database; `find` finds one by its name."""
    if is_address(text) and not parse(text).name:
        return run_folders(anchor(parse(text)))
    if not is_address(text) and Path(text).is_dir() and not has_run(Path(text)):
        return run_folders(Path(text))
    return [find(text)]


def target(text: str, name: str, several: bool) -> Path | Address:
    """Where a run called `name` is to go: a folder, or a run in a database, as a person names it."""
    if is_address(text):
        address = parse(text)
        if several and address.name:
            raise UserError("several runs cannot have one name", where=text, fix="give the database alone, as a URL")
        return address if address.name else parse(text, name)
    return Path(text) / name if several or (Path(text).is_dir() and not has_run(Path(text))) else Path(text)


def copy(source: Path, to: Path | Address) -> Copied:
    """Copy a run to a place where there is none yet. Raises `UserError`, `Unavailable` or `JournalDamaged`."""
    folder = to if isinstance(to, Path) else None
    if folder is not None and has_run(folder):
        raise UserError("there is a run already", where=str(folder), fix="give another folder for the copy")
    with reading(source) as connection:
        meta = msgspec.structs.replace(read_meta(connection), id=to.name)
        whole = Blobs(source / "blobs", lookup_in(connection))
        seat = _seat(to, meta)
        try:
            with meanings(folder or source), seat.connection.begin():
                taken = {table.name: _copy_table(table, connection, seat.connection) for table in _tables()}
                taken["blob"] = _plus(taken["blob"], _copy_files(whole, source / "blobs", seat.connection))
            with meanings(folder or source), seat.connection.begin():
                found = {table.name: _sum(_rows(seat.connection, table)) for table in _tables()}
        finally:
            seat.close()
    if taken != found:
        wrong = ", ".join(name for name in taken if taken[name] != found[name])
        raise JournalDamaged(f"the copy differs from its source in: {wrong}", where=str(to), fix="delete it, try again")
    return Copied(str(pointer(source) or source), str(to), found)


def sums(run_dir: Path) -> dict[str, Sum]:
    """What each table of a run holds; large blobs that are files are not among them."""
    with reading(run_dir) as connection:
        return {table.name: _sum(_rows(connection, table)) for table in _tables()}


def _seat(to: Path | Address, meta: Any) -> Any:
    from culmen.store.seat import FolderSeat
    from culmen.store.writer import make

    if isinstance(to, Path):
        from culmen.store.place import require_local

        to.mkdir(parents=True, exist_ok=True)
        require_local(to)
        return FolderSeat(to, lambda connection: make(connection, meta))
    from culmen.store import postgres

    return postgres.Seat.take(to, lambda connection: make(connection, meta))


def _tables() -> list[Table]:
    from culmen.store import schema

    return [table for table in schema.metadata.sorted_tables if table not in (schema.run, schema.version)]


def _copy_table(table: Table, source: Connection, into: Connection) -> Sum:
    return _insert(table, _rows(source, table), into)


def _copy_files(blobs: Blobs, folder: Path, into: Connection) -> Sum:
    """Blobs that are files become rows: a copy has one place for all of them."""
    from culmen.store import schema

    names = (bytes.fromhex(path.name) for path in folder.glob("??/*") if len(path.name) == 64)
    return _insert(schema.blob, ((sha, blobs.file(sha)) for sha in names), into)


def _insert(table: Table, rows: Iterable[tuple[Any, ...]], into: Connection) -> Sum:
    from sqlalchemy import insert

    from culmen.store.statements import compiled

    sql, cursor = compiled(insert(table), table, into.dialect), into.connection.cursor()
    count, total, page = 0, 0, list[tuple[Any, ...]]()
    for row in rows:
        count, total = count + 1, total + _hash(row)
        page.append(row)
        if len(page) == _PAGE:
            cursor.executemany(sql, page)
            page.clear()
    if page:
        cursor.executemany(sql, page)
    return _made(count, total)


def _rows(connection: Connection, table: Table) -> Iterator[tuple[Any, ...]]:
    from sqlalchemy import select

    streamed = connection.execution_options(stream_results=True, yield_per=_PAGE)
    for row in streamed.execute(select(table)):
        yield tuple(row)


def _sum(rows: Iterable[tuple[Any, ...]]) -> Sum:
    count = total = 0
    for row in rows:
        count, total = count + 1, total + _hash(row)
    return _made(count, total)


def _hash(row: tuple[Any, ...]) -> int:
    return int.from_bytes(hashlib.sha256(msgspec.msgpack.encode(row)).digest())


def _made(count: int, total: int) -> Sum:
    return Sum(count, f"{total % (1 << 256):064x}")


def _plus(one: Sum, two: Sum) -> Sum:
    return _made(one.rows + two.rows, int(one.digest, 16) + int(two.digest, 16))
