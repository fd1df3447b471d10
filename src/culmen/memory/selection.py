"""How candidates are chosen: by a priority, and among equals by a tie rule."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from culmen.memory.statistics import Floats, Statistics


class Priority(Protocol):
    """p_explore: one number per candidate, in order of arrival.

    -inf ranks last; NaN is passed over while others are left.
    """

    def __call__(self, statistics: Statistics) -> Floats: ...


class Ties(Protocol):
    """Puts rows of equal priority in order; `rows` come earliest first."""

    def order(self, rows: list[int], rng: Random) -> list[int]: ...


@dataclass(frozen=True)
class Earliest:
    """Equal priorities: the candidate that entered first."""

    def order(self, rows: list[int], rng: Random) -> list[int]:
        return rows


@dataclass(frozen=True)
class Shuffled:
    """Equal priorities: in random order, drawn from the run's generator."""

    def order(self, rows: list[int], rng: Random) -> list[int]:
        return rng.sample(rows, len(rows))
