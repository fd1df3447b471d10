"""Trackers by what is written behind --track."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence

from culmen.core.errors import UserError
from culmen.observe.trackers.points import Tracker
from culmen.observe.trackers.tracking import Tracking


def _tensorboard(place: str) -> Tracker:
    from culmen.observe.trackers.tensorboard import TensorBoard

    return TensorBoard(place or "runs/tensorboard")


def _mlflow(place: str) -> Tracker:
    from culmen.observe.trackers.mlflow import MLflow

    return MLflow(place)


def _wandb(place: str) -> Tracker:
    from culmen.observe.trackers.wandb import WeightsAndBiases

    return WeightsAndBiases(place or "culmen")


def _otel(place: str) -> Tracker:
    from culmen.observe.trackers.otel import OpenTelemetry

    return OpenTelemetry(place)


_MAKERS: dict[str, tuple[str, Callable[[str], Tracker]]] = {
    "tensorboard": ("tensorboardX", _tensorboard),
    "mlflow": ("mlflow", _mlflow),
    "wandb": ("wandb", _wandb),
    "otel": ("opentelemetry.exporter.otlp.proto.http", _otel),
}
NAMES = tuple(_MAKERS)


def trackers(wanted: Sequence[str]) -> tuple[Tracking, ...]:
    """Observers for `NAME` or `NAME:PLACE`; raises `UserError` for a name nobody knows or a package that is missing."""
    return tuple(_one(each) for each in dict.fromkeys(wanted))


def _one(text: str) -> Tracking:
    name, _, place = text.partition(":")
    if name not in _MAKERS:
        raise UserError(f"there is no tracker '{name}'", where=f"--track {text}", fix=f"use one of {', '.join(NAMES)}")
    package, make = _MAKERS[name]
    if not _installed(package):
        fix = f"pip install 'culmen[{name}]'"
        raise UserError(f"{name} needs the package {package}", where=f"--track {text}", fix=fix)
    return Tracking(name, make(place))


def _installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        return False
