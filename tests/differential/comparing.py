"""The comparison of a package's answer with the adapter's, and the count of the inputs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from hypothesis import HealthCheck, settings

COMPARED: Counter[str] = Counter()
"""Generated inputs by what was compared."""


def inputs(number: int) -> settings:
    """Settings for a test of that many inputs, the same in every run."""
    return settings(
        max_examples=number,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


def same(what: str, package: object, ours: object, given: object = None) -> None:
    """Count one input; fail unless the two answers are equal, field by field."""
    COMPARED[what] += 1
    assert _plain(package) == _plain(ours), (
        f"{what}: {given!r}\npackage {package!r}\nculmen  {ours!r}"
    )


def answer_or_error(call: Callable[[], object]) -> object:
    """The answer of a call, or the name of the exception that it raised."""
    try:
        return call()
    except Exception as error:  # noqa: BLE001 - any exception of either side is an answer
        return f"raised {type(error).__name__}"


def _plain(value: Any) -> object:
    """A value with NaN equal to itself, and pairs as lists."""
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return value
