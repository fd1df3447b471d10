"""Stand-in for OpenEvolve's one class that evaluators import, for use inside the jail."""

from .evaluation_result import EvaluationResult

__all__ = ["EvaluationResult"]
