"""Form legacy, inside the jail: OpenEvolve's `evaluate(path)`, with the candidate behind a stub or beside it.

Conventions of such folders: the program lies in a writable folder under a unique identifier with its suffix, the
evaluator's folder is on `sys.path`, results are a number, a dict or an EvaluationResult, also from a coroutine.
"""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import math
import os
import socket
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from culmen.evaluate.jail import wire
from culmen.evaluate.jail.plain import last_lines, load_file, number
from culmen.evaluate.openevolve.proxy.guest import Guest

_STANDINS = str(Path(__file__).parent / "standins")
_MAX_ARTIFACT = 20_000


def run_check(channel: socket.socket, request: dict[str, Any], work: Path) -> None:
    """Only load the evaluator and see that it has its function."""
    module = _load(request["evaluator"])
    if not any(callable(getattr(module, name, None)) for name in ("evaluate", "evaluate_stage1")):
        raise NameError("the evaluator has no function evaluate(path)")
    wire.send(channel, "R", wire.encode(True))


def run_legacy(channel: socket.socket, request: dict[str, Any], work: Path) -> None:
    """Evaluate one program in this very process and report its own word."""
    (work / request["module"]).replace(work / request["program"])
    wire.send(channel, "R", wire.encode(_report(request, work)))


def run_proxied(channel: socket.socket, request: dict[str, Any], work: Path) -> None:
    """Evaluate one program that runs in another process: a stub lies in its place here."""
    try:
        guest = Guest(work, request)
    except OSError as error:  # no socket, no watch: ours, whatever the reason
        return wire.send(channel, "J", str(error).encode())
    try:
        report = _report(request, work)
    finally:
        wire.send(channel, "N", wire.encode(guest.account()))
    wire.send(channel, "R", wire.encode(report))


def _report(request: dict[str, Any], work: Path) -> dict[str, Any]:
    program = str(work / request["program"])
    sys.path.insert(0, str(work))
    module = _load(request["evaluator"])
    if request["thresholds"] is not None and hasattr(module, "evaluate_stage1"):
        metrics, artifacts = _cascade(module, program, request["thresholds"], request["features"])
    else:
        metrics, artifacts = _normal(module.evaluate(program))
    return {
        "score": fitness(metrics, request["features"]),
        "metrics": {key: value for key, value in map(_item, metrics.items()) if _is_number(value)},
        "feedback": "\n".join(f"{key}: {value}" for key, value in metrics.items() if isinstance(value, str)),
        "artifacts": {str(key): _text(value) for key, value in artifacts.items()},
    }


def _load(path: str) -> ModuleType:
    sys.path.insert(0, os.path.dirname(path))
    if importlib.util.find_spec("openevolve") is None:
        sys.path.append(_STANDINS)
        os.environ["PYTHONPATH"] = _STANDINS  # evaluators start interpreters of their own
    return load_file(path, "evaluator")


def _cascade(
    module: ModuleType, program: str, thresholds: list[float], features: list[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Stage after stage while the last score reaches its threshold; later stages win, a failing one ends it."""
    metrics, artifacts = _normal(module.evaluate_stage1(program))
    latest = metrics
    for index, threshold in enumerate(thresholds):
        stage = getattr(module, f"evaluate_stage{index + 2}", None)
        score = fitness(latest, features)
        if stage is None or not _is_number(score) or not score >= threshold:
            break
        try:
            latest, more = _normal(stage(program))
        except Exception as error:  # noqa: BLE001 - a failing later stage leaves its trace and what stands so far
            artifacts = {**artifacts, f"stage{index + 2}_traceback": last_lines(error)}
            break
        metrics = {**metrics, **{key: value for key, value in latest.items() if key != "error"}}
        artifacts = {**artifacts, **more}
    return metrics, artifacts


def _normal(result: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Any of the accepted results as (metrics, artifacts)."""
    if inspect.isawaitable(result):
        result = asyncio.run(_wait(result))
    if isinstance(result, dict):
        metrics = dict(result)
        artifacts = metrics.pop("artifacts", None)
        return metrics, artifacts if isinstance(artifacts, dict) else {}
    if hasattr(result, "metrics") and isinstance(result.metrics, dict):
        return dict(result.metrics), dict(getattr(result, "artifacts", None) or {})
    return {"combined_score": result}, {}


async def _wait(result: Any) -> Any:
    return await result


def fitness(metrics: dict[str, Any], features: list[str]) -> Any:
    """`combined_score` if there is one, else the mean of the numbers that are not feature dimensions, else None."""
    if "combined_score" in metrics:
        return number(metrics["combined_score"])
    plain = [value for key, value in map(_item, metrics.items()) if key not in features and _is_number(value)]
    kept = [value for value in plain if not math.isnan(value)]
    return sum(kept) / len(kept) if kept else None


def _item(pair: tuple[Any, Any]) -> tuple[str, Any]:
    return str(pair[0]), number(pair[1])


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text(value: Any) -> str:
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return text[:_MAX_ARTIFACT].encode("utf-8", "replace").decode()
