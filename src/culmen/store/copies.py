"""Upgraded copies of runs that an older culmen wrote: made once, then read by all who look."""

from __future__ import annotations

import sqlite3
import tempfile
import threading
from collections import OrderedDict
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from sqlalchemy import Engine

_MOST = 4  # copies kept at once


class _Copy(NamedTuple):
    state: tuple[object, ...]
    folder: tempfile.TemporaryDirectory[str]
    file: Path


_lock = threading.Lock()  # Alembic knows one migration at a time
_kept: OrderedDict[Path, _Copy] = OrderedDict()


def upgraded(source: Path, uri: str, name: str) -> Path:
    """The file `name` with the tables of `source` (opened by `uri`) brought up to date; made anew if it changed."""
    with _lock:
        state = _state(source)
        known = _kept.pop(source, None)
        if known is None or known.state != state or not known.file.is_file():
            known = _make(state, uri, name)
        _kept[source] = known
        while len(_kept) > _MOST:
            _kept.popitem(last=False)  # its folder goes with it
        return known.file


def _make(state: tuple[object, ...], uri: str, name: str) -> _Copy:
    from culmen.store.database import engine_for
    from culmen.store.migrate import upgrade

    folder = tempfile.TemporaryDirectory(prefix="culmen-")
    file = Path(folder.name) / name
    with closing(sqlite3.connect(uri, uri=True)) as old, closing(sqlite3.connect(file)) as new:
        old.backup(new)
    engine: Engine = engine_for(file, write=True)
    with engine.connect() as connection, connection.begin():
        upgrade(connection)
    return _Copy(state, folder, file)


def _state(source: Path) -> tuple[object, ...]:
    """Changes when the database or its log does."""
    facts: list[object] = []
    for path in (source, Path(f"{source}-wal")):
        try:
            stat = path.stat()
            facts += [stat.st_size, stat.st_mtime_ns]
        except FileNotFoundError:
            facts.append(None)
    return tuple(facts)
