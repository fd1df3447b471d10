"""Fenced blocks in a model's reply, whatever stands around them."""

from __future__ import annotations

import re

import msgspec

from culmen.prompts.diff import named_in

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})[ \t]*([^`\n]*)$")
_THOUGHT = re.compile(r"\A\s*<(think|thinking|reasoning)>.*?</\1>", re.DOTALL | re.IGNORECASE)
_LEAD = re.compile(r"^(?:name|file|filename|path|title|part)[=:]", re.IGNORECASE)


class Block(msgspec.Struct, frozen=True):
    """One fenced block: `name` the part it names ("" if none), `tag` its language, `closed` whether it has an end."""

    text: str
    name: str = ""
    tag: str = ""
    closed: bool = True


def without_thoughts(reply: str) -> str:
    """The reply without the thinking that some models put in front."""
    return _THOUGHT.sub("", reply, count=1)


def read_blocks(reply: str, names: tuple[str, ...] = ()) -> tuple[str, list[Block]]:
    """The text before the first block, and the blocks in order.

    A block is closed by a bare fence as long as its own; fences with a language inside it open a nested block, unless
    they name another part of the candidate. A block left open ends with the reply.
    """
    before: list[str] = []
    blocks: list[Block] = []
    current: list[str] | None = None
    marks = info = heading = ""
    depth = 0
    for line in reply.split("\n"):
        fence = _FENCE.match(line)
        if current is None:
            if fence:
                marks, info, current, depth = fence[1], fence[2].strip(), [], 1
            elif not blocks:
                before.append(line)
            heading = (named_in(line, names) or (heading if not line.strip() else "")) if not fence else heading
            continue
        depth += _step(fence, marks, names, depth)
        if depth == 0 or depth < 0:
            blocks.append(_block(current, info, heading, names, depth == 0))
            current, heading = None, ""
            if depth < 0 and fence:  # a new part begins although the last block was not closed
                marks, info, current, depth = fence[1], fence[2].strip(), [], 1
        else:
            current.append(line)
    if current is not None:
        blocks.append(_block(current, info, heading, names, False))
    return "\n".join(before).strip(), blocks


def _step(fence: re.Match[str] | None, marks: str, names: tuple[str, ...], depth: int) -> int:
    """By how much a line changes the depth: -1 closes, 1 nests, below zero in all starts the next part."""
    if fence is None or fence[1][0] != marks[0] or len(fence[1]) < len(marks):
        return 0
    info = fence[2].strip()
    if not info:
        return -1
    return -depth - 1 if _info(info, names)[0] else 1


def _block(lines: list[str], info: str, heading: str, names: tuple[str, ...], closed: bool) -> Block:
    name, tag = _info(info, names)
    return Block("\n".join(lines), name or heading, tag, closed)


def _info(info: str, names: tuple[str, ...]) -> tuple[str, str]:
    """Part and language of an info string (`python main.py`, `main.py`, `python:main.py`, `python name=main.py`)."""
    words = info.split()
    if not words:
        return "", ""
    tag, colon, rest = words[0].partition(":")
    candidates = [*([rest] if colon else []), *words, info]
    for word in candidates:
        bare = _LEAD.sub("", word).strip("\"'`{}")
        if bare in names:
            return bare, "" if words[0].strip("\"'`") == bare else tag.lower()
    return "", tag.lower()
