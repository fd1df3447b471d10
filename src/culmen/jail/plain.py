"""Small conversions for both sides of the jail; imports only the standard library."""

from __future__ import annotations

import importlib.util
import math
import os
import re
import sys
import traceback
from collections.abc import Mapping
from types import ModuleType
from typing import Any, TypeAlias

TRACE_CHARS = 6000
Value: TypeAlias = Any
"""A value of a user's or a library's, of whatever type."""

OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
"""Folder of culmen's own modules."""

THEIRS = os.path.join(OURS, "extensions", "builtin") + os.sep
"""Folder of the built-in tasks, whose evaluators count as a user's."""


def number_or_type(value: Value) -> bool | int | float | str | None:
    """A value as JSON for error reports: NumPy scalars as numbers, others as their type."""
    if (
        type(value).__module__ == "numpy"
        and hasattr(value, "item")
        and getattr(value, "size", 0) == 1
    ):
        value = value.item()
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 1024:
        return math.inf if value > 0 else -math.inf
    if value is None or isinstance(value, bool | int | float):
        return value
    return (
        f"<{type(value).__name__}: {value[:40]!r}>"
        if isinstance(value, str)
        else f"<{type(value).__name__}>"
    )


_NUMBER = re.compile(r"\s*[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?\s*", re.ASCII)


def metric_or_type(value: Value) -> bool | int | float | str | None:
    """As `number_or_type`; the text of a finite number as that number."""
    if isinstance(value, str) and len(value) <= 100 and _NUMBER.fullmatch(value):
        return float(value)
    return number_or_type(value)


def score_or_type(value: Value) -> int | float | str | None:
    """As `metric_or_type`; True is 1 and False is 0, as of `return output == answer`."""
    plain = metric_or_type(value)
    return float(plain) if isinstance(plain, bool) else plain


def split_pair(result: Value, name: str = "score") -> Value:
    """A pair of score and info as one dict with the score as `name`; anything else unchanged.

    Numbers of the info are metrics, a text is feedback, the rest of it are artifacts. The score
    may also be a dict, whose info has artifacts alone.
    """
    if type(result) is not tuple or len(result) != 2:
        return result
    score, info = result
    scored: dict[Value, Value] = score if isinstance(score, dict) else {name: score}
    if not isinstance(info, dict):
        return scored if info is None else {**scored, "feedback": str(info)}
    known = {key: info[key] for key in info if key in ("metrics", "feedback", "artifacts")}
    rest = {key: info[key] for key in info if key not in (*known, name)}
    is_number = {key: isinstance(metric_or_type(rest[key]), int | float) for key in rest}
    numbers = {} if scored is score else {key: rest[key] for key in rest if is_number[key]}
    texts = {str(key): str(rest[key]) for key in rest if key not in numbers}
    artifacts = {**texts, **(known.pop("artifacts", None) or {})}
    return {**numbers, **known, **scored, **({"artifacts": artifacts} if artifacts else {})}


_TEXTS, _TEXT_CHARS = 64, 1000  # of an answer, and characters of each that are kept


def answer_texts(*mappings: Mapping[Value, Value]) -> dict[str, str]:
    """Texts and truth values of an answer by name, for `core.answers`; numbers are metrics.

    Those of a mapping in it have the name `outer.inner`.
    """
    texts: dict[str, str] = {}
    for mapping in mappings:
        for name, value in mapping.items():
            inner = value.items() if isinstance(value, Mapping) else ()
            for path, each in [(f"{name}.{key}", each) for key, each in inner] or [(name, value)]:
                if isinstance(each, str | bool | BaseException) and len(texts) < _TEXTS:
                    texts[value_text(path)] = value_text(each)[:_TEXT_CHARS]
    return texts


def value_text(value: Value) -> str:
    """The text of a value, without lone surrogates; its type if it has none that can be read."""
    try:
        return str(value).encode("utf-8", "replace").decode()
    except BaseException:  # noqa: BLE001 - a user's `__str__` may raise anything
        return f"<{type(value).__name__}>"


def last_lines(error: BaseException) -> str:
    """The end of a traceback, at most `TRACE_CHARS` characters.

    Frames of culmen and of the import system are left out, and earlier exceptions that consist of
    such frames only. Of an exception that cannot be shown whole, type, text and own frames remain.
    """
    try:
        trace = traceback.TracebackException.from_exception(error)
        _drop_internal_frames(trace)
        return "".join(trace.format())[-TRACE_CHARS:]
    except BaseException:  # noqa: BLE001 - a user's class may raise anything; long chains recurse
        plain = RuntimeError(f"{type(error).__name__}: {value_text(error)}")
        return last_lines(plain.with_traceback(error.__traceback__))


def _drop_internal_frames(trace: traceback.TracebackException) -> None:
    trace.stack[:] = [
        frame
        for frame in trace.stack
        if frame.filename.startswith(THEIRS) or not frame.filename.startswith((OURS, "<frozen "))
    ]
    for earlier in (trace.__cause__, trace.__context__, *(trace.exceptions or ())):
        if earlier is not None:
            _drop_internal_frames(earlier)
    if trace.__context__ is not None and not trace.__context__.stack:
        trace.__context__ = None
    if trace.__cause__ is not None and not trace.__cause__.stack:
        trace.__cause__ = None


def load_file(path: str, fallback: str) -> ModuleType:
    """Import a file as a module of its own name, so that its classes can be pickled.

    The name is `fallback` if the file's own is taken or not an identifier.
    """
    name = os.path.splitext(os.path.basename(path))[0]
    name = name if name.isidentifier() and name not in sys.modules else fallback
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
