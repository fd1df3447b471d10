"""Agent sessions as effects: requests and results as plain data.

A session is one agent's turn at the shared repository. Each kind below is a custom effect
(`lab.effect(kind, ...)`) whose payload is the first struct named, and whose result's `data` is the
struct after the arrow:

session.open    Open -> Opened
                make the agent's work tree from the trunk; start its process if it has one
session.wait    Wait -> Waited
                until the agent asks for experiments, has spent something, idles, or ends
session.answer  AnswerExperiments -> Done
                write results to the agent's files, and into the common history
session.tool    Tool -> ToolOutput
                one tool call of an agent without a process: a command, a file read or written
session.nudge   Nudge -> Done
                send a message to a live agent, in the same session if it can
session.end     EndSession -> Ended
                end every process of the session
session.commit  Commit -> Committed
                commit the allowed paths of the work tree and merge them into the trunk

All are idempotent: after a crash they may be performed again. A session whose process died with the
driver is answered by `Waited(ended="interrupted")` after the experiments it had already asked for.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from culmen.core.json import JsonObject

S = TypeVar("S", bound=msgspec.Struct)


class Open(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request for a session of one agent.

    `agent` counts from 0; `kind` is "offline", "builtin" or the name of an adapter ("claude",
    "acp:...", "cmd:..."); `texts` are files of the work tree that culmen writes (TASK.md and its
    copies, leaderboard.md, ...), by path; `prompt` is the first message to a process; `limits` are
    seconds (wall), idle (seconds without a sign of life), tokens, dollars, calls, experiments:
    absent means no limit of its own. `model` is the model name for the agent, "" for its own
    default.
    """

    agent: int
    kind: str
    texts: dict[str, str] = {}
    prompt: str = ""
    model: str = ""
    limits: dict[str, float] = {}


class Opened(msgspec.Struct, frozen=True, omit_defaults=True):
    """An open session.

    `base` is the trunk's commit; `isolation` the confinement of the agent (jailed | restricted |
    none); `metered` is True if its model calls go through the gateway; `version` is that of its
    program.
    """

    base: str = ""
    isolation: str = ""
    metered: bool = True
    version: str = ""
    fault: str = ""  # reason that no session could be opened: not installed, does not start, ...


class Experiment(msgspec.Struct, frozen=True, omit_defaults=True):
    """One file (or set of parts) the agent wants evaluated.

    `ticket` is unique in the run; `parts` holds the exact texts taken; `fault` is the reason of a
    refusal without reading (a link, outside candidates/, too large, not a text).
    """

    ticket: str
    path: str = ""
    parts: dict[str, str] = {}
    note: str = ""
    parents: tuple[str, ...] = ()
    fault: str = ""


class Wait(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request for the next news of a session.

    `seen` is the number of experiments of this session handed over before; `nth` counts the waits.
    """

    agent: int
    seen: int
    nth: int


class Waited(msgspec.Struct, frozen=True, omit_defaults=True):
    """News of a session: any of experiments, reports of the agent in its own words, its end.

    `ended` is "" while it lives, else finished (its own word) | crashed | interrupted | idle |
    seconds | tokens | dollars | calls | budget | unavailable. `idle` is the time in seconds without
    a sign of life.
    """

    experiments: tuple[Experiment, ...] = ()
    reports: tuple[str, ...] = ()
    ended: str = ""
    word: str = ""
    idle: float = 0.0


class ExperimentRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of the common history (past_experiments.jsonl): an experiment and its result.

    `score` is the mean over its observations in the task's direction, `certified` the exact score
    if the task has a verifier, `status` that of the worst observation.
    """

    n: int
    agent: int
    ticket: str
    candidate: str
    path: str = ""
    score: float | None = None
    certified: float | None = None
    status: str = "ok"
    reason: str = ""
    metrics: dict[str, float] = {}
    feedback: str = ""
    seconds: float = 0.0
    note: str = ""
    parents: tuple[str, ...] = ()
    origin: str = ""
    trust: str = ""


class AnswerExperiments(msgspec.Struct, frozen=True, omit_defaults=True):
    """Results for one agent.

    `rows` answer tickets of this agent, or add to the history (what the search starts from, and
    candidates that a person submitted: agent -1); `parts` holds new candidates' texts by candidate
    id, so that past programs can be read; `leaderboard` replaces leaderboard.md; `closing` is the
    reason that no more experiments will be taken ("": they will).
    """

    agent: int
    rows: tuple[ExperimentRow, ...] = ()
    parts: dict[str, dict[str, str]] = {}
    leaderboard: str = ""
    closing: str = ""


class Tool(msgspec.Struct, frozen=True, omit_defaults=True):
    """One tool call.

    `tool` is command (argument: command), read (path, offset, limit), write (path, text), edit
    (path, old, new), append (path, text), list (path); `nth` counts the calls of this session.
    """

    agent: int
    nth: int
    tool: str
    arguments: JsonObject = {}
    seconds: float = 120.0


class ToolOutput(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool's output: `text` bounded, `fault` a short word if it failed."""

    text: str = ""
    fault: str = ""
    code: int = 0


class Nudge(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message to a live agent; `nth` counts the nudges of this session."""

    agent: int
    nth: int
    text: str


class EndSession(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request to end a session; `reason` is recorded for the agent."""

    agent: int
    reason: str


class Ended(msgspec.Struct, frozen=True, omit_defaults=True):
    """The end of a session.

    `reflections` and `notes` are the contents of the agent's files of those names, bounded;
    `transcript` is a path in the run folder; `claimed` is the usage that its program reports (a
    cross-check only).
    """

    reflections: str = ""
    notes: str = ""
    transcript: str = ""
    claimed: dict[str, float] = {}


class Commit(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request to commit and merge an agent's work.

    `trailers` are lines `Name: value` for the message (Experiments, Best-Score, Journal-Head,
    Stop-Reason, ...).
    """

    agent: int
    subject: str
    trailers: dict[str, str] = {}


class Committed(msgspec.Struct, frozen=True, omit_defaults=True):
    """A commit and its merge.

    `commit` is the agent's commit, `trunk` the one after the merge; `changed` are the paths merged,
    `dropped` those not allowed in, `conflicts` the paths of which both versions were kept (theirs
    under conflicts/aNN/).
    """

    commit: str = ""
    trunk: str = ""
    changed: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()


class Done(msgspec.Struct, frozen=True, omit_defaults=True):
    """A delivery; `delivered` is False if no live agent could receive it."""

    delivered: bool = True


REPLIES: dict[type[msgspec.Struct], tuple[str, type[msgspec.Struct]]] = {
    Open: ("session.open", Opened),
    Wait: ("session.wait", Waited),
    AnswerExperiments: ("session.answer", Done),
    Tool: ("session.tool", ToolOutput),
    Nudge: ("session.nudge", Done),
    EndSession: ("session.end", Ended),
    Commit: ("session.commit", Committed),
}
"""The effect of each request, and the struct of its result."""


def to_plain_data(value: msgspec.Struct) -> JsonObject:
    """A struct as plain data for a journal."""
    return msgspec.to_builtins(value)


def from_plain_data(data: JsonObject, kind: type[S]) -> S:
    """The inverse of `plain`."""
    return msgspec.convert(data, kind)
