"""Tests that need no extension: those that import none, directly or through other tests.

Where `culmen/extensions` is missing (`.ci/core_alone`), tests that import an extension are not
collected, and tests that use one in another way (`@pytest.mark.extension("builtin")`, or by the id
of an example) are skipped.
"""

from __future__ import annotations

import ast
from functools import cache
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXTENSIONS = tuple(
    sorted(path.parent.name for path in (ROOT / "src/culmen/extensions").glob("*/extension.py"))
)

PARTS = {"gepa", "openevolve", "puct", "map_elites", "portfolio", "cato", "path", "proxied"}
"""Strategies and forms of evaluators of extensions, as words in the ids of parametrised tests."""


@cache
def missing() -> frozenset[str]:
    """The extensions that are not installed."""
    if find_spec("culmen.extensions") is None:
        return frozenset(EXTENSIONS)
    return frozenset(name for name in EXTENSIONS if find_spec(f"culmen.extensions.{name}") is None)


@cache
def used_by(path: Path) -> frozenset[str]:
    """The extensions that a file of tests imports."""
    found: set[str] = set()
    package = path.relative_to(ROOT).parent.parts
    for name in imported_names(ast.parse(path.read_text(encoding="utf-8")), package):
        parts = name.split(".")
        if parts[:2] == ["culmen", "extensions"]:
            found.update(parts[2:3])
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
            found.update(
                ".".join(filter(None, (*above, node.module, alias.name))) for alias in node.names
            )
    return found
