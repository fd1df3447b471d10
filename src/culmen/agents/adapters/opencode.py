"""OpenCode: `opencode run --format json`, the prompt on its input, over chat completions."""

from __future__ import annotations

import json
from typing import Any

from culmen.agents.adapters import programs
from culmen.agents.adapters.base import Heard, Job, Pipes, Plan
from culmen.agents.adapters.headless import Headless, Reading
from culmen.agents.adapters.lines import at, number, short, text
from culmen.core.errors import UserError

TOKEN = "CULMEN_AGENT_TOKEN"
_OFF = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS", "SHARE")


def environment(job: Job) -> dict[str, str]:
    """What it shows the relay; nothing it would fetch on its own."""
    off = {f"OPENCODE_DISABLE_{what}": "1" for what in _OFF}
    return {**off, **({TOKEN: job.token} if job.base_url else {})}


def files(job: Job) -> dict[str, str]:
    """Its settings: the relay as a provider with one model, every tool allowed. Raises UserError without a model."""
    settings: dict[str, Any] = {
        "permission": {"*": "allow"},
        "autoupdate": False,
        "share": "disabled",
        "snapshot": False,
        "lsp": False,
        "formatter": False,
        "agent": {"title": {"disable": True}},  # else it asks for a title, in a call that it does not count
    }
    if job.base_url:
        if not job.model:
            raise UserError("OpenCode needs the name of a model", where="--agent opencode", fix="--model MODEL")
        name = model(job)
        settings |= {
            "model": name,
            "small_model": name,
            "enabled_providers": ["culmen"],
            "provider": {
                "culmen": {
                    "npm": "@ai-sdk/openai-compatible",
                    "name": "culmen",
                    "options": {"baseURL": f"{job.base_url}/v1", "apiKey": f"{{env:{TOKEN}}}"},
                    "models": {job.model: {"name": job.model, "tool_call": True}},
                }
            },
        }
    return {".config/opencode/opencode.json": json.dumps(settings, indent=1) + "\n"}


def model(job: Job) -> str:
    """As it names models: provider/model."""
    return f"culmen/{job.model}" if job.base_url else job.model


class OpenCode:
    """The adapter."""

    name = program = "opencode"
    metered, nudges, resumes = True, False, True
    wires = ("chat",)

    def plan(self, job: Job) -> Plan:
        """The prompt goes through its standard input: it puts arguments into quotes, and the model sees them."""
        found = programs.find(self.program)
        argv = [*found.command, "run", "--format", "json"]
        argv += ["--model", model(job)] if job.model else []
        argv += ["--session", job.resume] if job.resume else []
        return Plan(tuple(argv), environment(job), found.path, files(job), found.visible, stdin=True)

    def talk(self, pipes: Pipes, job: Job, heard: Heard) -> Headless:
        """Read its events."""
        return Headless(pipes, OpenCodeReading(job, heard), feed=job.prompt)


class OpenCodeReading(Reading):
    """It reports each model call; the last one is that whose reason is not a call of tools."""

    def take(self, event: dict[str, Any]) -> None:
        kind = text(event, "type")
        self.known_as(text(event, "sessionID"))
        part = at(event, "part")
        if kind == "text":
            self.said(text(part, "text"))
        elif kind == "reasoning":
            self.hear("thought", text(part, "text"))
        elif kind == "tool_use":
            self.hear("tool", f"{text(part, 'tool')} {short(at(part, 'state', 'input'))}")
        elif kind == "step_finish":
            self.over, self.fault = text(part, "reason") not in ("tool-calls", "unknown"), ""
            tokens = at(part, "tokens")
            cached = number(tokens, "cache", "read") + number(tokens, "cache", "write")
            self.count(
                calls=1,
                input_tokens=number(tokens, "input") + cached,
                output_tokens=number(tokens, "output") + number(tokens, "reasoning"),
                dollars=number(part, "cost"),
            )
        elif kind == "error":
            self.failed(text(event, "error", "data", "message") or text(event, "error", "name") or "error")
