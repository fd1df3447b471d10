"""Merging what an agent changed into a trunk that moved on, on paths and texts alone."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

SHARED = "reflections.md"


@dataclass
class Merged:
    """What to change in the trunk: path -> bytes to write, None to remove; `conflicts` are paths kept twice."""

    changes: dict[str, bytes | None] = field(default_factory=dict[str, bytes | None])
    conflicts: list[str] = field(default_factory=list[str])


def blob(data: bytes) -> str:
    """The name that git gives to a file of these bytes."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def allowed(path: str, agent: str) -> bool:
    """Whether an agent's change of this path is taken: its own candidates and notes, and the shared reflections."""
    return path.startswith(f"candidates/{agent}/") or path in (f"notes/{agent}.md", SHARED)


def merge(
    base: Mapping[str, str],
    trunk: Mapping[str, str],
    changes: Mapping[str, bytes | None],
    agent: str,
    read: Callable[[str], bytes],
) -> Merged:
    """Take `changes` made from `base` into `trunk` (both path -> git's name of the content, which `read` fetches).

    A path the trunk has not touched since takes the change. reflections.md is united line by line. Anything else that
    both have changed stays as the trunk has it, with the agent's version beside it under conflicts/aNN/.
    """
    merged = Merged()
    for path, new in changes.items():
        mine, theirs = trunk.get(path), None if new is None else blob(new)
        if mine == theirs:
            continue
        if mine == base.get(path):
            merged.changes[path] = new
        elif path == SHARED and new is not None and mine is not None:
            old = read(base[path]) if path in base else b""
            merged.changes[path] = union(old, read(mine), new)
        else:
            merged.conflicts.append(path)
            if new is not None:
                merged.changes[f"conflicts/{agent}/{path}"] = new
    return merged


def union(base: bytes, ours: bytes, theirs: bytes) -> bytes:
    """Three-way merge by lines in which both sides' additions are kept, ours first.

    A line of the base goes if either side removed it; equal insertions at the same place are kept once.
    """
    old = _lines(base)
    sides = [_edits(old, _lines(text)) for text in (ours, theirs)]
    out: list[str] = []
    for place in range(len(old) + 1):
        first, second = (side.inserted.get(place, []) for side in sides)
        out += first if first == second else [*first, *second]
        if place < len(old) and not any(place in side.removed for side in sides):
            out.append(old[place])
    return "".join(out).encode("utf-8", "surrogateescape")


@dataclass
class _Edits:
    inserted: dict[int, list[str]] = field(default_factory=dict[int, list[str]])
    removed: set[int] = field(default_factory=set[int])


def _edits(old: list[str], new: list[str]) -> _Edits:
    edits = _Edits()
    for tag, i1, i2, j1, j2 in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag != "equal":
            edits.removed.update(range(i1, i2))
            if j2 > j1:
                edits.inserted[i1] = new[j1:j2]
    return edits


def _lines(data: bytes) -> list[str]:
    """Lines, the last one ended too, so that what is added does not run into it."""
    text = data.decode("utf-8", "surrogateescape")
    if text and not text.endswith("\n"):
        text += "\n"
    return text.splitlines(keepends=True)
