"""What to watch over the barriers of a training: steps taken, and words for what looks wrong."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median
from typing import Any

_SKIPS = 10  # barriers in a row without an update that are worth a word


@dataclass
class Steps:
    """`taken` optimiser steps, `skipped` barriers in a row, and what the alarms compare with."""

    taken: int = 0
    skipped: int = 0
    entropy: float | None = None
    norms: list[float] = field(default_factory=list[float])

    def alarms(self, skip: str, told: dict[str, Any], failed: float) -> list[str]:
        """Words for what looks wrong: entropy_collapse, gradient_spike, failures, skips."""
        self.skipped = self.skipped + 1 if skip and skip != "not_training" else 0
        found = ["skips"] if self.skipped >= _SKIPS else []
        found += ["failures"] if failed > 0.8 else []
        if "entropy" in told:
            first = self.entropy = told["entropy"] if self.entropy is None else self.entropy
            found += ["entropy_collapse"] if told["entropy"] < 0.3 * first else []
        if "grad_norm" in told:
            found += ["gradient_spike"] if len(self.norms) > 4 and told["grad_norm"] > 5 * median(self.norms) else []
            self.norms.append(told["grad_norm"])
        return found
