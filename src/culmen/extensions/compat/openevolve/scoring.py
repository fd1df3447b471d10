"""Fitness and cascades by OpenEvolve's rules (version 0.4.1).

Metrics are what an evaluator returned, so their values may have any type. Only `int` and `float`
count as numbers; a bool is a flag, and a number of NumPy that is neither counts nowhere but as
`combined_score`. With `flags` the rules are SkyDiscover's (0.1.0): a flag counts as 0 or 1.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from culmen.jail.plain import last_lines, value_text

Metrics: TypeAlias = dict[str, Any]
Answer: TypeAlias = tuple[Metrics, dict[str, Any]]
"""Metrics and artifacts of one call."""

STAGES = 3  # of a cascade, at most
SKYDISCOVER = "skydiscover"  # the contract of an evaluator that is scored by SkyDiscover's rules
SKYDISCOVER_STAGES = 2
DEFAULT_FEATURES = ("complexity", "diversity")
"""Feature dimensions of a configuration that names none."""
DEFAULT_RETRIES = 3  # of an evaluation that raises


def fitness(
    metrics: Mapping[str, Any], features: Iterable[str], flags: bool = False
) -> float | None:
    """`combined_score` as a number, else the mean of the other metrics.

    Feature dimensions are left out of the mean, unless nothing else is left, and NaN unless flags
    count. None without any number, where OpenEvolve takes 0.
    """
    if "combined_score" in metrics:
        try:
            return float(metrics["combined_score"])
        except (ValueError, TypeError):
            pass
    if flags:
        numbers = [value for value in metrics.values() if isinstance(value, int | float)]
        return sum(numbers) / len(numbers) if numbers else None
    named = set(features)
    plain = [value for key, value in metrics.items() if key not in named]
    return _mean(plain) if _numbers(plain) else _mean(list(metrics.values()))


def _numbers(values: Iterable[Any]) -> list[float]:
    """The values that count: neither flags, nor NaN, nor beyond the range of a float."""
    found: list[float] = []
    for value in values:
        if isinstance(value, int | float) and not isinstance(value, bool):
            try:
                number = float(value)
            except OverflowError:
                continue
            if not math.isnan(number):
                found.append(number)
    return found


def _mean(values: Iterable[Any]) -> float | None:
    numbers = _numbers(values)
    if not numbers:
        return None
    total = sum(numbers)
    if not math.isfinite(total) and all(map(math.isfinite, numbers)):  # the sum alone overflows
        largest = max(map(abs, numbers))
        return sum(number / largest for number in numbers) / len(numbers) * largest
    return total / len(numbers)


def passes_threshold(metrics: Mapping[str, Any], threshold: float, flags: bool = False) -> bool:
    """True if metrics open the next stage: by `combined_score`, else by the mean.

    The mean is over all numbers, feature dimensions among them, but for `error`.
    """
    score = metrics.get("combined_score")
    if isinstance(score, int | float):
        return float(score) >= threshold
    numbers = [
        float(value)
        for name, value in metrics.items()
        if name != "error" and isinstance(value, int | float)
        if flags or not isinstance(value, bool)
    ]
    return bool(numbers) and sum(numbers) / len(numbers) >= threshold


def merge_metrics(*stages: Mapping[str, Any], flags: bool = False) -> Metrics:
    """Numbers and flags of the stages, later ones first in rank; `error` and texts are dropped."""
    return {
        name: value if isinstance(value, bool) and not flags else float(value)
        for metrics in stages
        for name, value in metrics.items()
        if isinstance(value, int | float) and name != "error"
    }


def evaluate_with_retries(evaluate: Callable[[], Answer], retries: int, seconds: float) -> Answer:
    """The answer of an evaluation, tried again up to `retries` times if it raises.

    An evaluation that is too slow (`TimeoutError`) is not tried again, nor one whose next try
    might not end within `seconds` of the first one's begin. Raises what the last try raised.
    """
    begin = time.monotonic()
    for number in range(1, retries + 1):
        try:
            return evaluate()
        except TimeoutError:
            raise
        except Exception:
            took = time.monotonic() - begin
            if took * (number + 1) / number > seconds:
                raise
    return evaluate()


def run_stages(
    stages: Sequence[Callable[[str], Answer] | None],
    program: str,
    thresholds: Sequence[float],
    seconds: float,
    flags: bool = False,
) -> tuple[Answer, Answer]:
    """The cascade's answer, and what OpenEvolve adds for a stage that failed.

    A stage runs if those before it reach its threshold. A later stage that raises, or takes more
    than `seconds`, adds the metric `stageN_passed` = 0. Raises what the first stage raises, and
    `TimeoutError` if that one takes too long.
    """
    first = stages[0]
    assert first is not None  # without a first stage there is no cascade
    metrics, artifacts = _timed_call(first, program, seconds)
    for number, (stage, threshold) in enumerate(zip(stages[1:], thresholds), 2):
        if stage is None or not passes_threshold(metrics, threshold, flags):
            break
        try:
            more, other = _timed_call(stage, program, seconds)
        except Exception as error:  # noqa: BLE001 - a failing later stage leaves its trace and the results so far
            return (metrics, artifacts), _failed_stage(f"stage{number}", error)
        metrics = merge_metrics(metrics, more, flags=flags)
        artifacts = {**artifacts, **other}
    return (metrics, artifacts), ({}, {})


def _failed_stage(name: str, error: Exception) -> Answer:
    """Metrics and artifacts that stand for a stage that failed."""
    metrics, artifacts = {f"{name}_passed": 0.0}, {"failure_stage": name}
    if isinstance(error, TimeoutError):  # the stage's own, too
        return {**metrics, "timeout": True}, {**artifacts, f"{name}_timeout": True}
    trace = {f"{name}_stderr": value_text(error), f"{name}_traceback": last_lines(error)}
    return metrics, {**artifacts, **trace}


def _timed_call(stage: Callable[[str], Answer], program: str, seconds: float) -> Answer:
    begin = time.monotonic()
    answer = stage(program)
    took = time.monotonic() - begin
    if took > seconds:
        raise TimeoutError(f"the stage took {took:.3g} s of the {seconds:g} s allowed")
    return answer
