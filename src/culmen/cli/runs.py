"""Finding what a person means: a run, a candidate, the task folder of a run."""

from __future__ import annotations

import shlex
from pathlib import Path

from culmen.core.errors import UserError
from culmen.store import views
from culmen.store.address import anchor, is_address, parse, pointer

FOLDER = Path("runs")  # where runs lie unless --run-dir says otherwise


def find(run: str | None) -> Path:
    """The run by path, name under ./runs or address, for None the latest one; `UserError` names near ones."""
    return views.find_run(run, FOLDER)


def adopt(run: str | None) -> Path:
    """`find`, for who will write: a run of a database gets its folder here, where what it leaves is not swept away."""
    if run is None or not is_address(run):
        return find(run)
    address = parse(run)
    return anchor(address, FOLDER) if address.name else find(run)


def pick(run: Path, candidate: str) -> str:
    """The full id of a candidate: `best`, `seed`, or the first digits of an id."""
    if candidate == "best":
        best = views.best(run)
        if best is None:
            raise UserError("nothing has scored yet", where=str(run), fix=f"culmen log {shown(run)}")
        return best.id
    if candidate == "seed":
        seeds = views.candidates(run, "old", operator="seed", limit=1)
        if not seeds:
            raise UserError(
                "this run began without an initial program", where=str(run), fix=f"culmen show {shown(run)} best"
            )
        return seeds[0].id
    return views.find_candidate(run, candidate)


def shown(run: Path | str) -> str:
    """A run as one would type it here: its name if it lies under ./runs, else its path."""
    path = Path(run)
    address = pointer(path)
    if address is not None and path.resolve().parent != FOLDER.resolve():
        return f"'{address}'"
    return shlex.quote(path.name if path.resolve().parent == FOLDER.resolve() else place(path))


def place(run: Path | str) -> str:
    """The path of a run, as short as it can be said from here."""
    try:
        return str(Path(run).resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(run)
