"""Runs as people and commands name them."""

from __future__ import annotations

import shlex
from pathlib import Path

RUNS = Path("runs")  # folder of the runs unless --run-dir names another


def run_name(run: Path | str) -> str:
    """A run as a command takes it here: its name if it is under ./runs, else its path or address."""
    from culmen.store.address import pointer

    path = Path(run)
    address = pointer(path)
    if address is not None and path.resolve().parent != RUNS.resolve():
        return f"'{address}'"
    return shlex.quote(path.name if path.resolve().parent == RUNS.resolve() else short_path(path))


def short_path(run: Path | str) -> str:
    """The path of a run, relative to the working folder where it is below it."""
    try:
        return str(Path(run).resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(run)
