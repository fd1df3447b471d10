"""Adapters that start and drive the programs of coding agents.

The host owns the process: it asks an adapter for a `Plan`, writes its files, starts `argv` in the
sandbox, and hands the pipes to `Adapter.open_dialogue`. The adapter reads the program's output,
reports it through `OnEvent`, and returns a `Parting`. No output of a program raises an error:
malformed lines are skipped, and only the host's limits end a silent program.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

KINDS = ("life", "text", "thought", "tool", "session", "refused", "trouble")


@dataclass(frozen=True)
class AgentJob:
    """One stretch of work for an agent program.

    `tree` and `home` are absolute paths as the program sees them. `base_url` is the metering relay
    as the program reaches it (`http://127.0.0.1:PORT`, no path; "" without a relay), and `token`
    takes the place of a key there. `model` is the model's name ("" for the program's own default).

    `resume` names the session of an earlier process to continue; `prompt` is then the next message
    in it, and `claimed` sums the usage that the session's partings claimed. `limits` are those of
    `session.Open`; most of them are enforced by the host. `skill` is the folder of the skill under
    test as the program sees it, "" without one; `variables` are set for the program. `tools` is the
    command of an MCP server on standard streams that the program is to use, () without one.
    """

    tree: str
    home: str
    prompt: str
    model: str = ""
    base_url: str = ""
    token: str = ""
    resume: str = ""
    claimed: dict[str, float] = field(default_factory=dict)
    limits: dict[str, float] = field(default_factory=dict)
    skill: str = ""
    variables: dict[str, str] = field(default_factory=dict)
    tools: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """Command, environment and files with which a program is started.

    argv         the first item is an absolute path
    environment  variables beside HOME, LANG and TMPDIR; the host's environment is not inherited
    path         folders to put first on PATH
    files        texts to write before the start, by path relative to HOME
    visible      folders and files beside /usr that must be visible, read-only, at their own paths
    stdin        True if the adapter writes to standard input; else it is /dev/null
    network      True if the program must reach the internet because it cannot use the relay
    """

    argv: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)
    path: tuple[str, ...] = ()
    files: dict[str, str] = field(default_factory=dict)
    visible: tuple[str, ...] = ()
    stdin: bool = False
    network: bool = False


@dataclass(frozen=True)
class Pipes:
    """Standard streams and exit of a started program.

    `wait` returns the exit code when the started process has ended, even if other processes still
    hold its pipes; it may be awaited more than once. The line limit of the stream readers is not
    used.
    """

    stdout: asyncio.StreamReader
    stderr: asyncio.StreamReader
    wait: Callable[[], Awaitable[int]]
    stdin: asyncio.StreamWriter | None = None


@dataclass(frozen=True)
class ProgramEvent:
    """One event in a program's output.

    `kind` is one of `KINDS`; `text` is bounded (a text, a tool's name and argument, a session's
    id). Every kind except "trouble" is a sign of life: programs may retry a failed request for
    ever. "refused" is a tool call that the program's own permissions did not allow.
    """

    kind: str
    text: str = ""


OnEvent = Callable[[ProgramEvent], None]


@dataclass(frozen=True)
class Parting:
    """Result of one process of an agent program.

    `ended` is as in `session.Waited`: finished | crashed | tokens | dollars | calls | unavailable.
    `word` is the program's last message, `why` the fault (with the end of its error output), and
    `session` the id to resume. `claimed` is the usage of this process by the program's own count:
    calls, input_tokens, output_tokens, dollars. It serves as a cross-check only.
    """

    ended: str
    word: str = ""
    why: str = ""
    session: str = ""
    claimed: dict[str, float] = field(default_factory=dict)
    code: int | None = None


class ProgramDialogue(Protocol):
    """Dialogue with one started program.

    `run` returns when the program's work is over; its process may still be running.
    """

    @property
    def session(self) -> str:
        """The program's own id of the session; "" until it is known."""
        ...

    async def run(self) -> Parting: ...

    async def interrupt_with(self, text: str) -> bool:
        """Interrupt the program with a message in the same session, while `run` goes on.

        Return False if the program does not support it. Then end it and, if `Adapter.resumes`,
        start it again with `AgentJob.resume` and the message as `AgentJob.prompt`.
        """
        ...


class Adapter(Protocol):
    """Adapter for one kind of agent program.

    metered   its model calls go through the relay
    nudges    `ProgramDialogue.interrupt_with` works
    resumes   `AgentJob.resume` works
    wires     wire formats it uses at the relay: chat | responses | messages | gemini
    """

    @property
    def name(self) -> str: ...

    @property
    def program(self) -> str: ...

    @property
    def metered(self) -> bool: ...

    @property
    def nudges(self) -> bool: ...

    @property
    def resumes(self) -> bool: ...

    @property
    def wires(self) -> tuple[str, ...]: ...

    def plan(self, job: AgentJob) -> Plan:
        """Plan of the start. Raises UserError if the program is not installed."""
        ...

    def open_dialogue(self, pipes: Pipes, job: AgentJob, on_event: OnEvent) -> ProgramDialogue: ...
