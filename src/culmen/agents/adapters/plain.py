"""Programs that just print: any command line (`cmd: ARGV`)."""

from __future__ import annotations

import re
import shlex

from culmen.agents.adapters import programs
from culmen.agents.adapters.base import Heard, Job, Pipes, Plan
from culmen.agents.adapters.headless import Headless, Reading
from culmen.core.errors import UserError

PROMPT_FILE = "prompt.md"
PLACES = ("prompt", "prompt_file", "model", "base_url", "token", "tree", "home")


def everywhere(job: Job) -> dict[str, str]:
    """The relay by every name that programs usually look for."""
    if not job.base_url:
        return {}
    return {
        "OPENAI_BASE_URL": f"{job.base_url}/v1",
        "OPENAI_API_BASE": f"{job.base_url}/v1",
        "OPENAI_API_KEY": job.token,
        "ANTHROPIC_BASE_URL": job.base_url,
        "ANTHROPIC_API_KEY": job.token,
        "GOOGLE_GEMINI_BASE_URL": job.base_url,
        "GEMINI_API_KEY": job.token,
    }


class Command:
    """Any program: `cmd: my-agent --task {prompt_file} --model {model}`; places in braces are filled in.

    It finds the relay in `{base_url}` and in the variables that programs usually look for, and the prompt, if no place
    takes it, as a last argument. It runs in the work tree; files that it names by absolute path are visible to it.
    """

    metered, nudges, resumes = True, False, False
    wires = ("chat", "responses", "messages", "gemini")

    def __init__(self, template: str) -> None:
        self.name = f"cmd:{template}"
        try:
            self._words = shlex.split(template)
        except ValueError as error:
            raise UserError(f"this command line cannot be read: {error}", where=f"--agent 'cmd:{template}'") from None
        if not self._words:
            raise UserError("no command is named", where=f"--agent 'cmd:{template}'", fix="--agent 'cmd: my-agent'")
        if not {"{prompt}", "{prompt_file}"} & set(re.findall(r"\{\w+\}", template)):
            self._words.append("{prompt}")
        self.program = self._words[0]

    def plan(self, job: Job) -> Plan:
        """The template filled in."""
        found = programs.find(self.program, fix="name a program that is installed, or its path")
        values = {name: getattr(job, name, "") for name in PLACES} | {"prompt_file": f"{job.home}/{PROMPT_FILE}"}
        places = re.compile(r"\{(" + "|".join(PLACES) + r")\}")
        words = [places.sub(lambda match: values[match[1]], word) for word in self._words[1:]]
        files = {PROMPT_FILE: job.prompt + "\n"}
        visible = (*found.visible, *programs.mentioned(self._words[1:]))
        return Plan((*found.command, *words), everywhere(job), found.path, files, visible)

    def talk(self, pipes: Pipes, job: Job, heard: Heard) -> Headless:
        """Read what it prints."""
        return Headless(pipes, PlainReading(job, heard))


class PlainReading(Reading):
    """Every line is a text; the exit code says whether it went well."""

    def line(self, line: bytes) -> None:
        words = _ESCAPES.sub("", line.decode("utf-8", "replace"))
        self.print(words) if words.strip() else self.hear("life")

    def print(self, words: str) -> None:
        """A line that is not empty."""
        self.said(words)

    def finish(self, code: int | None) -> None:
        self.over = code == 0


_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f]")
