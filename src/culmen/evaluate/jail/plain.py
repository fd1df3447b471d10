"""Small conversions for both sides of the jail; imports only the standard library."""

from __future__ import annotations

import importlib.util
import math
import os
import sys
import traceback
from types import ModuleType
from typing import Any

TRACE_CHARS = 6000
_OURS = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
_THEIRS = os.path.join(_OURS, "tasks") + os.sep  # evaluators of built-in tasks count as a user's


def number_or_type(value: Any) -> bool | int | float | str | None:
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


def last_lines(error: BaseException) -> str:
    """The end of a traceback, at most `TRACE_CHARS` characters.

    Frames of culmen and of the import system are left out, and earlier exceptions that consist of
    such frames only.
    """
    trace = traceback.TracebackException.from_exception(error)
    _drop_internal_frames(trace)
    return "".join(trace.format())[-TRACE_CHARS:]


def _drop_internal_frames(trace: traceback.TracebackException) -> None:
    trace.stack[:] = [
        frame
        for frame in trace.stack
        if frame.filename.startswith(_THEIRS) or not frame.filename.startswith((_OURS, "<frozen "))
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
