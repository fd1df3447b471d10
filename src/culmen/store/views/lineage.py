"""Where a candidate came from."""

from __future__ import annotations

from pathlib import Path

import msgspec

from culmen.core.candidate import Origin
from culmen.store.codec import decode
from culmen.store.database import read_meta, reading
from culmen.store.ranking import pooled_sd
from culmen.store.views.candidates import Row, resolve, row_of, with_tallies


class Step(msgspec.Struct, frozen=True):
    """One ancestor. `gain` is the change of mean reward from the ancestor before it (None if either has no score)."""

    row: Row
    gain: float | None
    note: str = ""


def lineage(run: Path | str, id_prefix: str) -> list[Step]:
    """The candidate's ancestors from the seed to itself, following each one's first parent."""
    from culmen.store.schema import candidate as table

    folder = Path(run)
    with reading(folder) as connection:
        about = read_meta(connection).task.objective
        sd = pooled_sd(connection)
        chain: list[tuple[Row, str]] = []
        name, seen = resolve(connection, folder, id_prefix), set[str]()
        while name and name not in seen:
            seen.add(name)
            found = connection.execute(
                with_tallies().add_columns(table.c.origin).where(table.c.id == name)
            ).one_or_none()
            if found is None:
                break
            row = row_of(found, about.direction, sd)
            chain.append((row, decode(found.origin, Origin).note))
            name = row.parents[0] if row.parents else ""
    chain.reverse()
    steps: list[Step] = []
    for row, note in chain:
        before, now = (steps[-1].row.mean if steps else None), row.mean
        gain = None if before is None or now is None else about.reward(now) - about.reward(before)
        steps.append(Step(row, gain, note))
    return steps
