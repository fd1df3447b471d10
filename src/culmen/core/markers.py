"""EVOLVE-BLOCK markers, which enclose the editable text.

A marker is a comment alone on its line that begins with the marker's name, in any of the usual
comment styles, and that names no other marker:

    # EVOLVE-BLOCK-START              // EVOLVE-BLOCK-START      ! EVOLVE-BLOCK-START
    -- EVOLVE-BLOCK-START             (* EVOLVE-BLOCK-START *)   /* EVOLVE-BLOCK-START */
    <!-- EVOLVE-BLOCK-START -->

Inside a string in triple quotes (a docstring) such a line is text. Blocks nest; the text in the
outermost block, inner markers included, is editable; all other text and the outermost marker lines
are immutable.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from culmen.core.replies import ReplyFault

_NAME = "EVOLVE-BLOCK-"
_MARKER = re.compile(
    r"^[ \t]*(?:"
    r"(?:\#+|//+|!+|--+|;+|%+)[ \t]*EVOLVE-BLOCK-(?P<line>START|END)\b.*"
    r"|<!--[ \t]*EVOLVE-BLOCK-(?P<html>START|END)\b.*?-->[ \t]*"
    r"|\(\*[ \t]*EVOLVE-BLOCK-(?P<ml>START|END)\b.*?\*\)[ \t]*"
    r"|/\*[ \t]*EVOLVE-BLOCK-(?P<c>START|END)\b.*?\*/[ \t]*"
    r")$"
)
_LINES = re.compile(
    r"[^\n]*\n|[^\n]+"
)  # str.splitlines would also split at form feeds and the like
_STRINGS = re.compile(r"\\.|\"{3}|'{3}|[\"'#\n]", re.DOTALL)


class MarkedRegion(NamedTuple):
    """A run of whole lines that is editable or not.

    The texts of all regions together are the whole text.
    """

    text: str
    editable: bool


class MarkerError(ValueError):
    """Markers that do not pair; `line` counts from 1."""

    def __init__(self, what: str, line: int) -> None:
        super().__init__(f"{what} on line {line}")
        self.line = line


class OutsideBlocks(ReplyFault):
    """A text that changes what lies outside the blocks of its parent."""

    def __init__(self, detail: str) -> None:
        super().__init__("outside_blocks", detail)


def marker_kind(line: str) -> str:
    """`START`, `END`, or "" if the line is not a marker."""
    match = _MARKER.match(line.rstrip("\r\n")) if line.count(_NAME) == 1 else None
    return next(filter(None, match.groupdict().values()), "") if match else ""


def split_blocks(text: str) -> tuple[MarkedRegion, ...]:
    """The regions of a text in order, alternating; an empty block gives an empty region.

    Raises `MarkerError` if an END has no START or a START no END.
    """
    regions: list[MarkedRegion] = []
    lines: list[str] = []
    depth, opened = 0, 0
    for number, line, mark in _marked_lines(text):
        if mark == "START":
            depth += 1
            if depth == 1:
                opened = number
                regions.append(MarkedRegion("".join([*lines, line]), False))
                lines = []
                continue
        elif mark == "END":
            depth -= 1
            if depth < 0:
                raise MarkerError("EVOLVE-BLOCK-END without a START", number)
            if depth == 0:
                regions.append(MarkedRegion("".join(lines), True))
                lines = []
        lines.append(line)
    if depth:
        raise MarkerError("EVOLVE-BLOCK-START without an END", opened)
    regions.append(MarkedRegion("".join(lines), False))
    return tuple(regions)


def has_blocks(text: str) -> bool:
    """True if any text is marked as editable (False also for unpaired markers)."""
    if _NAME not in text:
        return False
    try:
        return any(region.editable for region in split_blocks(text))
    except MarkerError:
        return False


def editable_spans(text: str) -> list[tuple[int, int]] | None:
    """Offsets of the text in blocks; None if the text has no markers or unpaired ones."""
    if not has_blocks(text):
        return None
    spans: list[tuple[int, int]] = []
    start = 0
    for region in split_blocks(text):
        end = start + len(region.text)
        spans += [(start, end)] if region.editable else []
        start = end
    return spans


def merge_blocks(parent: str, child: str) -> str:
    """The parent's text with the contents of its blocks taken from the child.

    The child has the text around the blocks as the parent has it, white space apart, or leaves it
    out: with the markers, or, around a single block, without them. A part without a block cannot
    change. Both have LF as line ends. Raises `OutsideBlocks` for any other child.
    """
    frame = _regions(parent)
    if len(frame) == 1:
        if _words(child) == _words(parent):
            return parent
        raise OutsideBlocks("this part has no blocks, so nothing of it may change")
    pieces = _regions(child)
    if len(pieces) == 1 and len(frame) == 3:
        return "".join([frame[0], _without_frame(pieces[0], frame), frame[2]])
    if len(pieces) != len(frame):
        raise OutsideBlocks(f"{len(pieces) // 2} blocks instead of {len(frame) // 2}")
    for theirs, mine in zip(frame[::2], pieces[::2], strict=True):
        if _words(mine) != _words(theirs) and any(
            each not in ("START", "END") for each in _words(mine)
        ):
            raise OutsideBlocks(f"a line outside the blocks was changed: {_changed(theirs, mine)}")
    for theirs, mine, inside in zip(frame[::2], pieces[::2], pieces[1::2], strict=False):
        space = _last_indent(theirs)
        if space != _last_indent(mine) and inside.strip() and not inside.startswith(space):
            raise OutsideBlocks("the block is indented less than its markers")
    return "".join(
        mine if number % 2 else theirs
        for number, (theirs, mine) in enumerate(zip(frame, pieces, strict=True))
    )


def _last_indent(text: str) -> str:
    line = text.rstrip("\n").rpartition("\n")[2]
    return line[: len(line) - len(line.lstrip())]


def _regions(text: str) -> list[str]:
    try:
        return [region.text for region in split_blocks(text)]
    except MarkerError as error:
        raise OutsideBlocks(str(error)) from None


def _without_frame(child: str, frame: list[str]) -> str:
    """The child's lines between those around the only block, whose markers it left out."""
    lines = child.splitlines(keepends=True)
    before, after = _words(frame[0])[:-1], _words(frame[2])[1:]
    start, end = _matched_count(lines, before), _matched_count(lines[::-1], after[::-1])
    if start is None or end is None or start + end > len(lines):
        raise OutsideBlocks("the markers are gone, and the text around them was changed")
    inside = "".join(lines[start : len(lines) - end]).strip("\n") + "\n"
    for line in inside.split("\n"):
        if _NAME in line.upper() and line not in frame[1]:
            raise OutsideBlocks(f"a marker is not understood: {line.strip()}")
    return frame[1] if inside.strip() == frame[1].strip() else inside


def _matched_count(lines: list[str], wanted: list[str]) -> int | None:
    """Number of first lines that are the wanted ones, empty ones apart; None if they differ."""
    taken = 0
    for index, line in enumerate(lines):
        if taken == len(wanted):
            return index
        if line.strip():
            if line.strip() != wanted[taken]:
                return None
            taken += 1
    return len(lines) if taken == len(wanted) else None


def _words(text: str) -> list[str]:
    """The lines that are not empty, markers by their kind."""
    return [marker_kind(line) or line.strip() for line in text.split("\n") if line.strip()]


def _changed(theirs: str, mine: str) -> str:
    known = set(_words(theirs))
    return next((line for line in _words(mine) if line not in known), "lines are missing")[:120]


def _marked_lines(text: str) -> Iterator[tuple[int, str, str]]:
    """All lines with their numbers and kinds of markers."""
    quoted = (
        _quoted_lines(text) if _NAME in text and ('"""' in text or "'''" in text) else set[int]()
    )
    for number, line in enumerate(_LINES.findall(text), 1):
        yield number, line, "" if number in quoted else marker_kind(line)


def _quoted_lines(text: str) -> set[int]:
    """Numbers of the lines that begin inside a string in triple quotes."""
    inside: set[int] = set()
    line, state, opened = 1, "", 0
    for match in _STRINGS.finditer(text):
        sign = match[0]
        line += sign.count("\n")
        if state == "#":
            state = "" if sign.endswith("\n") else state
        elif state in ('"""', "'''"):
            if sign == state:
                inside.update(range(opened + 1, line + 1))
                state = ""
        elif state:  # a string on one line
            state = "" if sign == state or sign == "\n" else state
        elif sign in ('"""', "'''", '"', "'", "#"):
            state, opened = sign, line
    return inside  # an open string counts as no string: the text is broken
