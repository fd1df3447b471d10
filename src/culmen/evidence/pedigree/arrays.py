"""Small helpers for arrays by row."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Item = TypeVar("Item", bound=np.generic)
SMALLEST = 1e-280
"""Spread or variance up to which scores count as equal: the inverse of a part is a number."""


def with_room(array: NDArray[Item], place: int) -> NDArray[Item]:
    """The array itself, or one twice as long (zeros appended) if `place` is beyond its end."""
    return array if place < len(array) else np.concatenate([array, np.zeros_like(array)])


def padded_array(array: NDArray[Item], size: int, value: float) -> NDArray[Item]:
    """The array with `value` appended up to `size` elements."""
    if len(array) >= size:
        return array
    return np.concatenate([array, np.full(size - len(array), value, array.dtype)])


def sum_by_row(rows: Ints, weights: Floats | Ints | Flags | None, size: int) -> Floats:
    """Sum of the weights (None: 1 each) by row, shape (size,); negative rows are skipped."""
    if len(rows) and rows.min() < 0:
        keep = rows >= 0
        rows, weights = rows[keep], None if weights is None else weights[keep]
    return np.bincount(rows, weights, minlength=size).astype(float, copy=False)


def share_below(values: Floats, share: float) -> float:
    """The value with about this share (below 1) of the values under it; not interpolated."""
    rank = int(share * len(values))
    return float(np.partition(values, rank)[rank])
