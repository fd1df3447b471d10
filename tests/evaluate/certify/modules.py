"""Modules of the built-in tasks, each loaded apart (every task calls its files the same)."""

from __future__ import annotations

import importlib
import sys
from functools import cache
from types import ModuleType

from culmen.evaluate.taskfiles import example_path

NAMES = (
    "first_autocorr_ineq",
    "second_autocorr_ineq",
    "uncertainty_ineq",
    "circle_packing",
    "erdos_min_overlap",
    "heilbronn_triangle",
    "min_max_distance_ratio",
)
_FILES = ("evaluator", "verify", "baseline")


@cache
def modules(task: str) -> dict[str, ModuleType]:
    """The task's evaluator, verify and baseline."""
    sys.path.insert(0, str(example_path(task)))
    try:
        return {name: importlib.import_module(name) for name in _FILES}
    finally:
        sys.path.pop(0)
        for name in _FILES:
            sys.modules.pop(name, None)
