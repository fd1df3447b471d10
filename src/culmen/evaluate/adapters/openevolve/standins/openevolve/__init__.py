"""Stand-in for the one class of OpenEvolve that evaluators import; used inside the jail when it is not installed."""

from .evaluation_result import EvaluationResult

__all__ = ["EvaluationResult"]
