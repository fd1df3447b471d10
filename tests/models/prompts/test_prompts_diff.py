"""SEARCH/REPLACE edits."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from culmen.core.replies.edits import Edit, Unfit, apply_edits, read_edits
from culmen.core.replies.names import PartNames
from culmen.core.task import Task
from culmen.models.prompts.formats import FORMATS, Completion, parse_completion

TEXT = "def f(x):\n    y = x + 1\n    return y\n\n\ndef g(x):\n    return x\n"


NAMES = PartNames(("p", "a.py", "b.py"))


def edit(search: str, replace: str, *named: str) -> Edit:
    lines = tuple(search.split("\n")) if search else (), tuple(replace.split("\n"))
    return Edit((lines,), (0, 0), named)


def applied(parts: dict[str, str], *edits: Edit) -> dict[str, str]:
    return parts | apply_edits(parts, edits, NAMES)


def block(search: str, replace: str) -> str:
    return f"<<<<<<< SEARCH\n{search}\n=======\n{replace}\n>>>>>>> REPLACE\n"


def test_exact() -> None:
    edits = edit("    y = x + 1", "    y = x + 2"), edit("    return x", "    return -x")
    expected = TEXT.replace("x + 1", "x + 2").replace("return x", "return -x")
    assert applied({"p": TEXT}, *edits)["p"] == expected


def test_exact_beats_loose_and_two_places_are_in_doubt() -> None:
    assert applied({"p": "  a\na\n"}, edit("a", "b"))["p"] == "  a\nb\n"
    with pytest.raises(Unfit, match="more than once in p: they begin with `a`"):
        applied({"p": "  a\na\na\n"}, edit("a", "b"))


def test_trailing_space_and_indentation_may_differ() -> None:
    assert "y = 3" in applied({"p": TEXT}, edit("    y = x + 1   ", "    y = 3"))["p"]
    made = applied({"p": TEXT}, edit("y = x + 1\nreturn y", "if x:\n    return 0\nreturn y"))
    assert made["p"].startswith("def f(x):\n    if x:\n        return 0\n    return y\n")
    made = applied({"p": "a\n"}, edit("    a", "    b\n      c"))
    assert made["p"] == "b\n  c\n"


def test_an_indentation_that_differs_from_line_to_line_is_in_doubt() -> None:
    with pytest.raises(Unfit):
        applied({"p": "if x:\n    y()\n"}, edit("if x:\ny()", "if z:\ny()"))
    with pytest.raises(Unfit):
        applied({"p": "a\n"}, edit("    a", "    b\n  c"))


def test_deletion_and_empty_file() -> None:
    assert applied({"p": "a\nb\nc\n"}, Edit(((("b",), ()),), (0, 0)))["p"] == "a\nc\n"
    assert applied({"p": ""}, edit("", "new"))["p"] == "new"
    with pytest.raises(Unfit, match="no line under SEARCH"):
        applied({"p": "a\n\nb\n"}, edit("", "new"))


def test_all_or_nothing() -> None:
    with pytest.raises(Unfit, match="not in the candidate: they begin with `not there`"):
        applied({"p": TEXT}, edit("    y = x + 1", "z"), edit("not there", "z"))


def test_edits_are_matched_against_the_text_as_it_was() -> None:
    with pytest.raises(Unfit, match="not in the candidate"):
        applied({"p": "a\n"}, edit("a", "b"), edit("b", "c"))
    with pytest.raises(Unfit, match="change the same line of p: `b`"):
        applied({"p": "a\nb\nc\n"}, edit("a\nb", "x"), edit("b\nc", "y"))
    swapped = applied({"p": "a\nb\n"}, edit("a", "b"), edit("b", "a"))
    assert swapped["p"] == "b\na\n"


def test_edits_find_their_part() -> None:
    parts = {"a.py": "x = 1\n", "b.py": "x = 1\n"}
    assert applied(parts, edit("x = 1", "x = 2", "b.py")) == {"a.py": "x = 1\n", "b.py": "x = 2\n"}
    with pytest.raises(Unfit, match="name the part"):
        applied(parts, edit("x = 1", "x = 2"))
    reply = "=== b.py ===\n" + block("x = 1", "x = 2") + "File: `a.py`\n" + block("x = 1", "x = 3")
    names = PartNames(("a.py", "b.py"))
    edits = read_edits(reply.split("\n"), names)
    assert apply_edits(parts, edits, names) == {"a.py": "x = 3\n", "b.py": "x = 2\n"}


def test_line_ends_are_those_of_the_text() -> None:
    made = applied({"p": "a\r\nb\r\nc\r\n"}, edit("b", "x\ny"))
    assert made["p"] == "a\r\nx\r\ny\r\nc\r\n"
    assert applied({"p": "a\r\nb"}, edit("b", "x"))["p"] == "a\r\nx"


def test_whole_replies(task: Task) -> None:
    parent = task.initial_candidates()[0]
    for name in ("diff", "rewrite"):
        reply = "Because.\n```\n" + block("    return [1 / n] * n", "    return []") + "```"
        good = parse_completion(Completion(reply), FORMATS[name], task, parent)
        assert good.drafts[0].parts == {"main.py": "def run(n):\n    return []\n"}
        assert good.hypothesis.startswith("Because.")
    assert (
        parse_completion(Completion(block("nope", "x")), FORMATS["diff"], task, parent).fault
        == "diff_mismatch"
    )
    whole = parse_completion(
        Completion("```python main.py\nx = 1\n```"), FORMATS["diff"], task, parent
    )
    assert whole.drafts[0].parts == {"main.py": "x = 1\n"}


def test_cut_in_the_second_edit_is_truncated(task: Task) -> None:
    reply = block("    return [1 / n] * n", "    return []") + "<<<<<<< SEARCH\ndef run"
    assert (
        parse_completion(
            Completion(reply, "length"), FORMATS["diff"], task, task.initial_candidates()[0]
        ).fault
        == "truncated"
    )


lines = st.lists(st.sampled_from(["a", "  a", "b", "", "    c", "\tb"]), min_size=1, max_size=12)


@settings(max_examples=300, deadline=None)
@given(text=lines, data=st.data(), new=lines)
def test_copying_lines_exactly_always_fits(
    text: list[str], data: st.DataObject, new: list[str]
) -> None:
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start + 1, len(text)))
    searched = "\n".join(text[start:end])
    size = end - start
    starts = [i for i in range(len(text)) if text[i : i + size] == text[start:end]]
    each = Edit(((tuple(text[start:end]), tuple(new)),), (0, 0))
    if len(starts) > 1 or not searched.strip():
        with pytest.raises(Unfit):
            applied({"p": "\n".join([*text, "end"])}, each)
        return
    made = applied({"p": "\n".join(text)}, each)["p"].split("\n")
    assert made == [*text[:start], *new, *text[end:]]


@settings(max_examples=200, deadline=None)
@given(reply=st.text(max_size=300), text=st.text(max_size=100))
def test_reading_and_applying_never_breaks(reply: str, text: str) -> None:
    lines = f"<<<<<<< SEARCH\n{reply}\n=======\nx\n>>>>>>> REPLACE".split("\n")
    try:
        edits = read_edits(lines, NAMES)
        applied({"p": text}, *edits)
    except Unfit as unfit:
        assert str(unfit)
