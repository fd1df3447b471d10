"""Equation 6 over arrays: the reference that the torch engine's loss is compared with."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from culmen.extensions.train.objectives import Floats

Flags = NDArray[np.bool_]


def clipped_loss(
    new: ArrayLike,
    old: ArrayLike,
    advantages: ArrayLike,
    mask: ArrayLike,
    *,
    low: float = 0.2,
    high: float = 0.28,
    aggregate: str = "token_mean",
) -> float:
    """Clipped loss (equation 6): minus the mean of min(r A, clip(r, 1 - low, 1 + high) A).

    The mean is over the valid tokens. `new` and `old` are log-probabilities of shape (n, tokens),
    `advantages` (n,) or (n, tokens), `mask` (n, tokens) with 1 at valid tokens; the other tokens
    may hold anything, also NaN. `aggregate`: token_mean (the paper's), or seq_mean (the mean of
    each response's mean, responses without a token left out). 0 if no token is valid.
    """
    surrogate, valid = _clipped_surrogate(new, old, advantages, mask, low, high)
    if aggregate == "token_mean":
        return -float(surrogate.sum() / valid.sum()) if valid.any() else 0.0
    if aggregate == "seq_mean":
        lengths = valid.sum(axis=1)
        kept = lengths > 0
        return -float((surrogate.sum(axis=1)[kept] / lengths[kept]).mean()) if kept.any() else 0.0
    raise ValueError(f"aggregate is token_mean or seq_mean, not {aggregate!r}")


def _clipped_surrogate(
    new: ArrayLike,
    old: ArrayLike,
    advantages: ArrayLike,
    mask: ArrayLike,
    low: float,
    high: float,
) -> tuple[Floats, Flags]:
    ratio, weight, valid = _importance_ratios(new, old, advantages, mask)
    return np.where(
        valid, np.minimum(ratio * weight, np.clip(ratio, 1 - low, 1 + high) * weight), 0.0
    ), valid


def _importance_ratios(
    new: ArrayLike, old: ArrayLike, advantages: ArrayLike, mask: ArrayLike
) -> tuple[Floats, Floats, Flags]:
    """Importance ratios (1 if masked), advantages per token, and the mask of valid tokens."""
    valid = np.asarray(mask).astype(bool)
    weight = np.asarray(advantages, dtype=np.float64)
    weight = np.broadcast_to(weight[:, None] if weight.ndim == 1 else weight, valid.shape)
    gap = np.where(valid, np.asarray(new, np.float64), 0.0) - np.where(
        valid, np.asarray(old, np.float64), 0.0
    )
    return np.exp(gap), np.where(valid, weight, 0.0), valid
