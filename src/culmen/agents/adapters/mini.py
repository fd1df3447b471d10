"""mini-swe-agent: `mini -t PROMPT`, over chat completions.

As version 2.4.6 is installed from PyPI it fails whenever it calls a tool, for want of the package `mcp`.
"""

from __future__ import annotations

import re

from culmen.agents.adapters import programs
from culmen.agents.adapters.base import Heard, Job, Pipes, Plan
from culmen.agents.adapters.headless import Headless
from culmen.agents.adapters.lines import BOUND
from culmen.agents.adapters.plain import PlainReading, everywhere

_STEP = re.compile(r"mini-swe-agent \(step \d+")
_FAULT = re.compile(r"[A-Z]\w*(Error|Exceeded|Interruption)")
_HEADINGS = ("```", "Tool:", "User:", "Exit:", "\u2500\u2500\u2500")


class Mini:
    """The adapter."""

    name, program = "mini", "mini"
    metered, nudges, resumes = True, False, False
    wires = ("chat",)

    def plan(self, job: Job) -> Plan:
        """Without its set-up dialogue, and without prices of its own."""
        found = programs.find(self.program)
        argv = [*found.command, "-y", "--exit-immediately", "-o", f"{job.home}/trajectory.json"]
        argv += ["-m", f"openai/{job.model}"] if job.model else []
        environment = {
            **everywhere(job),
            "MSWEA_CONFIGURED": "true",
            "MSWEA_COST_TRACKING": "ignore_errors",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        }
        return Plan((*argv, "-t", job.prompt), environment, found.path, visible=found.visible)

    def talk(self, pipes: Pipes, job: Job, heard: Heard) -> Headless:
        """Read what it prints."""
        return Headless(pipes, MiniReading(job, heard))


class MiniReading(PlainReading):
    """It prints a conversation for people; what the model said stands below a heading of its own. It leaves with 0 also
    when it has given up; then the reason stands below the last heading."""

    _part = ""

    def print(self, words: str) -> None:
        words = words.strip()
        self.hear("life")
        if _STEP.match(words):
            self._part, self._said = "model", ""
        elif words.startswith(_HEADINGS):
            self._part = "exit" if words.startswith("Exit:") else ""
        elif self._part == "model":
            self._said = f"{self._said}\n{words}".strip()[-BOUND:]
            self.word = self._said
            self.hear("text", words)
        elif self._part == "exit" and _FAULT.fullmatch(words):
            self.fault = words
