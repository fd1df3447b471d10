"""Small conversions that both sides of the jail use; nothing here imports more than the standard library."""

from __future__ import annotations

import importlib.util
import math
import os
import sys
import traceback
from types import ModuleType
from typing import Any

TRACE_CHARS = 6000
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep  # culmen/evaluate


def number(value: Any) -> Any:
    """A value as JSON for error reports: NumPy scalars as numbers, others as their type."""
    if type(value).__module__ == "numpy" and hasattr(value, "item") and getattr(value, "size", 0) == 1:
        value = value.item()
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 1024:
        return math.inf if value > 0 else -math.inf
    if value is None or isinstance(value, bool | int | float):
        return value
    return f"<{type(value).__name__}>"


def last_lines(error: BaseException) -> str:
    """The end of the traceback, from the first frame that is not ours or the import system's."""
    frame = error.__traceback__
    while frame is not None and frame.tb_frame.f_code.co_filename.startswith((_OURS, "<frozen ")):
        frame = frame.tb_next
    return "".join(traceback.format_exception(type(error), error, frame))[-TRACE_CHARS:]


def load_file(path: str, fallback: str) -> ModuleType:
    """Import a file under its own name (so that its classes can be pickled), or `fallback` where that is taken."""
    name = os.path.splitext(os.path.basename(path))[0]
    name = name if name.isidentifier() and name not in sys.modules else fallback
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
