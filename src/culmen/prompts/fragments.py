"""Fragments of a model's reply: fenced blocks and SEARCH/REPLACE edits.

Also the insertion of new texts into the parent's editable blocks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from culmen.core.candidate import Candidate
from culmen.core.task import SKILL_FILE, Surface

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})[ \t]*([^`\n]*)$")
_THOUGHT = re.compile(r"\A\s*<(think|thinking|reasoning)>.*?</\1>", re.DOTALL | re.IGNORECASE)
_LEAD = re.compile(r"^(?:name|file|filename|path|title|part)[=:]", re.IGNORECASE)


# among the names of parts: any other skill's file, of a set to which skills may be added
NEW_SKILL = f"*/{SKILL_FILE}"
_SKILL_PART = re.compile(rf"[\w.-]+/{re.escape(SKILL_FILE)}")


class Block(msgspec.Struct, frozen=True):
    """One fenced block.

    `name` is the part it names ("" if none), `tag` its language; `closed` is False without an end.
    """

    text: str
    name: str = ""
    tag: str = ""
    closed: bool = True


def without_thoughts(reply: str) -> str:
    """The reply without a leading reasoning section."""
    return _THOUGHT.sub("", reply, count=1)


def is_part_name(word: str, names: tuple[str, ...]) -> bool:
    """True if a word is one of the names, or names a new skill where `NEW_SKILL` is one."""
    if word == NEW_SKILL:
        return False
    return word in names or (NEW_SKILL in names and _SKILL_PART.fullmatch(word) is not None)


def read_blocks(reply: str, names: tuple[str, ...] = ()) -> tuple[str, list[Block]]:
    """The text before the first block, and the blocks in order.

    A block is closed by a bare fence at least as long as its own; fences with a language inside it
    open a nested block, unless they name another part of the candidate. An unclosed block ends with
    the reply.
    """
    before: list[str] = []
    blocks: list[Block] = []
    current: list[str] | None = None
    marks = info = heading = ""
    depth = 0
    for line in reply.split("\n"):
        # most lines need no match
        fence = _FENCE.match(line) if "`" in line or "~" in line else None
        if current is None:
            if fence:
                marks, info, current, depth = fence[1], fence[2].strip(), [], 1
            elif not blocks:
                before.append(line)
            heading = (
                (named_part(line, names) or (heading if not line.strip() else ""))
                if not fence
                else heading
            )
            continue
        if fence is None:
            current.append(line)
            continue
        depth += _depth_change(fence, marks, names, depth)
        if depth == 0 or depth < 0:
            blocks.append(_make_block(current, info, heading, names, depth == 0))
            current, heading = None, ""
            if depth < 0:  # a new part begins although the last block was not closed
                marks, info, current, depth = fence[1], fence[2].strip(), [], 1
        else:
            current.append(line)
    if current is not None:
        blocks.append(_make_block(current, info, heading, names, False))
    return "\n".join(before).strip(), blocks


def _depth_change(fence: re.Match[str], marks: str, names: tuple[str, ...], depth: int) -> int:
    """The change of depth at a fence: -1 closes, 1 nests.

    A change to below zero starts the next part.
    """
    if fence[1][0] != marks[0] or len(fence[1]) < len(marks):
        return 0
    info = fence[2].strip()
    if not info:
        return -1
    return -depth - 1 if _part_and_language(info, names)[0] else 1


def _make_block(
    lines: list[str], info: str, heading: str, names: tuple[str, ...], closed: bool
) -> Block:
    name, tag = _part_and_language(info, names)
    return Block("\n".join(lines), name or heading, tag, closed)


def _part_and_language(info: str, names: tuple[str, ...]) -> tuple[str, str]:
    """Part and language of an info string.

    Forms: `python main.py`, `main.py`, `python:main.py`, `python name=main.py`.
    """
    words = info.split()
    if not words:
        return "", ""
    tag, colon, rest = words[0].partition(":")
    candidates = [*([rest] if colon else []), *words, info]
    for word in candidates:
        bare = _LEAD.sub("", word).strip("\"'`{}")
        if is_part_name(bare, names):
            return bare, "" if words[0].strip("\"'`") == bare else tag.lower()
    return "", tag.lower()


# SEARCH/REPLACE edits: applied exactly or with tolerance for white space, all of them or none.

SEARCH = re.compile(r"^<{5,}[ \t]*SEARCH\s*$", re.MULTILINE)
_MIDDLE = re.compile(r"^={5,}\s*$")
REPLACE = re.compile(r"^>{5,}[ \t]*REPLACE\s*$", re.MULTILINE)


class SearchReplace(msgspec.Struct, frozen=True):
    """A replacement of the lines `search` by the lines `replace` in the part `part`.

    `part` is "" if the reply names none.
    """

    search: tuple[str, ...]
    replace: tuple[str, ...]
    part: str = ""


class Mismatch(ValueError):
    """An edit whose SEARCH text is not in the candidate."""


def read_edits(reply: str, names: tuple[str, ...]) -> list[SearchReplace]:
    """The complete edits of a reply, in order.

    A part's name on a line before an edit applies to all edits after it.
    """
    edits: list[SearchReplace] = []
    part, state = "", "outside"
    search: list[str] = []
    replace: list[str] = []
    for line in reply.split("\n"):
        if state == "outside":
            if SEARCH.match(line):
                state, search, replace = "search", [], []
            else:
                part = named_part(line, names) or part
        elif state == "search":
            if _MIDDLE.match(line):
                state = "replace"
            else:
                search.append(line)
        elif REPLACE.match(line):
            edits.append(SearchReplace(tuple(search), tuple(replace), part))
            state = "outside"
        else:
            replace.append(line)
    return edits


def named_part(line: str, names: tuple[str, ...]) -> str:
    """The part named by a line like a heading; "" if none.

    Forms: `=== main.py ===`, `**main.py**`, `File: main.py`.
    """
    words = line.strip().strip("#=*-`:>[]() \t")
    for lead in ("file", "part", "path", "name"):
        head, colon, rest = words.partition(":")
        if colon and head.strip().lower() == lead:
            words = rest.strip().strip("`*\"'")
    return words if is_part_name(words, names) else ""


def apply_edits(parts: Mapping[str, str], edits: list[SearchReplace]) -> dict[str, str]:
    """The parts after all edits, each applied at the first place that fits.

    Raises `Mismatch` if an edit fits nowhere.
    """
    changed = dict(parts)
    for edit in edits:
        name, text = _apply_edit(changed, edit)
        changed[name] = text
    return changed


def _apply_edit(parts: Mapping[str, str], edit: SearchReplace) -> tuple[str, str]:
    names = [edit.part] if edit.part in parts else list(parts)
    for change in (_replace_exactly, _replace_trimmed, _replace_reindented):
        for name in names:
            text = change(parts[name], edit)
            if text is not None:
                return name, text
    raise Mismatch("\n".join(edit.search)[:200])


def _replace_exactly(text: str, edit: SearchReplace) -> str | None:
    if not edit.search:  # an empty part is filled
        return "\n".join(edit.replace) if not text.strip() else None
    framed, wanted = f"\n{text}\n", _framed_lines(edit.search)
    found = framed.find(wanted)
    if found < 0:
        return None
    return (framed[:found] + _framed_lines(edit.replace) + framed[found + len(wanted) :])[1:-1]


def _replace_trimmed(text: str, edit: SearchReplace) -> str | None:
    lines = text.split("\n")
    start = _find_lines([line.rstrip() for line in lines], [line.rstrip() for line in edit.search])
    return None if start is None else _spliced_text(lines, start, len(edit.search), edit.replace)


def _replace_reindented(text: str, edit: SearchReplace) -> str | None:
    """The text after an edit whose indentation may differ; None if it does not fit.

    The replacement is shifted by the difference in indentation at the first non-empty line.
    """
    lines = text.split("\n")
    start = _find_lines([line.strip() for line in lines], [line.strip() for line in edit.search])
    if start is None or not any(line.strip() for line in edit.search):
        return None
    at = next(i for i, line in enumerate(edit.search) if line.strip())
    there, here = _leading_space(lines[start + at]), _leading_space(edit.search[at])
    return _spliced_text(
        lines,
        start,
        len(edit.search),
        [_reindented_line(line, here, there) for line in edit.replace],
    )


def _framed_lines(lines: Sequence[str]) -> str:
    """Lines as part of a text that begins and ends with a line feed."""
    return "".join(f"\n{line}" for line in lines) + "\n"


def _find_lines(lines: list[str], search: list[str]) -> int | None:
    """Index of the first occurrence of the lines; None without one.

    A search in one joined text takes time proportional to its length.
    """
    found = _framed_lines(lines).find(_framed_lines(search)) if search else -1
    return None if found < 0 else _framed_lines(lines).count("\n", 0, found)


def _spliced_text(lines: list[str], start: int, count: int, replace: Sequence[str]) -> str:
    return "\n".join([*lines[:start], *replace, *lines[start + count :]])


def _leading_space(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _reindented_line(line: str, here: str, there: str) -> str:
    if not line.strip():
        return line
    if line.startswith(here):
        return there + line[len(here) :]
    return there + line.lstrip() if len(_leading_space(line)) < len(here) else line


# Editable text: no frozen parts, and only EVOLVE blocks if these are enforced.

_MARKER = re.compile(r"EVOLVE-BLOCK-(START|END)\b")


class OutsideBlocks(ValueError):
    """The reply cannot be fitted into the parent's editable blocks."""


def inherit_parts(
    parts: Mapping[str, str], parent: Candidate | None, surface: Surface
) -> dict[str, str]:
    """The parent's parts with those of the reply inserted.

    Unknown and frozen names keep the parent's text. Of a set of skills, new ones are added, and one
    whose SKILL.md is empty is dropped with all its files. Raises `OutsideBlocks` if markers are
    enforced and the text between them cannot be determined.
    """
    if parent is None:
        return dict(parts)
    child = dict(parent.parts)
    for name, text in parts.items():
        is_known = name in child
        if name in surface.frozen or not (is_known or surface.skills):
            continue
        text = _same_end(text, child.get(name, ""))
        bounded = is_known and surface.markers == "enforced" and text.strip()
        child[name] = into_blocks(child[name], text) if bounded else text
    return without_empty_skills(child) if surface.skills else child


def without_empty_skills(parts: Mapping[str, str]) -> dict[str, str]:
    """The parts without the folders whose SKILL.md is empty."""
    gone = {
        name.partition("/")[0]
        for name, text in parts.items()
        if not text.strip() and _SKILL_PART.fullmatch(name)
    }
    return {name: text for name, text in parts.items() if name.partition("/")[0] not in gone}


def into_blocks(parent: str, child: str) -> str:
    """The parent's text with the contents of its EVOLVE blocks taken from the child.

    A child without markers is accepted if it kept the text around a single block.
    """
    frame = _block_pieces(parent)
    if len(frame) == 1:
        return parent  # without a block, nothing may change
    pieces = _block_pieces(child)
    if len(pieces) == len(frame):
        merged = [
            mine if i % 2 else theirs
            for i, (theirs, mine) in enumerate(zip(frame, pieces, strict=True))
        ]
        return "\n".join(line for piece in merged for line in piece)
    if len(pieces) > 1 or len(frame) != 3:
        raise OutsideBlocks(f"{len(frame) // 2} blocks expected, {len(pieces) // 2} found")
    return "\n".join(
        [*frame[0], *_lines_between(pieces[0], frame[0][:-1], frame[2][1:]), *frame[2]]
    )


def _block_pieces(text: str) -> list[list[str]]:
    """Lines outside, inside, outside, ... of the outermost blocks.

    The marker lines belong to the outside.
    """
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


def _lines_between(lines: list[str], before: list[str], after: list[str]) -> list[str]:
    start = _matched_line_count(lines, before)
    end = _matched_line_count(lines[::-1], after[::-1])
    if start is None or end is None or start + end > len(lines):
        raise OutsideBlocks("the markers are gone and the text around them changed")
    return lines[start : len(lines) - end]


def _matched_line_count(lines: list[str], expected: list[str]) -> int | None:
    """Number of lines that match the expected ones, ignoring empty lines; None if they differ."""
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
    """The text, ending with a line feed exactly if `like` does or is empty."""
    text = text.rstrip("\n")
    return text + "\n" if like.endswith("\n") or not like else text
