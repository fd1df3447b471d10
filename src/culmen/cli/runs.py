"""Finding what a person means: a run, a candidate, the task folder of a run."""

from __future__ import annotations

from pathlib import Path

from culmen.core.errors import UserError
from culmen.store import views

FOLDER = Path("runs")  # where runs lie unless --run-dir says otherwise


def find(run: str | None) -> Path:
    """The run by path or name under ./runs; for None the latest one. Raises `UserError` that names near ones."""
    return views.find_run(run, FOLDER)


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
            raise UserError("this run began without a seed", where=str(run), fix=f"culmen show {shown(run)} best")
        return seeds[0].id
    return views.find_candidate(run, candidate)


def shown(run: Path | str) -> str:
    """A run as one would type it here: its name if it lies under ./runs, else its path."""
    path = Path(run)
    return path.name if path.resolve().parent == FOLDER.resolve() else place(path)


def place(run: Path | str) -> str:
    """The path of a run, as short as it can be said from here."""
    try:
        return str(Path(run).resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(run)
