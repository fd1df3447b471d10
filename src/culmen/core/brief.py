"""Requests to proposers, and their answers."""

from __future__ import annotations

import msgspec

from culmen.core.candidate import Candidate
from culmen.core.evaluation import Observation
from culmen.core.usage import Usage


class Exhibit(msgspec.Struct, frozen=True):
    """A candidate shown for inspiration, with its mean reward (higher is better) if it has one."""

    candidate: Candidate
    reward: float | None = None
    feedback: str = ""


class Brief(msgspec.Struct, frozen=True):
    """One request for `k` new candidates.

    Encoded with all its fields: whether a text is left out as a default would depend on its identity, not its value,
    and requests are told apart by what they encode to.

    `parent` is what to improve (None: write the first one), `observations` what was just seen of it, `reward` its mean
    reward so far, `inspirations` others to learn from, `context` global guidance (POLCA's c_history), `format` how the
    reply should carry the candidates: rewrite | diff | verbalized. `role` picks the model. `hypothesis` is what to try,
    where that was decided before (PACEvolve++'s selected experiment).
    """

    parent: Candidate | None = None
    observations: tuple[Observation, ...] = ()
    reward: float | None = None
    inspirations: tuple[Exhibit, ...] = ()
    context: str = ""
    k: int = 1
    format: str = "rewrite"
    role: str = "proposer"
    island: int | None = None
    hypothesis: str = ""


class HumanInput(msgspec.Struct, frozen=True):
    """What a person sent to a search that goes on: a hint in words, or a candidate of their own."""

    hint: str = ""
    candidate: Candidate | None = None


class Proposal(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer: up to k candidates in the order of the reply, possibly none.

    `fault` is "" or a short word saying why there are fewer than asked (empty, refused, truncated, unparsable,
    duplicate, provider, ...). `prompt` and `reply` are the exact texts, kept as blobs.
    """

    candidates: tuple[Candidate, ...] = ()
    hypothesis: str = ""
    fault: str = ""
    model: str = ""
    usage: Usage = Usage()
    prompt: str = ""
    reply: str = ""
    faults: dict[str, int] = {}  # everything that went wrong on the way, by kind, also what a retry made good


class Text(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer of `lab.write`: plain text ("" with a `fault` when there is none)."""

    text: str = ""
    fault: str = ""
    model: str = ""
    usage: Usage = Usage()
    prompt: str = ""
    reply: str = ""
    faults: dict[str, int] = {}  # everything that went wrong on the way, by kind, also what a retry made good
