"""Backends for evaluations: this machine, a Ray cluster, Slurm jobs; loaded on first use."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from culmen.core.errors import UserError
from culmen.core.json import JsonObject
from culmen.core.options import BackendChoice, parse_amount

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


# The backend and the resources of an evaluation: read from the command line, kept with the run.

NAMES = ("local", "ray", "slurm")
_PACKAGES = {"ray": "ray", "slurm": "submitit"}
_TEXTS = ("partition", "account", "qos", "constraint", "cluster", "folder")
_NUMBERS = ("wait", "rest", "retries", "jobs", "slots", "minutes")


def parse_backend_choice(
    name: str | None,
    address: str | None,
    settings: str | None,
    usual: BackendChoice | None = None,
) -> BackendChoice | None:
    """The usual choice with the changes that the command line makes; None for no choice at all.

    Raises `UserError` for invalid values.
    """
    first = usual or BackendChoice()
    choice = (
        first if name is None or name == first.name else msgspec.structs.replace(first, name=name)
    )
    if name is None and address is not None and choice.name == "local":
        choice = msgspec.structs.replace(choice, name="ray")
    if address is not None:
        choice = msgspec.structs.replace(choice, address=address)
    choice = _with_settings(choice, _parse_pairs(settings))
    _validate_choice(choice)
    return None if choice == BackendChoice() and usual is None else choice


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


def _parse_pairs(settings: str | None) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for piece in filter(None, (settings or "").split(",")):
        name, equals, value = piece.partition("=")
        if not equals or not name.strip() or not value.strip():
            fix = "write --backend-set cpu=1,gpu=0,memory=2GB,custom.NAME=1"
            raise UserError(f"cannot read '{piece}'", where="--backend-set", fix=fix)
        pairs[name.strip()] = value.strip()
    return pairs


def _with_settings(choice: BackendChoice, pairs: Mapping[str, str]) -> BackendChoice:
    needs, fields, texts, where = choice.needs, JsonObject(), dict(choice.texts), "--backend-set"
    for name, value in pairs.items():
        if name in ("cpu", "gpu", "memory") or name.startswith("custom."):
            needs = needs.with_amount(name, value, where)
        elif name in _NUMBERS:
            number = parse_amount(name, value, where)
            fields[name] = number if name in ("wait", "rest") else int(number)
        elif name in _TEXTS:
            texts[name] = value
        else:
            known = ", ".join(("cpu", "gpu", "memory", "custom.NAME", *_NUMBERS, *_TEXTS))
            raise UserError(
                f"there is no backend setting '{name}'", where=where, fix=f"use {known}"
            )
    return msgspec.structs.replace(choice, needs=needs, texts=texts, **fields)
