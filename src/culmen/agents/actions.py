"""What a model asks for in a reply: fenced blocks of JSON, one action each, which any model can write.

    ```json
    {"tool": "write", "path": "candidates/a00/one.py"}
    ```
    ```python
    def run(): ...
    ```

A `write` or `append` without `text` takes the block that follows it. Everything else in a reply is thought.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple, cast

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})[ \t]*([^`\n]*)$")
_THOUGHT = re.compile(r"\A\s*<(think|thinking|reasoning)>.*?</\1>", re.DOTALL | re.IGNORECASE)
_MOST = 16  # actions of one reply

TOOLS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {  # what each needs, and what it may be given
    "command": (("command",), ("seconds",)),
    "read": (("path",), ("offset", "limit")),
    "write": (("path", "text"), ()),
    "append": (("path", "text"), ()),
    "edit": (("path", "old", "new"), ()),
    "list": ((), ("path",)),
    "evaluate": (("files",), ("note", "parents")),
    "best": ((), ("k",)),
    "history": ((), ("where", "top", "last")),
    "show": (("candidate",), ()),
    "diff": (("one", "other"), ()),
    "report": (("text",), ()),
    "finish": (("word",), ()),
}
_LISTS = ("files", "parents", "where")
_NUMBERS = ("seconds", "offset", "limit", "k", "top", "last")
_BODY = ("write", "append")


class Action(NamedTuple):
    """One call of a tool."""

    tool: str
    arguments: dict[str, Any]


class _Block(NamedTuple):
    tag: str
    text: str


def read(reply: str) -> tuple[list[Action], str]:
    """The actions of a reply in order, and what is wrong with it ("" if nothing is)."""
    text = without_thoughts(reply)
    blocks = _blocks(text) or ([_Block("json", text)] if text.lstrip().startswith("{") else [])
    actions: list[Action] = []
    complaint, place = "", 0
    while place < len(blocks) and len(actions) < _MOST and not complaint:
        block = blocks[place]
        place += 1
        raw = _json(block)
        if isinstance(raw, str):
            complaint = raw
            continue
        if raw is None:
            continue
        if raw.get("tool") in _BODY and "text" not in raw and place < len(blocks) and _json(blocks[place]) is None:
            raw = {**raw, "text": blocks[place].text}
            place += 1
        action = _action(raw)
        if isinstance(action, str):
            complaint = action
        else:
            actions.append(action)
    if not actions and not complaint:
        complaint = "there is no action in the reply"
    return actions, complaint


def without_thoughts(reply: str) -> str:
    """The reply without the thinking that some models put in front."""
    return _THOUGHT.sub("", reply, count=1)


def _json(block: _Block) -> dict[str, Any] | str | None:
    """The object of an action block, None for another block, a complaint for one that was meant and cannot be read."""
    if block.tag not in ("", "json", "action", "tool"):
        return None
    meant = block.tag in ("action", "tool") or '"tool"' in block.text
    try:
        value = json.loads(block.text, strict=False)  # line breaks in texts are what models write
    except (ValueError, RecursionError) as error:
        return f"an action is not valid JSON: {error}" if meant else None
    if not isinstance(value, dict) or "tool" not in value:
        return 'an action must be an object with the key "tool"' if meant else None
    return cast(dict[str, Any], value)


def _action(raw: dict[str, Any]) -> Action | str:
    tool = str(raw.pop("tool"))
    if tool not in TOOLS:
        return f"there is no tool '{tool}'; there are {', '.join(TOOLS)}"
    needed, optional = TOOLS[tool]
    given = dict(cast(dict[str, Any], raw.pop("arguments"))) if isinstance(raw.get("arguments"), dict) else raw
    missing = [name for name in needed if name not in given]
    if missing:
        return f"{tool} needs {', '.join(missing)}"
    arguments: dict[str, Any] = {}
    for name in (*needed, *optional):
        if name in given:
            value = _value(name, given[name])
            if value is None:
                return f"{tool}: {name} cannot be {json.dumps(given[name])[:100]}"
            arguments[name] = value
    return Action(tool, arguments)


def _value(name: str, value: Any) -> Any:
    """The argument in its type, None if it has no such value."""
    if name in _LISTS:
        items = cast(list[Any], value) if isinstance(value, list) else [value]
        return [str(item) for item in items] if all(isinstance(item, str) for item in items) else None
    if name in _NUMBERS:
        number = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e6
        return int(value) if number else None
    return value if isinstance(value, str) else None


def _blocks(text: str) -> list[_Block]:
    """Fenced blocks; one that is left open ends with the text."""
    blocks: list[_Block] = []
    marks, tag, lines = "", "", list[str]()
    for line in text.split("\n"):
        fence = _FENCE.match(line)
        if not marks and fence:
            marks, tag, lines = fence[1], fence[2].strip().lower(), []
        elif marks and fence and fence[1][0] == marks[0] and len(fence[1]) >= len(marks) and not fence[2].strip():
            blocks.append(_Block(tag, "".join(f"{one}\n" for one in lines)))
            marks = ""
        elif marks:
            lines.append(line)
    return [*blocks, _Block(tag, "".join(f"{one}\n" for one in lines))] if marks else blocks
