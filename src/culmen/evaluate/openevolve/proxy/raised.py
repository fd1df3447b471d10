"""What the candidate raised, raised again in the evaluator's process."""

from __future__ import annotations

import json
import math
import sys
from typing import TYPE_CHECKING, Any

from culmen.evaluate.jail.wire import Data

if TYPE_CHECKING:
    from culmen.evaluate.openevolve.proxy.faces import Faces

_PACKAGES = frozenset({*sys.stdlib_module_names, "numpy", "scipy"})
_LONGEST = 6000


def exception(faces: Faces, payload: Data) -> BaseException:
    """An exception of the same name, if it is one of Python's, NumPy's, SciPy's or the candidate's own; its text and
    its trace over there are only texts."""
    try:
        report = json.loads(payload)
        name, text, trace = str(report["type"]), str(report.get("text", "")), str(report["trace"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return RuntimeError("the program sent something that is no answer")
    cls = _own(faces, report.get("class")) or _known(str(report.get("module", "")), name)
    values = report.get("args")
    try:
        plain = isinstance(values, list) and all(map(_plain, values))
        error = cls(*values) if plain and values else cls(text) if text else cls()
    except Exception:  # noqa: BLE001 - some exceptions want other arguments
        error = RuntimeError(f"{name}: {text}")
    error.add_note(f"in the program:\n{trace[-_LONGEST:]}")
    return error


def _plain(value: Any) -> bool:
    return isinstance(value, str | int | None) or (isinstance(value, float) and math.isfinite(value))


def _own(faces: Faces, number: Any) -> type[BaseException] | None:
    face = faces.of(number, "class", 0, "exception") if type(number) is int else None
    return face if isinstance(face, type) and issubclass(face, Exception) else None


def _known(module: str, name: str) -> type[BaseException]:
    """The class of that name that is loaded here, or one made for the purpose."""
    found: Any = getattr(sys.modules.get(module), name, None) if module.partition(".")[0] in _PACKAGES else None
    if isinstance(found, type) and issubclass(found, Exception | SystemExit | KeyboardInterrupt):
        return found
    return type(name if name.isidentifier() else "ProgramError", (Exception,), {})
