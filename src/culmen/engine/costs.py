"""What effects may cost before they are done, and what they did cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from culmen.core.brief import Proposal
from culmen.core.evaluation import Observation
from culmen.core.event import Custom, EvaluateRequest, ProposeRequest, Request, Vectors, WriteRequest
from culmen.core.usage import Usage

Estimate = Callable[[Request], Usage]
"""The most that performing a request may cost."""

NOTHING, _EVALUATION, _CALL = Usage(), Usage(evaluations=1), Usage(calls=1)


def at_least(request: Request) -> Usage:
    """The default estimate: an evaluation is one evaluation, asking a model is one call; the rest is free."""
    if isinstance(request, EvaluateRequest):
        return _EVALUATION
    return _CALL if isinstance(request, ProposeRequest | WriteRequest) else NOTHING


def usage_of(result: Any) -> Usage:
    """What an effect's result cost."""
    if isinstance(result, Observation):
        return _EVALUATION if result.usage == NOTHING else result.usage + _EVALUATION
    if isinstance(result, Proposal | Vectors | Custom) or hasattr(result, "usage"):
        return result.usage
    return NOTHING
