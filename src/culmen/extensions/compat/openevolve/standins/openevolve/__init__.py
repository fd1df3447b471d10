"""Stand-in for OpenEvolve's one class that evaluators import, for use inside the jail."""

from culmen.extensions.compat.openevolve.standins.openevolve.evaluation_result import (
    EvaluationResult,
)

__all__ = ["EvaluationResult"]
