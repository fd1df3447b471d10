"""Backends for evaluations: this machine, a Ray cluster, Slurm jobs; loaded on first use."""

from __future__ import annotations

import importlib.util
import os
from typing import TYPE_CHECKING

import msgspec

from culmen.core.errors import UserError
from culmen.core.options import BackendChoice

if TYPE_CHECKING:
    from collections.abc import Callable

    from culmen.cluster.remote import Carrier
    from culmen.core.evaluation import Scoring
    from culmen.core.ports import Backend
    from culmen.core.task import Task


def make_backend(
    choice: BackendChoice,
    task: Task,
    workers: int,
    require: str | None = None,
    scoring: Scoring | None = None,
    on_message: Callable[[str], None] | None = None,
    *,
    level: str | None = None,
) -> Backend:
    """The backend that a run requests, with its usual number of `workers` for 0.

    A callback gets messages while it waits for nodes. Raises `UserError` if its extra is not
    installed or it cannot run this task.
    """

    require_backend_extra(choice)
    workers = workers or usual_workers(choice)
    if choice.name == "local":
        from culmen.evaluate.local import LocalBackend

        return LocalBackend(task, workers, require, level=level, scoring=scoring)
    if level is not None:
        raise UserError(
            "only evaluations on this machine take a level",
            where=f"--isolation {level}",
            fix="leave it out, or use --require",
        )
    if task.evaluator.form == "function":
        raise UserError(
            "a Python function of your own process cannot run elsewhere",
            where=f"--backend {choice.name}",
            fix="write the evaluator as a task folder: culmen new DIR",
        )
    from culmen.cluster.remote import RemoteBackend

    return RemoteBackend(
        task, workers, _make_carrier(choice, workers, on_message), require, scoring=scoring
    )


def _make_carrier(
    choice: BackendChoice, workers: int, on_message: Callable[[str], None] | None
) -> Carrier:
    if choice.name == "ray":
        from culmen.cluster.ray import RayCarrier

        return RayCarrier(choice, on_message)
    from culmen.cluster.slurm import SlurmCarrier

    return SlurmCarrier(choice, workers, on_message)


# The choice of a backend.

NAMES = ("local", "ray", "slurm")
_PACKAGES = {"ray": "ray", "slurm": "submitit"}


def as_choice(value: object) -> BackendChoice:
    """A choice from an argument of `Study` or from a journal: a name, mapping, choice or None."""
    if isinstance(value, BackendChoice):
        return value
    choice = (
        BackendChoice(name=value)
        if isinstance(value, str)
        else msgspec.convert(value or {}, BackendChoice)
    )
    _validate_choice(choice)
    return choice


def usual_workers(backend: object) -> int:
    """Default number of evaluations at once.

    One per core of this machine, up to 8. On Ray 0: the cluster's capacity at the run's first
    start.
    """
    return (
        0
        if isinstance(backend, BackendChoice) and backend.name == "ray"
        else min(8, os.cpu_count() or 1)
    )


def require_backend_extra(choice: BackendChoice) -> None:
    """Raise `UserError` if the backend's extra is not installed."""
    _validate_choice(choice)
    package = _PACKAGES.get(choice.name)
    if package is not None and importlib.util.find_spec(package) is None:
        raise UserError(
            f"the backend {choice.name} needs the package {package}, which is not installed",
            where=f"--backend {choice.name}",
            fix=f"pip install 'culmen[{choice.name}]'",
        )


def _validate_choice(choice: BackendChoice) -> None:
    if choice.name not in NAMES:
        raise UserError(
            f"there is no backend '{choice.name}'",
            where="--backend",
            fix=f"use one of {', '.join(NAMES)}",
        )
    if choice.name != "ray" and choice.address != "auto":
        raise UserError(
            "only Ray has an address",
            where="--ray-address",
            fix="add --backend ray, or leave it out",
        )
