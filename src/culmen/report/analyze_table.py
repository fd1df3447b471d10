"""Tables and the statistics in them: everything is computed within a run first, and then told over runs.

A table's rows are dicts with the same keys. A figure over runs is three columns: `name` (median), `name_q1`, `name_q3`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from statistics import fmean, quantiles
from typing import Any

import msgspec

Rows = list[dict[str, Any]]


class Table(msgspec.Struct, frozen=True):
    """One analysis: `rows`, or none and a sentence in `skipped` that says what was missing; `notes` are remarks."""

    name: str
    title: str
    rows: Rows = []
    skipped: str = ""
    notes: tuple[str, ...] = ()


def spread(name: str, values: Iterable[float | None]) -> dict[str, float | None]:
    """Median and quartiles (linear between order statistics) of the values that there are; None without any."""
    known = sorted(value for value in values if value is not None)
    if not known:
        return {name: None, f"{name}_q1": None, f"{name}_q3": None}
    low, middle, high = quantiles(known, n=4, method="inclusive") if len(known) > 1 else known * 3
    return {name: middle, f"{name}_q1": low, f"{name}_q3": high}


def mean(values: Iterable[float | None]) -> float | None:
    """Mean of the values that there are; None without any."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def share(flags: Sequence[bool]) -> float | None:
    """The share of true ones; None of nothing."""
    return sum(flags) / len(flags) if flags else None


def bins(values: Sequence[float], count: int) -> list[int]:
    """For every value its quantile bin, 1 (lowest) to `count`, by the share of values below it: equal values are in the
    same bin, so that bins may be empty where values are tied."""
    ranked = sorted(values)
    return [1 + min(count - 1, bisect_left(ranked, value) * count // len(ranked)) for value in values]


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Spearman's, ties by mean rank; None below three pairs or where either side is constant."""
    if len(one) < 3 or len(set(one)) < 2 or len(set(other)) < 2:
        return None
    first, second = _ranks(one), _ranks(other)
    middle = (len(one) + 1) / 2
    products = sum((a - middle) * (b - middle) for a, b in zip(first, second))
    left, right = (sum((rank - middle) ** 2 for rank in ranks) for ranks in (first, second))
    return products / (left * right) ** 0.5


def _ranks(values: Sequence[float]) -> list[float]:
    ranked = sorted(values)
    return [(bisect_left(ranked, value) + 1 + bisect_right(ranked, value)) / 2 for value in values]
