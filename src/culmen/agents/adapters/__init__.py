"""Adapters that start and drive the programs of coding agents.

The host owns the process: it asks an adapter for a `Plan`, writes its files, starts `argv` in the
sandbox, and hands the pipes to `Adapter.talk`. The adapter reads what the program says, reports it
through `OnEvent`, and returns a `Parting`. Whatever a program writes never raises: garbage is
passed over, and only limits of the host end a program that says nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

KINDS = ("life", "text", "thought", "tool", "session", "refused", "trouble")


@dataclass(frozen=True)
class AgentJob:
    """One stretch of work for a program.

    `tree` and `home` are absolute paths as the program sees them; `base_url` is the metering relay
    as the program reaches it (`http://127.0.0.1:PORT`, no path; "" where there is none), `token`
    stands in for a key there. `model` is the name to ask for ("" for the program's own default).
    `resume` names the session of an earlier process that is to go on, `prompt` is then what is said
    to it next, and `claimed` sums what its partings claimed. `limits` as in `session.Open`; most
    are the host's to enforce.
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


@dataclass(frozen=True)
class Plan:
    """How to start it.

    argv         the first item is an absolute path
    environment  variables beside the host's own (HOME, LANG, TMPDIR); nothing of the host's environment is wanted
    path         folders to put first on PATH
    files        texts to write before the start, by path relative to HOME
    visible      folders and files beside /usr that must be visible, read-only, at their own places
    stdin        whether the adapter writes to it; else it is /dev/null
    network      whether the program must reach the internet (it cannot be led through the relay)
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
    """A started program. `wait` returns its exit code when the process that was started is gone, no
    matter who still holds its pipes; it may be awaited more than once. The readers' own line limit
    does not matter."""

    stdout: asyncio.StreamReader
    stderr: asyncio.StreamReader
    wait: Callable[[], Awaitable[int]]
    stdin: asyncio.StreamWriter | None = None


@dataclass(frozen=True)
class ProgramEvent:
    """What a program showed: `kind` of `KINDS`, `text` bounded (a text, a tool's name and argument,
    a session's id).

    All are signs of life but "trouble": programs may try a failed request again for ever. "refused"
    is a tool call that the program's own permissions did not allow.
    """

    kind: str
    text: str = ""


OnEvent = Callable[[ProgramEvent], None]


@dataclass(frozen=True)
class Parting:
    """How a program ended.

    `ended` as in `session.Waited`: finished | crashed | tokens | dollars | calls | unavailable.
    `word` is the last thing it said, `why` what went wrong (with the end of its error output).
    `session` resumes it. `claimed` is what the program says this process used: calls, input_tokens,
    output_tokens, dollars - a cross-check only.
    """

    ended: str
    word: str = ""
    why: str = ""
    session: str = ""
    claimed: dict[str, float] = field(default_factory=dict)
    code: int | None = None


class ProgramDialogue(Protocol):
    """One started program. `run` returns when its work is over, though its process may still be
    there.
    """

    @property
    def session(self) -> str:
        """The program's own name for the session, "" before it told."""
        ...

    async def run(self) -> Parting: ...

    async def say(self, text: str) -> bool:
        """Interrupt it and say something in the same session, while `run` goes on. False: this
        program cannot; end it and start it again with `AgentJob.resume` and the text as
        `AgentJob.prompt`, where `Adapter.resumes`."""
        ...


class Adapter(Protocol):
    """One kind of program.

    metered   its model calls go through the relay
    nudges    `ProgramDialogue.say` works
    resumes   `AgentJob.resume` works
    wires     the interfaces it asks the relay for: chat | responses | messages | gemini
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
        """Raises UserError if the program is not installed."""
        ...

    def talk(self, pipes: Pipes, job: AgentJob, heard: OnEvent) -> ProgramDialogue: ...
