"""A built-in task's folder: its modules as its scorer sees them.

Also a search on it with a scripted model.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import culmen
from culmen.models.spec import ModelSpec, Price, Provider
from culmen.tasks import example_path
from tests.servers.model_server import ModelServer

BASELINES = Path(__file__).parents[2] / "bench" / "baselines"


def modules(folder: str | Path, *names: str) -> list[ModuleType]:
    """Import files of a task (its name, or a copy's path), in this order.

    They see one another; no other module sees them. `baseline` is that of `bench/baselines`.
    """
    root = example_path(folder) if isinstance(folder, str) else folder
    kept: dict[str, Any] = {name: sys.modules.pop(name, None) for name in names}
    found: list[ModuleType] = []
    try:
        for name in names:
            spec = importlib.util.spec_from_file_location(name, _module_file(root, name))
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


def _module_file(root: Path, name: str) -> Path:
    return BASELINES / f"{root.name}.py" if name == "baseline" else root / f"{name}.py"


def scripted_search(server: ModelServer, task: Path, strategy: str, run: Path) -> culmen.Study:
    """Twelve evaluations of a task that asks models, with this server's model in all roles."""
    provider = Provider("mine", f"{server.url}/v1", base=0.001, cap=0.002, timeout=20.0)
    model = ModelSpec(provider, "scripted", max_tokens=4000, price=Price(input=1.0, output=1.0))
    rest = {"budget": 12, "workers": 1, "run_dir": run, "progress": False}
    return culmen.optimize(None, task, strategy=strategy, model={"default": model}, **rest)  # pyright: ignore
