"""Adapters for agent programs: `named("claude")`, `named("acp:opencode")`, `named("cmd: my-agent {prompt}")`."""

from __future__ import annotations

from culmen.agents.adapters.acp_agents import KNOWN, Acp
from culmen.agents.adapters.base import Adapter, Job, Parting, Pipes, Plan, Sign, Talk
from culmen.agents.adapters.claude import Claude
from culmen.agents.adapters.codex import Codex
from culmen.agents.adapters.cursor import Cursor
from culmen.agents.adapters.gemini import Gemini
from culmen.agents.adapters.mini import Mini
from culmen.agents.adapters.opencode import OpenCode
from culmen.agents.adapters.plain import Command
from culmen.core.errors import UserError

NATIVE: dict[str, type[Adapter]] = {
    "claude": Claude,
    "codex": Codex,
    "opencode": OpenCode,
    "gemini": Gemini,
    "cursor": Cursor,
    "mini": Mini,
}

__all__ = ["KNOWN", "NATIVE", "Adapter", "Job", "Parting", "Pipes", "Plan", "Sign", "Talk", "is_program", "named"]


def is_program(kind: str) -> bool:
    """Whether `kind` names an adapter (it may not be installed)."""
    return kind in NATIVE or kind.startswith(("acp:", "cmd:"))


def named(kind: str) -> Adapter:
    """The adapter of that name. Raises UserError for an unknown one."""
    if kind in NATIVE:
        return NATIVE[kind]()
    way, colon, command = kind.partition(":")
    if colon and way == "acp":
        return Acp(command)
    if colon and way == "cmd":
        return Command(command.strip())
    names = ", ".join([*NATIVE, *(f"acp:{name}" for name in KNOWN)])
    raise UserError(f"no agent is called '{kind}'", fix=f"use {names}, acp:COMMAND or 'cmd: COMMAND {{prompt}}'")
