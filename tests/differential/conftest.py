"""Collected for one package only, which `tests.differential` names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.differential.comparing import COMPARED


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out the folders of all packages but the one that is asked for."""
    here = Path(__file__).parent
    if collection_path.parent == here and collection_path.is_dir():
        return collection_path.name != os.environ.get("CULMEN_COMPARE", "") or None
    return None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The number of inputs on which package and adapter were compared."""
    for what, count in sorted(COMPARED.items()):
        terminalreporter.write_line(f"compared: {count:>6,}  {what}")
    if COMPARED:
        terminalreporter.write_line(f"compared: {COMPARED.total():>6,}  in all")
