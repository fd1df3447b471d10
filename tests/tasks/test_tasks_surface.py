"""Editable text, frozen parts, and texts that are rejected before they run."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from culmen.core import markers
from culmen.core.candidate import Candidate
from culmen.core.task import Surface, Task
from culmen.tasks import surface, surface_fault

STYLES = {
    "python": ("# {}", "#{}", "    # {} (the search)"),
    "c": ("// {}", "/* {} */"),
    "fortran": ("! {}",),
    "html": ("<!-- {} -->",),
    "ocaml": ("(* {} *)",),
    "sql": ("-- {}",),
}
STYLE = st.sampled_from([style for styles in STYLES.values() for style in styles])
LINE = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\n"), max_size=12
).filter(lambda line: not markers.marker_kind(line))
LINES = st.lists(LINE, max_size=4).map(lambda lines: "".join(f"{line}\n" for line in lines))


@st.composite
def programs(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A text and what lies in its blocks; blocks may hold inner blocks."""
    text, inside = draw(LINES), []
    for _ in range(draw(st.integers(0, 3))):
        style, block = draw(STYLE), draw(LINES)
        if draw(st.booleans()):
            inner = draw(STYLE)
            block += (
                inner.format("EVOLVE-BLOCK-START")
                + "\n"
                + draw(LINES)
                + inner.format("EVOLVE-BLOCK-END")
                + "\n"
            )
        inside.append(block)
        text += (
            style.format("EVOLVE-BLOCK-START")
            + "\n"
            + block
            + style.format("EVOLVE-BLOCK-END")
            + "\n"
            + draw(LINES)
        )
    return text, inside


def editable(text: str) -> list[str]:
    """The texts in the blocks."""
    return [region.text for region in markers.split_blocks(text) if region.editable]


@settings(deadline=None)
@given(programs())
def test_regions_are_the_text_and_alternate(program: tuple[str, list[str]]) -> None:
    text, inside = program
    regions = markers.split_blocks(text)
    assert "".join(region.text for region in regions) == text
    assert [region.editable for region in regions] == [n % 2 == 1 for n in range(len(regions))]
    assert editable(text) == inside and markers.has_blocks(text) == bool(inside)


@settings(deadline=None)
@given(programs(), st.data())
def test_any_text_may_fill_the_blocks(program: tuple[str, list[str]], data: st.DataObject) -> None:
    text, inside = program
    new = [data.draw(LINES) for _ in inside]
    queue = iter(new)
    changed = "".join(
        next(queue) if part.editable else part.text for part in markers.split_blocks(text)
    )
    assert surface.immutable_change(text, changed) == ""
    assert surface.immutable_change(changed, text) == ""
    assert editable(changed) == new


@settings(deadline=None)
@given(programs(), st.data())
def test_no_text_outside_the_blocks_may_change(
    program: tuple[str, list[str]], data: st.DataObject
) -> None:
    text, _ = program
    regions = list(markers.split_blocks(text))
    outside = data.draw(
        st.sampled_from([i for i, region in enumerate(regions) if not region.editable])
    )
    old = regions[outside].text
    at = data.draw(
        st.integers(0, max(0, len(old) - 1))
    )  # the end of a START line is where its block begins
    regions[outside] = markers.MarkedRegion(old[:at] + "changed" + old[at:], False)
    assert surface.immutable_change(text, "".join(region.text for region in regions))


def test_a_block_cannot_be_closed_and_opened_again_around_other_text() -> None:
    seed = "a\n# EVOLVE-BLOCK-START\nb\n# EVOLVE-BLOCK-END\nc\n"
    split = "a\n# EVOLVE-BLOCK-START\nb\n# EVOLVE-BLOCK-END\nevil\n# EVOLVE-BLOCK-START\n# EVOLVE-BLOCK-END\nc\n"
    assert surface.immutable_change(seed, split) == "2 editable blocks instead of 1"
    assert "became 'C'" in surface.immutable_change(seed, seed.replace("\nc\n", "\nC\n"))
    assert surface.immutable_change(seed, seed.replace("\n", "\r\n") + "\n\n") == ""
    assert surface.immutable_change(seed, seed.rstrip("\n")) == ""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a\n# EVOLVE-BLOCK-END\n", 2),
        ("# EVOLVE-BLOCK-START\n# EVOLVE-BLOCK-START\n# EVOLVE-BLOCK-END\n", 1),
    ],
)
def test_unpaired_markers(text: str, line: int) -> None:
    with pytest.raises(markers.MarkerError) as caught:
        markers.split_blocks(text)
    assert caught.value.line == line
    assert not markers.has_blocks(text) and surface.immutable_change("a\n", text)


@pytest.mark.parametrize(
    "line",
    [
        "x = 1  # EVOLVE-BLOCK-START",
        "# evolve-block-start",
        "<!-- EVOLVE-BLOCK-START",
        "# from EVOLVE-BLOCK-START on",
        "# EVOLVE-BLOCK-START to EVOLVE-BLOCK-END",
        "'# EVOLVE'",
    ],
)
def test_lines_that_are_no_markers(line: str) -> None:
    assert markers.marker_kind(line) == ""


@pytest.mark.parametrize("quotes", ['"""', "'''"])
def test_markers_in_a_docstring_are_text(quotes: str) -> None:
    doc = f"{quotes}Edit between\n# EVOLVE-BLOCK-START\nand END, don't\n{quotes}\n"
    text = f"{doc}# it's\n# EVOLVE-BLOCK-START\nx = 1\n# EVOLVE-BLOCK-END\n"
    assert editable(text) == ["x = 1\n"]
    hidden = text.replace("x = 1", f"x = {quotes}") + doc
    with pytest.raises(markers.MarkerError):  # a string that would hide the end of the block
        markers.split_blocks(hidden)


BLOCK = "# EVOLVE-BLOCK-START\nx = 1\n# EVOLVE-BLOCK-END\nkeep()\n"
TASK = Task(
    "t",
    seeds=(
        {"main.py": BLOCK, "glue.py": "glue"},
        {"main.py": BLOCK.replace("keep", "hold"), "glue.py": "glue"},
    ),
    surface=Surface(frozen=("glue.py",), markers="enforced", max_chars=200),
)


@pytest.mark.parametrize(
    ("parts", "fault"),
    [
        ({"main.py": BLOCK, "glue.py": "glue"}, ""),
        ({"main.py": BLOCK.replace("x = 1", "x = 2"), "glue.py": "glue"}, ""),
        ({"main.py": BLOCK.replace("keep", "hold"), "glue.py": "glue"}, ""),
        ({"main.py": BLOCK.replace("keep", "drop"), "glue.py": "glue"}, "immutable_text_changed"),
        ({"main.py": "x = 2\n", "glue.py": "glue"}, "immutable_text_changed"),
        ({"main.py": BLOCK, "glue.py": "glue "}, "frozen_part_changed"),
        ({"main.py": BLOCK}, "part_missing"),
        ({}, "part_missing"),
        ({"main.py": BLOCK, "glue.py": "glue", "more.py": ""}, "unknown_part"),
        ({"main.py": BLOCK.replace("x = 1", "x" * 300), "glue.py": "glue"}, "too_long"),
        ({"main.py": BLOCK.replace("1", "\0"), "glue.py": "glue"}, "not_text"),
        ({"main.py": BLOCK.replace("1", "\ud800"), "glue.py": "glue"}, "not_text"),
    ],
)
def test_what_is_rejected_unseen(parts: dict[str, str], fault: str) -> None:
    assert surface_fault(TASK, Candidate.of(parts)) == fault


@pytest.mark.parametrize(
    "name", ["../x.py", "/x.py", "a/../x.py", "", ".", "a\\b", "a\nb", "./a", "a//b", "x" * 201]
)
def test_part_names_stay_inside(name: str) -> None:
    assert surface_fault(Task("t", goal="g"), Candidate.of({name: "x"})) == "bad_part_name"


def test_a_task_without_seeds_takes_any_parts() -> None:
    assert surface_fault(Task("t", goal="g"), Candidate.of({"a/b.py": "x", "prompt": ""})) == ""
