"""Requests to proposers, and their answers."""

from __future__ import annotations

import msgspec

from culmen.core.candidate import Candidate
from culmen.core.evaluation import Observation
from culmen.core.usage import Usage


class Measured(msgspec.Struct, frozen=True):
    """Precision of a mean reward: `count` evaluations with a score, `failures` without one.

    `margin` is the half width of its 95 % interval in the unit of the score; None: unknown, 0:
    exact.
    """

    count: int = 0
    failures: int = 0
    margin: float | None = None


class Exhibit(msgspec.Struct, frozen=True):
    """A candidate shown for inspiration, with its mean reward (higher is better) if any.

    `metrics` are those of its latest evaluation.
    """

    candidate: Candidate
    reward: float | None = None
    feedback: str = ""
    measured: Measured = Measured()
    metrics: dict[str, float] = {}


class Attempt(msgspec.Struct, frozen=True):
    """An earlier change of a brief's parent, with its mean reward.

    `change` describes it, in its author's words or by the lines added and removed. `reward` is None
    while there is no score; `fault` is then the reason ("": not evaluated yet).
    """

    change: str
    reward: float | None = None
    measured: Measured = Measured()
    fault: str = ""


UNREAD = "unread reply"
"""Fault of an attempt whose `change` says why the role's latest reply could not be read."""


class Brief(msgspec.Struct, frozen=True):
    """One request for `k` new candidates.

    Encoded with all its fields: leaving out a default text would depend on its identity, not its
    value, and requests are distinguished by their encoding.

    `parent` is the candidate to improve (None: write the first one), `observations` its latest
    observations, `reward` its mean reward so far, `inspirations` other candidates to learn from,
    `context` global guidance (POLCA's c_history), `format` the form of the reply: rewrite | diff |
    verbalized | verbalized_diff | blocks | json; auto and verbalized_auto edit long parents and
    rewrite short ones (`settled`). `role` picks the model. `hypothesis` is the experiment to try,
    if one was decided before (PACEvolve++'s selected experiment).

    The engine completes every brief that a model gets: `attempts` on this parent, metrics of the
    inspirations, and, unless the strategy has stated the precision of its numbers, `reward` and
    `measured` of both over all evaluations so far.
    """

    parent: Candidate | None = None
    observations: tuple[Observation, ...] = ()
    reward: float | None = None
    inspirations: tuple[Exhibit, ...] = ()
    context: str = ""
    k: int = 1
    format: str = "auto"
    role: str = "proposer"
    island: int | None = None
    hypothesis: str = ""
    measured: Measured = Measured()
    attempts: tuple[Attempt, ...] = ()


LONG = 4_000
"""Length in characters above which a parent is edited by a diff if the format is open.

About a hundred lines.
"""


def resolve_format(format: str, parent: Candidate | None, frozen: tuple[str, ...] = ()) -> str:
    """The format of a reply, with `auto` and `verbalized_auto` resolved.

    They depend on the length of the parent's parts that may change.
    """
    family, auto, rest = format.rpartition("auto")
    if not auto or rest:
        return format
    length = (
        sum(len(text) for name, text in parent.parts.items() if name not in frozen) if parent else 0
    )
    if family:
        return "verbalized_diff" if length > LONG else "verbalized"
    return "diff" if length > LONG else "rewrite"


class HumanInput(msgspec.Struct, frozen=True):
    """Input from a person to a running search: a hint in words, or a candidate of their own."""

    hint: str = ""
    candidate: Candidate | None = None


class Proposal(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer: up to k candidates in the order of the reply, possibly none.

    `fault` is "" or a short word for the reason that there are fewer than asked (empty, refused,
    truncated, unparsable, duplicate, provider, ...), `detail` what it is about, as the next request
    quotes it. `prompt` and `reply` are the exact texts, kept as blobs.
    """

    candidates: tuple[Candidate, ...] = ()
    hypothesis: str = ""
    fault: str = ""
    model: str = ""
    usage: Usage = Usage()
    prompt: str = ""
    reply: str = ""
    faults: dict[str, int] = {}  # number of faults by kind, those that a retry mended included
    detail: str = ""


OVER_LIMIT = "over_limit"
"""Kind of fault: a reply was longer than the limit that the request named."""
MISCOUNTED = "miscounted"
"""Kind of fault: a reply was reported to have more tokens than its request can have."""
SERVER_ERROR, BILLED_ERROR = "server_error", "billed_error"
"""Kinds of faults: a status of 5xx of a provider that costs nothing, or that may be charged for."""
BY_BYTES = "by_bytes"
"""Kind of fault: a server reported no tokens of a reply, or their total alone: each byte counts."""
BY_CUT = "by_cut"
"""Kind of fault: such a reply was cut off at its limit, which tells how many bytes a token has."""
NOTED = (OVER_LIMIT, MISCOUNTED, BY_BYTES, BY_CUT)
"""Kinds of faults of replies that are used all the same."""
LEARNT, UNANSWERED, ANSWERED = "learnt", "unanswered", "answered"
"""Notes on models: a field that a server wants or does not know, and the lack of usable answers."""
SILENT = 3
"""Attempts of a model without a usable answer after which their lack is noted."""
BANK_EMPTY = "bank_empty"
"""Fault: every program of the run's bank was drawn, and no other model is left to ask."""
_REFUSED = "budget_"


def no_budget(name: str) -> str:
    """The fault of a request not made because this budget could not hold its largest cost."""
    return f"{_REFUSED}{name}"


def refused_budget(fault: str) -> str:
    """The budget that `no_budget` named in a fault, "" for another fault."""
    return fault.removeprefix(_REFUSED) if fault.startswith(_REFUSED) else ""


def is_unusable(fault: str) -> bool:
    """True for a fault of an answer that was asked for and that no candidate can be read from."""
    is_read = fault in ("", "unchanged", "duplicate", "too_few", *NOTED)
    return not is_read and fault not in (BANK_EMPTY, "no_model") and not refused_budget(fault)


class Text(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer of `lab.write`: plain text ("" with a `fault` when there is none)."""

    text: str = ""
    fault: str = ""
    model: str = ""
    usage: Usage = Usage()
    prompt: str = ""
    reply: str = ""
    faults: dict[str, int] = {}  # number of faults by kind, those that a retry mended included
