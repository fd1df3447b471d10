"""OpenEvolve's `EvaluationResult`, which an evaluator may return instead of a dict."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class EvaluationResult:
    """Metrics by name, and texts or bytes to show with them."""

    metrics: dict[str, Any]
    artifacts: dict[str, str | bytes] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, metrics: dict[str, Any]) -> EvaluationResult:
        """A result without artifacts."""
        return cls(metrics=metrics)

    def to_dict(self) -> dict[str, Any]:
        """The metrics alone."""
        return self.metrics

    def has_artifacts(self) -> bool:
        """True if there are artifacts."""
        return bool(self.artifacts)
