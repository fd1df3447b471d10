"""Gemini CLI: `gemini -p PROMPT -o stream-json`."""

from __future__ import annotations

import json
from typing import Any

from culmen.agents.adapters import programs
from culmen.agents.adapters.base import Heard, Job, Pipes, Plan
from culmen.agents.adapters.headless import Headless, Reading
from culmen.agents.adapters.lines import BOUND, at, number, short, text


def environment(job: Job) -> dict[str, str]:
    """Leads it to the relay."""
    return {"GEMINI_API_KEY": job.token, "GOOGLE_GEMINI_BASE_URL": job.base_url} if job.base_url else {}


def files(job: Job) -> dict[str, str]:
    """Its settings: a key instead of signing in, and nothing sent elsewhere."""
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
    }
    return {".gemini/settings.json": json.dumps(settings, indent=1) + "\n"}


class Gemini:
    """The adapter."""

    name = program = "gemini"
    metered, nudges, resumes = True, False, True
    wires = ("gemini",)

    def plan(self, job: Job) -> Plan:
        """Every tool allowed, the work tree trusted."""
        found = programs.find(self.program)
        argv = [*found.command, "-p", job.prompt, "--yolo", "--skip-trust", "-o", "stream-json"]
        argv += ["-m", job.model] if job.model else []
        argv += ["--resume", job.resume] if job.resume else []
        return Plan(tuple(argv), environment(job), found.path, files(job), found.visible)

    def talk(self, pipes: Pipes, job: Job, heard: Heard) -> Headless:
        """Read its events."""
        return Headless(pipes, GeminiReading(job, heard))


class GeminiReading(Reading):
    """Its texts come in pieces."""

    def __init__(self, job: Job, heard: Heard) -> None:
        super().__init__(job, heard)
        self._pieces = ""

    def take(self, event: dict[str, Any]) -> None:
        kind = text(event, "type")
        self.known_as(text(event, "session_id"))
        if kind == "message" and text(event, "role") == "assistant":
            whole = at(event, "delta") is not True
            self._pieces = ("" if whole else self._pieces) + text(event, "content")
            self._pieces = self._pieces[-BOUND:]
            return
        self._flush()
        if kind == "tool_use":
            self.hear("tool", f"{text(event, 'tool_name')} {short(at(event, 'parameters'))}")
        elif kind == "error" and text(event, "severity") != "warning":
            self.failed(text(event, "message"))
        elif kind == "result":
            self._result(event)

    def _flush(self) -> None:
        pieces, self._pieces = self._pieces, ""
        self.said(pieces)

    def _result(self, event: dict[str, Any]) -> None:
        self.over = True
        stats = at(event, "stats")
        self.count(input_tokens=number(stats, "input_tokens"), output_tokens=number(stats, "output_tokens"))
        if text(event, "status") == "success":
            self.fault = ""
        else:
            self.fault = text(event, "error", "message") or self.fault or "error"

    def finish(self, code: int | None) -> None:
        self._flush()
