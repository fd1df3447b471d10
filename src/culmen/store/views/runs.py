"""Which runs there are."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from culmen.core.errors import CulmenError, JournalDamaged, UserError
from culmen.store.address import anchor, has_run, is_address, journal_file, parse, pointer
from culmen.store.database import owner, run_folders
from culmen.store.views.run import status


class RunLine(msgspec.Struct, frozen=True):
    """One line of a list of runs. One that cannot be read has the state `damaged` or `unreadable`; `why` says what is
    wrong with it, and `fix` what to do."""

    run: str
    path: str
    state: str
    created: float
    task: str = ""
    strategy: str = ""
    evaluations: int = 0
    best: float | None = None
    trust: str = ""
    why: str = ""
    fix: str = ""


def runs(folder: Path | str = "runs") -> list[RunLine]:
    """All runs directly inside the folder, newest first."""
    return run_lines(run_folders(Path(folder)))


def run_lines(folders: Iterable[Path]) -> list[RunLine]:
    """These runs, newest first."""
    return sorted(map(_line, folders), key=lambda line: (-line.created, line.run))


def find_run(name: Path | str | None, folder: Path | str = "runs") -> Path:
    """A run by path, by its name (or the start of it) in `folder`, by its address in a database (URL#NAME), or, for
    None, the newest one in the folder."""
    if isinstance(name, str) and is_address(name):
        address = parse(name)
        if not address.name:
            raise UserError("which run of this database?", where=name, fix=f"culmen db list '{address.url}'")
        return anchor(address, Path(folder) if pointer(Path(folder) / address.name) == address else None)
    if name is not None and has_run(Path(name)):
        return Path(name)
    known = run_folders(Path(folder))
    if name is None:
        if not known:
            raise UserError("there are no runs yet", where=str(folder), fix="culmen demo, or culmen run TASK")
        return Path(runs(folder)[0].path)
    exact = [path for path in known if path.name == str(name)]
    matches = exact or [path for path in known if path.name.startswith(str(name))]
    if len(matches) == 1:
        return matches[0]
    names = ", ".join(sorted(path.name for path in matches or known)[:8]) or "none"
    what = f"several runs begin with '{name}'" if matches else f"there is no run '{name}'"
    raise UserError(what, where=str(folder), fix=f"give one of: {names}")


def _line(folder: Path) -> RunLine:
    try:
        now = status(folder)
    except JournalDamaged as error:
        if owner(folder) is not None:  # its tables are being made
            return RunLine(folder.name, str(folder), "starting", _made(folder))
        return RunLine(folder.name, str(folder), "damaged", _made(folder), why=error.what, fix=error.fix)
    except CulmenError as error:
        why, fix = (error.what, error.fix) if isinstance(error, UserError) else (str(error), "")
        return RunLine(folder.name, str(folder), "unreadable", _made(folder), why=why, fix=fix)
    score, trust = (None, "") if now.best is None else (now.best.value, now.best.trust)
    return RunLine(now.run, str(folder), now.state, now.created, now.task, now.strategy, now.evaluations, score, trust)


def _made(folder: Path) -> float:
    return journal_file(folder).stat().st_mtime
