"""Judging a construction as its notebook does: the form first, then the verification.

Evaluators that `culmen import alphaevolve` makes import this, in the scorer's process.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import cast

from culmen.core.json import JsonObject
from culmen.evaluate.jail.scorer import Invalid

# the form of a construction: {"form": "list", "of": [{"form": "int"}]}
Kind = JsonObject
_NUMBERS = ("bool", "int", "float", "complex")
_ANY: Kind = {"form": "any"}
_ROW = 8  # items of the longest tuple that is a row, of fixed length, and no list


def judge(
    verify: Callable[..., object], kinds: Mapping[str, Kind], output: object
) -> dict[str, object]:
    """The value that a verification gives a construction; raises Invalid if it refuses it."""
    values = [output] if len(kinds) == 1 else output
    if not isinstance(values, list | tuple) or len(values) != len(kinds):
        raise Invalid(f"not a tuple of {', '.join(kinds)}")
    shaped = [shaped_value(value, kinds[name], name) for name, value in zip(kinds, values)]
    try:
        number = number_of(verify(*shaped))
    except Invalid:
        raise
    except Exception as error:  # noqa: BLE001 - a verification may raise anything of an output
        text = f"{type(error).__name__}: {error}".removeprefix("AssertionError: ")
        raise Invalid(text[:2000]) from None
    if number is None or not math.isfinite(number):
        raise Invalid(f"its value is {number}")
    return {"score": number}


def require(value: object, what: str) -> None:
    """Raise Invalid if a check of the notebook's is not true."""
    if not value:
        raise Invalid(f"not true: {what}")


def number_of(value: object) -> float | None:
    """A value as one number, also of a dict with a single one; None if it is none."""
    if isinstance(value, dict):
        found = [each for item in value.values() if (each := number_of(item)) is not None]
        return found[0] if len(found) == 1 else None
    item = getattr(value, "item", None)
    if callable(item) and getattr(value, "size", 1) == 1:
        value = item()
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def kind_of(value: object) -> Kind:
    """The form of a construction; raises TypeError for what a program cannot return."""
    import numpy

    if isinstance(value, numpy.ndarray):
        if value.dtype.kind not in "biufc":
            raise TypeError(f"an array of {value.dtype}")
        return {"form": "array", "dtype": value.dtype.name, "dimensions": value.ndim}
    if isinstance(value, numpy.generic):
        value = value.item()
    if isinstance(value, tuple) and len(value) <= _ROW:
        return {"form": "tuple", "of": [kind_of(item) for item in value]}
    if isinstance(value, list | tuple | set | frozenset):
        is_set = isinstance(value, set | frozenset)
        form = "tuples" if isinstance(value, tuple) else "set" if is_set else "list"
        return {"form": form, "of": [_joined([kind_of(item) for item in value])]}
    if isinstance(value, dict):
        parts = list(value), list(value.values())
        return {"form": "dict", "of": [_joined([kind_of(each) for each in part]) for part in parts]}
    if isinstance(value, bool | int | float | complex | str):
        return {"form": type(value).__name__}
    raise TypeError(f"a value of type {type(value).__name__}")


def _joined(kinds: Sequence[Kind]) -> Kind:
    """A kind that holds all items of a list; that of anything if there is none."""
    first = kinds[0] if kinds else _ANY
    for other in kinds[1:]:
        forms = first["form"], other["form"]
        if set(forms) <= set(_NUMBERS):
            first = {"form": max(forms, key=_NUMBERS.index)}
        elif forms[0] != forms[1] or len(first.get("of", ())) != len(other.get("of", ())):
            return _ANY
        elif "of" in first:
            inner = [_joined(pair) for pair in zip(first["of"], other["of"])]
            first = {"form": forms[0], "of": inner}
        elif first != other:
            return _ANY
    return first


def shaped_value(value: object, kind: Kind, name: str) -> object:
    """A value in the form that the notebook's construction has; raises Invalid if it cannot be.

    Numbers are finite, whole where the construction's are; lists may have any length but 0.
    """
    head, inner = kind["form"], kind.get("of", [])
    if head in _NUMBERS:
        return _shaped_number(value, head, name)
    if head == "array":
        return _shaped_array(value, kind["dtype"], kind["dimensions"], name)
    if head == "dict" and isinstance(value, dict) and value:
        return {
            shaped_value(key, inner[0], f"a key of {name}"): shaped_value(item, inner[1], name)
            for key, item in value.items()
        }
    if head == "any" or (head == "str" and isinstance(value, str)):
        return value
    if head not in ("list", "tuple", "tuples", "set") or not isinstance(value, list | tuple):
        raise Invalid(f"{name} is no {head}")
    if not value or (head == "tuple" and len(value) != len(inner)):
        raise Invalid(f"{name} has {len(value)} items")
    kinds = inner if head == "tuple" else inner * len(value)
    items = [shaped_value(item, each, f"an item of {name}") for item, each in zip(value, kinds)]
    return {"list": list, "set": set}.get(head, tuple)(items)


def _shaped_number(value: object, head: str, name: str) -> object:
    allowed: dict[str, tuple[type, ...]] = {
        "bool": (bool,),
        "int": (int,),
        "float": (int, float),
        "complex": (int, float, complex),
    }
    if not isinstance(value, allowed[head]) or (head != "bool" and isinstance(value, bool)):
        raise Invalid(f"{name} is no {head}")
    if head in ("bool", "int"):
        return value
    plain = cast(float, value)
    try:
        number = complex(plain) if head == "complex" else float(plain)
    except OverflowError:
        raise Invalid(f"{name} is too large") from None
    if not math.isfinite(abs(number)):
        raise Invalid(f"{name} is not finite")
    return number


def _shaped_array(value: object, dtype: str, dimensions: int, name: str) -> object:
    import numpy

    wanted = numpy.dtype(dtype)
    fitting = {"b": "b", "i": "iu", "u": "iu", "f": "iuf", "c": "iufc"}[wanted.kind]
    try:
        array = numpy.asarray(value)
    except ValueError as error:
        raise Invalid(f"{name}: {error}") from None
    if array.dtype.kind not in fitting:
        raise Invalid(f"{name} is an array of {array.dtype}, not of {dtype}")
    if array.ndim != dimensions or not array.size:
        raise Invalid(f"{name} has shape {array.shape}, not {dimensions} dimensions")
    with numpy.errstate(over="ignore"):
        cast = array.astype(wanted)
    same = numpy.isfinite(cast).all() if wanted.kind in "fc" else (cast == array).all()
    if not same:
        raise Invalid(f"{name} has numbers that are not finite or do not fit {dtype}")
    return cast


def described(kind: Kind) -> str:
    """A kind in words."""
    head, inner = kind["form"], kind.get("of", [])
    if head == "array":
        count = kind["dimensions"]
        return f"NumPy array of {kind['dtype']}, {count} dimension{'s' * (count != 1)}"
    if head == "tuple":
        return f"tuple ({', '.join(map(described, inner))})"
    if head in ("list", "tuples", "set"):
        return f"{head.removesuffix('s') if head == 'tuples' else head} of {described(inner[0])}"
    return "dict" if head == "dict" else "number or text" if head == "any" else head
