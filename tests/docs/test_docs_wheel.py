"""What the wheel holds: everything under src/culmen, and of culmen.testing the kits only."""

from __future__ import annotations

import tomllib

from tests.docs.pages import ROOT

KITS = {
    "backend_kit", "landscape", "memory_kit", "rules", "scripted", "store_kit", "strategy_kit", "virtual", "worlds",
}  # fmt: skip


def test_no_test_server_is_installed_with_culmen():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["tool"]["hatch"]["build"]["targets"]["wheel"] == {"packages": ["src/culmen"]}
    found = {path.stem for path in (ROOT / "src/culmen/testing").rglob("*.py")} - {"__init__"}
    assert found == KITS


def test_nothing_that_is_installed_imports_a_test():
    for path in sorted((ROOT / "src/culmen").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        assert "\nfrom tests" not in text and "\nimport tests" not in text, path
