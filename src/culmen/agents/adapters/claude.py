"""Claude Code: `claude -p PROMPT --output-format stream-json`."""

from __future__ import annotations

from typing import Any

from culmen.agents.adapters import programs
from culmen.agents.adapters.base import Heard, Job, Pipes, Plan
from culmen.agents.adapters.headless import Headless, Reading
from culmen.agents.adapters.lines import at, items, number, short, text

_LIMITS = {"error_max_budget_usd": "dollars", "error_max_turns": "calls"}


def environment(job: Job) -> dict[str, str]:
    """Leads it to the relay and keeps it from everything else; as root it works only where IS_SANDBOX is set."""
    led = {"ANTHROPIC_BASE_URL": job.base_url, "ANTHROPIC_API_KEY": job.token} if job.base_url else {}
    models = ("ANTHROPIC_MODEL", "ANTHROPIC_DEFAULT_HAIKU_MODEL", "ANTHROPIC_SMALL_FAST_MODEL")
    return {
        **led,
        **({name: job.model for name in models} if job.model else {}),
        "IS_SANDBOX": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
    }


class Claude:
    """The adapter. It can be told something only by a new process that resumes the session."""

    name = program = "claude"
    metered, nudges, resumes = True, False, True
    wires = ("messages",)

    def plan(self, job: Job) -> Plan:
        """Every tool is allowed: the sandbox around it is the protection."""
        found = programs.find(self.program)
        argv = [*found.command, "-p", job.prompt, "--output-format", "stream-json", "--verbose"]
        argv += ["--dangerously-skip-permissions"]
        argv += ["--model", job.model] if job.model else []
        argv += ["--resume", job.resume] if job.resume else []
        return Plan(tuple(argv), environment(job), found.path, visible=found.visible)

    def talk(self, pipes: Pipes, job: Job, heard: Heard) -> Headless:
        """Read its events."""
        return Headless(pipes, ClaudeReading(job, heard))


class ClaudeReading(Reading):
    """Its exit code is 0 and its result "success" even when every tool was refused."""

    def __init__(self, job: Job, heard: Heard) -> None:
        super().__init__(job, heard)
        self._tools: set[str] = set()
        self._done: set[str] = set()

    def take(self, event: dict[str, Any]) -> None:
        kind = text(event, "type")
        self.known_as(text(event, "session_id"))
        if kind == "assistant":
            self._assistant(event)
        elif kind == "user":
            for part in items(event, "message", "content"):
                if text(part, "type") == "tool_result" and at(part, "is_error") is not True:
                    self._done.add(text(part, "tool_use_id"))
        elif kind == "result":
            self._result(event)
        elif kind == "system" and text(event, "subtype") == "api_retry":
            status = at(event, "error_status")
            self.failed(f"a model call failed ({status or text(event, 'error')}), attempt {number(event, 'attempt'):g}")

    def _assistant(self, event: dict[str, Any]) -> None:
        for part in items(event, "message", "content"):
            which = text(part, "type")
            if which == "text":
                self.said(text(part, "text"))
            elif which == "thinking":
                self.hear("thought", text(part, "thinking"))
            elif which == "tool_use":
                self._tools.add(text(part, "id"))
                self.hear("tool", f"{text(part, 'name')} {short(at(part, 'input'))}")

    def _result(self, event: dict[str, Any]) -> None:
        self.over, self.fault = True, ""
        subtype, said = text(event, "subtype"), text(event, "result")
        self.word = said.strip() or self.word
        usage = at(event, "usage")
        inputs = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
        self.count(
            input_tokens=sum(number(usage, name) for name in inputs),
            output_tokens=number(usage, "output_tokens"),
            dollars=number(event, "total_cost_usd"),
            calls=number(event, "num_turns"),
        )
        refused = [text(denial, "tool_name") for denial in items(event, "permission_denials")]
        for tool in refused:
            self.hear("refused", tool)
        if subtype in _LIMITS:
            self.ended, self.fault = _LIMITS[subtype], subtype
        elif at(event, "is_error") is True or subtype not in ("", "success"):
            self.fault = said or short(at(event, "errors")) or subtype or "error"
        elif refused and not self._tools & self._done:
            self.fault = f"its own permissions refused every tool call: {short(', '.join(refused))}"
