"""Worlds of sessions, closed whatever happens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.extensions.agents.sandbox.grounds import Ground, need_confinement


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Callable[..., Ground]]:
    """Makes worlds in run folders of their own; skips where agents cannot be confined."""
    made: list[Ground] = []

    def make(name: str = "run", **options: Any) -> Ground:
        settings = options.get("settings")
        if settings is None or settings.sandbox == "auto":
            need_confinement()
        made.append(Ground(tmp_path / name, **options))
        return made[-1]

    yield make
    for one in made:
        one.leave()
