"""Sizes of the source tree do not rise without a reason."""

from __future__ import annotations

import ast
import sys
import tomllib

import pytest

from tests.layout import ratchet


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="its tokenizer counts parts of f-strings")
def test_nothing_counted_without_a_run_has_risen():
    assert list(ratchet.risen(ratchet.measured(with_run=False), ratchet.read_figures())) == []


@pytest.mark.slow
def test_a_small_run_enters_no_more_files():
    sizes = {"counts": {"files entered": ratchet.entered_files()}}
    assert list(ratchet.risen(sizes, ratchet.read_figures())) == []


FIGURES = {"tokens": {"engine": {"least": 90, "allowed": 100, "reason": "streams"}}}


@pytest.mark.parametrize(("size", "count"), [(100, 0), (80, 0), (101, 1)])
def test_a_size_above_what_is_allowed_is_named(size: int, count: int):
    assert len(list(ratchet.risen({"tokens": {"engine": size}}, FIGURES))) == count


def test_a_room_without_a_line_is_named():
    assert list(ratchet.risen({"tokens": {"attic": 5}}, {})) == [
        "tokens attic: 5 has no line in ratchet.toml"
    ]


def test_a_rise_without_a_reason_is_named():
    silent = {"tokens": {"engine": {"least": 90, "allowed": 100}}}
    (found,) = ratchet.risen({"tokens": {"engine": 95}}, silent)
    assert "no reason is given" in found


@pytest.mark.parametrize(
    ("size", "line"),
    [
        (120, '"engine" = {least = 90, allowed = 100, reason = "streams"}'),
        (95, '"engine" = {least = 90, allowed = 95, reason = "streams"}'),
        (70, '"engine" = {least = 70, allowed = 70}'),
    ],
)
def test_figures_are_lowered_and_never_raised(size: int, line: str):
    text = ratchet.lowered({"tokens": {"engine": size}}, FIGURES)
    assert line in text and tomllib.loads(text)


@pytest.mark.parametrize(
    ("line", "counted"),
    [
        ("LIMIT = 3", True),
        ("_LIMIT: int = 1 << 15", True),
        ("LIMIT = -0.5 * 2", True),
        ("limit = 3", False),
        ("NAME = 'three'", False),
        ("IS_ON = True", False),
        ("LIMITS = (1, 2)", False),
    ],
)
def test_numeric_constants_are_counted(line: str, counted: bool):
    assert ratchet.is_constant(ast.parse(line).body[0]) is counted


def test_comments_and_layout_are_no_tokens():
    assert ratchet.count_tokens("x = 1\n") == ratchet.count_tokens("# one\n\nx = (\n    1)\n") - 2
