"""Unified diffs in replies, read as edits: each hunk's lines before and after it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from culmen.core.replies.edits import Edit, Unfit, quote_line
from culmen.core.replies.names import PartNames

_HUNK = re.compile(r"@@(?: -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@.*|[^\n]*@@.*|[ .]*)$")
_NUMBERED = re.compile(r"@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@")
_HEADER = re.compile(r"(?:diff |index |similarity |(?:old|new) mode |--- |\+\+\+ )")
_MOVED = re.compile(r"(?:new file|deleted file|rename|copy|Binary files|GIT binary)")


def is_diff(lines: Sequence[str], tag: str = "", parent: Sequence[str] = ()) -> bool:
    """True if the lines of a block are a unified diff.

    By its language, its hunks' numbers, or the signs before lines that the parent has.
    """
    if tag in ("diff", "patch"):
        return True
    if any(_NUMBERED.match(line) for line in lines if line[:2] == "@@"):
        return True
    first = next((line for line in lines if line.strip()), " ")
    if first[0] not in " +-@":
        return False
    written = [line for line in lines if line.strip()]
    if not all(line[0] in " +-@" for line in written):
        return False
    written = [line for line in written if not _HUNK.match(line)]
    kept = {line[1:].strip() for line in written if line[0] in " -"} - {""}
    is_signed = all(line[0] in " +-" for line in written) and {"+", "-"} <= {w[0] for w in written}
    return is_signed and bool(kept) and kept <= {line.strip() for line in parent}


def read_diff(
    lines: Sequence[str], names: PartNames, span: tuple[int, int], named: tuple[str, ...] = ()
) -> list[Edit]:
    """The hunks of a diff; those without a header of a file are for the part that is `named`.

    `span` is that of the diff in the reply.

    Raises `Unfit` for anything else: a line without a sign, wrong counts, a new or a lost file.
    """
    edits: list[Edit] = []
    hunk: list[str] = []
    head: re.Match[str] | None = None
    for number, line in enumerate([*lines, "@@"]):
        is_file = _HEADER.match(line) is not None and _is_file_header(lines, number)
        begin = _HUNK.match(line)
        if _MOVED.match(line):
            raise Unfit(f"a diff adds, drops or renames a file: {quote_line(line)}")
        if not (is_file or begin):
            hunk += [] if line.startswith("\\") else [line]
            continue
        if head is not None or any(line.startswith(("+", "-")) for line in hunk):
            edits.append(_hunk_edit(hunk, head, span, named))
        hunk, head = [], begin
        if is_file and line.startswith(("--- ", "+++ ")):
            named = _file_of(line, names) or named
    if not edits:
        raise Unfit("a diff has no changes")
    return edits


def _is_file_header(lines: Sequence[str], number: int) -> bool:
    """True unless the line is one that a hunk drops or adds and that looks like a header."""
    line = lines[number]
    if line.startswith("--- "):
        return number + 1 < len(lines) and lines[number + 1].startswith("+++ ")
    if line.startswith("+++ "):
        return number > 0 and lines[number - 1].startswith("--- ")
    return True


def _file_of(line: str, names: PartNames) -> tuple[str, ...]:
    word = line[4:].split("\t")[0].strip()
    if word in ("/dev/null", "original", "modified", "old", "new", ""):
        return ()
    name = names.resolve(word.split(" ")[0].removeprefix("a/").removeprefix("b/"))
    return (name or word,)


def _hunk_edit(
    hunk: list[str], head: re.Match[str] | None, span: tuple[int, int], named: tuple[str, ...]
) -> Edit:
    is_exact = head is not None and bool(head[1]) and _count(hunk) == _stated(head)
    while hunk and not hunk[-1].strip() and not is_exact:
        hunk = hunk[:-1]  # an empty line at the end belongs to the fence
    for line in hunk:
        if line and line[0] not in " +-":
            raise Unfit(f"a line of a diff begins with no sign: {quote_line(line)}")
    if head is not None and head[1] and _count(hunk) != _stated(head):
        raise Unfit(f"a hunk has other lines than it states: {quote_line(head[0])}")
    before = tuple(line[1:] for line in hunk if not line.startswith("+"))
    after = tuple(line[1:] for line in hunk if not line.startswith("-"))
    line = int(head[1]) - 1 if head is not None and head[1] else None
    return Edit(((before, after),), span, named, line)


def _count(hunk: list[str]) -> tuple[int, int]:
    added, gone = (sum(line.startswith(sign) for line in hunk) for sign in "+-")
    return len(hunk) - added, len(hunk) - gone


def _stated(head: re.Match[str]) -> tuple[int, int]:
    return int(head[2] or 1), int(head[4] or 1)
