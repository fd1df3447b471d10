"""The folders that a caller who is no person may have culmen read and write, as `culmen mcp` enforces them."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from culmen.core.errors import UserError
from culmen.store.address import has_run

_MOST = 20_000  # files and folders of a task that are looked at
_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,80}")
_PATTERN = re.compile(r"[*?\[]")


class AllowedFolders:
    """Turns paths of a caller into absolute ones, links followed, and refuses with `UserError` what lies elsewhere.

    `folders` exist; the first one is where relative paths begin and where `runs` is.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self.folders = tuple(folder.resolve(strict=True) for folder in folders)
        self.home = self.folders[0]
        self.runs = self.home / "runs"

    def path(self, given: str) -> Path:
        """An existing or future path inside the folders."""
        if not given or "\0" in given:
            raise UserError("no path was given", fix=f"name a path inside {self._listed()}")
        path = (self.home / given).resolve()
        if not self._inside(path):
            raise UserError(f"{path} lies outside the folders that are open to you", fix=f"use {self._listed()}")
        return path

    def task(self, given: str) -> Path:
        """A task: neither it nor what its `task.toml` names, nor any link in its folder, leads outside."""
        path = self.path(given)
        if not path.exists():
            raise UserError(f"there is no task {path}", fix="new writes one; or give the path of a folder or evaluator")
        folder = path if path.is_dir() else path.parent
        for link in _links(folder):
            self.path(str(link))
        settings = folder / "task.toml"
        if settings.is_file():
            for text in _texts(_parsed(settings)):
                self._named(folder, text)
        return path

    def run(self, given: str) -> Path:
        """A run, by its name in `runs` or by its path."""
        named = self.runs / given
        path = self.path(str(named if _NAME.fullmatch(given) and has_run(named) else given))
        if not has_run(path):
            known = sorted(each.name for each in self.runs.iterdir() if has_run(each)) if self.runs.is_dir() else []
            raise UserError(
                f"there is no run '{given}'", where=str(self.runs), fix=f"known: {', '.join(known) or 'none'}"
            )
        return path

    def new_run(self, name: str) -> Path:
        """The folder of a run that is to begin; `name` is a plain word."""
        if not _NAME.fullmatch(name):
            raise UserError(f"'{name}' is no name for a run", fix="use letters, digits, - and _")
        return self.path(str(self.runs / name))

    def _named(self, folder: Path, text: str) -> None:
        """Refuse a text that names something on this machine outside the folders, or a pattern that begins there."""
        fixed = _PATTERN.split(text, maxsplit=1)[0]
        if not fixed or len(fixed) > 4096 or "\n" in fixed or "\0" in fixed:
            return
        path = Path(os.path.normpath(folder / fixed))
        if os.path.lexists(path) and not self._inside(path.resolve()):
            raise UserError(
                f"task.toml names {path}, which lies outside the folders that are open to you",
                where=str(folder / "task.toml"),
                fix=f"copy it into {self._listed()}",
            )

    def _inside(self, path: Path) -> bool:
        return any(path.is_relative_to(folder) for folder in self.folders)

    def _listed(self) -> str:
        return ", ".join(map(str, self.folders))


def _links(folder: Path) -> Iterator[Path]:
    """Symbolic links below a folder, which is itself one of few files."""
    seen = 0
    for root, folders, files in os.walk(folder):
        seen += len(folders) + len(files)
        if seen > _MOST:
            raise UserError(f"{folder} holds too many files to be a task", fix="put the task into a folder of its own")
        yield from (path for name in (*folders, *files) if (path := Path(root, name)).is_symlink())


def _parsed(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}  # the verb says better what is wrong with it, and reads nothing else


def _texts(value: Any) -> Iterator[str]:
    """All texts of a parsed file but those of the command, which runs in the jail."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, dict):
        for key, each in value.items():
            if key != "command":
                yield from _texts(each)
