"""The built-in agent: a loop on culmen's model gateway with tools.

Its conversation is of bounded length. Every reply and every tool call is an effect, so an
interrupted run resumes in the middle of a session.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

import msgspec

from culmen.core.brief import Text
from culmen.core.foreign import Unreadable, boundary
from culmen.core.json import JsonObject
from culmen.core.ports import Lab
from culmen.core.replies.fences import Fence, read_blocks
from culmen.core.replies.thoughts import without_thoughts
from culmen.core.wording import clip_middle, fence_text
from culmen.extensions.agents.messages import ExperimentRow
from culmen.extensions.agents.team import texts
from culmen.extensions.agents.team.offline import OfflineAgent
from culmen.extensions.agents.team.workspace import REASONS, AgentWorkspace

ROLE = "agent"
_PATIENCE = 3  # consecutive replies without an action


@dataclass(frozen=True)
class BuiltinAgent:
    """Agent driven by the model of the role `agent`; without a model, the offline agent.

    `context` is the number of characters of conversation that are kept.
    """

    context: int = 120_000

    @property
    def manual(self) -> str:
        """Explanation of how to request experiments."""
        return "Candidates are evaluated by culmen, never by you: use the tool `evaluate`."

    async def work(self, lab: Lab, workspace: AgentWorkspace) -> str:
        """Work until the model finishes, its limits are used up, or its replies hold no actions."""
        tools = WorkspaceTools(lab, workspace)
        conversation = ModelConversation(
            texts.fill_template("builtin"), await tools.briefing(), self.context
        )
        wasted = closed = 0
        # replies that an agent may make after its workspace is closed
        while wasted < _PATIENCE and closed < 3 and not tools.word:
            if conversation.is_full:
                conversation.replace_by_summary(
                    await self._request_summary(workspace, conversation)
                )
            text = await workspace.ask_model(ROLE, messages=conversation.messages)
            if text is None:
                return ""
            if _no_model(text):
                lab.note(
                    "stand-in",
                    agent=workspace.agent,
                    why="there is no model: the offline agent works instead",
                )
                return await OfflineAgent().work(lab, workspace)
            closed += bool(workspace.closing_reason)
            useful = await self._run_turn(workspace, tools, conversation, text)
            wasted = 0 if useful else wasted + 1
        if wasted == _PATIENCE:
            workspace.ended = "malformed"
        return tools.word

    async def _run_turn(
        self,
        workspace: AgentWorkspace,
        tools: WorkspaceTools,
        conversation: ModelConversation,
        text: Text,
    ) -> bool:
        """Perform the actions of one reply and answer with the results; True if there were any."""
        try:
            actions, complaint = read_actions(text.text)
        except Unreadable as error:
            actions, complaint = [], error.what
        if text.fault and not actions:
            complaint = f"the reply was {text.fault.replace('_', ' ')}"
        if text.text.strip():
            conversation.add_reply(without_thoughts(text.text))
        results = [await tools.perform_tool_action(action) for action in actions]
        if complaint:
            results.append(texts.fill_template("malformed", complaint=complaint))
        results.append(_status_line(workspace))
        conversation.add_results("\n\n".join(results))
        return bool(actions)

    async def _request_summary(
        self, workspace: AgentWorkspace, conversation: ModelConversation
    ) -> str:
        text = await workspace.ask_model(
            ROLE, messages=conversation.messages_with_request(texts.fill_template("recall"))
        )
        return "" if text is None else without_thoughts(text.text)


def _no_model(text: Text) -> bool:
    return text.fault == "no_model" or (not text.text and text.model == "offline")


def _status_line(workspace: AgentWorkspace) -> str:
    """State of the limits and the best score, appended to every answer."""
    if workspace.closing_reason:
        return texts.fill_template(
            "closing", why=REASONS.get(workspace.closing_reason, workspace.closing_reason)
        )
    best, limit = workspace.history.best, workspace.limits.get("experiments")
    used = (
        f"{workspace.taken} experiments"
        if limit is None
        else f"{workspace.taken} of {limit:.0f} experiments"
    )
    score = (
        "nothing has scored"
        if best is None
        else f"best so far {workspace.history.decisive_score(best)!r} ({best.candidate})"
    )
    return f"({used} used; {score}.)"


# Actions in a model's reply: fenced blocks of JSON, one action each, which any model can write.

_ACTION_TAGS = ("json", "action", "tool")

# required and optional arguments of each tool
TOOLS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "command": (("command",), ("seconds",)),
    "read": (("path",), ("offset", "limit")),
    "write": (("path", "text"), ()),
    "append": (("path", "text"), ()),
    "edit": (("path", "old", "new"), ()),
    "list": ((), ("path",)),
    "evaluate": (("files",), ("note", "parents")),
    "report": (("text",), ()),
    "finish": (("word",), ()),
}
_LISTS = ("files", "parents")
_NUMBERS = ("seconds", "offset", "limit")
_BODY = ("write", "append")


class Action(NamedTuple):
    """One call of a tool."""

    tool: str
    arguments: JsonObject


class _Block(NamedTuple):
    tag: str
    text: str


@boundary()
def read_actions(reply: str) -> tuple[list[Action], str]:
    """The actions of a reply in order, and a complaint ("" if there is none)."""
    text = without_thoughts(reply)
    blocks = _fenced_blocks(text) or (
        [_Block("json", text)] if text.lstrip().startswith("{") else []
    )
    actions: list[Action] = []
    complaint, index = "", 0
    while index < len(blocks) and len(actions) < 16 and not complaint:  # actions of one reply
        block = blocks[index]
        index += 1
        raw = _action_object(block)
        if isinstance(raw, str):
            complaint = raw
            continue
        if raw is None:
            continue
        if (
            raw.get("tool") in _BODY
            and "text" not in raw
            and index < len(blocks)
            and _action_object(blocks[index]) is None
        ):
            raw = {**raw, "text": blocks[index].text}
            index += 1
        action = _parse_action(raw)
        if isinstance(action, str):
            complaint = action
        else:
            actions.append(action)
    if not actions and not complaint:
        complaint = "there is no action in the reply"
    return actions, complaint


def _action_object(block: _Block) -> JsonObject | str | None:
    """The object of an action block; a complaint if it is invalid; None for another block."""
    if block.tag not in ("", *_ACTION_TAGS):
        return None
    meant = block.tag in ("action", "tool") or '"tool"' in block.text
    try:
        value = json.loads(block.text, strict=False)  # models write line breaks in strings
    except (ValueError, RecursionError) as error:
        return f"an action is not valid JSON: {error}" if meant else None
    if not isinstance(value, dict) or "tool" not in value:
        return 'an action must be an object with the key "tool"' if meant else None
    return cast(JsonObject, value)


def _parse_action(raw: JsonObject) -> Action | str:
    tool = str(raw.pop("tool"))
    if tool not in TOOLS:
        return f"there is no tool '{tool}'; there are {', '.join(TOOLS)}"
    needed, optional = TOOLS[tool]
    values = (
        dict(cast(JsonObject, raw.pop("arguments")))
        if isinstance(raw.get("arguments"), dict)
        else raw
    )
    missing = [name for name in needed if name not in values]
    if missing:
        return f"{tool} needs {', '.join(missing)}"
    arguments: JsonObject = {}
    for name in (*needed, *optional):
        if name in values:
            value = _argument_value(name, values[name])
            if value is None:
                return f"{tool}: {name} cannot be {json.dumps(values[name])[:100]}"
            arguments[name] = value
    return Action(tool, arguments)


def _argument_value(name: str, value: object) -> object:
    """The argument in its type; None if the value does not fit."""
    if name in _LISTS:
        items = cast(list[object], value) if isinstance(value, list) else [value]
        return (
            [str(item) for item in items] if all(isinstance(item, str) for item in items) else None
        )
    if name in _NUMBERS:
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e6:
            return int(value)
        return None
    return value if isinstance(value, str) else None


def _fenced_blocks(text: str) -> list[_Block]:
    """Fenced blocks of a text; an unclosed block ends with the text."""
    lines = text.split("\n")
    found = read_blocks(lines, lambda _, ends, __: ends[0] if ends else None, _is_action)
    return [_Block(block.opening.info.lower(), block.text) for block in found]


def _is_action(fence: Fence) -> bool:
    return fence.info.lower() in _ACTION_TAGS


# The conversation between an agent and its model, of bounded length: old messages are shortened,
# then summarised.

Message = dict[str, str]
_KEPT = 160  # characters that are kept of a cut message
_PIECE = 8  # a message takes at most one part in this many of the capacity


class ModelConversation:
    """A conversation of at most `capacity` characters.

    The system prompt and the first message stay; then replies and answers alternate.
    """

    def __init__(self, system: str, first: str, capacity: int) -> None:
        self._head: list[Message] = [
            _chat_message("system", system),
            _chat_message("user", clip_middle(first, capacity * 2 // 5)),
        ]
        self._tail: list[Message] = []
        # `_limit` leaves room for one more exchange
        self._capacity, self._limit = (
            capacity,
            capacity - 2 * (capacity // _PIECE),
        )

    @property
    def messages(self) -> list[Message]:
        """All messages, as they would be sent now."""
        return [*self._head, *self._tail]

    @property
    def is_full(self) -> bool:
        """True if shortened messages no longer fit: then `replace_by_summary` is needed."""
        return self._total_characters() > self._limit

    def add_reply(self, reply: str) -> None:
        """Add the model's reply."""
        self._tail.append(
            _chat_message("assistant", clip_middle(reply, self._capacity // _PIECE) or "(nothing)")
        )
        self._shorten_old_messages()

    def add_results(self, text: str) -> None:
        """Add the answer to the model's reply."""
        self._tail.append(_chat_message("user", clip_middle(text, self._capacity // _PIECE)))
        self._shorten_old_messages()

    def messages_with_request(self, request: str) -> list[Message]:
        """The messages with one more request, which is not kept."""
        if self._tail and self._tail[-1]["role"] == "user":
            last = _chat_message("user", f"{self._tail[-1]['content']}\n\n{request}")
            return [*self._head, *self._tail[:-1], last]
        return [*self.messages, _chat_message("user", request)]

    def replace_by_summary(self, summary: str) -> None:
        """Replace all messages except the last answer by a summary."""
        last = self._tail[-1]["content"] if self._tail and self._tail[-1]["role"] == "user" else ""
        kept = clip_middle(summary, self._capacity // _PIECE) or "(no summary could be had)"
        text = f"# What you did so far, in your own words\n\n{kept}\n\n{last}".strip()
        self._tail = [
            _chat_message("assistant", "I go on from my summary."),
            _chat_message("user", text),
        ]

    def _shorten_old_messages(self) -> None:
        """Cut old messages, the oldest first, until there is room."""
        for index in range(max(0, len(self._tail) - 6)):  # messages that are never shortened
            if self._total_characters() <= self._limit:
                return
            old = self._tail[index]
            if len(old["content"]) > 400:  # characters beyond which an old message is cut
                self._tail[index] = _chat_message(old["role"], clip_middle(old["content"], _KEPT))

    def _total_characters(self) -> int:
        return sum(len(message["content"]) for message in self.messages)


def _chat_message(role: str, content: str) -> Message:
    return {"role": role, "content": content}


# The tools of the built-in agent: those of its work tree are effects.

_TREE = ("command", "read", "write", "append", "edit", "list")
_ROWS = 20  # experiments listed at once
_BRIEF = ("n", "agent", "candidate", "path", "score", "certified", "status", "reason", "note")


class WorkspaceTools:
    """Tools that perform a model's actions in a workspace.

    `word` is the agent's last message, set by the tool `finish`; "" before.
    """

    def __init__(self, lab: Lab, workspace: AgentWorkspace) -> None:
        self._lab, self._workspace, self.word = lab, workspace, ""

    async def briefing(self) -> str:
        """The first message: the task, reflections of earlier agents, and the best so far."""
        parts = [(await self._workspace.use_tool("read", path="TASK.md")).text]
        parts.append(texts.leaderboard_text(self._workspace.history))
        reflections = await self._workspace.use_tool("read", path="reflections.md")
        if reflections.text.strip():
            parts.append(f"# reflections.md\n\n{reflections.text.strip()}")
        history = self._workspace.history
        if history.best is not None:
            best = history.candidates[history.best.candidate].parts.items()
            shown = "\n".join(fence_text(text, part) for part, text in best)
            parts.append(f"# The best so far\n\n{shown}")
        return "\n\n".join(parts)

    async def perform_tool_action(self, action: Action) -> str:
        """Perform an action; return its result as text for the model."""
        arguments = action.arguments
        if action.tool in _TREE:
            return _titled_result(action, await self._use_tree_tool(action.tool, arguments))
        if action.tool == "evaluate":
            return _titled_result(action, await self._evaluate_files(arguments))
        if action.tool == "report":
            self._lab.note("report", agent=self._workspace.agent, text=arguments["text"])
            return _titled_result(action, "passed on")
        self.word = arguments["word"] or "finished"
        return _titled_result(action, "goodbye")

    async def _use_tree_tool(self, tool: str, arguments: JsonObject) -> str:
        if tool == "command":
            output = await self._workspace.run_in_tree(
                arguments["command"], float(arguments.get("seconds", 120))
            )
        else:
            output = await self._workspace.use_tool(tool, **arguments)
        outcome = (
            f"failed: {output.fault}"
            if output.fault
            else (f"exit code {output.code}" if tool == "command" else "done")
        )
        return f"{outcome}\n{output.text}" if output.text else outcome

    async def _evaluate_files(self, arguments: JsonObject) -> str:
        """Evaluate the current contents of files in parallel."""
        experiments = await self._workspace.queue_files(
            arguments["files"], arguments.get("note", ""), arguments.get("parents", ())
        )
        return _row_lines(await self._workspace.experiments(experiments))


def _titled_result(action: Action, text: str) -> str:
    about = next((str(value) for name, value in action.arguments.items() if name != "text"), "")
    # characters of one result
    return f"## {action.tool} {clip_middle(about, 100)}\n{clip_middle(text.strip(), 8_000)}"


def _row_lines(rows: Sequence[ExperimentRow]) -> str:
    """Rows as JSON lines, with metrics and the evaluator's feedback."""
    lines: list[str] = []
    for row in rows[:_ROWS]:
        fields = {name: value for name in _BRIEF if (value := getattr(row, name)) not in (None, "")}
        fields |= {
            "metrics": row.metrics,
            "feedback": clip_middle(row.feedback, 1500),
            "seconds": round(row.seconds, 3),
        }
        lines.append(msgspec.json.encode(fields).decode())
    if len(rows) > _ROWS:
        lines.append(f"and {len(rows) - _ROWS} more")
    return "\n".join(lines) or "nothing"
