"""The source tree keeps its rules, and each rule notices what breaks it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.layout import rules

CLEAN = {
    "__init__.py": '"""A package."""\n',
    "first.py": "from house.second import B\n\n\nclass A: ...\n",
    "second.py": "class B: ...\n",
    "extensions/__init__.py": '"""Extensions."""',
    "extensions/builtin/__init__.py": "",
    "extensions/builtin/one.py": "class A: ...\n",
}


def house(folder: Path, **changed: str) -> Path:
    """A package of a few modules; `changed` are further ones by name."""
    source = folder / "house"
    for name, text in {**CLEAN, **{f"{name}.py": text for name, text in changed.items()}}.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text)
    return source


@pytest.mark.slow
def test_the_source_tree_keeps_its_rules():
    assert rules.broken() == []


def test_the_map_in_contributing_is_the_packages_own_first_lines():
    assert rules.written_map(rules.MAP.read_text()) == rules.package_map(), (
        "python -m tests.layout.rules --write"
    )


def test_a_clean_package_breaks_no_rule(tmp_path: Path):
    assert rules.broken(house(tmp_path)) == []


def test_a_second_public_class_of_one_name_is_refused(tmp_path: Path):
    assert rules.broken(house(tmp_path, third="class A: ...\n")) == [
        "class A is defined in house.first, house.third"
    ]


def test_private_twins_are_nobodys_business(tmp_path: Path):
    assert rules.broken(house(tmp_path, third="class _A: ...\n", fourth="class _A: ...\n")) == []


@pytest.mark.parametrize(
    "back",
    [
        "from house.first import A\n\n\nclass B: ...\n",
        "from house import first\n\n\nclass B: ...\n",
        "import house.first\n\n\nclass B: ...\n",
        "from .first import A\n\n\nclass B: ...\n",
        "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    from house.first import A\n\n\nclass B: ...\n",
        "class B: ...\n\n\ndef late():\n    from house.first import A\n\n    return A\n",
    ],
    ids=["names", "module", "plain", "relative", "for types only", "inside a function"],
)
def test_a_circle_is_found_however_it_is_imported(tmp_path: Path, back: str):
    assert rules.broken(house(tmp_path, second=back)) == [
        "import circle: house.first, house.second"
    ]


def test_a_circle_of_three_is_one_circle():
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}
    assert rules.circles(graph) == [["a", "b", "c"]]


def test_long_functions_are_counted(tmp_path: Path):
    long = "def f():\n" + "    x = 1\n" * (rules.LONG + 1)
    (said,) = rules.broken(house(tmp_path, third=long))
    assert said.startswith("1 of 1 functions have more than 40 lines") and "house.third:1 f" in said


def test_a_package_without_a_first_line_is_named(tmp_path: Path):
    source = house(tmp_path)
    (source / "silent").mkdir()
    (source / "silent" / "__init__.py").write_text("")
    assert rules.broken(source) == ["package silent has no docstring: the map needs its first line"]


def test_the_map_is_indented_like_the_folders(tmp_path: Path):
    source = house(tmp_path)
    (source / "deep" / "deeper").mkdir(parents=True)
    (source / "deep" / "__init__.py").write_text('"""Outer.\n\nMore."""\n')
    (source / "deep" / "deeper" / "__init__.py").write_text('"""Inner."""\n')
    assert rules.package_map(source).splitlines()[1:3] == [
        "  deep/        Outer.",
        "    deeper/    Inner.",
    ]


def test_the_value_model_is_of_short_classes():
    """The default method can be read class by class: no class is longer than 150 lines."""
    ours = ("culmen.evidence", *(f"culmen.strategies.{name}" for name in ("pedigree", "described")))
    ours = (*ours, "culmen.strategies.knowledge_gradient", "culmen.strategies.front_gradient")
    sizes = {
        f"{module}.{node.name}": (node.end_lineno or 0) - node.lineno + 1
        for module, tree in rules.trees().items()
        if module.startswith(ours)
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }
    assert len(sizes) > 40 and {name: size for name, size in sizes.items() if size > 150} == {}
