"""The language of the source keeps its rules, and each rule notices what breaks it."""

from __future__ import annotations

import ast

import pytest

from tests.layout import prose
from tests.layout.rules import ROOT, SOURCE, trees


def test_docstrings_are_plain():
    """No question words, no long first lines, marks in one docstring of a hundred at most."""
    parsed = trees()
    found, many = (
        prose.findings(parsed),
        sum(1 for tree in parsed.values() for _ in prose.docstrings(tree)),
    )
    assert [one for one in found if one.rule != "mark"] == []
    assert len(found) <= prose.ALLOWED * many, found


def test_docstrings_of_tests_and_benchmarks_are_plain():
    """By the same rules; functions that benchmarks paste into candidates are left as they were."""
    files = [path for top in ("tests", "bench") for path in (ROOT / top).rglob("*.py")]
    left = {"fixtures", "pool_programs", "gallery_programs", "baselines", "__pycache__"}
    parsed = {
        path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for path in files
        if not left & set(path.parts)
    }
    found = prose.findings(parsed)
    assert [one for one in found if one.rule != "mark"] == []
    assert len(found) <= 10, found


def test_no_line_of_tests_and_benchmarks_is_kept_from_the_formatter():
    files = [path for top in ("tests", "bench") for path in (ROOT / top).rglob("*.py")]
    mark = "fmt: " + "skip"
    assert [path for path in files if mark in path.read_text(encoding="utf-8")] == []


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("Close all resources; keep the records.", []),
        ("What was found of the noise.", ["question", "mark"]),
        ("Whether it holds.", ["question"]),
        ("Nothing happens but for the last.", ["mark"]),
        ("A list of those who are left.", ["mark"]),
        ("The score that nobody asked for.", ["mark"]),
        (
            "A first line of more than ninety characters says too much at once, however useful it may be to some.",
            ["length", "mark"],
        ),
        ("A mean.\n\n    It is told to all.", ["mark"]),
    ],
)
def test_each_rule_notices_what_breaks_it(text: str, rules: list[str]):
    tree = ast.parse(f'def f():\n    """{text}"""\n')
    assert [one.rule for one in prose.findings({"house.a": tree})] == rules


@pytest.mark.slow
def test_functions_are_named_by_what_they_do():
    """Verb and object, or the noun returned; one word where the class supplies the object."""
    parsed = trees()
    assert prose.one_word_share(parsed) <= prose.ONE_WORD
    assert prose.shared_function_names(parsed) == {}
    assert prose.untyped() <= prose.UNTYPED


def test_names_are_counted_with_methods_and_without_dunders():
    methods = "    def run(self): ...\n    def __len__(self): ...\n    def read_row(self):\n        def x(): ...\n"
    text = f"def told(): ...\nclass A:\n{methods}"
    parsed = {f"house.{letter}": ast.parse(text) for letter in "abcde"}
    assert prose.one_word_share(parsed) == pytest.approx(2 / 3)
    assert list(prose.shared_function_names(parsed)) == ["told"]


def test_no_line_of_the_source_is_kept_from_the_formatter():
    """Evaluators of the built-in tasks apart, which are shown to users as they are."""
    files = [
        path
        for path in SOURCE.rglob("*.py")
        if SOURCE / "extensions" / "builtin" not in path.parents
    ]
    assert [path for path in files if "fmt: " + "skip" in path.read_text()] == []
