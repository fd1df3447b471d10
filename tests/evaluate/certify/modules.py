"""Modules of the built-in tasks, each loaded apart (every task calls its files the same)."""

from __future__ import annotations

import importlib
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

from culmen.tasks import example_path

NAMES = (
    "first_autocorr_ineq",
    "second_autocorr_ineq",
    "uncertainty_ineq",
    "circle_packing",
    "erdos_min_overlap",
    "heilbronn_triangle",
    "min_max_distance_ratio",
)
_FILES = ("evaluator", "verify")
_BASELINES = Path(__file__).parents[3] / "bench" / "baselines"


@cache
def modules(task: str) -> dict[str, ModuleType]:
    """The task's evaluator and verify, and the baseline that `bench/` has for it."""
    before = sys.path[:]
    sys.path[:0] = [str(_BASELINES), str(example_path(task))]
    try:
        names = (*_FILES, *(("real_roots",) if task == "uncertainty_ineq" else ()))
        found = {name: importlib.import_module(name) for name in names}
        return found | {"baseline": importlib.import_module(task)}
    finally:
        sys.path[:] = before
        for name in (*_FILES, "real_roots", task):
            sys.modules.pop(name, None)
