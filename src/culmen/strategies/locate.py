"""Finds classes and functions by a text of a journal or a command line: `module:Name` or `path/file.py:Name`."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from culmen.core.errors import UserError

_PREFIX = "culmen_user_"

_PLUS = "PacevolvePlusPlus"
MOVED = {
    "culmen.strategies.pacevolve:Pacevolve": "culmen.strategies.pacevolve.pacevolve:Pacevolve",
    "culmen.strategies.puct:Puct": "culmen.strategies.puct:PuctSearch",
    f"culmen.strategies.pacevolve_plus_plus:{_PLUS}": f"culmen.strategies.pacevolve.plus_plus:{_PLUS}",
    "culmen.strategies.parts.adaptive_width": "culmen.strategies.width",
    "culmen.strategies.parts.advice": "culmen.strategies.pacevolve.advisor",
    "culmen.strategies.parts.engines": "culmen.strategies.pacevolve.policy",
    "culmen.strategies.parts.implementing": "culmen.strategies.pacevolve.implementing",
    "culmen.strategies.parts.priorities": "culmen.memory.priorities",
    "culmen.memory.selection": "culmen.memory.priorities",
    "culmen.strategies.parts.requery": "culmen.strategies.width",
    "culmen.strategies.parts.research": "culmen.strategies.pacevolve.island",
    "culmen.strategies.parts.seed_pool": "culmen.strategies.seed_pool",
    "culmen.strategies.parts.starts": "culmen.strategies.pacevolve.starts",
    "culmen.strategies.parts.summarizer": "culmen.strategies.summarizer",
    "culmen.strategies.parts.upkeep": "culmen.strategies.pacevolve.advisor",
    "culmen.strategies.parts.validation": "culmen.strategies.polca",
}
"""Present places of classes that journals of earlier versions name: by `module:Name`, or by the module alone."""


def path_of(thing: Any) -> str:
    """The path of a class or function; a file's absolute path if it cannot be imported by name."""
    module = sys.modules[thing.__module__]
    file = getattr(module, "__file__", None)
    if file and (module.__name__ == "__main__" or module.__name__.startswith(_PREFIX)):
        return f"{Path(file).resolve()}:{thing.__qualname__}"
    return f"{module.__name__}:{thing.__qualname__}"


def find(path: str) -> Any:
    """The class or function at `module:Name` or `file.py:Name`; UserError if there is none."""
    place, _, name = current(path).rpartition(":")
    if not place or not name:
        raise UserError(f"'{path}' names no class", fix="write module:Class or path/to/file.py:Class")
    thing: Any = _file(Path(place)) if place.endswith(".py") else _module(place)
    for part in name.split("."):
        thing = getattr(thing, part, None)
    if thing is None:
        raise UserError(f"there is no '{name}' in {place}", where=path, fix="check the spelling of the name")
    return thing


def current(path: str) -> str:
    """The path as this version of culmen writes it: classes that moved are found under their new place."""
    place, _, name = path.rpartition(":")
    return MOVED.get(path) or (f"{MOVED[place]}:{name}" if place in MOVED else path)


def _module(name: str) -> ModuleType:
    here = os.getcwd()
    if here not in sys.path:
        sys.path.append(here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(error.name + ".")):
            raise
        raise UserError(f"there is no module '{name}'", fix="start from its folder, or give path/to/file.py") from error


def _file(path: Path) -> ModuleType:
    path = path.expanduser().resolve()
    main = sys.modules.get("__main__")
    if main is not None and getattr(main, "__file__", None) and Path(str(main.__file__)).resolve() == path:
        return main
    name = _PREFIX + hashlib.sha256(str(path).encode()).hexdigest()[:12]
    if name in sys.modules:
        return sys.modules[name]
    if not path.is_file():
        raise UserError(f"there is no file {path}", fix="check the path")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None  # a .py file always has a loader
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
