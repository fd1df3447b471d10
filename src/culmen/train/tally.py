"""The diagnostics of one update, from numbers alone: the same for every engine."""

from __future__ import annotations

import math
from collections.abc import Sequence

from culmen.train.engine import Rules


class Tally:
    """Sums over the tokens of a barrier; all arguments are per token of one response."""

    def __init__(self) -> None:
        self.tokens = 0
        self._sums = dict.fromkeys(("entropy", "gap_mean", "clip_low", "clip_high", "loss"), 0.0)
        self._gap = self._ratio = 0.0

    def add(
        self,
        recomputed: Sequence[float],
        drawn: Sequence[float],
        entropies: Sequence[float],
        advantage: float,
        rules: Rules,
    ) -> None:
        """Take in one response: its log-probabilities as recomputed by the trainer and as given with the sample."""
        self.tokens += len(drawn)
        self._sums["entropy"] += sum(entropies)
        for new, old in zip(recomputed, drawn, strict=True):
            ratio = min(math.exp(min(new - old, 50.0)), rules.correct)
            kept = min(max(ratio, 1 - rules.low), 1 + rules.high)
            self._sums["loss"] -= min(ratio * advantage, kept * advantage)
            self._sums["gap_mean"] += abs(new - old)
            self._sums["clip_low"] += float(ratio < 1 - rules.low and advantage < 0)
            self._sums["clip_high"] += float(ratio > 1 + rules.high and advantage > 0)
            self._gap, self._ratio = max(self._gap, abs(new - old)), max(self._ratio, ratio)

    def told(self) -> dict[str, float]:
        """Means over tokens; `gap_*` is between sampled and recomputed log-probabilities, clips count only the side
        on which they hold an update back."""
        means = {name: value / max(1, self.tokens) for name, value in self._sums.items()}
        return {**means, "gap_max": self._gap, "ratio_max": self._ratio, "tokens": float(self.tokens)}


def divergence(before: Sequence[float], after: Sequence[float]) -> float:
    """Sum over tokens of the k3 estimate of KL(before || after) from log-probabilities of what `before` drew."""
    gaps = [old - new for old, new in zip(before, after, strict=True)]
    return sum(math.exp(min(-gap, 50.0)) - 1 + gap for gap in gaps)
