"""The tools of the built-in agent: those of its work tree are effects, the history is asked here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from culmen.agents import texts
from culmen.agents.actions import Action
from culmen.agents.desk import Desk
from culmen.core.ports import Lab
from culmen.core.session import ExperimentRow
from culmen.core.wording import clip, fence

_TREE = ("command", "read", "write", "append", "edit", "list")
_SHOWN = 8_000  # characters of one result
_ROWS = 20
_SECONDS = 120
_BRIEF = ("n", "agent", "candidate", "path", "score", "certified", "status", "reason", "note")


class Toolbox:
    """Performs actions at a desk. `word` is what the agent finished with, "" while it has not."""

    def __init__(self, lab: Lab, desk: Desk) -> None:
        self._lab, self._desk, self.word = lab, desk, ""

    async def briefing(self) -> str:
        """The first message: the task, what others wrote, and the best so far."""
        parts = [(await self._desk.tool("read", path="TASK.md")).text]
        parts.append(texts.leaderboard(self._desk.history))
        reflections = await self._desk.tool("read", path="reflections.md")
        if reflections.text.strip():
            parts.append(f"# reflections.md\n\n{reflections.text.strip()}")
        best = self._desk.history.best
        if best is not None:
            parts.append(f"# The best so far\n\n{self._show(best.candidate)}")
        return "\n\n".join(parts)

    async def perform(self, action: Action) -> str:
        """What came of it, as text for the model."""
        given = action.arguments
        if action.tool in _TREE:
            return _titled(action, await self._tree(action.tool, given))
        if action.tool == "evaluate":
            return _titled(action, await self._evaluate(given))
        if action.tool == "report":
            self._lab.note("report", agent=self._desk.agent, text=given["text"])
            return _titled(action, "passed on")
        if action.tool == "finish":
            self.word = given["word"] or "finished"
            return _titled(action, "goodbye")
        return _titled(action, self._ask(action.tool, given))

    async def _tree(self, tool: str, given: dict[str, Any]) -> str:
        if tool == "command":
            told = await self._desk.command(given["command"], float(given.get("seconds", _SECONDS)))
        else:
            told = await self._desk.tool(tool, **given)
        outcome = f"failed: {told.fault}" if told.fault else (f"exit code {told.code}" if tool == "command" else "done")
        return f"{outcome}\n{told.text}" if told.text else outcome

    async def _evaluate(self, given: dict[str, Any]) -> str:
        """Take the files as they are now, and have them evaluated side by side."""
        asked = await self._desk.take(given["files"], given.get("note", ""), given.get("parents", ()))
        return _rows(await self._desk.experiments(asked), details=True)

    def _ask(self, tool: str, given: dict[str, Any]) -> str:
        history = self._desk.history
        if tool == "best":
            return _rows(history.top(given.get("k", 5)))
        if tool == "show":
            return self._show(given["candidate"])
        if tool == "diff":
            return history.diff(given["one"], given["other"]) or "no difference, or no such candidate"
        try:
            rows = history.find(given.get("where", []))
        except ValueError as error:
            return f"failed: {error}"
        if "top" in given:
            return _rows(history.top(given["top"], rows))
        return _rows(rows[-given.get("last", _ROWS) :])

    def _show(self, name: str) -> str:
        found = self._desk.history.candidates.get(self._desk.history.resolve(name))
        if found is None:
            return "there is no such candidate"
        return "\n".join(fence(text, part) for part, text in found.parts.items())


def _titled(action: Action, text: str) -> str:
    about = next((str(value) for name, value in action.arguments.items() if name != "text"), "")
    return f"## {action.tool} {clip(about, 100)}\n{clip(text.strip(), _SHOWN)}"


def _rows(rows: Sequence[ExperimentRow], details: bool = False) -> str:
    """Rows as JSON lines; with what the evaluator said of each, where details matter."""
    lines: list[str] = []
    for row in rows[:_ROWS]:
        fields = {name: value for name in _BRIEF if (value := getattr(row, name)) not in (None, "")}
        if details:
            fields |= {"metrics": row.metrics, "feedback": clip(row.feedback, 1500), "seconds": round(row.seconds, 3)}
        lines.append(msgspec.json.encode(fields).decode())
    if len(rows) > _ROWS:
        lines.append(f"and {len(rows) - _ROWS} more")
    return "\n".join(lines) or "nothing"
