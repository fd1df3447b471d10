"""A scripted model: turns of text and tool calls, whatever the wire format of the client."""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from culmen.models.call import Tokens

_SHELLS = (
    "bash",
    "shell",
    "exec_command",
    "shell_command",
    "run_shell_command",
    "local_shell",
    "execute_command",
)
_WRITERS = ("write", "write_file")


@dataclass(frozen=True)
class ToolCall:
    """A call of one of the agent's tools.

    `arguments` is an object, or a text for tools that take free text.
    """

    name: str
    arguments: dict[str, Any] | str = field(default_factory=dict)


@dataclass(frozen=True)
class Turn:
    """One reply: text, then tool calls.

    `tokens` is the cost that it states (None: a quarter of the characters).
    """

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    tokens: Tokens | None = None


@dataclass(frozen=True)
class Item:
    """One piece of a conversation.

    `role` is system, user, assistant or tool; `name` and `arguments` are those of an assistant's
    tool call, `text` a message's text or a tool's result.
    """

    role: str
    text: str = ""
    name: str = ""
    arguments: Any = None


@dataclass(frozen=True)
class Asked:
    """One request of a client.

    `format` is chat, responses, messages or gemini; `tools` maps names to JSON schemas of arguments
    (empty for tools that take free text, those are in `free`); `body` is the request as it came.
    """

    format: str
    model: str
    items: tuple[Item, ...]
    tools: dict[str, dict[str, Any]]
    free: frozenset[str]
    stream: bool
    body: dict[str, Any]

    @property
    def rounds(self) -> int:
        """The count of the model's turns in this conversation.

        Pieces without another's word between are one.
        """
        roles = [item.role for item in self.items if item.role != "system"]
        return sum(
            role == "assistant" and (i == 0 or roles[i - 1] != role) for i, role in enumerate(roles)
        )

    @property
    def results(self) -> tuple[str, ...]:
        """All results of tools so far."""
        return tuple(item.text for item in self.items if item.role == "tool")

    @property
    def text(self) -> str:
        """The text of all users' messages."""
        return "\n\n".join(item.text for item in self.items if item.role == "user")

    def tool(self, *names: str) -> str:
        """The first of these tools that the agent offers, in any case of letters; "" for none."""
        offered = {name.lower(): name for name in self.tools}
        return next((offered[name.lower()] for name in names if name.lower() in offered), "")

    def shell(self, command: str) -> ToolCall:
        """A call that runs a shell command with the agent's own tool.

        Raises `LookupError` if it has none.
        """
        name = self.tool(*_SHELLS)
        if not name:
            raise LookupError(f"no shell among the tools {sorted(self.tools)}")
        properties = _properties(self.tools[name])
        field_name = next((key for key in ("command", "cmd") if key in properties), "command")
        several = properties.get(field_name, {}).get("type") == "array"
        return ToolCall(
            name, self._filled(name, {field_name: ["bash", "-lc", command] if several else command})
        )

    def write(self, path: str, content: str) -> ToolCall:
        """A call that writes a file, with the agent's own tool for it or else by its shell."""
        name = self.tool(*_WRITERS)
        if not name:
            packed = base64.b64encode(content.encode()).decode()
            return self.shell(f"printf %s {packed} | base64 -d > {shlex.quote(path)}")
        properties = _properties(self.tools[name])
        field_name = next(
            (key for key in ("file_path", "filePath", "path") if key in properties), "path"
        )
        return ToolCall(name, self._filled(name, {field_name: path, "content": content}))

    def _filled(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Texts for whatever else the tool's schema requires."""
        required = self.tools[name].get("required") or []
        return {**{key: "scripted" for key in required if key not in arguments}, **arguments}


Script = Callable[[Asked], Turn] | Sequence[Turn]


def play(script: Script, asked: Asked) -> Turn:
    """The turn of the script for a request.

    Of a sequence the turn is chosen by how often the model has spoken in this conversation, so that
    side questions (titles, summaries) do not disturb it: a request without tools gets no tool
    calls.
    """
    if callable(script):
        return script(asked)
    turn = script[asked.rounds] if asked.rounds < len(script) else Turn("done")
    return (
        turn if asked.tools or not turn.calls else Turn(turn.text or "scripted", tokens=turn.tokens)
    )


def counted(turn: Turn, asked: Asked) -> Tokens:
    """The cost of a turn, as the server reports it."""
    if turn.tokens is not None:
        return turn.tokens
    said = turn.text + "".join(as_text(call.arguments) for call in turn.calls)
    return Tokens(len(json.dumps(asked.body)) // 4 + 1, len(said) // 4 + 1)


def as_text(arguments: object) -> str:
    """Arguments as the wire has them: JSON, or the free text."""
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def pieces(text: str, size: int = 12) -> list[str]:
    """A text in the pieces in which a stream brings it."""
    return [text[i : i + size] for i in range(0, len(text), size)]


def flat(content: object) -> str:
    """The text of a message's content: a string, or a list of parts."""
    if isinstance(content, list):
        return "".join(
            flat(part.get("text", part.get("content")))
            for part in content
            if isinstance(part, dict)
        )
    return content if isinstance(content, str) else "" if content is None else json.dumps(content)


def _properties(schema: dict[str, Any]) -> dict[str, Any]:
    found = schema.get("properties")
    return found if isinstance(found, dict) else {}
