"""Whether a call of a Python function left something behind in its process that could reach the next call.

Looked for, after each call: threads and child processes, a pending timer, another working folder, environment or
module path, modules whose file is younger than the run or that have none (a candidate that was imported), replaced
functions of the modules that scores are made with and of the evaluator's own module, descriptors and memory that keep
growing. Values in the function's own variables are its state, and stay.
"""

from __future__ import annotations

import builtins
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

from culmen.evaluate.jail import procfs

_GUARDED = (
    "math", "cmath", "statistics", "random", "time", "json", "itertools", "functools", "operator", "collections",
    "numpy", "numpy.random", "numpy.linalg",
)  # fmt: skip
_FDS = 16  # descriptors more than at the start that are taken for a leak
_SHARE = 4  # of the memory limit, a quarter may be kept between calls


class Leftovers:
    """The state of this process as it is now, to be compared with later ones.

    `memory_mb` is a call's limit; modules whose file changed after `born` (Unix seconds) are no library's.
    """

    def __init__(self, fn: Callable[..., Any], memory_mb: int, born: float) -> None:
        self._born = born
        self._modules = set(sys.modules)
        self._place, self._environ, self._path = os.getcwd(), os.environ.copy(), list(sys.path)
        self._memory = procfs.data_bytes() + memory_mb * (1 << 20) // _SHARE
        self._fds = procfs.descriptors() + _FDS
        watched = [builtins, *(sys.modules[name] for name in _GUARDED if name in sys.modules)]
        self._watched = [(vars(module), dict(vars(module))) for module in watched]
        own = getattr(fn, "__globals__", {})
        self._own = own, {name: value for name, value in own.items() if _code(value)}

    def found(self) -> str:
        """What is left behind, in a word; "" if nothing."""
        checks: tuple[tuple[str, Callable[[], bool]], ...] = (
            ("thread", lambda: threading.active_count() > 1),
            ("process", lambda: bool(procfs.children(os.getpid()))),
            ("timer", lambda: signal.getitimer(signal.ITIMER_REAL)[0] > 0),
            ("module", self._imported),
            ("patch", self._patched),
            ("surroundings", self._moved),
            ("descriptors", lambda: procfs.descriptors() > self._fds),
            ("memory", lambda: procfs.data_bytes() > self._memory),
        )
        return next((name for name, left in checks if left()), "")

    def _moved(self) -> bool:
        try:
            place = os.getcwd()
        except OSError:
            return True
        return place != self._place or sys.path != self._path or os.environ != self._environ

    def _imported(self) -> bool:
        """New modules that are no library's; the others are known from now on."""
        if self._modules == sys.modules.keys():
            return False
        fresh = [module for name, module in list(sys.modules.items()) if name not in self._modules]
        self._modules = set(sys.modules)
        return any(self._made_here(module) for module in fresh)

    def _made_here(self, module: ModuleType) -> bool:
        """Whether a module has come into being since the run began."""
        spec = getattr(module, "__spec__", None)
        file = getattr(module, "__file__", None)
        if file is None:
            return spec is None or not (spec.origin in ("built-in", "frozen") or spec.submodule_search_locations)
        try:
            return os.stat(file).st_ctime >= self._born
        except OSError:
            return True

    def _patched(self) -> bool:
        try:
            return not all(before.items() <= now.items() for now, before in (*self._watched, self._own))
        except (ValueError, TypeError):  # another object, whose comparison fails
            return True


def _code(value: object) -> bool:
    return callable(value) or isinstance(value, ModuleType)
