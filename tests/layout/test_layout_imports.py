"""Names that tests and benches import from culmen exist.

Also those in files that are skipped where an extra is missing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.layout.rules import ROOT, SOURCE


@cache
def bound_names(path: Path) -> frozenset[str]:
    """The names that a module binds anywhere, and all if it answers for any (`__getattr__`)."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found.update((alias.asname or alias.name).partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return frozenset(found)


def module_path(dotted: str) -> Path | None:
    base = SOURCE.parent.joinpath(*dotted.split("."))
    return next(
        (path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()), None
    )


def missing_imports(path: Path) -> Iterator[str]:
    """`module name` of each import of culmen in a file that leads nowhere."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if (
            isinstance(node, ast.ImportFrom)
            and not node.level
            and (node.module or "").split(".")[0] == "culmen"
        ):
            module = module_path(node.module or "")
            names = bound_names(module) if module else frozenset()
            for alias in node.names:
                there = (
                    alias.name in names
                    or {"__getattr__", "*"} & set(names)
                    or module_path(f"{node.module}.{alias.name}")
                )
                if module is None or not there:
                    yield f"{node.module} {alias.name}"
        elif isinstance(node, ast.Import):
            yield from (
                a.name
                for a in node.names
                if a.name.startswith("culmen.") and not module_path(a.name)
            )


@pytest.mark.slow
def test_every_name_that_tests_and_benches_import_is_there():
    files = [
        path
        for base in ("tests", "bench")
        for path in (ROOT / base).rglob("*.py")
        if "fixtures" not in path.parts
    ]
    assert [
        f"{path.relative_to(ROOT)}: {each}" for path in files for each in missing_imports(path)
    ] == []


def test_a_name_that_is_gone_is_found(tmp_path: Path):
    file = tmp_path / "old.py"
    file.write_text(
        "import culmen.gone\nfrom culmen.core.json import JsonObject, Gone\nfrom culmen.gone import x\n"
    )
    assert list(missing_imports(file)) == ["culmen.gone", "culmen.core.json Gone", "culmen.gone x"]
