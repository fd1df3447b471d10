"""Which tests are of the core: those that import none of culmen's wings, directly or through other tests' modules.

Where the folder of a wing is missing (`.ci/core_alone`), tests that import it are not collected, and tests that use it
in another way (`@pytest.mark.wing("tasks")`) are skipped.
"""

from __future__ import annotations

import ast
from functools import cache
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[1]
WINGS = ("agents", "audit", "bench", "cluster", "compat", "labelled", "mcp", "tasks", "trackers", "train", "web")


@cache
def missing() -> frozenset[str]:
    """The wings that are not installed."""
    return frozenset(name for name in WINGS if find_spec(f"culmen.{name}") is None)


@cache
def used_by(path: Path) -> frozenset[str]:
    """The wings that a file of tests imports."""
    found: set[str] = set()
    package = path.relative_to(ROOT).parent.parts
    for name in imported_names(ast.parse(path.read_text(encoding="utf-8")), package):
        parts = name.split(".")
        if parts[0] == "culmen":
            found.update(set(parts[1:2]) & set(WINGS))
        elif parts[0] == "tests":
            for count in range(len(parts), 1, -1):
                file = ROOT.joinpath(*parts[:count]).with_suffix(".py")
                if file.is_file():
                    found |= used_by(file)
                    break
    return frozenset(found)


def imported_names(tree: ast.Module, package: tuple[str, ...]) -> set[str]:
    """The dotted names that a module of this package imports at its top."""
    found: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            found.update(".".join(filter(None, (*above, node.module, alias.name))) for alias in node.names)
    return found
