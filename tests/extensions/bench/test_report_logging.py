"""Notes for the analyses never change a search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from culmen.core.usage import Budget
from culmen.strategies import catalog
from culmen.testing import landscape
from culmen.testing.virtual import simulate


class Mute:
    """The lab, but notes are lost."""

    def __init__(self, lab: Any) -> None:
        self._lab = lab

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lab, name)

    def note(self, kind: str, **fields: Any) -> None:
        """Nothing."""


@dataclass(frozen=True)
class Silent:
    """A strategy whose notes are lost."""

    inner: Any

    async def search(self, lab: Any) -> None:
        await self.inner.search(Mute(lab))


@pytest.mark.parametrize("name", ["turboevolve", "openevolve", "map_elites"])
def test_a_search_without_notes_is_the_same_search(name: str):
    def effects(strategy: Any) -> tuple[list[Any], int]:
        task, world = (
            landscape.task(deterministic=True, seeds=(0.0, 0.1)),
            landscape.Landscape(blur=0.3),
        )
        done = simulate(strategy, task, world, Budget(evaluations=150), seed=3, workers=3)
        events = [event.entry for event in done.journal.read()]
        notes = sum(entry.kind == "note" and not entry.effect for entry in events)
        return [(e.key, e.mark, e.elapsed) for e in events if e.kind in ("started", "done")], notes

    told, many = effects(catalog.make_strategy(name))
    silent, none = effects(Silent(catalog.make_strategy(name)))
    assert told == silent and len(told) > 200
    assert many > 10 and none == 0
