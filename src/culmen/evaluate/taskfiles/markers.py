"""EVOLVE-BLOCK markers: which text of a program may be edited. Pure functions over texts.

A marker is a comment alone on its line, in any of the usual comment styles:

    # EVOLVE-BLOCK-START     // EVOLVE-BLOCK-START     ! EVOLVE-BLOCK-START     -- EVOLVE-BLOCK-START
    <!-- EVOLVE-BLOCK-START -->     (* EVOLVE-BLOCK-START *)     /* EVOLVE-BLOCK-START */

Blocks nest; what lies in the outermost block, inner markers included, is editable, everything else and the outermost
marker lines are immutable. The comparison is of texts: it does not know what a language makes of them (a block that
ends inside an open string changes the meaning of the text after it). Whatever must hold belongs in the scorer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

_MARKER = re.compile(
    r"^[ \t]*(?:"
    r"(?:\#+|//+|!+|--+|;+|%+)[ \t]*EVOLVE-BLOCK-(?P<line>START|END)\b.*"
    r"|<!--[ \t]*EVOLVE-BLOCK-(?P<html>START|END)\b.*?-->[ \t]*"
    r"|\(\*[ \t]*EVOLVE-BLOCK-(?P<ml>START|END)\b.*?\*\)[ \t]*"
    r"|/\*[ \t]*EVOLVE-BLOCK-(?P<c>START|END)\b.*?\*/[ \t]*"
    r")$"
)
_LINES = re.compile(r"[^\n]*\n|[^\n]+")  # str.splitlines would also split at form feeds and the like


class Region(NamedTuple):
    """A run of whole lines that is editable or not; the texts of all regions together are the text."""

    text: str
    editable: bool


class MarkerError(ValueError):
    """Markers that do not pair; `line` counts from 1."""

    def __init__(self, what: str, line: int) -> None:
        super().__init__(f"{what} on line {line}")
        self.line = line


def kind(line: str) -> str:
    """`START`, `END`, or "" if the line is not a marker."""
    match = _MARKER.match(line.rstrip("\r\n"))
    return next(filter(None, match.groupdict().values()), "") if match else ""


def split(text: str) -> tuple[Region, ...]:
    """The regions of a text in their order, alternating; a block without text gives an empty editable region.

    Raises `MarkerError` if an END has no START or a START no END.
    """
    regions: list[Region] = []
    lines: list[str] = []
    depth, opened = 0, 0
    for number, line in enumerate(_LINES.findall(text), 1):
        mark = kind(line)
        if mark == "START":
            depth += 1
            if depth == 1:
                opened = number
                regions.append(Region("".join([*lines, line]), False))
                lines = []
                continue
        elif mark == "END":
            depth -= 1
            if depth < 0:
                raise MarkerError("EVOLVE-BLOCK-END without a START", number)
            if depth == 0:
                regions.append(Region("".join(lines), True))
                lines = []
        lines.append(line)
    if depth:
        raise MarkerError("EVOLVE-BLOCK-START without an END", opened)
    regions.append(Region("".join(lines), False))
    return tuple(regions)


def has_blocks(text: str) -> bool:
    """Whether anything is marked as editable (False also for unpaired markers)."""
    try:
        return any(region.editable for region in split(text))
    except MarkerError:
        return False


def blocks(text: str) -> tuple[str, ...]:
    """The editable texts; raises `MarkerError`."""
    return tuple(region.text for region in split(text) if region.editable)


def fill(text: str, new: Iterable[str]) -> str:
    """The text with its editable texts replaced in order; a missing final newline is added.

    Raises `ValueError` if there are not as many as blocks, `MarkerError` for unpaired markers.
    """
    regions, rest = split(text), list(new)
    if len(rest) != sum(region.editable for region in regions):
        raise ValueError(f"{len(rest)} texts for {sum(r.editable for r in regions)} blocks")
    queue = iter(rest)
    return "".join(_whole(next(queue)) if region.editable else region.text for region in regions)


def respects(seed: str, new: str) -> str:
    """Why `new` is not `seed` with other text in its blocks: "" if it is, else a sentence.

    Line ends (CRLF or LF) and white space at the very end of the text do not count.
    """
    try:
        before, after = _immutable(seed), _immutable(new)
    except MarkerError as error:
        return str(error)
    if len(before) != len(after):
        return f"{len(after) - 1} editable blocks instead of {len(before) - 1}"
    for place, (old, now) in enumerate(zip(before, after), 1):
        if old != now:
            return f"the text outside the blocks was changed (part {place} of {len(before)}): {_first(old, now)}"
    return ""


def _immutable(text: str) -> list[str]:
    return [r.text for r in split(text.replace("\r\n", "\n").rstrip() + "\n") if not r.editable]


def _first(old: str, now: str) -> str:
    """The first line that differs, for the message."""
    for was, became in zip(old.split("\n"), now.split("\n")):
        if was != became:
            return f"{was[:80]!r} became {became[:80]!r}"
    return "lines were added or removed"


def _whole(text: str) -> str:
    return text if not text or text.endswith("\n") else text + "\n"
