"""Keywords of the Python API as a run's options and the objects that perform it.

options, objects = read({"model": "gpt-5", "observers": (mine,)}, RunOptions(), CreateKeywords)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, TypedDict, TypeVar, cast

import msgspec

from culmen.core.errors import UserError
from culmen.core.options import BackendChoice, RunOptions
from culmen.core.ports import (
    Backend,
    Craft,
    Embedder,
    MinimalBackend,
    MinimalEmbedder,
    MinimalObserver,
    MinimalProposer,
    MinimalStrategy,
    MinimalWorld,
    Observer,
    Proposer,
    World,
    complete,
)
from culmen.core.usage import Budget
from culmen.evaluate.cluster import choice
from culmen.evaluate.integrity import guard

Options = TypeVar("Options", bound=RunOptions)


class RunObjects(msgspec.Struct, frozen=True):
    """What performs a run's effects, where that is an object of the caller's own; the rest is made from the options.

    `model` is a model, a gateway, or models by role; `evaluator` the function that scores; `crafts` make performers of
    custom effects (`culmen.core.ports.Craft`) by family. A journal keeps none of these: a resumed run gets them again.
    """

    strategy: MinimalStrategy | None = None
    evaluator: Callable[..., object] | None = None
    model: object | None = None
    proposer: Proposer | None = None
    backend: Backend | None = None
    embedder: Embedder | None = None
    world: World | None = None
    crafts: Mapping[str, Callable[[], Craft]] = {}
    observers: tuple[Observer, ...] = ()


class _SessionKeywords(TypedDict, total=False):
    """What one session of a run may bring, also a resumed one."""

    model: object
    models_file: str | None
    proposer: MinimalProposer | None
    backend: MinimalBackend | BackendChoice | Mapping[str, Any] | str | None
    embedder: MinimalEmbedder | str | None
    world: MinimalWorld | None
    crafts: Mapping[str, Callable[[], Craft]]
    require: str | None
    observers: Sequence[MinimalObserver]


class ResumeKeywords(_SessionKeywords, total=False):
    """Keywords of `Study.resume`: those that may differ between the sessions of a run."""

    evaluator: Callable[..., object] | None
    strategy: MinimalStrategy | None


class RunKeywords(_SessionKeywords, total=False):
    """Keywords of `culmen.optimize`. Options: `culmen.core.options.RunOptions`; objects: `RunObjects`. `model`,
    `backend` and `embedder` are either a name or an object, `templates` a folder or texts by name."""

    budget: Budget
    random_seed: int
    workers: int | None
    integrity: str | None
    stop_at: float | str | None
    fork_of: str | None
    allow_failing: bool
    templates: Mapping[str, str] | str | PathLike[str] | None


class CreateKeywords(RunKeywords, total=False):
    """Keywords of `Study.create`."""

    evaluator: Callable[..., object] | None


class ForkKeywords(CreateKeywords, total=False):
    """Keywords of `Study.fork`."""

    strategy: MinimalStrategy | str | None


_FIELDS = {"random_seed": "seed"}  # keywords that are called otherwise as options


def read(keywords: Mapping[str, Any], base: Options, kind: type) -> tuple[Options, RunObjects]:
    """`base` with the options among the keywords, and the objects among them. A None stands for the default.

    Raises `UserError` for a keyword that the TypedDict `kind` does not have, and for what cannot be meant.
    """
    allowed = kind.__optional_keys__
    for name in keywords:
        if name not in allowed:
            raise UserError(
                f"there is no keyword '{name}' here", where=f"{name}=", fix=f"use one of {', '.join(sorted(allowed))}"
            )
    options, objects = dict[str, Any](), dict[str, Any]()
    for name, value in keywords.items():
        if name in _SPLIT:
            option, thing = _SPLIT[name](value)
            options[name], objects[name] = option, thing
        elif name in _COMPLETED:
            objects[name] = None if value is None else complete(_COMPLETED[name], value)
        elif name in RunObjects.__struct_fields__:
            objects[name] = value
        elif name == "templates":
            options[name] = _templates(value)
        else:
            options[_FIELDS.get(name, name)] = value
    if "observers" in objects:
        objects["observers"] = tuple(complete(Observer, each) for each in objects["observers"])
    return changed(base, **options), RunObjects(**objects)


def changed(options: Options, **given: Any) -> Options:
    """The options with others in their place; None stands for the default."""
    defaults = RunOptions()
    values = {name: getattr(defaults, name) if value is None else value for name, value in given.items()}
    if "integrity" in values:
        values["integrity"] = guard.parse_policy(values["integrity"])
    return msgspec.structs.replace(options, **values)


def _model(value: object) -> tuple[str | dict[str, str] | None, object | None]:
    """A model's name or names by role for the journal, and what is to be asked if that is no name."""
    if value is None or isinstance(value, str):
        return value, None
    if isinstance(value, Mapping):
        roles = cast("Mapping[str, object]", value)
        named = {role: model if isinstance(model, str) else _class(model) for role, model in roles.items()}
        return named, None if named == dict(roles) else roles
    return _class(value), value


def _class(thing: object) -> str:
    return f"{type(thing).__module__}:{type(thing).__qualname__}"


def _backend(value: object) -> tuple[BackendChoice | None, Backend | None]:
    if value is None or isinstance(value, str | Mapping | BackendChoice):
        return None if value is None else choice.as_choice(value), None
    return None, complete(Backend, value)


def _embedder(value: object) -> tuple[str | None, Embedder | None]:
    if value is None or isinstance(value, str):
        return value, None
    embedder = complete(Embedder, value)
    return embedder.name, embedder


def _templates(value: Mapping[str, str] | str | PathLike[str] | None) -> dict[str, str]:
    """Texts by name, or those of a folder."""
    from culmen.prompts.template import read_folder

    return dict(value) if isinstance(value, Mapping) else {} if value is None else read_folder(Path(value))


_SPLIT: dict[str, Callable[[Any], tuple[Any, Any]]] = {"model": _model, "backend": _backend, "embedder": _embedder}
_COMPLETED: dict[str, type] = {"proposer": Proposer, "world": World}
