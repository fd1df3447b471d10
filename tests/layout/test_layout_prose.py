"""The language of the source keeps its rules, and each rule notices what breaks it."""

from __future__ import annotations

import ast

import pytest

from tests.layout import prose
from tests.layout.rules import trees


def test_docstrings_are_plain():
    """Question words and long first lines nowhere, marks of the dialect in one docstring of a hundred at most."""
    parsed = trees()
    found, many = prose.findings(parsed), sum(1 for tree in parsed.values() for _ in prose.docstrings(tree))
    assert [one for one in found if one.rule != "mark"] == []
    assert len(found) <= prose.ALLOWED * many, found


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
