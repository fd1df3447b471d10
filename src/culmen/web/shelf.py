"""The runs that a dashboard shows: one, or those of a folder."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

import msgspec

from culmen.core.errors import UserError
from culmen.store import views
from culmen.store.address import has_run, journal_file
from culmen.store.database import run_folders
from culmen.store.views import RunLine
from culmen.web.digest import Digest


class Shelf:
    """Runs by the names of their folders. `place` is a run, or a folder of runs, which may come and go.

    `names` maps the path of a strategy's class to what it is called.
    """

    def __init__(self, place: Path, names: Mapping[str, str] | None = None) -> None:
        self._names = names or {}
        self.single = has_run(place)
        self.folder = place.resolve().parent if self.single else place.resolve()
        self._only = place.resolve().name if self.single else None
        self._digests: dict[str, tuple[int, Digest]] = {}
        self._lock = threading.Lock()

    def lines(self) -> list[RunLine]:
        """All of them, newest first."""
        called = {path.rpartition(":")[2]: name for path, name in self._names.items()}
        found = [line for line in views.runs(self.folder) if self._only in (None, Path(line.path).name)]
        return [msgspec.structs.replace(line, strategy=called.get(line.strategy, line.strategy)) for line in found]

    def names(self) -> list[str]:
        """What folders there are."""
        if self._only is not None:
            return [self._only]
        return [path.name for path in run_folders(self.folder)]

    def path(self, name: str) -> Path:
        """The folder of a run; raises `UserError` for anything that is not one of them."""
        if name not in self.names():
            raise UserError(f"there is no run '{name}'", where=str(self.folder), fix="choose one from the list")
        return self.folder / name

    def digest(self, name: str) -> Digest:
        """What is kept of a run; the pages that need it bring it up to date."""
        path = self.path(name)
        file = journal_file(path).stat().st_ino  # another run may have taken the place of one that was deleted
        with self._lock:
            known = self._digests.get(name)
            if known is None or known[0] != file:
                known = self._digests[name] = (file, Digest(path, self._names))
            return known[1]
