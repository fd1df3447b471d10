"""Heads of SKILL.md: what skills-ref reads and refuses, and what culmen does."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from skills_ref import validate
from skills_ref.errors import ParseError
from skills_ref.parser import parse_frontmatter

from culmen.core.candidate import frontmatter
from culmen.tasks.surface import HeadFault, head_faults, read_head
from tests.differential.comparing import inputs, same

pytestmark = pytest.mark.timeout(900)
NAMES = st.one_of(
    st.sampled_from(["my-skill", "a", "prüfung", "技能", "Bad", "a--b", "-a", "a-", "a_b", "x1"]),
    st.text(alphabet="abz09-", min_size=1, max_size=70),
)
WORDS = st.text(alphabet="abc äß:#-'\"{}[]&*!|>%@`,?~0 ", max_size=24)
VALUES = st.one_of(
    WORDS,
    NAMES,
    WORDS.map(lambda text: "'" + text.replace("'", "''") + "'"),
    WORDS.map(lambda text: '"' + text.replace('"', '\\"') + '"'),
    st.builds(">\n  {}\n  {}".format, WORDS, WORDS),
    st.builds("|\n  {}".format, WORDS),
    st.builds("{}  # a comment".format, NAMES),
    st.builds("\n  author: {}\n  version: {}".format, WORDS, st.sampled_from(["1.0", "'1.0'"])),
    st.builds("\n  - {}\n  - b".format, NAMES),
    st.sampled_from(["", "yes", "1.0", "null", "[a, b]", "{a: b}", "&x a", "!!str a", "d" * 1025]),
)
KEYS = st.sampled_from(
    ["name", "description", "license", "allowed-tools", "metadata", "compatibility", "version"]
)
LINES = st.lists(
    st.one_of(
        st.builds("{}: {}".format, KEYS, VALUES), st.sampled_from(["# a comment", "", "  x", "- y"])
    ),
    max_size=4,
)


@st.composite
def heads(draw: st.DrawFn) -> str:
    """Heads of SKILL.md, most of them with a name and a description."""
    name = draw(st.one_of(NAMES, VALUES))
    lines = [f"name: {name}", f"description: {draw(VALUES)}", *draw(LINES)]
    kept = [line for line in lines if draw(st.integers(0, 9))]
    return "---\n" + "\n".join(kept) + "\n---\nThe body.\n"


def reads_alike(text: str) -> bool:
    """False for the difference on purpose: three hyphens within a line of the head."""
    head = frontmatter(text).strip().removeprefix("---").removesuffix("---")
    return text.split("---", 2)[1].strip() == head.strip()


@inputs(2_000)
@given(heads())
def test_fields_of_a_head(text: str) -> None:
    if not reads_alike(text):
        with pytest.raises(HeadFault):
            read_head(text)
        return
    theirs: Any = _answer(parse_frontmatter, text)
    ours = _answer(read_head, text)
    same("skills-ref: fields", theirs, ours, text)


def _answer(read: Any, text: str) -> object:
    try:
        found = read(text)
    except (ParseError, HeadFault):
        return "refused"
    fields = dict(found[0] if isinstance(found, tuple) else found)
    if isinstance(fields.get("metadata"), dict):  # the package makes texts of what is below it
        fields["metadata"] = {str(key): str(value) for key, value in fields["metadata"].items()}
    return fields


@inputs(2_000)
@given(heads(), NAMES)
def test_skills_that_are_refused(text: str, other: str) -> None:
    """The folder has the skill's name, or another."""
    if not reads_alike(text):
        return
    try:
        name = str(parse_frontmatter(text)[0].get("name", other))
    except ParseError:
        name = other
    for folder in (name, other):
        if "/" in folder or folder.strip() != folder or not folder.strip("."):
            continue
        with tempfile.TemporaryDirectory() as place:
            skill = Path(place, folder[:60])
            skill.mkdir()
            (skill / "SKILL.md").write_text(text, encoding="utf-8")
            same(
                "skills-ref: refused or not",
                bool(validate(skill)),
                bool(head_faults(text, skill.name)),
                (text, skill.name),
            )
