"""SEARCH/REPLACE edits."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from culmen.core.task import Task
from culmen.prompts.formats import FORMATS, Completion, parse_completion
from culmen.prompts.fragments import Mismatch, SearchReplace, apply_edits, read_edits

TEXT = "def f(x):\n    y = x + 1\n    return y\n\n\ndef g(x):\n    return x\n"


def edit(search: str, replace: str, part: str = "") -> SearchReplace:
    return SearchReplace(tuple(search.split("\n")) if search else (), tuple(replace.split("\n")), part)


def block(search: str, replace: str) -> str:
    return f"<<<<<<< SEARCH\n{search}\n=======\n{replace}\n>>>>>>> REPLACE\n"


def test_exact() -> None:
    made = apply_edits({"p": TEXT}, [edit("    y = x + 1", "    y = x + 2"), edit("    return x", "    return -x")])
    assert made["p"] == TEXT.replace("x + 1", "x + 2").replace("return x", "return -x")


def test_exact_beats_loose_and_first_place_wins() -> None:
    text = "  a\na\na\n"
    assert apply_edits({"p": text}, [edit("a", "b")])["p"] == "  a\nb\na\n"


def test_trailing_space_and_indentation_may_differ() -> None:
    assert "y = 3" in apply_edits({"p": TEXT}, [edit("    y = x + 1   ", "    y = 3")])["p"]
    made = apply_edits({"p": TEXT}, [edit("y = x + 1\nreturn y", "if x:\n    return 0\nreturn y")])
    assert made["p"].startswith("def f(x):\n    if x:\n        return 0\n    return y\n")


def test_deletion_and_empty_file() -> None:
    assert apply_edits({"p": "a\nb\nc\n"}, [SearchReplace(("b",), ())])["p"] == "a\nc\n"
    assert apply_edits({"p": ""}, [edit("", "new")])["p"] == "new"


def test_all_or_nothing() -> None:
    with pytest.raises(Mismatch):
        apply_edits({"p": TEXT}, [edit("    y = x + 1", "z"), edit("not there", "z")])


def test_edits_find_their_part() -> None:
    parts = {"a.py": "x = 1\n", "b.py": "x = 1\n"}
    assert apply_edits(parts, [edit("x = 1", "x = 2", "b.py")]) == {"a.py": "x = 1\n", "b.py": "x = 2\n"}
    reply = "=== b.py ===\n" + block("x = 1", "x = 2") + "File: `a.py`\n" + block("x = 1", "x = 3")
    assert apply_edits(parts, read_edits(reply, ("a.py", "b.py"))) == {"a.py": "x = 3\n", "b.py": "x = 2\n"}


def test_whole_replies(task: Task) -> None:
    parent = task.initial_candidates()[0]
    for name in ("diff", "rewrite"):
        reply = "Because.\n```\n" + block("    return [1 / n] * n", "    return []") + "```"
        good = parse_completion(Completion(reply), FORMATS[name], task, parent)
        assert good.drafts[0].parts == {"main.py": "def run(n):\n    return []\n"}
        assert good.hypothesis.startswith("Because.")
    assert parse_completion(Completion(block("nope", "x")), FORMATS["diff"], task, parent).fault == "diff_mismatch"
    whole = parse_completion(Completion("```python\nx = 1\n```"), FORMATS["diff"], task, parent)
    assert whole.drafts[0].parts == {"main.py": "x = 1\n"}


def test_cut_in_the_second_edit_is_truncated(task: Task) -> None:
    reply = block("    return [1 / n] * n", "    return []") + "<<<<<<< SEARCH\ndef run"
    assert (
        parse_completion(Completion(reply, "length"), FORMATS["diff"], task, task.initial_candidates()[0]).fault
        == "truncated"
    )


lines = st.lists(st.sampled_from(["a", "  a", "b", "", "    c", "\tb"]), min_size=1, max_size=12)


@settings(max_examples=300, deadline=None)
@given(text=lines, data=st.data(), new=lines)
def test_copying_lines_exactly_always_fits(text: list[str], data: st.DataObject, new: list[str]) -> None:
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start + 1, len(text)))
    made = apply_edits({"p": "\n".join(text)}, [SearchReplace(tuple(text[start:end]), tuple(new))])["p"].split("\n")
    first = next(i for i in range(len(text)) if text[i : i + end - start] == text[start:end])
    assert made == [*text[:first], *new, *text[first + end - start :]]


@settings(max_examples=200, deadline=None)
@given(reply=st.text(max_size=300), text=st.text(max_size=100))
def test_reading_and_applying_never_breaks(reply: str, text: str) -> None:
    edits = read_edits(f"<<<<<<< SEARCH\n{reply}\n=======\nx\n>>>>>>> REPLACE", ("p",))
    try:
        apply_edits({"p": text}, edits)
    except Mismatch:
        assert edits
