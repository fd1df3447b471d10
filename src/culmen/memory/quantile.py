"""Quantiles: levels that do not depend on units, and a bounded running sample."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from culmen.core.errors import UserError


@dataclass(frozen=True)
class Quantile:
    """The level below which a share `q` (0..1) of what was observed lies. Written `q0.1` on the command line."""

    q: float

    def __post_init__(self) -> None:
        if not 0.0 <= self.q <= 1.0:
            raise UserError(f"a quantile lies between 0 and 1, not {self.q}", fix="write for example q0.1")

    def __str__(self) -> str:
        return f"q{self.q:g}"

    @classmethod
    def parse(cls, text: str) -> Quantile | None:
        """`q0.1` as an object; None for any other text."""
        match = re.fullmatch(r"q(\d*\.?\d+)", text.strip())
        return cls(float(match[1])) if match else None


def quantile(values: Sequence[float], q: float) -> float:
    """The q-quantile (0..1) of sorted `values` (at least one), interpolated linearly between neighbours."""
    place = q * (len(values) - 1)
    below = int(place)
    above = min(below + 1, len(values) - 1)
    return values[below] + (values[above] - values[below]) * (place - below)


class RunningSample:
    """At most `limit` of the values seen, evenly spaced in arrival order.

    When full, every second value is dropped and from then on half as many are kept. No randomness, so a replayed
    search sees the same quantiles.
    """

    def __init__(self, limit: int = 512) -> None:
        self._limit = limit
        self._stride = 1
        self._seen = 0
        self._kept: list[float] = []

    def __len__(self) -> int:
        return len(self._kept)

    def extend(self, values: Iterable[float]) -> None:
        """Take values in order; infinite ones (no member to measure against) are ignored."""
        for value in values:
            if value == float("inf"):
                continue
            if self._seen % self._stride == 0:
                self._kept.append(value)
            self._seen += 1
            if len(self._kept) > self._limit:
                self._kept = self._kept[::2]
                self._stride *= 2

    def ordered(self) -> list[float]:
        """The kept values, lowest first."""
        return sorted(self._kept)

    def quantiles(self, *levels: float) -> list[float]:
        """One value per level (0..1); empty while nothing was seen."""
        ordered = self.ordered()
        return [quantile(ordered, level) for level in levels if ordered]
