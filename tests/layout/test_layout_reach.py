"""Every module has a test that imports it, or a line that names its end-to-end test."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.layout import reach

MODULES = {
    "__init__": '"""A package."""\n',
    "first": "from house.second import B\n\n\nclass A(B): ...\n",
    "second": "class B: ...\n",
    "names": "from house.second import B\n\n__all__ = ['B']\n",
    "deep/__init__": '"""Deep."""\n',
    "deep/third": "def c(): ...\n",
}
TABLE = "| module | held as | by |\n|---|---|---|\n"


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A package `house`, an empty folder of tests, and a page without a line."""
    for name, text in MODULES.items():
        path = tmp_path / "house" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "tests").mkdir()
    (tmp_path / "page.md").write_text(TABLE)
    return tmp_path


def alone(house: Path, test: str = "") -> list[str]:
    """Modules that no test imports, with this one."""
    (house / "tests" / "test_it.py").write_text(test)
    return reach.unreached(house / "house", house / "tests")


def broken(house: Path, *rows: str) -> list[str]:
    (house / "page.md").write_text(TABLE + "".join(f"{row}\n" for row in rows))
    return reach.broken(house / "house", house / "tests", house / "page.md")


@pytest.mark.slow
def test_every_module_has_its_test_or_its_line():
    assert reach.broken() == []


def test_a_module_that_only_another_module_imports_is_alone(house: Path):
    assert alone(house, "from house.first import A\n") == ["house.deep.third", "house.second"]


@pytest.mark.parametrize(
    "test",
    [
        "from house.deep.third import c\n",
        "from house.deep import third\n",
        "import house.deep.third\n",
        "def test():\n    from house.deep.third import c\n",
        "import pytest\n\nthird = pytest.importorskip('house.deep.third')\n",
    ],
    ids=["name", "module", "plain", "inside a test", "if it is there"],
)
def test_a_module_is_reached_however_it_is_imported(house: Path, test: str):
    assert "house.deep.third" not in alone(house, test)


@pytest.mark.parametrize(
    "test",
    ["from house.names import B\n", "from house import names\n\nnames.B()\n"],
    ids=["by name", "as an attribute"],
)
def test_a_name_that_is_handed_on_counts_for_its_home(house: Path, test: str):
    assert alone(house, test) == ["house.deep.third", "house.first"]


def test_a_module_of_imports_alone_needs_no_test(house: Path):
    assert alone(house) == ["house.deep.third", "house.first", "house.second"]
    assert not reach.has_code(ast.parse('"""Text."""\nfrom a import b\n__all__ = ["b"]\n'))
    assert reach.has_code(ast.parse("from a import b\nc = b()\n"))


def test_a_module_with_neither_test_nor_line_is_refused(house: Path):
    alone(house, "from house.first import A\n")
    (missing,) = broken(house, "| `second` | held | `tests/test_it.py` |")
    assert missing.startswith("house.deep.third: no test imports it")


def test_a_line_for_a_package_holds_its_modules_and_no_other(house: Path):
    alone(house, "from house.first import A\n")
    assert (
        broken(
            house,
            "| `deep` | held | `tests/test_it.py` |",
            "| `second` | held | `tests/test_it.py` |",
        )
        == []
    )
    (missing,) = broken(
        house, "| `dee` | held | `tests/test_it.py` |", "| `second` | held | `tests/test_it.py` |"
    )
    assert missing.startswith("house.deep.third")


def test_a_line_names_a_test_that_exists(house: Path):
    alone(house, "from house.first import A\nfrom house.second import B\n")
    (absent,) = broken(house, "| `deep.third` | held | `tests/test_gone.py` |")
    assert absent == "house.deep.third: its test tests/test_gone.py does not exist"
