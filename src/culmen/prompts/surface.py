"""Keeps a reply inside what may be edited: no frozen parts, and only EVOLVE blocks where they are enforced."""

from __future__ import annotations

import re
from collections.abc import Mapping

from culmen.core.candidate import Candidate
from culmen.core.task import Surface

_MARKER = re.compile(r"EVOLVE-BLOCK-(START|END)\b")


class OutsideBlocks(ValueError):
    """The reply cannot be fitted into the parent's editable blocks."""


def inherit(parts: Mapping[str, str], parent: Candidate | None, surface: Surface) -> dict[str, str]:
    """The parent's parts with those of the reply put in; unknown and frozen names are left as the parent has them.

    Raises `OutsideBlocks` where markers are enforced and the reply does not show what belongs between them.
    """
    if parent is None:
        return dict(parts)
    child = dict(parent.parts)
    for name, text in parts.items():
        if name not in child or name in surface.frozen:
            continue
        text = _same_end(text, child[name])
        child[name] = into_blocks(child[name], text) if surface.markers == "enforced" else text
    return child


def into_blocks(parent: str, child: str) -> str:
    """The parent's text with the contents of its EVOLVE blocks taken from the child.

    A child that dropped the markers but kept the text around a single block is understood, too.
    """
    frame = _pieces(parent)
    if len(frame) == 1:
        return parent  # no block, nothing may change
    pieces = _pieces(child)
    if len(pieces) == len(frame):
        merged = [mine if i % 2 else theirs for i, (theirs, mine) in enumerate(zip(frame, pieces, strict=True))]
        return "\n".join(line for piece in merged for line in piece)
    if len(pieces) > 1 or len(frame) != 3:
        raise OutsideBlocks(f"{len(frame) // 2} blocks expected, {len(pieces) // 2} found")
    return "\n".join([*frame[0], *_between(pieces[0], frame[0][:-1], frame[2][1:]), *frame[2]])


def _pieces(text: str) -> list[list[str]]:
    """Lines outside, inside, outside, ... of the outermost blocks; the marker lines belong to the outside."""
    pieces: list[list[str]] = [[]]
    depth = 0
    for line in text.split("\n"):
        found = _MARKER.search(line)
        mark = found[1] if found else ""
        if mark == "END" and depth == 1:
            pieces.append([])
        depth = max(0, depth + (mark == "START") - (mark == "END"))
        pieces[-1].append(line)
        if mark == "START" and depth == 1:
            pieces.append([])
    return pieces if depth == 0 else [[line for piece in pieces for line in piece]]


def _between(lines: list[str], before: list[str], after: list[str]) -> list[str]:
    start = _skip(lines, before)
    end = _skip(lines[::-1], after[::-1])
    if start is None or end is None or start + end > len(lines):
        raise OutsideBlocks("the markers are gone and the text around them changed")
    return lines[start : len(lines) - end]


def _skip(lines: list[str], expected: list[str]) -> int | None:
    """How many lines stand for the expected ones, empty lines not counted; None if they are not there."""
    wanted = [line.strip() for line in expected if line.strip()]
    taken = 0
    for index, line in enumerate(lines):
        if taken == len(wanted):
            return index
        if line.strip():
            if line.strip() != wanted[taken]:
                return None
            taken += 1
    return len(lines) if taken == len(wanted) else None


def _same_end(text: str, like: str) -> str:
    """The text ending with a line break exactly if the other one does."""
    text = text.rstrip("\n")
    return text + "\n" if like.endswith("\n") or not like else text
