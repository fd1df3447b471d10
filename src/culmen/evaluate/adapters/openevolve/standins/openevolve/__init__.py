"""Stand-in for the one class of OpenEvolve that evaluators import, for use inside the jail."""

from .evaluation_result import EvaluationResult

__all__ = ["EvaluationResult"]
