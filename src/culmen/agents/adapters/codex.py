"""Codex: `codex exec --json PROMPT`. It speaks only the responses interface."""

from __future__ import annotations

import json
from typing import Any

from culmen.agents.adapters import programs
from culmen.agents.adapters.base import Heard, Job, Pipes, Plan
from culmen.agents.adapters.headless import Headless, Reading
from culmen.agents.adapters.lines import at, items, number, short, text

TOKEN = "CULMEN_AGENT_TOKEN"


def environment(job: Job) -> dict[str, str]:
    """Where it keeps its settings and sessions, and what it shows the relay."""
    return {"CODEX_HOME": f"{job.home}/.codex", **({TOKEN: job.token} if job.base_url else {})}


def files(job: Job) -> dict[str, str]:
    """Its settings: the relay as its model provider, and no sandbox of its own inside ours."""
    lines = [
        "check_for_update_on_startup = false",
        'web_search = "disabled"',  # there is no network
        'approval_policy = "never"',
        'sandbox_mode = "danger-full-access"',
        *([f"model = {json.dumps(job.model)}"] if job.model else []),
        *(['model_provider = "culmen"'] if job.base_url else []),
        "",
        "[analytics]",
        "enabled = false",
    ]
    if job.base_url:
        lines += [
            "",
            "[model_providers.culmen]",
            'name = "culmen"',
            f"base_url = {json.dumps(job.base_url + '/v1')}",
            f"env_key = {json.dumps(TOKEN)}",
            'wire_api = "responses"',
        ]
    return {".codex/config.toml": "\n".join(lines) + "\n"}


class Codex:
    """The adapter."""

    name = program = "codex"
    metered, nudges, resumes = True, False, True
    wires = ("responses",)

    def plan(self, job: Job) -> Plan:
        """Started in the work tree, which need not be a repository to it."""
        found = programs.find(self.program)
        argv = [*found.command, "exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
        argv += ["--model", job.model] if job.model else []
        argv += ["resume", job.resume] if job.resume else []
        return Plan((*argv, job.prompt), environment(job), found.path, files(job), found.visible)

    def talk(self, pipes: Pipes, job: Job, heard: Heard) -> Headless:
        """Read its events."""
        return Headless(pipes, CodexReading(job, heard))


class CodexReading(Reading):
    """Its usage counts the whole thread, so what earlier processes claimed is taken off."""

    def take(self, event: dict[str, Any]) -> None:
        kind = text(event, "type")
        self.known_as(text(event, "thread_id"))
        if kind in ("item.started", "item.completed"):
            self._item(kind, at(event, "item"))
        elif kind == "turn.completed":
            self.over, self.fault = True, ""
            for name in ("input_tokens", "output_tokens"):
                amount = number(event, "usage", name) - self.job.claimed.get(name, 0.0)
                self.claimed[name] = max(0.0, amount)
        elif kind in ("turn.failed", "error"):  # an error may be followed by another try
            self.over = kind == "turn.failed"
            self.failed(text(event, "error", "message") or text(event, "message") or kind)

    def _item(self, kind: str, item: Any) -> None:
        which, done = text(item, "type"), kind == "item.completed"
        if which == "agent_message" and done:
            self.said(text(item, "text"))
        elif which == "reasoning" and done:
            self.hear("thought", text(item, "text"))
        elif which == "command_execution" and not done:
            self.hear("tool", f"command {short(text(item, 'command'))}")
        elif which == "file_change" and done:
            self.hear("tool", "edit " + short(", ".join(text(change, "path") for change in items(item, "changes"))))
        elif which in ("mcp_tool_call", "web_search") and not done:
            self.hear("tool", f"{which} {short(at(item, 'tool') or at(item, 'query'))}")
