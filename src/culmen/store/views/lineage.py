"""Where a candidate came from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from culmen.core.candidate import Origin
from culmen.store.codec import decode
from culmen.store.database import read_meta, reading
from culmen.store.ranking import pooled_sd
from culmen.store.reader import PAGE
from culmen.store.views.candidates import Row, resolve, row_of, with_tallies

if TYPE_CHECKING:
    from sqlalchemy import Connection

_ID = 12  # characters of a candidate's id; `parents` holds ids with a space between them


class Step(msgspec.Struct, frozen=True):
    """One ancestor. `gain` is the change of mean reward from the ancestor before it (None if either has no score)."""

    row: Row
    gain: float | None
    note: str = ""


def lineage(run: Path | str, id_prefix: str) -> list[Step]:
    """The candidate's ancestors from the seed to itself, following each one's first parent."""
    folder = Path(run)
    with reading(folder) as connection:
        about = read_meta(connection).task.objective
        chain = _rows(connection, _line(connection, resolve(connection, folder, id_prefix)), about.direction)
    steps: list[Step] = []
    for row, note in chain:
        before, now = (steps[-1].row.mean if steps else None), row.mean
        gain = None if before is None or now is None else about.reward(now) - about.reward(before)
        steps.append(Step(row, gain, note))
    return steps


def _line(connection: Connection, name: str) -> list[str]:
    """Ids from the seed to `name`: one recursive query, whose union ends it where a line leads back into itself."""
    from sqlalchemy import func, select

    from culmen.store.schema import candidate as born

    columns = (born.c.id, func.substr(born.c.parents, 1, _ID).label("parent"))
    line = select(*columns).where(born.c.id == name).cte("line", recursive=True)
    line = line.union(select(*columns).join(line, born.c.id == line.c.parent))
    parents = {row.id: row.parent for row in connection.execute(select(line.c.id, line.c.parent))}
    found: list[str] = []
    while name in parents:
        found.append(name)
        name = parents.pop(name)
    return found[::-1]


def _rows(connection: Connection, names: list[str], direction: str) -> list[tuple[Row, str]]:
    """Each of them with its statistics and the note of its origin, in that order."""
    from culmen.store.schema import candidate as born

    sd, query = pooled_sd(connection), with_tallies().add_columns(born.c.origin)
    found: dict[str, tuple[Row, str]] = {}
    for start in range(0, len(names), PAGE):
        for row in connection.execute(query.where(born.c.id.in_(names[start : start + PAGE]))):
            found[row.id] = (row_of(row, direction, sd), decode(row.origin, Origin).note)
    return [found[name] for name in names]
