"""The backend of a run's evaluations: this machine, or machines of an extension.

Kinds are loaded on first use.
"""

from __future__ import annotations

import importlib.util
import os
from typing import TYPE_CHECKING, Protocol

import msgspec

from culmen.core.answers import settle_answer
from culmen.core.candidate import Candidate
from culmen.core.errors import UserError
from culmen.core.evaluation import Case, Observation
from culmen.core.extensions import find_part, import_part, part_addresses
from culmen.core.json import JsonObject
from culmen.core.options import BackendChoice, parse_amount
from culmen.core.ports import Backend, with_protocol_defaults
from culmen.core.task import Task
from culmen.jail.forms import find_form

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from culmen.core.evaluation import Scoring
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
    form = find_form(task.evaluator.form)
    if form is not None and form.backend:
        return _own_backend(form.backend, choice, task, workers, require, level)
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


def _own_backend(
    address: str,
    choice: BackendChoice,
    task: Task,
    workers: int,
    require: str | None,
    level: str | None,
) -> Backend:
    """The backend that an evaluator's form brings: on this machine, at a level of its own."""
    form = task.evaluator.form
    for option, value, usual in (("backend", choice.name, LOCAL), ("isolation", level, None)):
        if value != usual:
            raise UserError(
                f"evaluations of the form {form} have a place and a level of their own",
                where=f"--{option} {value}",
                fix=f"leave out --{option}",
            )
    return with_protocol_defaults(Backend, import_part(address)(task, workers, require))


class BackendKind(Protocol):
    """Machines of one kind for evaluations (slot `backends`), named by `--backend`."""

    package: str
    """The module that it needs beside culmen; "" for none."""
    extra: str
    """What pip installs for it, as on pip's command line."""
    workers: int | None
    """Evaluations at once by default: 0 for as many as it has room for, None for one a core."""
    has_address: bool
    """True if an address (`--backend NAME:ADDRESS`, `--set backend.address`) has a meaning."""

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


# The choice of a backend.

LOCAL = "local"
_BACKEND_TEXTS = ("partition", "account", "qos", "constraint", "cluster", "folder")
_BACKEND_NUMBERS = ("wait", "rest", "retries", "jobs", "slots", "minutes")


def changed_choice(
    usual: BackendChoice | None, name: str | None, address: str | None, settings: str | None
) -> BackendChoice | None:
    """The usual backend, the old run's or the task's, with the changes of the command line.

    `settings` are those of `--set backend.NAME=N`. None for this machine without a word of it.
    Raises `UserError` for illegal values.
    """
    if name is None and address is None and settings is None:
        return usual
    choice = usual or BackendChoice()
    if name is not None or (address is not None and choice.name == LOCAL):
        choice = parse_backend(name or "ray", choice)
    if address is not None:
        choice = msgspec.structs.replace(choice, address=address)
    choice = _with_backend_settings(choice, _parse_backend_pairs(settings))
    return None if choice == BackendChoice() and usual is None else choice


def _parse_backend_pairs(settings: str | None) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for piece in filter(None, (settings or "").split(",")):
        name, equals, value = piece.partition("=")
        if not equals or not name.strip() or not value.strip():
            fix = "write --set backend.memory=2GB; culmen help settings lists them"
            raise UserError(f"cannot read '{piece}'", where="--set backend", fix=fix)
        pairs[name.strip()] = value.strip()
    return pairs


def _with_backend_settings(choice: BackendChoice, pairs: Mapping[str, str]) -> BackendChoice:
    amounts, custom, fields = JsonObject(), dict(choice.needs.custom), JsonObject()
    texts, where = dict(choice.texts), "--set backend"
    for name, value in pairs.items():
        if name in ("cpu", "gpu", "memory"):
            amounts[name] = parse_amount(name, value, where)
        elif name.startswith("custom."):
            custom[name.removeprefix("custom.")] = parse_amount(name, value, where)
        elif name in _BACKEND_NUMBERS:
            number = parse_amount(name, value, where)
            fields[name] = number if name in ("wait", "rest") else int(number)
        elif name in _BACKEND_TEXTS:
            texts[name] = value
        else:
            known = ("cpu", "gpu", "memory", "custom.NAME", *_BACKEND_NUMBERS, *_BACKEND_TEXTS)
            raise UserError(
                f"there is no backend setting '{name}'",
                where=where,
                fix=f"use {', '.join(known)}",
            )
    needs = msgspec.structs.replace(choice.needs, custom=custom, **amounts)
    return msgspec.structs.replace(choice, needs=needs, texts=texts, **fields)


def as_choice(value: object) -> BackendChoice:
    """A choice from an argument of `Study` or from a journal: a name, mapping, choice or None."""
    if isinstance(value, BackendChoice):
        return value
    choice = (
        parse_backend(value)
        if isinstance(value, str)
        else msgspec.convert(value or {}, BackendChoice)
    )
    _validate_choice(choice)
    return choice


def parse_backend(text: str, choice: BackendChoice | None = None) -> BackendChoice:
    """A choice, or another one, with the backend `NAME` or `NAME:ADDRESS`."""
    name, _, address = text.partition(":")
    choice = choice or BackendChoice()
    if name != choice.name:
        choice = msgspec.structs.replace(choice, name=name, address="auto")
    return msgspec.structs.replace(choice, address=address) if address else choice


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
    kind = None if choice.name == LOCAL else _backend_kind(choice.name)
    if (kind is None or not kind.has_address) and choice.address != "auto":
        raise UserError(
            f"the backend {choice.name} has no address",
            where="--set backend.address",
            fix="add --backend ray, or leave it out",
        )


# Answers that report their own failure, read outside of a run as in one.


class SettlingBackend(Backend):
    """A backend whose answers are failures if they report one (`core.answers`)."""

    def __init__(self, backend: Backend, task: Task) -> None:
        self._backend, self._objective = backend, task.objective
        self._lowest: float | None = None  # reward of an answer that does not say so

    async def evaluate(self, candidate: Candidate, case: Case | None, seed: int) -> Observation:
        """The observation, as a failure if its answer reports one."""
        seen = await self._backend.evaluate(candidate, case, seed)
        if seen.score is not None and seen.refusal is None:
            reward = self._objective.reward(seen.score)
            self._lowest = reward if self._lowest is None else min(reward, self._lowest)
        return settle_answer(candidate, seen, self._objective, self._lowest)

    async def start(self) -> str:
        """As the backend itself."""
        return await self._backend.start()

    async def close(self) -> None:
        """As the backend itself."""
        await self._backend.close()

    async def vary_processes(self, hash_seed: int) -> tuple[str, ...]:
        """As the backend itself."""
        return await self._backend.vary_processes(hash_seed)
