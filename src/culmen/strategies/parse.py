"""Texts of the command line (`--set epsilon=q0.1`, `--set priority=ucb(1.0)`) as values of annotated fields."""

from __future__ import annotations

import ast
import dataclasses
import re
import types
from collections.abc import Callable
from typing import Any, Union, cast, get_args, get_origin

from culmen.core.errors import UserError
from culmen.memory.quantile import Quantile
from culmen.strategies.locate import find
from culmen.strategies.parts.settings import About, hints

_OFF = ("off", "none", "null")
_WORDS = {"true": True, "on": True, "yes": True, "false": False, "off": False, "no": False}


def parse(hint: Any, about: About, text: str) -> Any:
    """The value a setting's text stands for; ValueError says what would be legal.

    Where the field is of a protocol type, `module:Class` names a class of your own, built without arguments.
    """
    text = text.strip()
    options = _options(hint, about)
    if type(None) in options and text.lower() in _OFF:
        return None
    for option in options:
        found, value = _try(option, text)
        if found:
            return value
    if about.choices and ":" in text:
        return find(text)()
    raise ValueError(legal(hint, about))


def legal(hint: Any, about: About) -> str:
    """What may be written, in words."""
    words = [word for option in _options(hint, about) if (word := _word(option))]
    return " or ".join([*words, "module:Class"] if about.choices else words)


def snake(name: str) -> str:
    """`UcbSigma` as `ucb_sigma`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _options(hint: Any, about: About) -> list[Any]:
    """The alternatives of a hint: members of a union, or the classes an About lists."""
    flat = list(get_args(hint)) if get_origin(hint) in (Union, types.UnionType) else [hint]
    flat = [inner for option in flat for inner in (get_args(option) if get_origin(option) is Union else [option])]
    return [*about.choices, *flat] if about.choices else flat


def _try(option: Any, text: str) -> tuple[bool, Any]:
    """Whether the text is a value of this type, and the value."""
    if option in (int, float):
        return _number(option, text)
    if option is bool:
        return text.lower() in _WORDS, _WORDS.get(text.lower())
    if option is str:
        return True, text
    if option is Quantile:
        value = Quantile.parse(text)
        return value is not None, value
    if get_origin(option) is tuple:
        return True, tuple(piece.strip() for piece in text.split(",") if piece.strip())
    if isinstance(option, type) and dataclasses.is_dataclass(cast(Any, option)):
        return _build(option, text)
    if _is_callable(option) and ":" in text:
        return True, find(text)
    return False, None


def _is_callable(option: Any) -> bool:
    return get_origin(option) is cast(Any, get_origin(Callable[[], None]))


def _number(kind: type, text: str) -> tuple[bool, Any]:
    try:
        return True, kind(text.replace("_", ""))
    except ValueError:
        return False, None


def _build(cls: type, text: str) -> tuple[bool, Any]:
    """`name`, `name(1, field=2)`, or `on` for the defaults."""
    if text.lower() == "on":
        return True, cls()
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError:
        return False, None
    call = tree if isinstance(tree, ast.Call) else ast.Call(tree, [], [])
    if not isinstance(call.func, ast.Name) or call.func.id.lower().replace("_", "") != cls.__name__.lower():
        return False, None
    fields = hints(cls)
    given = dict(zip(fields, call.args)) | {str(word.arg): word.value for word in call.keywords}
    if len(call.args) > len(fields) or not all(name in fields for name in given):
        raise ValueError(_word(cls))
    return True, cls(**{name: parse(*fields[name], _text(node)) for name, node in given.items()})


def _text(node: ast.expr) -> str:
    """An argument as it was written; a quoted one without its quotes."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ast.unparse(node)


def _word(option: Any) -> str:
    if isinstance(option, type) and dataclasses.is_dataclass(cast(Any, option)) and option is not Quantile:
        fields = ", ".join(hints(option))
        return f"{snake(option.__name__)}({fields})" if fields else snake(option.__name__)
    words: dict[Any, str] = {
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


def setting(cls: type, name: str, text: str, where: str) -> Any:
    """The value of field `name` of a strategy class; UserError if it cannot be one."""
    hint, about = hints(cls)[name]
    try:
        return parse(hint, about, text)
    except ValueError as error:
        raise UserError(
            f"setting '{name}' cannot be '{text}'", where=where, fix=f"give {error}  ({about.doc})"
        ) from error
