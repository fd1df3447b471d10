"""Results to rows and back: candidates and long texts leave the row and are kept once, by content."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from culmen.core.brief import Proposal, Text
from culmen.core.candidate import Candidate, Origin
from culmen.core.evaluation import Observation
from culmen.core.event import Custom, Edits, Result, Vectors
from culmen.core.usage import Usage
from culmen.store.blobs import INLINE, is_reference, reference
from culmen.store.codec import bytes_text, decode, encode, text_bytes

LONG = 4096
"""Characters from which prompts, replies, feedback and artifacts are kept as blobs."""


class Appearance(msgspec.Struct, frozen=True, array_like=True):
    """A candidate inside an event: its texts by reference, the rest as it was given there."""

    parts: str
    parents: tuple[str, ...] = ()
    origin: Origin = Origin()


class ProposalRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """`Proposal` as stored."""

    candidates: tuple[Appearance, ...] = ()
    hypothesis: str = ""
    fault: str = ""
    model: str = ""
    usage: Usage = Usage()
    prompt: str = ""
    reply: str = ""
    faults: dict[str, int] = {}


class EditsRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """`Edits` as stored."""

    parts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    data: dict[str, Any] = {}
    fault: str = ""


class Stored(NamedTuple):
    """One result as stored, and the result as `read` will give it back."""

    shape: str
    raw: bytes
    data: bytes | None
    result: Result


class Batch:
    """Collects what one append has to store besides its events."""

    def __init__(self) -> None:
        self.blobs: dict[bytes, bytes] = {}
        self.candidates: dict[str, tuple[Candidate, bytes, int]] = {}  # id: candidate, blob of its parts, seq

    def keep(self, data: bytes) -> bytes:
        """Put a blob; returns its SHA-256."""
        sha = hashlib.sha256(data).digest()
        self.blobs[sha] = data
        return sha

    def candidate(self, candidate: Candidate, seq: int) -> Appearance:
        """Put a candidate that appears in event `seq`."""
        sha = self.keep(encode(candidate.parts))
        self.candidates.setdefault(candidate.id, (candidate, sha, seq))
        return Appearance(sha.hex(), candidate.parents, candidate.origin)

    def text(self, text: str) -> str:
        """The text, or a reference to it if it is long (or looks like a reference)."""
        if len(text) <= LONG and not text.startswith("blob:"):
            return text
        return reference(self.keep(text_bytes(text)))

    def texts(self, texts: Mapping[str, str]) -> dict[str, str]:
        """`text` of each value."""
        return {name: self.text(text) for name, text in texts.items()}


def store(result: Result, seq: int, batch: Batch) -> Stored:
    """Turn a result into columns; what goes elsewhere is put in `batch`."""
    stored = _STORE[type(result)](result, seq, batch)
    if len(stored.raw) > INLINE:
        return stored._replace(raw=reference(batch.keep(stored.raw)).encode())
    return stored


def store_body(body: dict[str, Any], seq: int, batch: Batch) -> dict[str, Any]:
    """The body with every `Candidate` under `candidate` or `candidates` stored and replaced by its id."""
    one, many = body.get("candidate"), body.get("candidates")
    if isinstance(one, Candidate):
        batch.candidate(one, seq)
        body = body | {"candidate": one.id}
    if isinstance(many, list | tuple) and many and isinstance(many[0], Candidate):
        for candidate in many:
            batch.candidate(candidate, seq)
        body = body | {"candidates": [candidate.id for candidate in many]}
    return body


def _store_observation(result: Observation, seq: int, batch: Batch) -> Stored:
    row, feedback = result, batch.text(result.feedback)
    if result.artifacts or feedback is not result.feedback:
        row = msgspec.structs.replace(result, feedback=feedback, artifacts=batch.texts(result.artifacts))
    return Stored("observation", encode(row), None, result)


def _store_proposal(result: Proposal, seq: int, batch: Batch) -> Stored:
    result = msgspec.structs.replace(result, prompt=batch.text(result.prompt), reply=batch.text(result.reply))
    appearances = tuple(batch.candidate(candidate, seq) for candidate in result.candidates)
    rest = (result.hypothesis, result.fault, result.model, result.usage, result.prompt, result.reply, result.faults)
    return Stored("proposal", encode(ProposalRow(appearances, *rest)), None, result)


def _store_text(result: Text, seq: int, batch: Batch) -> Stored:
    result = msgspec.structs.replace(result, prompt=batch.text(result.prompt), reply=batch.text(result.reply))
    return Stored("text", encode(result), None, result)


def _store_vectors(result: Vectors, seq: int, batch: Batch) -> Stored:
    return Stored("vectors", encode(msgspec.structs.replace(result, data=b"")), result.data, result)


def _store_edits(result: Edits, seq: int, batch: Batch) -> Stored:
    parts = tuple(batch.keep(encode(texts)).hex() for texts in result.parts)
    return Stored("edits", encode(EditsRow(parts, result.notes, result.data, result.fault)), None, result)


def _store_custom(result: Custom, seq: int, batch: Batch) -> Stored:
    return Stored("custom", encode(result), None, result)


_STORE: dict[type, Callable[[Any, int, Batch], Stored]] = {
    Observation: _store_observation,
    Proposal: _store_proposal,
    Text: _store_text,
    Vectors: _store_vectors,
    Edits: _store_edits,
    Custom: _store_custom,
}

_ROWS: dict[str, type] = {
    "observation": Observation,
    "proposal": ProposalRow,
    "text": Text,
    "vectors": Vectors,
    "edits": EditsRow,
    "custom": Custom,
}


def parse(shape: str, raw: bytes) -> Any:
    """The stored form of a result; its blobs are still references."""
    row = decode(raw, _ROWS[shape])
    return _with_trust(row, raw) if shape == "observation" and not row.trust else row


def _with_trust(row: Observation, raw: bytes) -> Observation:
    """Format 1 knew only whether a score was computed outside the candidate's process."""
    if b'"verified":true' not in raw:
        return row
    return msgspec.structs.replace(row, trust="verified" if row.certified is None else "certified")


def blobs_of(row: Any) -> Iterable[bytes]:
    """The blobs that `restore` will need."""
    if isinstance(row, ProposalRow):
        return [bytes.fromhex(appearance.parts) for appearance in row.candidates]
    if isinstance(row, EditsRow):
        return [bytes.fromhex(sha) for sha in row.parts]
    if isinstance(row, Observation) and (row.artifacts or row.feedback.startswith("blob:")):
        texts = (row.feedback, *row.artifacts.values())
        return [bytes.fromhex(text[5:]) for text in texts if is_reference(text)]
    return ()


def restore(
    row: Any, data: bytes | None, get: Callable[[bytes], bytes], parts: Callable[[bytes], dict[str, str]]
) -> Any:
    """The result, whole but for the references in `prompt` and `reply`."""
    if isinstance(row, ProposalRow):
        found = tuple(
            Candidate.of(parts(bytes.fromhex(each.parts)), each.parents, each.origin) for each in row.candidates
        )
        return Proposal(found, *(getattr(row, name) for name in ProposalRow.__struct_fields__[1:]))
    if isinstance(row, EditsRow):
        return Edits(tuple(dict(parts(bytes.fromhex(sha))) for sha in row.parts), row.notes, row.data, row.fault)
    if isinstance(row, Vectors):
        return msgspec.structs.replace(row, data=data or b"")
    if isinstance(row, Observation) and (row.artifacts or row.feedback.startswith("blob:")):
        return msgspec.structs.replace(
            row,
            feedback=_whole(row.feedback, get),
            artifacts={name: _whole(text, get) for name, text in row.artifacts.items()},
        )
    return row


def _whole(text: str, get: Callable[[bytes], bytes]) -> str:
    return bytes_text(get(bytes.fromhex(text[5:]))) if is_reference(text) else text
