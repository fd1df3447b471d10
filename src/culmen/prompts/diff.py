"""SEARCH/REPLACE edits: read from a reply, applied exactly or with tolerance for white space, all or none."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

_SEARCH = re.compile(r"^<{5,}\s*SEARCH\s*$")
_MIDDLE = re.compile(r"^={5,}\s*$")
_REPLACE = re.compile(r"^>{5,}\s*REPLACE\s*$")


class Edit(msgspec.Struct, frozen=True):
    """Replace the lines `search` by the lines `replace`, in the part `part` ("" if the reply did not say)."""

    search: tuple[str, ...]
    replace: tuple[str, ...]
    part: str = ""


class Mismatch(ValueError):
    """An edit whose SEARCH text is not in the candidate."""


def read_edits(reply: str, names: tuple[str, ...]) -> list[Edit]:
    """The complete edits of a reply, in order; a part's name on a line before an edit holds for those that follow."""
    edits: list[Edit] = []
    part, state = "", "outside"
    search: list[str] = []
    replace: list[str] = []
    for line in reply.split("\n"):
        if state == "outside":
            if _SEARCH.match(line):
                state, search, replace = "search", [], []
            else:
                part = named_in(line, names) or part
        elif state == "search":
            if _MIDDLE.match(line):
                state = "replace"
            else:
                search.append(line)
        elif _REPLACE.match(line):
            edits.append(Edit(tuple(search), tuple(replace), part))
            state = "outside"
        else:
            replace.append(line)
    return edits


def named_in(line: str, names: tuple[str, ...]) -> str:
    """The part that a heading-like line names (`=== main.py ===`, `**main.py**`, `File: main.py`), or ""."""
    words = line.strip().strip("#=*-`:>[]() \t")
    for lead in ("file", "part", "path", "name"):
        head, colon, rest = words.partition(":")
        if colon and head.strip().lower() == lead:
            words = rest.strip().strip("`*\"'")
    return words if words in names else ""


def apply_edits(parts: Mapping[str, str], edits: list[Edit]) -> dict[str, str]:
    """The parts after all edits, each applied at the first place that fits. Raises `Mismatch` if one fits nowhere."""
    changed = dict(parts)
    for edit in edits:
        name, text = _placed(changed, edit)
        changed[name] = text
    return changed


def _placed(parts: Mapping[str, str], edit: Edit) -> tuple[str, str]:
    names = [edit.part] if edit.part in parts else list(parts)
    for change in (_exact, _loose_end, _loose):
        for name in names:
            text = change(parts[name], edit)
            if text is not None:
                return name, text
    raise Mismatch("\n".join(edit.search)[:200])


def _exact(text: str, edit: Edit) -> str | None:
    if not edit.search:  # an empty part is filled
        return "\n".join(edit.replace) if not text.strip() else None
    framed, wanted = f"\n{text}\n", _framed(edit.search)
    found = framed.find(wanted)
    if found < 0:
        return None
    return (framed[:found] + _framed(edit.replace) + framed[found + len(wanted) :])[1:-1]


def _loose_end(text: str, edit: Edit) -> str | None:
    lines = text.split("\n")
    start = _find([line.rstrip() for line in lines], [line.rstrip() for line in edit.search])
    return None if start is None else _spliced(lines, start, len(edit.search), edit.replace)


def _loose(text: str, edit: Edit) -> str | None:
    """Indentation may differ; the replacement is moved by the difference at the first line that has text."""
    lines = text.split("\n")
    start = _find([line.strip() for line in lines], [line.strip() for line in edit.search])
    if start is None or not any(line.strip() for line in edit.search):
        return None
    at = next(i for i, line in enumerate(edit.search) if line.strip())
    there, here = _indent(lines[start + at]), _indent(edit.search[at])
    return _spliced(lines, start, len(edit.search), [_moved(line, here, there) for line in edit.replace])


def _framed(lines: Sequence[str]) -> str:
    """Whole lines as they stand inside a text that begins and ends with a line break."""
    return "".join(f"\n{line}" for line in lines) + "\n"


def _find(lines: list[str], search: list[str]) -> int | None:
    """Where the lines first occur. A search in one joined text takes time in proportion to its length."""
    found = _framed(lines).find(_framed(search)) if search else -1
    return None if found < 0 else _framed(lines).count("\n", 0, found)


def _spliced(lines: list[str], start: int, count: int, replace: Sequence[str]) -> str:
    return "\n".join([*lines[:start], *replace, *lines[start + count :]])


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _moved(line: str, here: str, there: str) -> str:
    if not line.strip():
        return line
    if line.startswith(here):
        return there + line[len(here) :]
    return there + line.lstrip() if len(_indent(line)) < len(here) else line
