"""Texts wrapped as models do are read back unchanged, or are a fault."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from culmen.core.candidate import Candidate
from culmen.core.replies.edits import foreign_line
from culmen.core.replies.fences import fence_at, read_blocks
from culmen.core.replies.names import PartNames
from culmen.core.replies.thoughts import answer_in
from culmen.core.task import Evaluator, Surface, Task
from culmen.core.wording import fence_part
from culmen.models.prompts.formats import FORMATS, Completion, parse_completion

ROOT = Path(__file__).parents[3]
FILES = sorted(
    [*(ROOT / "docs").rglob("*.md"), *(ROOT / "src" / "culmen" / "models").rglob("*.*")],
)
FILES = [path for path in FILES if path.suffix in (".md", ".py")]


def read(reply: str, name: str, parent: str, form: str = "rewrite") -> str | None:
    language = "python" if name.endswith(".py") else "text"
    surface = Surface(language=language, max_chars=1_000_000)
    task = Task("t", seeds=({name: parent},), evaluator=Evaluator(form="legacy"), surface=surface)
    sample = Completion(reply)
    parsed = parse_completion(sample, FORMATS[form], task, Candidate.of({name: parent}))
    assert bool(parsed.drafts) != bool(parsed.fault)
    return parsed.drafts[0].parts[name] if parsed.drafts else None


def replies(text: str, name: str) -> dict[str, str]:
    asked = fence_part(text, name, "python" if name.endswith(".py") else "")
    inside = "\n".join(f"   {line}" if line else "" for line in asked.split("\n"))
    return {
        "as it is asked for": f"Better.\n\n{asked}\nDone.\n",
        "in a fence of three": f"```{name}\n{text}```\n",
        "in a list": f"1. So:\n\n{inside}\n",
        "after thoughts": f"```\ndraft\n```\nNo.\n</think>\n{asked}",
    }


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_files_come_back_unchanged(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    lines = text.split("\n")
    place = (len(lines) - 1) // 2
    parent = "\n".join([*lines[:place], "another line", *lines[place + 1 :]])
    for what, reply in replies(text, path.name).items():
        assert read(reply, path.name, parent) == text, what
    assert read(json.dumps({"parts": {path.name: text}}), path.name, parent, "json") == text


LINE = st.sampled_from(
    [
        "a",
        "b c",
        "",
        "    d",
        "- e:",
        "```",
        "```json",
        "````",
        "~~~",
        "=======",
        "# f",
        "f.md",
        "g.",
    ]
)
TEXTS = st.lists(LINE, min_size=1, max_size=9).map(lambda lines: "\n".join([*lines, "end", ""]))


@settings(max_examples=300, deadline=None)
@given(text=TEXTS, parent=TEXTS)
def test_a_text_in_the_fence_that_is_asked_for_is_read_or_a_fault(text: str, parent: str) -> None:
    for what, reply in replies(text, "p.md").items():
        if what != "in a fence of three":
            assert read(reply, "p.md", parent) in (text, None), what
    assert read(json.dumps({"p.md": text}), "p.md", parent, "json") in (text, None)


@settings(max_examples=300, deadline=None)
@given(text=TEXTS, start=st.integers(0, 9), size=st.integers(1, 3), new=TEXTS)
def test_an_edit_changes_the_lines_that_it_quotes_or_nothing(
    text: str, start: int, size: int, new: str
) -> None:
    lines = text.split("\n")
    search, rest = lines[start : start + size], lines[start + size :]
    quoted = "\n".join(search)
    reply = f"<<<<<<< SEARCH\n{quoted}\n=======\n{new}>>>>>>> REPLACE\n"
    meant = "\n".join([*lines[:start], *new.split("\n")[:-1], *rest])
    found = read(reply, "p.md", text)
    assert found is None or found.rstrip("\n") == meant.rstrip("\n")
    assert found is None or foreign_line(found, text) == ""


DOCUMENT = st.lists(
    st.sampled_from(["a", "", "b", "```", "```py", "````", "~~~", "~~~ c"]), max_size=12
)


@settings(max_examples=500, deadline=None)
@given(lines=DOCUMENT)
def test_fences_are_those_of_commonmark_where_one_reading_is_possible(lines: list[str]) -> None:
    tokens = [t for t in MarkdownIt("commonmark").parse("\n".join(lines)) if t.type == "fence"]
    several: list[bool] = []

    def choose(_: object, ends: list[int], __: list[int]) -> int | None:
        several.append(len(ends) != 1)
        return ends[0] if ends else None

    blocks = read_blocks(lines, choose, lambda _: False)
    spans = [(token.map[0], token.map[1] - 1) for token in tokens if token.map]
    pairs = [(fence_at(lines[start]), fence_at(lines[end])) for start, end in spans if end > start]
    closed = [last for first, last in pairs if first and last and last.can_close(first)]
    nested = any(fence_at(line) for token in tokens for line in token.content.split("\n"))
    unsure = any(several) or any(block.end is None for block in blocks)
    if unsure or nested or len(closed) < len(tokens):
        return
    found = [(block.opening.info, block.text) for block in blocks]
    assert found == [(token.info.strip(), token.content) for token in tokens]


@given(
    words=st.lists(
        st.sampled_from(["<think>", "</think>", "x", "```", "\n", "{", "`"]), max_size=12
    )
)
def test_an_answer_is_an_end_of_the_reply(words: list[str]) -> None:
    reply = "".join(words)
    answer = answer_in(reply).text
    assert answer in reply
    if "<think>" not in words and "```" not in words and "`" not in words and "{" not in words:
        assert answer == reply.rpartition("</think>")[2]


def test_names_are_resolved_by_their_ends() -> None:
    names = PartNames(("a/util.py", "b/util.py", "main.py"))
    assert names.resolve("util.py") == "" and names.resolve("./a/util.py") == "a/util.py"
    assert names.resolve("/home/me/main.py") == "main.py"
    assert names.in_prose("see main.py, not `util.py`") == {"main.py"}


def test_a_long_line_of_spaces_is_read_at_once() -> None:
    text = "a\n" + 100_000 * " " + "b\n"
    assert read(f"```p.md\n{text}```\n", "p.md", "a\n") == text
