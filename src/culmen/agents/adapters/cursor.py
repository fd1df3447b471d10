"""Cursor's agent: `cursor-agent -p PROMPT --output-format stream-json --force`.

It signs in at its maker's and takes no other address, so its calls cannot be metered and it needs the internet.
"""

from __future__ import annotations

import os
from typing import Any

from culmen.agents.adapters import programs
from culmen.agents.adapters.base import Heard, Job, Pipes, Plan
from culmen.agents.adapters.headless import Headless, Reading
from culmen.agents.adapters.lines import at, items, number, short, text

KEY = "CURSOR_API_KEY"


def environment() -> dict[str, str]:
    """Its own key, the only one that any agent is handed."""
    return {KEY: os.environ[KEY]} if os.environ.get(KEY) else {}


class Cursor:
    """The adapter, written from its documentation: not driven for real."""

    name, program = "cursor", "cursor-agent"
    metered, nudges, resumes = False, False, True
    wires = ()

    def plan(self, job: Job) -> Plan:
        """With open network and the user's key."""
        found = programs.find(self.program)
        argv = [*found.command, "-p", "--output-format", "stream-json", "--force", "--workspace", job.tree]
        argv += ["--model", job.model] if job.model else []
        argv += ["--resume", job.resume] if job.resume else []
        return Plan((*argv, job.prompt), environment(), found.path, visible=found.visible, network=True)

    def talk(self, pipes: Pipes, job: Job, heard: Heard) -> Headless:
        """Read its events."""
        return Headless(pipes, CursorReading(job, heard))


class CursorReading(Reading):
    """The same shape as Claude Code's, with tool calls as events of their own."""

    def take(self, event: dict[str, Any]) -> None:
        kind = text(event, "type")
        self.known_as(text(event, "session_id"))
        if kind == "assistant":
            self.said("".join(text(part, "text") for part in items(event, "message", "content")))
        elif kind == "thinking":
            self.hear("thought", text(event, "text"))
        elif kind == "tool_call" and text(event, "subtype") == "started":
            call = at(event, "tool_call")
            name = next(iter(call), "") if isinstance(call, dict) else ""
            self.hear("tool", f"{name} {short(at(call, name, 'args'))}")
        elif kind == "result":
            self.over = True
            self.word = text(event, "result").strip()[-4000:] or self.word
            usage = at(event, "usage")
            self.count(input_tokens=number(usage, "inputTokens"), output_tokens=number(usage, "outputTokens"))
            if at(event, "is_error") is True:
                self.fault = self.word or text(event, "subtype")
