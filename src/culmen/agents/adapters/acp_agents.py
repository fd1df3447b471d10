"""Programs that speak the Agent Client Protocol: those known by name, and any other command line (`acp:CMD`)."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass

from culmen.agents.adapters import claude, codex, cursor, gemini, opencode, programs
from culmen.agents.adapters.acp import Conversation
from culmen.agents.adapters.base import Heard, Job, Pipes, Plan
from culmen.agents.adapters.plain import everywhere
from culmen.core.errors import UserError


def _none(_: Job) -> dict[str, str]:
    return {}


@dataclass(frozen=True)
class _Known:
    """How one program is started for the protocol; `login` is its way to sign in with a key."""

    command: tuple[str, ...]
    wires: tuple[str, ...] = ()
    environment: Callable[[Job], dict[str, str]] = _none
    files: Callable[[Job], dict[str, str]] = _none
    model_flag: str = ""
    login: str = ""
    metered: bool = True


KNOWN = {
    "opencode": _Known(("opencode", "acp"), ("chat",), opencode.environment, opencode.files),
    "gemini": _Known(
        ("gemini", "--acp", "--yolo", "--skip-trust"), ("gemini",), gemini.environment, gemini.files, "-m",
        "gemini-api-key",
    ),
    "claude": _Known(("claude-agent-acp",), ("messages",), claude.environment),
    "codex": _Known(("codex-acp",), ("responses",), codex.environment, codex.files),
    "cursor": _Known(("cursor-agent", "acp"), environment=lambda _: cursor.environment(), metered=False),
}  # fmt: skip


class Acp:
    """The adapter for one of them."""

    nudges, resumes = True, True

    def __init__(self, command: str) -> None:
        self.name = f"acp:{command.strip()}"
        known = KNOWN.get(command.strip())
        if known is None:
            words = _split(command)
            known = _Known(tuple(words), ("chat", "responses", "messages", "gemini"), everywhere)
        self._known, self.program = known, known.command[0]
        self.metered, self.wires = known.metered, known.wires

    def plan(self, job: Job) -> Plan:
        """The prompt goes over the wire, not onto the command line."""
        known, found = self._known, programs.find(self.program)
        model = (known.model_flag, job.model) if known.model_flag and job.model else ()
        return Plan(
            (*found.command, *known.command[1:], *model),
            known.environment(job),
            found.path,
            known.files(job),
            (*found.visible, *programs.mentioned(known.command[1:])),
            stdin=True,
            network=not known.metered,
        )

    def talk(self, pipes: Pipes, job: Job, heard: Heard) -> Conversation:
        """Speak the protocol with it."""
        return Conversation(pipes, job, heard, self._known.login)


def _split(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UserError(f"this command line cannot be read: {error}", where=f"--agent 'acp:{command}'") from None
    if not words:
        raise UserError(
            "no agent is named", where="--agent acp:", fix=f"use acp:NAME ({', '.join(KNOWN)}) or acp:COMMAND"
        )
    return words
