"""What no journal accepts."""

from __future__ import annotations

import math

from culmen.core.evaluation import Observation, Status
from culmen.core.event import Entry


def check(entry: Entry) -> None:
    """Raise `ValueError` for an entry that breaks the contract: a score that is not finite, or one beside a failure."""
    result = entry.result
    if not isinstance(result, Observation):
        return
    if result.status is Status.OK:
        if result.score is None or not math.isfinite(result.score):
            raise ValueError(f"an observation with status ok needs a finite score, not {result.score}")
    elif result.score is not None:
        raise ValueError(f"an observation with status {result.status} has no score, but {result.score} was given")
