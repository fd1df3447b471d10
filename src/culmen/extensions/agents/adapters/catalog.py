"""Known agent programs, by the names that `--agent` takes, and the versions tried."""

from __future__ import annotations

import importlib.util
import os
import shlex
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from culmen.core.errors import UserError, missing_extra
from culmen.core.json import JsonObject
from culmen.extensions.agents.adapters import (
    Adapter,
    AgentJob,
    OnEvent,
    Pipes,
    Plan,
    ProgramDialogue,
    native,
    programs,
)
from culmen.extensions.agents.adapters.headless import HeadlessAdapter

NATIVE: dict[str, type[Adapter]] = {
    "claude": native.ClaudeCode,
    "codex": native.Codex,
    "opencode": native.OpenCode,
    "gemini": native.GeminiCli,
    "cursor": native.Cursor,
    "mini": native.Mini,
}


class _AcpProgram(NamedTuple):
    """Start of a program that speaks the Agent Client Protocol.

    Settings, wire formats and metering are those of the adapter `native`; `login` is the program's
    method of authentication with a key.
    """

    command: tuple[str, ...]
    native: type[HeadlessAdapter] = native.AnyCommand
    model_words: tuple[str, ...] = ()
    login: str = ""


KNOWN = {
    "opencode": _AcpProgram(("opencode", "acp"), native.OpenCode),
    "gemini": _AcpProgram(
        ("gemini", "--acp", "--yolo", "--skip-trust"), native.GeminiCli, ("-m",), "gemini-api-key"
    ),
    "claude": _AcpProgram(("claude-agent-acp",), native.ClaudeCode),
    "codex": _AcpProgram(("codex-acp",), native.Codex),
    "cursor": _AcpProgram(("cursor-agent", "acp"), native.Cursor),
}
"""Programs that speak the Agent Client Protocol, by the name after `acp:`.

Any other command line works, too.
"""


class AcpAdapter:
    """Adapter for a program that speaks the Agent Client Protocol."""

    nudges, resumes = True, True

    def __init__(self, command: str) -> None:
        self.name = f"acp:{command.strip()}"
        known = KNOWN.get(command.strip())
        known = known or _AcpProgram(tuple(native.command_words(command, "acp")))
        self._known, self.program = known, known.command[0]
        self.metered, self.wires = known.native.metered, known.native.wires

    def plan(self, job: AgentJob) -> Plan:
        """Plan of the start; the prompt goes through the protocol, not onto the command line."""
        known, installed = self._known, programs.find_program(self.program)
        model = (*known.model_words, job.model) if known.model_words and job.model else ()
        return Plan(
            (*installed.command, *known.command[1:], *model),
            known.native.environment(job),
            installed.path,
            known.native.files(replace(job, tools=())),  # the session brings them
            (*installed.visible, *programs.mentioned_paths(known.command[1:])),
            stdin=True,
            network=not self.metered,
        )

    def open_dialogue(self, pipes: Pipes, job: AgentJob, on_event: OnEvent) -> ProgramDialogue:
        """Dialogue over the protocol."""
        from culmen.extensions.agents.adapters.acp import AcpDialogue

        return AcpDialogue(pipes, job, on_event, self._known.login)


def adapter_by_name(kind: str) -> Adapter:
    """Adapter by name: "claude", "acp:opencode", "cmd: my-agent {prompt}".

    Raises UserError for an unknown name, and for one whose protocol needs a missing package.
    """
    if kind in NATIVE:
        return NATIVE[kind]()
    way, colon, command = kind.partition(":")
    if colon and way == "acp":
        if importlib.util.find_spec("acp") is None:
            raise missing_extra(
                "the Agent Client Protocol", "agent-client-protocol", "agents", f"--agent {kind}"
            )
        return AcpAdapter(command)
    if colon and way == "cmd":
        return native.AnyCommand(command.strip())
    names = ", ".join([*NATIVE, *(f"acp:{name}" for name in KNOWN)])
    raise UserError(
        f"there is no agent '{kind}'", fix=f"use {names}, acp:COMMAND or 'cmd: COMMAND {{prompt}}'"
    )


def agent_with_paths(kind: str, folder: Path) -> str:
    """The agent's name, with paths below `folder` in its command as absolute ones.

    An agent starts in the folder of a task, where no relative path of the user's leads anywhere.
    Raises UserError for a command line that cannot be read.
    """
    way, colon, command = kind.partition(":")
    if not colon or way not in ("cmd", "acp") or command.strip() in KNOWN:
        return kind
    words = native.command_words(command, way)
    found = programs.absolute_words(words, folder)
    return kind if found == words else f"{way}: {shlex.join(found)}"


def missing_scripts(kind: str) -> list[str]:
    """Scripts that the agent's command names and that are no files here."""
    way, colon, command = kind.partition(":")
    return programs.missing_scripts(native.command_words(command, way)) if colon else []


@dataclass(frozen=True)
class TestedVersions:
    """Versions of a program that were run, the newest last.

    Without `versions` the adapter is written from documentation alone. `package` is the name for
    `installer` ("": the program is installed from its maker's page).
    """

    versions: tuple[str, ...] = ()
    package: str = ""
    installer: str = "npm install -g"


TESTED = {
    "claude": TestedVersions(("2.1.197", "2.1.329", "2.1.332"), "@anthropic-ai/claude-code"),
    "codex": TestedVersions(("0.169.0", "0.171.0"), "@openai/codex"),
    "opencode": TestedVersions(("1.18.33",), "opencode-ai"),
    "gemini": TestedVersions(("0.61.0",), "@google/gemini-cli"),
    "cursor-agent": TestedVersions(),
    "mini": TestedVersions(("2.4.6",), "mini-swe-agent", "pip install"),
    "claude-agent-acp": TestedVersions(
        ("0.49.0", "0.100.0", "0.101.0"), "@agentclientprotocol/claude-agent-acp"
    ),
    "codex-acp": TestedVersions(("2.6.0",), "@agentclientprotocol/codex-acp"),
}
"""Tested versions by program; the options of these programs change from month to month."""


def version_drift(program: str, version: str) -> str:
    """Installed version relative to those tested: tested | untested | newer | older."""
    known = TESTED.get(program, TestedVersions()).versions
    if not known or not version:
        return "untested"
    if version in known:
        return "tested"
    return "newer" if _version_key(version) > _version_key(known[-1]) else "older"


def _version_key(version: str) -> tuple[int, ...]:
    return tuple(
        int("".join(filter(str.isdigit, piece)) or 0) for piece in version.split("-")[0].split(".")
    )


def survey_agents() -> list[JsonObject]:
    """One row per known agent, as plain data; versions are queried in parallel."""
    agents = [*(adapter_by_name(kind) for kind in NATIVE), *map(AcpAdapter, KNOWN)]
    names = list(dict.fromkeys(agent.program for agent in agents))
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 2) as pool:
        versions = dict(zip(names, pool.map(_installed_version, names)))
    return [_agent_row(agent, versions[agent.program]) for agent in agents]


def _installed_version(program: str) -> str | None:
    """Version of an installed program; "" if unknown, None if it is not installed."""
    try:
        return programs.program_version(programs.find_program(program))
    except UserError:
        return None


def _agent_row(agent: Adapter, version: str | None) -> JsonObject:
    known = TESTED.get(agent.program, TestedVersions())
    return {
        "name": agent.name,
        "program": agent.program,
        "installed": version is not None,
        "version": version or "",
        "state": "missing" if version is None else version_drift(agent.program, version),
        "tested": list(known.versions),
        "metered": agent.metered,
        "nudge": "in its session" if agent.nudges else "by resuming" if agent.resumes else "",
        "install": f"{known.installer} {known.package}" if known.package else "",
    }
