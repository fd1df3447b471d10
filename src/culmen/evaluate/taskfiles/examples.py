"""Tasks to start from: copies of the built-in ones."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

from culmen.core.errors import UserError
from culmen.evaluate.taskfiles.places import one_of

DEFAULT = "function_minimization"  # three files, small, and noisy: what most people bring


def examples() -> list[tuple[str, str]]:
    """The built-in tasks: name and one line, by name."""
    return [(folder.name, _line(folder)) for folder in _folders()]


def example_path(name: str) -> Path:
    """The folder of a built-in task; raises `UserError` for an unknown name."""
    folders = {folder.name: folder for folder in _folders()}
    if name not in folders:
        raise UserError(f"there is no example '{name}'", where=f"--example {name}", fix=one_of(name, folders))
    return folders[name]


def write_new(directory: str | Path, example: str | None = None) -> tuple[Path, ...]:
    """Write a task that works at once into a new or empty folder; the files written, sorted.

    `example` names a built-in task, by default one of three short files. Never overwrites: raises `UserError` if the
    folder holds anything, or cannot be written.
    """
    target = Path(directory).expanduser()
    source = example_path(example or DEFAULT)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        what = "the folder is not empty" if target.is_dir() else "there is a file of that name"
        raise UserError(what, where=str(target), fix="name a new folder; nothing was written")
    try:
        shutil.copytree(source, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
    except OSError as error:
        fix = "name a folder you may write to"
        raise UserError(f"the task could not be written: {error}", where=str(target), fix=fix) from None
    return tuple(sorted(path for path in target.rglob("*") if path.is_file()))


def _folders() -> list[Path]:
    import culmen.tasks

    root = Path(culmen.tasks.__path__[0])
    return sorted(path.parent for path in root.glob("*/task.toml"))


def _line(folder: Path) -> str:
    """The first sentence of the goal, without its full stop."""
    goal = tomllib.loads((folder / "task.toml").read_text(encoding="utf-8"))["goal"]
    return " ".join(goal.split()).split(". ")[0].rstrip(".")
