"""SEARCH/REPLACE edits: read from a reply, applied exactly or with tolerance for white space, all or none."""

from __future__ import annotations

import re
from collections.abc import Mapping

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
    for find in (_exact, _loose_end, _loose):
        for name in names:
            lines = parts[name].split("\n")
            found = find(lines, edit)
            if found is not None:
                start, replacement = found
                after = lines[start + len(edit.search) :] if edit.search else []
                return name, "\n".join([*lines[:start], *replacement, *after])
    raise Mismatch("\n".join(edit.search)[:200])


def _exact(lines: list[str], edit: Edit) -> tuple[int, tuple[str, ...]] | None:
    if not edit.search:  # an empty part is filled
        return (0, edit.replace) if not "".join(lines).strip() else None
    return _find(lines, list(edit.search), edit.replace)


def _loose_end(lines: list[str], edit: Edit) -> tuple[int, tuple[str, ...]] | None:
    return _find([line.rstrip() for line in lines], [line.rstrip() for line in edit.search], edit.replace)


def _loose(lines: list[str], edit: Edit) -> tuple[int, tuple[str, ...]] | None:
    """Indentation may differ; the replacement is moved by the difference at the first line that has text."""
    found = _find([line.strip() for line in lines], [line.strip() for line in edit.search], edit.replace)
    if found is None or not any(line.strip() for line in edit.search):
        return None
    start = found[0]
    at = next(i for i, line in enumerate(edit.search) if line.strip())
    there, here = _indent(lines[start + at]), _indent(edit.search[at])
    return start, tuple(_moved(line, here, there) for line in edit.replace)


def _find(lines: list[str], search: list[str], replace: tuple[str, ...]) -> tuple[int, tuple[str, ...]] | None:
    if not search:
        return None
    for start in range(len(lines) - len(search) + 1):
        if lines[start] == search[0] and lines[start : start + len(search)] == search:
            return start, replace
    return None


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _moved(line: str, here: str, there: str) -> str:
    if not line.strip():
        return line
    if line.startswith(here):
        return there + line[len(here) :]
    return there + line.lstrip() if len(_indent(line)) < len(here) else line
