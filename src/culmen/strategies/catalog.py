"""Strategies by name: built from text, described, written to and read from journals.

A name is one of `strategy_paths`, or `module:Class` or `path/to/file.py:Class` for a strategy of
your own.
"""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import importlib
import importlib.util
import inspect
import os
import re
import sys
import types
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar, Union, cast, get_args, get_origin

from culmen.core.errors import UserError
from culmen.core.extensions import part_addresses
from culmen.core.foreign import parse_python
from culmen.core.json import JsonObject
from culmen.core.options import RUN_SETTINGS
from culmen.core.ports import MinimalStrategy, Strategy, with_protocol_defaults
from culmen.strategies.memory.priorities import Quantile
from culmen.strategies.settings import About, field_hints

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

S = TypeVar("S", bound=MinimalStrategy)

_OWN: dict[str, str] = {
    "pedigree": "culmen.strategies.pedigree:PedigreeSearch",
    "polca": "culmen.strategies.polca:Polca",
    "turboevolve": "culmen.strategies.turboevolve:TurboEvolve",
    "pacevolve": "culmen.strategies.pacevolve.pacevolve:Pacevolve",
    "beam": "culmen.strategies.polca:Beam",
    "sequential": "culmen.strategies.polca:Sequential",
    "best_of_n": "culmen.strategies.best_of_n:BestOfN",
    "ask_tell": "culmen.strategies.ask_tell:AskTell",
}
WITH_AGENTS = "cato"  # the strategy if an agent is named and no strategy
OFFLINE, BUILTIN = "offline", "builtin"  # agents that are no programs


@cache
def strategy_paths() -> dict[str, str]:
    """The paths of all strategies by name: culmen's own, then those of extensions."""
    return {**_OWN, **part_addresses("strategies")}


@cache
def names_by_path() -> dict[str, str]:
    """The names of all strategies by path."""
    return {path: name for name, path in strategy_paths().items()}


def strategy_name(path: str) -> str:
    """The name of the strategy at a path; its class's for one of a person's own."""
    return names_by_path().get(path, path.rpartition(":")[2])


def strategy_class(name: str) -> type[MinimalStrategy]:
    """The class of a strategy by catalog name or path; UserError if there is none.

    Case, - and _ in catalog names do not matter.
    """
    if ":" in name:
        return find_by_path(name)
    plain = name.strip().lower().replace("-", "_")
    known = strategy_paths()
    if plain not in known:
        raise UserError(
            f"there is no strategy '{name}'{_spelling_hint(plain, known)}",
            where="--strategy",
            fix=f"use one of {', '.join(known)}, or module:Class, or path/to/file.py:Class",
        )
    return find_by_path(known[plain])


def make_strategy(name: str, settings: Mapping[str, str] | None = None) -> MinimalStrategy:
    """A strategy with settings given as texts, and defaults for the rest.

    `preset` is a name for several settings, listed in the class's `presets`; explicit settings take
    precedence. UserError names the setting that is unknown or not legal.
    """
    cls, where = strategy_class(name), f"strategy {name}"
    fields = field_hints(cls) if dataclasses.is_dataclass(cls) else {}
    values: JsonObject = {}
    for key, text in _expand_preset(cls, dict(settings or {}), where).items():
        field = key.strip().replace("-", "_")
        if field not in fields:
            raise UserError(
                f"'{name}' has no setting '{key}'{_spelling_hint(field, [*fields, *RUN_SETTINGS])}",
                where=where,
                fix=(
                    f"its settings are {', '.join(fields) or 'none'}; culmen strategies {name} "
                    "explains them, and culmen help settings those of any run"
                ),
            )
        values[field] = parse_setting(cls, field, text, where)
    return cls(**values)


def with_agent(
    name: str, agent: str | None, settings: dict[str, str], offline: bool
) -> dict[str, str]:
    """The settings with an agent, for strategies that have one.

    It is the agent named, else the offline one if the search asks no model (`offline`), else the
    built-in one. Raises `UserError` for an agent that cannot work here.
    """
    cls = with_protocol_defaults(Strategy, strategy_class(name))
    field = cls.agent_setting
    if not field:
        if agent is None:
            return settings
        if "agent" in getattr(strategy_class(name), "__dataclass_fields__", ()):
            return {**settings, "agent": agent}  # one of a person's own
        raise UserError(
            f"the strategy {strategy_name(name)} has no agent",
            where=f"--agent {agent}",
            fix=f"write --strategy {WITH_AGENTS}, or let the agent be one of several: "
            f"--strategy portfolio --set 'arms=pedigree, {WITH_AGENTS}(agent={agent})'",
        )
    if agent is not None and settings.get(field, agent) != agent:
        raise UserError(
            "two agents are named",
            where=f"--agent {agent} --set {field}={settings[field]}",
            fix="name one",
        )
    kind = agent or settings.get(field) or (OFFLINE if offline else BUILTIN)
    if kind == BUILTIN and offline:
        raise UserError(
            "the built-in agent needs a model",
            where=f"--agent {BUILTIN}",
            fix=f"choose one with --model NAME, or use --agent {OFFLINE}",
        )
    if kind not in (OFFLINE, BUILTIN):
        kind = cls.require_agent(kind)
    return {**settings, field: kind}


def check_agents(strategy: MinimalStrategy, offline: bool) -> None:
    """Refuse an arm whose agent is not installed, or has no model (`offline`) and needs one."""
    for part in with_protocol_defaults(Strategy, strategy).parts:
        whole = with_protocol_defaults(Strategy, part)
        kind = getattr(part, whole.agent_setting) if whole.agent_setting else OFFLINE
        if kind not in (OFFLINE, BUILTIN):
            whole.require_agent(kind)
        if kind == BUILTIN and offline:
            name = strategy_name(path_of(type(part)))
            raise UserError(
                "the built-in agent needs a model",
                where=f"arm {name}",
                fix=f"choose one with --model NAME, or write {name}(agent=offline) or the name of "
                "an agent's program",
            )


def strategy_object(strategy: Any) -> Any:
    """A strategy's class as an object of it, anything else unchanged.

    Raises `UserError` for a class that needs arguments and for objects that are not strategies.
    """
    if isinstance(strategy, type):
        try:
            strategy = strategy()
        except TypeError as error:
            fix = f"write {strategy.__name__}(...) with its settings"
            raise UserError(
                f"a strategy is an object, not a class: {error}", where="strategy=", fix=fix
            ) from None
    # else inherited, which does nothing
    search = getattr(strategy, "search", None)
    own = getattr(search, "__func__", search) is not MinimalStrategy.search
    if strategy is None or (own and callable(search)):
        return strategy
    what = f"a {type(strategy).__name__} is no strategy: it has no method search(lab)"
    raise UserError(
        what,
        where="strategy=",
        fix="pass a name such as 'polca', or an object such as culmen.strategies.polca.Polca()",
    )


def parse_strategy(text: str) -> tuple[str, dict[str, str]]:
    """Name and settings of a strategy written as `polca(epsilon=off, priority=ucb(beta=1))`.

    The name alone is legal, too. Raises `UserError` if the text has another form.
    """
    name, bracket, rest = text.strip().partition("(")
    assignments = [piece.partition("=") for piece in split_top_level(rest.removesuffix(")"))]
    unclosed = bool(bracket) and not rest.endswith(")")
    if (
        unclosed
        or not name.strip()
        or not all(key.strip() and sign for key, sign, _ in assignments)
    ):
        raise UserError(
            f"cannot read '{text}'",
            where="--strategies",
            fix="write NAME, or NAME(setting=value, setting=value)",
        )
    return name.strip(), {key.strip(): value.strip() for key, _, value in assignments}


def split_top_level(text: str) -> list[str]:
    """The parts of a text between top-level commas (outside brackets), without empty ones."""
    pieces, depth = [""], 0
    for letter in text:
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and depth == 0:
            pieces.append("")
        else:
            pieces[-1] += letter
    return [piece.strip() for piece in pieces if piece.strip()]


def _expand_preset(cls: type, settings: dict[str, str], where: str) -> dict[str, str]:
    presets: dict[str, dict[str, str]] = getattr(cls, "presets", {})
    if not presets or "preset" not in settings:
        return settings
    chosen = settings.pop("preset").strip().lower().replace("-", "_")
    if chosen not in presets:
        raise UserError(
            f"there is no preset '{chosen}'{_spelling_hint(chosen, presets)}",
            where=where,
            fix=f"one of {', '.join(presets)}",
        )
    return presets[chosen] | settings


def _title_of(cls: type) -> str:
    """The first line of a strategy's module, which is that of its first class; else of its own."""
    path = path_of(cls)
    module = path.partition(":")[0] + ":"
    first = next((known for known in names_by_path() if known.startswith(module)), path)
    text = inspect.getdoc(cls if path != first else inspect.getmodule(cls))
    return (text or cls.__name__).partition("\n")[0]


def describe_strategy(name: str) -> JsonObject:
    """A strategy's page as plain data.

    Keys: name, path, title, paper, doc, fields [{name, type, default, doc}].
    """
    cls = strategy_class(name)
    defaults = (
        {field.name: field.default for field in dataclasses.fields(cls)}
        if dataclasses.is_dataclass(cls)
        else {}
    )
    return {
        "name": names_by_path().get(path_of(cls), name),
        "path": path_of(cls),
        "title": _title_of(cls),
        "paper": with_protocol_defaults(Strategy, cls).paper,
        "doc": inspect.getdoc(cls) or "",
        "fields": [
            {
                "name": field,
                "type": legal_values(hint, about),
                "default": value_text(defaults[field]),
                "doc": about.doc,
            }
            for field, (hint, about) in (field_hints(cls) if defaults else {}).items()
        ],
    }


def value_text(value: object) -> str:
    """A value as it would be written in a setting."""
    if value is None or value is dataclasses.MISSING:
        return "none" if value is None else ""
    if _is_dataclass_instance(value) and type(value).__str__ is object.__str__:
        inner = ", ".join(
            f"{f.name}={value_text(getattr(value, f.name))}" for f in dataclasses.fields(value)
        )
        return snake_case(type(value).__name__) + (f"({inner})" if inner else "")
    return (
        ", ".join(map(str, cast(Iterable[object], value)))
        if isinstance(value, tuple)
        else str(value)
    )


def strategy_config(strategy: object) -> JsonObject:
    """`{path, config}` for the journal, from which `revive` makes an equal strategy.

    `config` is None for an object that is not a dataclass and carries state: such an object has to
    be passed in again.
    """
    state: JsonObject | None = None
    if _is_dataclass_instance(strategy):
        state = _plain_fields(strategy)
    elif not getattr(strategy, "__dict__", {}):
        state = {}
    return {"path": path_of(type(strategy)), "config": state}


def changed_settings(strategy: object) -> list[str]:
    """`NAME=VALUE` of each setting of a strategy that is not the default, as `--set` takes it."""
    changed: list[str] = []
    for field in describe_strategy(path_of(type(strategy)))["fields"]:
        value = value_text(getattr(strategy, field["name"]))
        if value != field["default"]:
            changed.append(f"{field['name']}={value}")
    return changed


def stored_settings(stored: Mapping[str, object]) -> list[str]:
    """The changed settings of a strategy as a journal has it; `stored` is `strategy_config`'s.

    Empty for code of a user's own, which is not imported, and for settings of another version.
    """
    path, config = str(stored.get("path", "")), stored.get("config")
    if path not in names_by_path() or not isinstance(config, Mapping):
        return []
    try:
        return changed_settings(revive_object(path, cast("Mapping[str, object]", config)))
    except UserError:
        return []


def ending_at(strategy: S, level: float | None) -> tuple[S, float | None]:
    """The strategy, and the score at which the engine ends it (None if it ends by itself).

    A strategy that must wrap up names one of its settings as `ends_at`: that setting gets the
    score. The engine ends a strategy that is not a dataclass, which has no settings to change.
    Raises `UserError` if the setting has a different score already.
    """
    own = with_protocol_defaults(Strategy, strategy).ends_at
    if level is None or not own:
        return strategy, level
    if not dataclasses.is_dataclass(strategy) or isinstance(strategy, type):
        return strategy, level
    if getattr(strategy, own) not in (None, level):
        raise UserError(
            f"two scores to stop at: {own} is {getattr(strategy, own)}, and {level} was asked for",
            fix="give one of them",
        )
    return dataclasses.replace(strategy, **{own: level}), None


def revive_object(path: str, config: Mapping[str, object] | None) -> Any:
    """The strategy that `config` described.

    Raises `UserError` if its class is gone or has other fields now.
    """
    if config is None:
        raise UserError(
            "the strategy object of this run cannot be serialised",
            where=path,
            fix=(
                "make it a frozen dataclass, or resume from Python: Study.resume(run, strategy=...)"
            ),
        )
    cls = find_by_path(path)
    known = [field.name for field in dataclasses.fields(cls)] if _is_dataclass_type(cls) else []
    for name in config:
        if name not in known:
            raise UserError(
                f"the journal has a setting '{name}' that {path} does not have (any more)",
                where=path,
                fix="use the version of the code that made the run, or fork it",
            )
    return cls(**{name: _revive_value(plain) for name, plain in config.items()})


def _is_dataclass_type(value: object) -> TypeGuard[type]:
    """True if this is a dataclass, not an instance of one."""
    return isinstance(value, type) and dataclasses.is_dataclass(value)


def _is_dataclass_instance(value: object) -> TypeGuard[DataclassInstance]:
    """True if this is an instance of a dataclass."""
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _plain_fields(instance: DataclassInstance) -> JsonObject:
    return {
        field.name: _plain_value(getattr(instance, field.name), field.name)
        for field in dataclasses.fields(instance)
    }


def _plain_value(value: object, name: str) -> object:
    """JSON data for a setting.

    Scalars are unchanged, sequences become lists, objects and functions their paths.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_plain_value(item, name) for item in cast(Iterable[object], value)]
    if isinstance(value, type) or inspect.isfunction(value):
        return {"import": path_of(value)}
    if _is_dataclass_instance(value):
        return {"object": path_of(type(value)), "fields": _plain_fields(value)}
    raise UserError(
        f"setting '{name}' holds {type(value).__name__}, which cannot be written to the journal",
        fix="use numbers, texts, tuples, functions or frozen dataclasses",
    )


def _revive_value(plain: object) -> object:
    if isinstance(plain, list | tuple):
        return tuple(_revive_value(item) for item in cast(Iterable[object], plain))
    if isinstance(plain, dict):
        data = cast(JsonObject, plain)
        return (
            find_by_path(data["import"])
            if "import" in data
            else revive_object(data["object"], data["fields"])
        )
    return plain


def _spelling_hint(name: str, known: Iterable[str]) -> str:
    import difflib

    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean '{close[0]}'?" if close else ""


_OFF = ("off", "none", "null")
_WORDS = {"true": True, "on": True, "yes": True, "false": False, "off": False, "no": False}


def parse_value(hint: object, about: About, text: str) -> object:
    """The value of a setting's text; ValueError names the legal values.

    For a field of a protocol type, `module:Class` names a class of your own, built without
    arguments.
    """
    text = text.strip()
    options = _type_options(hint, about)
    if type(None) in options and text.lower() in _OFF:
        return None
    for option in options:
        is_value, value = _try_parse(option, text)
        if is_value:
            return value
    if about.choices and ":" in text:
        return find_by_path(text)()
    raise ValueError(legal_values(hint, about))


def legal_values(hint: object, about: About) -> str:
    """The legal values in words."""
    words = [word for option in _type_options(hint, about) if (word := _option_text(option))]
    return " or ".join([*words, "module:Class"] if about.choices else words)


def snake_case(name: str) -> str:
    """`UcbSigma` as `ucb_sigma`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _type_options(hint: object, about: About) -> list[object]:
    """The alternatives of a hint: members of a union, or the classes an About lists."""
    flat = list(get_args(hint)) if get_origin(hint) in (Union, types.UnionType) else [hint]
    flat = [
        inner
        for option in flat
        for inner in (get_args(option) if get_origin(option) is Union else [option])
    ]
    return [*about.choices, *flat] if about.choices else flat


def _try_parse(option: object, text: str) -> tuple[bool, object]:
    """(True if the text is a value of this type, the value)."""
    if option is int or option is float:
        return _try_number(option, text)
    if option is bool:
        return text.lower() in _WORDS, _WORDS.get(text.lower())
    if option is str:
        return True, text
    if option is Quantile:
        value = Quantile.parse(text)
        return value is not None, value
    if get_origin(option) is tuple:
        return True, tuple(split_top_level(text.removeprefix("[").removesuffix("]")))
    if _is_dataclass_type(option):
        return _try_build(option, text)
    if _is_callable(option) and ":" in text:
        return True, find_by_path(text)
    return False, None


def _is_callable(option: object) -> bool:
    return get_origin(option) is cast(object, get_origin(Callable[[], None]))


def _try_number(kind: type, text: str) -> tuple[bool, object]:
    try:
        return True, kind(text.replace("_", ""))
    except ValueError:
        return False, None


def _try_build(cls: type, text: str) -> tuple[bool, object]:
    """`name`, `name(1, field=2)`, or `on` for the defaults."""
    if text.lower() == "on":
        return True, cls()
    try:
        (statement,) = parse_python(text.strip()).body
    except (SyntaxError, ValueError):  # no Python, or not one statement
        return False, None
    if not isinstance(statement, ast.Expr):
        return False, None
    tree = statement.value
    call = tree if isinstance(tree, ast.Call) else ast.Call(tree, [], [])
    if (
        not isinstance(call.func, ast.Name)
        or call.func.id.lower().replace("_", "") != cls.__name__.lower()
    ):
        return False, None
    fields = field_hints(cls)
    arguments = dict(zip(fields, call.args)) | {str(word.arg): word.value for word in call.keywords}
    if len(call.args) > len(fields) or not all(name in fields for name in arguments):
        raise ValueError(_option_text(cls))
    return True, cls(
        **{
            name: parse_value(*fields[name], _argument_text(node))
            for name, node in arguments.items()
        }
    )


def _argument_text(node: ast.expr) -> str:
    """An argument without its quotes, if it has any."""
    return (
        node.value
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        else ast.unparse(node)
    )


def _option_text(option: object) -> str:
    if _is_dataclass_type(option) and option is not Quantile:
        fields = ", ".join(field_hints(option))
        return f"{snake_case(option.__name__)}({fields})" if fields else snake_case(option.__name__)
    words: dict[object, str] = {
        int: "a whole number",
        float: "a number",
        bool: "on or off",
        str: "text",
        type(None): "off",
        Quantile: "a quantile such as q0.1",
    }
    if get_origin(option) is tuple:
        return "names separated by commas"
    return "module:Class" if _is_callable(option) else words.get(option, "")


def parse_setting(cls: type, name: str, text: str, where: str) -> object:
    """The value of field `name` of a strategy class; UserError if it cannot be one."""
    hint, about = field_hints(cls)[name]
    try:
        return parse_value(hint, about, text)
    except ValueError as error:
        raise UserError(
            f"setting '{name}' cannot be '{text}'", where=where, fix=f"give {error}  ({about.doc})"
        ) from error


# Finds classes and functions by a text of a journal or a command line: `module:Name` or
# `path/file.py:Name`.

_PREFIX = "culmen_user_"


def path_of(definition: type | FunctionType) -> str:
    """The path of a class or function.

    It has an absolute file path if the module cannot be imported by name.
    """
    module = sys.modules[definition.__module__]
    file = getattr(module, "__file__", None)
    if file and (module.__name__ == "__main__" or module.__name__.startswith(_PREFIX)):
        return f"{Path(file).resolve()}:{definition.__qualname__}"
    return f"{module.__name__}:{definition.__qualname__}"


def find_by_path(path: str) -> Any:
    """The class or function at `module:Name` or `file.py:Name`; UserError if there is none."""
    source, _, name = path.rpartition(":")
    if not source or not name:
        raise UserError(
            f"'{path}' does not name a class", fix="write module:Class or path/to/file.py:Class"
        )
    definition: object = (
        _import_file(Path(source)) if source.endswith(".py") else _import_module(source)
    )
    for part in name.split("."):
        definition = getattr(definition, part, None)
    if definition is None:
        raise UserError(
            f"there is no '{name}' in {source}", where=path, fix="check the spelling of the name"
        )
    return definition


def _import_module(name: str) -> ModuleType:
    here = os.getcwd()
    if here not in sys.path:
        sys.path.append(here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(error.name + ".")):
            raise
        raise UserError(
            f"there is no module '{name}'", fix="start from its folder, or give path/to/file.py"
        ) from error


def _import_file(path: Path) -> ModuleType:
    path = path.expanduser().resolve()
    main = sys.modules.get("__main__")
    if (
        main is not None
        and getattr(main, "__file__", None)
        and Path(str(main.__file__)).resolve() == path
    ):
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
