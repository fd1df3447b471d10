"""The runs that a dashboard shows: one, or those of a folder."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from culmen.core.errors import UserError
from culmen.store import views
from culmen.store.address import has_run, journal_file, pointer
from culmen.store.database import run_folders
from culmen.store.views import RunLine
from culmen.web.digest import Digest

_BELOW = 4  # folders below one another in which runs are looked for; `culmen compare` makes OUT/TASK/STRATEGY/seed-N
_SEEN = 5_000  # folders looked at for that
_JOIN = "~"  # in the name of a run that lies deeper: a name must do as one piece of an address


class Shelf:
    """Runs by the names of their folders. `place` is a run, or a folder of runs, which may come and go.

    A folder without any run of its own shows those below it, as `TASK~STRATEGY~seed-0`. `names` maps the path of a
    strategy's class to what it is called.
    """

    def __init__(self, place: Path, names: Mapping[str, str] | None = None) -> None:
        self._names = names or {}
        self.single = has_run(place)
        self.folder = place.resolve().parent if self.single else place.resolve()
        self._only = place.resolve() if self.single else None
        self._digests: dict[str, tuple[int, Digest]] = {}
        self._lock = threading.Lock()

    @property
    def place(self) -> str:
        """Where they lie, for people: a folder, or a database."""
        return str(pointer(self.folder) or self.folder)

    def lines(self) -> list[tuple[str, RunLine]]:
        """All of them, newest first, each with its name."""
        called = {path.rpartition(":")[2]: name for path, name in self._names.items()}
        known = {str(path): name for name, path in self.paths().items()}
        return [
            (known[line.path], msgspec.structs.replace(line, strategy=called.get(line.strategy, line.strategy)))
            for line in views.run_lines(map(Path, known))
        ]

    def paths(self) -> dict[str, Path]:
        """What folders there are, by name."""
        if self._only is not None:
            return {self._only.name: self._only}
        found = run_folders(self.folder) or sorted(_below(self.folder, _BELOW if self.folder.is_dir() else 0))
        inside = {path: path.relative_to(self.folder) if self.folder in path.parents else path for path in found}
        return {_JOIN.join(short.parts) if path != short else path.name: path for path, short in inside.items()}

    def path(self, name: str) -> Path:
        """The folder of a run; raises `UserError` for anything that is not one of them."""
        path = self.paths().get(name)
        if path is None:
            raise UserError(f"there is no run '{name}'", where=str(self.folder), fix="choose one from the list")
        return path

    def digest(self, name: str) -> Digest:
        """What is kept of a run; the pages that need it bring it up to date."""
        path = self.path(name)
        file = journal_file(path).stat().st_ino  # another run may have taken the place of one that was deleted
        with self._lock:
            known = self._digests.get(name)
            if known is None or known[0] != file:
                known = self._digests[name] = (file, Digest(path, self._names, name))
            return known[1]


def _below(folder: Path, deep: int) -> Iterator[Path]:
    """Runs inside a folder and the folders in it, level by level; links are not followed, and what a run keeps is its
    own. Ends after so many folders that it cannot be a place for runs."""
    level, seen = [folder], 0
    for _ in range(deep):
        inside: list[Path] = []
        for each in level:
            with os.scandir(each) as entries:
                found = [Path(e.path) for e in entries if e.is_dir(follow_symlinks=False) and e.name[0] != "."]
            seen += len(found)
            yield from (path for path in found if has_run(path))
            inside += [path for path in found if not has_run(path)]
            if seen > _SEEN:
                return
        level = inside
