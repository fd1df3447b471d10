"""What every shelf must do. Subclass `ShelfContract` in a test module, name it `Test...`, and give `make`.

class TestMine(ShelfContract):
    def make(self, folder): return MyShelf(folder), MyShelf.deliver
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from culmen.core.candidate import Candidate, Origin
from culmen.core.evaluation import Observation, Status
from culmen.core.ports import Shelf
from culmen.testing.journal_kit import ODD

Deliver = Callable[[str, Candidate, Observation], None]


class ShelfContract:
    """The contract of `core.ports.Shelf`, as tests for pytest."""

    def make(self, folder: Path) -> tuple[Shelf, Deliver]:
        """An empty shelf, and how an evaluation (mark, candidate, observation) gets into what lies behind it, where
        there is anything; `folder` exists and is empty."""
        raise NotImplementedError

    def test_gives_back_what_was_evaluated(self, tmp_path: Path) -> None:
        shelf, deliver = self.make(tmp_path)
        many = [Candidate.of({"main.py": f"x = {n}\n", "odd": ODD}, origin=Origin("rewrite")) for n in range(60)]
        seen: list[tuple[str, Candidate, Observation]] = []
        for place, each in enumerate(many):
            feedback = "f" * 9000 if place == 7 else ODD
            seen.append((f"{place:016x}", each, Observation(each.id, Status.OK, float(place), feedback=feedback)))
        for one in seen:
            deliver(*one)
            shelf.keep(*one)
        for mark, candidate, observation in seen:
            assert shelf.candidate(candidate.id).parts == candidate.parts
            assert shelf.observation(candidate.id, mark) == observation

    def test_the_first_observation_under_a_mark_stays(self, tmp_path: Path) -> None:
        shelf, deliver = self.make(tmp_path)
        one = Candidate.of({"main.py": "x = 1\n"})
        cases = [("0a", "first", 1.0), ("0b", "second", 2.0), ("0a", "first", 3.0), ("0c", "", None)]
        for mark, case, score in cases:
            status = Status.LOST if score is None else Status.OK
            made = (mark, one, Observation(one.id, status, score, case))
            deliver(*made)
            shelf.keep(*made)
        assert shelf.observation(one.id, "0a").score == 1.0
        assert shelf.observation(one.id, "0b").case == "second"
        assert shelf.observation(one.id, "0c").status is Status.LOST

    def test_what_was_never_there_is_an_error(self, tmp_path: Path) -> None:
        shelf, _ = self.make(tmp_path)
        one = Candidate.of({"main.py": "x = 1\n"})
        for asking in (lambda: shelf.candidate(one.id), lambda: shelf.observation(one.id, "0a")):
            with pytest.raises(KeyError):
                asking()
