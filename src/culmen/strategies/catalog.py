"""Strategies by name: built from settings, described for people, and written to and read from a journal.

A name is one of `CATALOG`, or `module:Class` or `path/to/file.py:Class` for a strategy of your own.
"""

from __future__ import annotations

import dataclasses
import difflib
import inspect
from collections.abc import Iterable, Mapping
from typing import Any, cast

from culmen.core.errors import UserError
from culmen.core.ports import Strategy
from culmen.strategies.locate import find, path_of
from culmen.strategies.parse import legal, setting, snake
from culmen.strategies.parts.settings import hints

CATALOG: dict[str, str] = {
    "polca": "culmen.strategies.polca:Polca",
    "turboevolve": "culmen.strategies.turboevolve:TurboEvolve",
    "openevolve": "culmen.strategies.openevolve:OpenEvolve",
    "map_elites": "culmen.strategies.map_elites:MapElites",
    "cato": "culmen.strategies.cato:Cato",
    "gepa": "culmen.strategies.gepa:Gepa",
    "puct": "culmen.strategies.puct:Puct",
    "pacevolve": "culmen.strategies.pacevolve:Pacevolve",
    "pacevolve_plus_plus": "culmen.strategies.pacevolve_plus_plus:PacevolvePlusPlus",
    "beam": "culmen.strategies.beam:Beam",
    "sequential": "culmen.strategies.sequential:Sequential",
    "best_of_n": "culmen.strategies.best_of_n:BestOfN",
    "ask_tell": "culmen.strategies.ask_tell:AskTell",
}


def load(name: str) -> Any:
    """The class of a strategy by catalog name (case, - and _ do not matter) or path; UserError if there is none."""
    if ":" in name:
        return find(name)
    plain = name.strip().lower().replace("-", "_")
    if plain not in CATALOG:
        raise UserError(
            f"there is no strategy '{name}'{_meant(plain, CATALOG)}",
            where="--strategy",
            fix=f"use one of {', '.join(CATALOG)}, or module:Class, or path/to/file.py:Class",
        )
    return find(CATALOG[plain])


def make(name: str, settings: Mapping[str, str] | None = None) -> Strategy:
    """A strategy with settings given as texts; the rest are its defaults. UserError names what is wrong."""
    cls, where = load(name), f"strategy {name}"
    fields = hints(cls) if _structured(cls) else {}
    values: dict[str, Any] = {}
    for key, text in (settings or {}).items():
        field = key.strip().replace("-", "_")
        if field not in fields:
            raise UserError(
                f"'{name}' has no setting '{key}'{_meant(field, fields)}",
                where=where,
                fix=f"its settings are {', '.join(fields) or 'none'}; culmen strategies {name} explains them",
            )
        values[field] = setting(cls, field, text, where)
    return cls(**values)


def describe(name: str) -> dict[str, Any]:
    """A strategy's page as plain data: name, path, title, paper, doc, fields [{name, type, default, doc}]."""
    cls = load(name)
    defaults = {field.name: field.default for field in dataclasses.fields(cls)} if _structured(cls) else {}
    return {
        "name": next((known for known, path in CATALOG.items() if path == path_of(cls)), name),
        "path": path_of(cls),
        "title": (inspect.getdoc(inspect.getmodule(cls)) or cls.__name__).partition("\n")[0],
        "paper": getattr(cls, "paper", ""),
        "doc": inspect.getdoc(cls) or "",
        "fields": [
            {"name": field, "type": legal(hint, about), "default": shown(defaults[field]), "doc": about.doc}
            for field, (hint, about) in (hints(cls) if defaults else {}).items()
        ],
    }


def shown(value: Any) -> str:
    """A value as it would be written in a setting."""
    if value is None or value is dataclasses.MISSING:
        return "none" if value is None else ""
    if _structured(value) and type(value).__str__ is object.__str__:
        inner = ", ".join(f"{f.name}={shown(getattr(value, f.name))}" for f in dataclasses.fields(value))
        return snake(type(value).__name__) + (f"({inner})" if inner else "")
    return ", ".join(map(str, cast(Iterable[Any], value))) if isinstance(value, tuple) else str(value)


def config(strategy: Any) -> dict[str, Any]:
    """`{path, config}` for the journal: plain data from which `revive` makes an equal strategy.

    `config` is None for an object that is no dataclass and carries state: such a one has to be passed in again.
    """
    state: Any = _plain_fields(strategy) if _structured(strategy) else None
    if not _structured(strategy) and not getattr(strategy, "__dict__", {}):
        state = {}
    return {"path": path_of(type(strategy)), "config": state}


def ending_at(strategy: Any, level: float | None) -> tuple[Any, float | None]:
    """The strategy, and the score at which the engine is to end it. One that has things to put in order names, as
    `ends_at`, a setting of its own for that: it gets the score and ends by itself."""
    own = getattr(strategy, "ends_at", "")
    if level is None or not own:
        return strategy, level
    if getattr(strategy, own) not in (None, level):
        raise UserError(
            f"two scores to stop at: {own} is {getattr(strategy, own)}, and {level} was asked for",
            fix="give one of them",
        )
    return dataclasses.replace(strategy, **{own: level}), None


def revive(path: str, config: Mapping[str, Any] | None) -> Any:
    """The strategy that `config` described; UserError if its class is gone or has other fields now."""
    if config is None:
        raise UserError(
            "this run's strategy was an object of your own whose state culmen cannot write down",
            where=path,
            fix="make it a frozen dataclass, or resume from Python: Study.resume(run, strategy=...)",
        )
    cls = find(path)
    known = [field.name for field in dataclasses.fields(cls)] if _structured(cls) else []
    for name in config:
        if name not in known:
            raise UserError(
                f"the journal has a setting '{name}' that {path} does not have (any more)",
                where=path,
                fix="use the version of the code that made the run, or fork it",
            )
    return cls(**{name: _value(plain) for name, plain in config.items()})


def _structured(thing: Any) -> bool:
    """Whether this is a dataclass or an instance of one (as a plain bool, so that types are not narrowed)."""
    return dataclasses.is_dataclass(thing)


def _plain_fields(thing: Any) -> dict[str, Any]:
    return {field.name: _plain(getattr(thing, field.name), field.name) for field in dataclasses.fields(thing)}


def _plain(value: Any, name: str) -> Any:
    """JSON data for a setting: scalars as they are, sequences as lists, objects and functions by path."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_plain(item, name) for item in cast(Iterable[Any], value)]
    if isinstance(value, type) or inspect.isfunction(value):
        return {"import": path_of(value)}
    if _structured(value):
        return {"object": path_of(type(value)), "fields": _plain_fields(value)}
    raise UserError(
        f"setting '{name}' holds {type(value).__name__}, which cannot be written to the journal",
        fix="use numbers, texts, tuples, functions or frozen dataclasses",
    )


def _value(plain: Any) -> Any:
    if isinstance(plain, list | tuple):
        return tuple(_value(item) for item in cast(Iterable[Any], plain))
    if isinstance(plain, dict):
        data = cast(dict[str, Any], plain)
        return find(data["import"]) if "import" in data else revive(data["object"], data["fields"])
    return plain


def _meant(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean '{close[0]}'?" if close else ""
