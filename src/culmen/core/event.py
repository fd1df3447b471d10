"""Effects that a strategy asks for, their digests, and the journal's entries about them."""

from __future__ import annotations

import json
from typing import NamedTuple

import msgspec

from culmen.core.brief import Brief, Proposal, Text
from culmen.core.candidate import Candidate
from culmen.core.evaluation import Case, Observation
from culmen.core.json import JsonObject
from culmen.core.task import digest_pieces
from culmen.core.usage import Usage


class EvaluateRequest(msgspec.Struct, frozen=True, tag="evaluate"):
    """Run one candidate on one case (None: the task has no data set), once, with this seed.

    `certify` asks the task's verifier, too. `checks` is the number of further evaluations allowed
    to test if the score depends on a tolerance of the evaluator: always, or, with `above`, only for
    a score better than that, in the task's own direction. `rivals` are candidates with lower
    scores, the best first, that it is compared with there. `pushes` is the number of further
    evaluations allowed to push its output; `neighbours` score a little less, so their outputs may
    be nearly equal to it.
    """

    candidate: Candidate
    case: Case | None
    seed: int
    certify: bool = False
    checks: int = 0
    above: float | None = None
    rivals: tuple[Candidate, ...] = ()
    pushes: int = 0
    neighbours: tuple[Candidate, ...] = ()


NEIGHBOUR_GAIN = 1e-4
"""Largest gain of a candidate over a neighbour, as a share of the score."""


class TrustChecks(NamedTuple):
    """Fields of an `EvaluateRequest` that test how far its score can be trusted."""

    checks: int = 0
    rivals: tuple[Candidate, ...] = ()
    pushes: int = 0
    neighbours: tuple[Candidate, ...] = ()


class ReplyLimit(msgspec.Struct, frozen=True):
    """At most `samples` replies to a request, of at most `tokens` tokens each."""

    samples: int
    tokens: int


class ProposeRequest(msgspec.Struct, frozen=True, tag="propose", omit_defaults=True):
    """Ask a model for candidates.

    The engine sets `limit` if the budget does not hold the replies that the brief and the model's
    settings allow; it is no part of a request's digest.
    """

    brief: Brief
    seed: int
    limit: ReplyLimit | None = None


class WriteRequest(msgspec.Struct, frozen=True, tag="write", omit_defaults=True):
    """Ask a model for prose: the template `role` filled with `slots` (plain data).

    `limit` as in `ProposeRequest`.
    """

    role: str
    slots: JsonObject
    seed: int
    limit: ReplyLimit | None = None


class EmbedRequest(msgspec.Struct, frozen=True, tag="embed"):
    """Map candidates to vectors."""

    candidates: tuple[Candidate, ...]


class EditRequest(msgspec.Struct, frozen=True, tag="edit"):
    """Heavy pure work on texts (parsing, syntax-tree edits, optimiser steps) outside the loop.

    `tool` names it, `candidates` are whole candidates, `options` plain data.
    """

    tool: str
    candidates: tuple[Candidate, ...]
    options: JsonObject
    seed: int


class CustomRequest(msgspec.Struct, frozen=True, tag="custom"):
    """An effect of a kind unknown to the engine (train, session, ...), for plug-ins."""

    kind: str
    payload: JsonObject
    seed: int


WAIT = "clock.wait"
"""The custom kind that only lets time pass: payload `{"seconds": ...}`.

It does not keep a search from ending.
"""

Request = (
    EvaluateRequest | ProposeRequest | WriteRequest | EmbedRequest | EditRequest | CustomRequest
)

_NOTHING, _EVALUATION, _CALL = Usage(), Usage(evaluations=1), Usage(calls=1)


def at_least(request: Request) -> Usage:
    """The default estimate of a request's cost.

    One evaluation for an evaluation, plus its checks; one call for a question to a model; the rest
    is free.
    """
    if isinstance(request, EvaluateRequest):
        if not request.checks and not request.pushes:
            return _EVALUATION
        rivals = len(request.rivals) if request.checks else 0
        return Usage(evaluations=1 + request.checks + rivals + request.pushes)
    return _CALL if isinstance(request, ProposeRequest | WriteRequest) else _NOTHING


class Vectors(msgspec.Struct, frozen=True, omit_defaults=True):
    """Embeddings: `count` rows of `width` little-endian float32, and the name of the embedder."""

    count: int
    width: int
    data: bytes
    embedder: str = ""
    usage: Usage = Usage()


class Edits(msgspec.Struct, frozen=True, omit_defaults=True):
    """Result of an `edit`: new candidates' parts, and plain data that the tool returns.

    `fault` is "" or a word.
    """

    parts: tuple[dict[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    data: JsonObject = {}
    fault: str = ""


class Custom(msgspec.Struct, frozen=True, omit_defaults=True):
    """Result of a custom effect: plain data."""

    data: JsonObject = {}
    usage: Usage = Usage()


Result = Observation | Proposal | Text | Vectors | Edits | Custom


class Effect(msgspec.Struct, frozen=True):
    """The n-th request of a strategy: `key` = n, `mark` = digest of the request."""

    key: int
    mark: str
    request: Request

    @property
    def kind(self) -> str:
        """evaluate | propose | write | embed | edit, or the custom kind."""
        if isinstance(self.request, CustomRequest):
            return self.request.kind
        return type(self.request).__struct_config__.tag  # pyright: ignore[reportReturnType]


class Entry(msgspec.Struct, frozen=True):
    """An entry for the journal, written in one transaction with its neighbours.

    Values of `kind`:

    started  an effect was handed to the world
    held     its model calls may cost `body["most"]` in all
    done     `result` holds its outcome
    note     from the strategy
    stop     the search was asked to end
    torn     in flight when a process died; `body` has its largest possible cost
    tell     input from a person
    state    run life cycle: running, paused, interrupted, finished, failed
    """

    kind: str
    key: int = 0
    mark: str = ""
    effect: str = ""  # the effect's kind, for started and done
    body: JsonObject = {}
    result: Result | None = None
    elapsed: float = 0.0  # active seconds of the run so far


class Event(msgspec.Struct, frozen=True):
    """A journaled entry.

    `seq` is its place (1, 2, ...), `time` the wall clock (Unix seconds, for display only).
    """

    seq: int
    time: float
    entry: Entry


def encode_json(value: object) -> bytes:
    """Plain data and structs as JSON bytes, the same on every run.

    Texts that are not valid Unicode are encoded as well.
    """
    try:
        return msgspec.json.encode(value, order="sorted" if isinstance(value, dict) else None)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value), sort_keys=True).encode()


def request_mark(request: Request, brief: bytes = b"") -> str:
    """Digest of a request: 16 hex digits. Candidates count by content.

    `brief` is the `encode`d brief of a `ProposeRequest`, if it is at hand: encoding it again would
    cost much.
    """
    if isinstance(request, ProposeRequest) and brief.startswith(
        b'{"parent":'
    ):  # else invalid Unicode: ordered fields
        return digest_pieces(b'{"type":"propose","brief":%b,"seed":%d}' % (brief, request.seed))[
            :16
        ]
    if isinstance(request, EvaluateRequest):
        case = request.case.id if request.case else ""
        certify = ("certify",) if request.certify else ()
        if (
            request.checks and request.above is None
        ):  # otherwise the evaluation is the same, whatever the best score before
            certify = ("checks", str(request.checks))
        if request.pushes:
            certify += ("pushes", str(request.pushes))
        return digest_pieces(
            "evaluate", request.candidate.digest, case, str(request.seed), *certify
        )[:16]
    if isinstance(request, EmbedRequest):
        return digest_pieces("embed", *(candidate.digest for candidate in request.candidates))[:16]
    return digest_pieces(encode_json(request))[:16]


def seed_from_digest(digest: str) -> int:
    """A random seed: 31 bits of a digest."""
    return int(digest[:8], 16) & 0x7FFFFFFF
