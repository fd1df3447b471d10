"""The modules of a built-in task's folder, as its scorer sees them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from culmen.evaluate.taskfiles import example_path


def modules(folder: str | Path, *names: str) -> list[ModuleType]:
    """Import files of a task (its name, or a copy's path), in this order; they see one another, nobody else does."""
    root = example_path(folder) if isinstance(folder, str) else folder
    kept: dict[str, Any] = {name: sys.modules.pop(name, None) for name in names}
    found: list[ModuleType] = []
    try:
        for name in names:
            spec = importlib.util.spec_from_file_location(name, root / f"{name}.py")
            assert spec is not None and spec.loader is not None
            sys.modules[name] = module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            found.append(module)
        return found
    finally:
        for name, module in kept.items():
            sys.modules.pop(name, None)
            if module is not None:
                sys.modules[name] = module
