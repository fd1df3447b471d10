"""The backend of a run's evaluations: this machine, or machines of an extension.

Kinds are loaded on first use.
"""

from __future__ import annotations

import importlib.util
import math
import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

import msgspec

from culmen.core.errors import UserError
from culmen.core.extensions import find_part, part_addresses
from culmen.core.json import JsonObject
from culmen.core.options import BackendChoice, Needs

if TYPE_CHECKING:
    from collections.abc import Callable

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
    if choice.name == LOCAL:
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
    return _backend_kind(choice.name).make_backend(
        choice, task, workers, require, scoring, on_message
    )


class BackendKind(Protocol):
    """Machines of one kind for evaluations (slot `backends`), named by `--backend`."""

    package: str
    """The module that it needs beside culmen; "" for none."""
    extra: str
    """What pip installs for it, as on pip's command line."""
    workers: int | None
    """Evaluations at once by default: 0 for as many as it has room for, None for one a core."""
    has_address: bool
    """True if `--ray-address` (a cluster's address) has a meaning."""

    def make_backend(
        self,
        choice: BackendChoice,
        task: Task,
        workers: int,
        require: str | None,
        scoring: Scoring | None,
        on_message: Callable[[str], None] | None,
    ) -> Backend:
        """The backend, not yet started; arguments as for `make_backend`."""
        ...


def _backend_kind(name: str) -> BackendKind:
    kind: BackendKind | None = find_part("backends", name)
    if kind is None:
        raise UserError(
            f"there is no backend '{name}'",
            where="--backend",
            fix=f"use one of {', '.join(backend_names())}",
        )
    return kind


def backend_names() -> tuple[str, ...]:
    """All values of `--backend`."""
    return (LOCAL, *part_addresses("backends"))


# The backend and the resources of an evaluation: read from the command line, kept with the run.

LOCAL = "local"
_UNITS = {
    "": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
}
_TEXTS = ("partition", "account", "qos", "constraint", "cluster", "folder")
_NUMBERS = ("wait", "rest", "retries", "jobs", "slots", "minutes")


def parse_backend_choice(
    name: str | None,
    address: str | None,
    settings: str | None,
    defaults: Mapping[str, object],
    old: BackendChoice | None = None,
) -> BackendChoice | None:
    """The command line's choice, else the run's, else the task's [resources], else None.

    Raises `UserError` for invalid values.
    """
    if name is None and address is None and settings is None and old is None and not defaults:
        return None
    pairs = _parse_pairs(settings)
    first = old or _with_settings(
        BackendChoice(), _flatten_resources(defaults), "task.toml [resources]"
    )
    choice = (
        first if name is None or name == first.name else msgspec.structs.replace(first, name=name)
    )
    if name is None and address is not None and choice.name == "local":
        choice = msgspec.structs.replace(choice, name="ray")
    if address is not None:
        choice = msgspec.structs.replace(choice, address=address)
    choice = _with_settings(choice, pairs, "--backend-set")
    _validate_choice(choice)
    return None if choice == BackendChoice() and old is None else choice


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

    One per core of this machine, up to 8; 0 for a kind whose capacity is found at the first start.
    """
    name = backend.name if isinstance(backend, BackendChoice) else LOCAL
    usual = None if name == LOCAL else _backend_kind(name).workers
    return min(8, os.cpu_count() or 1) if usual is None else usual


def require_backend_extra(choice: BackendChoice) -> None:
    """Raise `UserError` if the backend's extra is not installed."""
    _validate_choice(choice)
    package = "" if choice.name == LOCAL else _backend_kind(choice.name).package
    if package and importlib.util.find_spec(package) is None:
        raise UserError(
            f"the backend {choice.name} needs the package {package}, which is not installed",
            where=f"--backend {choice.name}",
            fix=f"pip install {_backend_kind(choice.name).extra}",
        )


def _validate_choice(choice: BackendChoice) -> None:
    has_address = choice.name != LOCAL and _backend_kind(choice.name).has_address
    if not has_address and choice.address != "auto":
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


def _flatten_resources(table: Mapping[str, object]) -> dict[str, str]:
    """A [resources] table in the notation of the command line."""
    flat = {name: str(value) for name, value in table.items() if not isinstance(value, Mapping)}
    custom = table.get("custom")
    items = custom.items() if isinstance(custom, Mapping) else ()
    return flat | {f"custom.{name}": str(value) for name, value in items}


def _with_settings(choice: BackendChoice, pairs: Mapping[str, str], where: str) -> BackendChoice:
    needs, fields, texts = (
        msgspec.structs.asdict(choice.needs),
        JsonObject(),
        dict(choice.texts),
    )
    needs["custom"] = dict(needs["custom"])
    for name, value in pairs.items():
        if name in ("cpu", "gpu"):
            needs[name] = _parse_setting_number(name, value, where)
        elif name == "memory":
            needs[name] = _parse_bytes(value, where)
        elif name.startswith("custom."):
            needs["custom"][name.removeprefix("custom.")] = _parse_setting_number(
                name, value, where
            )
        elif name in _NUMBERS:
            number = _parse_setting_number(name, value, where)
            fields[name] = number if name in ("wait", "rest") else int(number)
        elif name in _TEXTS:
            texts[name] = value
        else:
            known = ", ".join(("cpu", "gpu", "memory", "custom.NAME", *_NUMBERS, *_TEXTS))
            raise UserError(
                f"there is no backend setting '{name}'", where=where, fix=f"use {known}"
            )
    return msgspec.structs.replace(choice, needs=Needs(**needs), texts=texts, **fields)


def _parse_setting_number(name: str, value: str, where: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise UserError(
            f"{name} = '{value}' is not a number from 0 upwards", where=where, fix=f"write {name}=1"
        )
    return number


def _parse_bytes(value: str, where: str) -> int:
    match = re.fullmatch(r"([\d.]+)\s*([a-zA-Z]*)", value)
    unit = match[2].lower() if match else "?"
    if match is None or unit not in _UNITS:
        raise UserError(f"memory = '{value}' is not a size", where=where, fix="write memory=2GB")
    return int(_parse_setting_number("memory", match[1], where) * _UNITS[unit])
