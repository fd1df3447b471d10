"""Fences of CommonMark (0.31.2, section 4.5) in replies, and the fenced blocks they enclose.

Models nest fences that CommonMark does not: a text in a fence of three holds fences of three. So a
block may have several possible ends. An end is possible if the text before it and the rest of the
reply have no fence left open; `choose` decides between several, or finds none to be sure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from culmen.core.foreign import lazy_pattern

_FENCE = lazy_pattern(
    r"(?P<lead>[ \t]*)(?P<bullet>(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)*)"
    r"(?P<marks>`{3,}(?=[^`]*$)|~{3,})[ \t]*(?P<info>.*?)[ \t]*$"
)
MOST = 2_000  # fences that are read: the time grows with their square


class Fence(msgspec.Struct, frozen=True):
    """A line of backticks or tildes: its number, indentation, marks and info string."""

    line: int
    indent: str
    marks: str
    info: str
    is_listed: bool = False  # it opens a list's item, so it closes nothing

    def can_close(self, opening: Fence) -> bool:
        """True if this line could close the block that `opening` opens."""
        return not self.info and not self.is_listed and self.belongs_to(opening)

    def belongs_to(self, opening: Fence) -> bool:
        """True if it is a fence of the same kind inside the block, or its end."""
        return (
            self.marks[0] == opening.marks[0]
            and len(self.marks) >= len(opening.marks)
            # columns that a closing fence may be indented more than its opening one
            and len(self.indent.expandtabs(4)) <= len(opening.indent.expandtabs(4)) + 3
        )


class FencedBlock(msgspec.Struct, frozen=True):
    """A fenced block: its lines without the fence's indentation, and where it stands.

    `end` is the line of the closing fence, None if there is none; `doubt` is True if it could as
    well end elsewhere.
    """

    opening: Fence
    end: int | None
    lines: tuple[str, ...]
    doubt: bool = False

    @property
    def text(self) -> str:
        """The text, each line with a line feed."""
        return "\n".join((*self.lines, ""))


Choose = Callable[[Fence, list[int], list[int]], int | None]
"""Choose the end of a block, given the possible ones and all fences that could close it.

None: not sure.
"""


def fence_at(line: str, number: int = 0) -> Fence | None:
    """The fence in a line, None for any other line."""
    if "```" not in line and "~~~" not in line:
        return None
    match = _FENCE.match(line)
    if match is None:
        return None
    indent = match["lead"] + " " * len(match["bullet"])
    return Fence(number, indent, match["marks"], match["info"], bool(match["bullet"]))


def read_blocks(
    lines: Sequence[str], choose: Choose, is_boundary: Callable[[Fence], bool]
) -> list[FencedBlock]:
    """The fenced blocks in order.

    A block ends before a fence that `is_boundary`, which opens another one, at the latest.
    """
    marked = [number for number, line in enumerate(lines) if "```" in line or "~~~" in line]
    fences = [fence for number in marked if (fence := fence_at(lines[number], number))]
    if len(fences) > MOST:
        return [FencedBlock(fences[0], None, (), doubt=True)]
    blocks: list[FencedBlock] = []
    while fences:
        opening, *after = fences
        border = next((n for n, fence in enumerate(after) if is_boundary(fence)), len(after))
        block = _read_block(lines, opening, after[:border], choose)
        blocks.append(block)
        last = after[border].line - 1 if border < len(after) else len(lines)
        last = last if block.end is None else block.end
        fences = [fence for fence in after if fence.line > last]
    return blocks


def _read_block(
    lines: Sequence[str], opening: Fence, region: list[Fence], choose: Choose
) -> FencedBlock:
    ends = possible_ends(opening, region)
    closing = [fence.line for fence in region if fence.can_close(opening)]
    end = choose(opening, ends, closing) if closing else None
    doubt = bool(ends) and end is None
    if doubt:
        end = ends[-1]
    inside = lines[opening.line + 1 : end]
    return FencedBlock(opening, end, tuple(without_indent(inside, opening.indent)), doubt)


def only_end(_: Fence, ends: list[int], __: list[int]) -> int | None:
    """The possible end of a block if there is one alone: a `Choose`."""
    return ends[0] if len(ends) == 1 else None


def possible_ends(opening: Fence, fences: Sequence[Fence]) -> list[int]:
    """Lines of the fences that may close a block, given the fences after its opening one."""
    settled = _settled_from(fences)
    ends: list[int] = []
    inner: Fence | None = None  # a block inside the text
    for index, fence in enumerate(fences):
        if not fence.belongs_to(opening):
            continue
        if inner is not None:
            inner = None if fence.can_close(inner) else inner
        elif fence.can_close(opening):
            ends += [fence.line] if settled[index + 1] else []
            inner = fence
        else:
            inner = fence
    return ends


def _settled_from(fences: Sequence[Fence]) -> list[bool]:
    """For each place, True if no fence is left open after it, read as CommonMark does."""
    settled = [True] * (len(fences) + 1)
    for index in range(len(fences) - 1, -1, -1):
        closing = next(
            (n for n in range(index + 1, len(fences)) if fences[n].can_close(fences[index])), None
        )
        settled[index] = closing is not None and settled[closing + 1]
    return settled


def text_until(lines: Sequence[str], opening: Fence, end: int) -> str:
    """The text between an opening fence and a line, without the fence's indentation."""
    return "\n".join(without_indent(lines[opening.line + 1 : end], opening.indent))


def without_indent(lines: Sequence[str], indent: str) -> list[str]:
    """The lines without the part of this indentation that all of them have."""
    if not indent:
        return list(lines)
    spaces = [line[: len(line) - len(line.lstrip())] for line in lines if line.strip()]
    shared = 0
    while shared < len(indent) and all(space.startswith(indent[: shared + 1]) for space in spaces):
        shared += 1
    return [line[shared:] for line in lines]
