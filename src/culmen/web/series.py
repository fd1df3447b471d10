"""Series short enough to draw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def thin(points: Sequence[T], most: int) -> list[T]:
    """At most `most` of the points, evenly spread, the first and the last among them."""
    if len(points) <= most:
        return list(points)
    step = (len(points) - 1) / (most - 1)
    return [points[round(place * step)] for place in range(most)]


def buckets(points: Sequence[tuple[float, float]], most: int) -> list[tuple[float, float]]:
    """At most `most` points of a series in order of x that keep its lows and highs: two for each bucket."""
    if len(points) <= most:
        return list(points)
    size = -(-len(points) // (most // 2))
    kept: list[tuple[float, float]] = []
    for start in range(0, len(points), size):
        inside = points[start : start + size]
        low, high = min(inside, key=lambda p: p[1]), max(inside, key=lambda p: p[1])
        kept += sorted({low, high})
    return kept
