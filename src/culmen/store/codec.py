"""Lossless conversion of plain data to bytes and back.

The fast path is msgspec's JSON. Lone surrogates, NaN and the infinities are legal in Python and in
the output of candidates and models, but not in JSON; such a document is written escaped, after the
prefix `~`, and is restored exactly.
"""

from __future__ import annotations

import hashlib
import math
import os
import tempfile
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, overload

import msgspec

from culmen.core.brief import Proposal, Text
from culmen.core.candidate import Candidate, Origin
from culmen.core.errors import JournalDamaged
from culmen.core.evaluation import Observation, Status
from culmen.core.event import Custom, Edits, Entry, Result, Vectors
from culmen.core.foreign import lazy_pattern
from culmen.core.json import JsonObject
from culmen.core.usage import Usage
from culmen.store.sql import Connection

T = TypeVar("T")
CallResult = TypeVar("CallResult", Proposal, Text)

_ENCODER = msgspec.json.Encoder()
# by type: making a decoder costs more than decoding a small document
_DECODERS: dict[type, msgspec.json.Decoder[Any]] = {}
_ESCAPED = b"~"
_UNSAFE = lazy_pattern("[\x00\x1b\ud800-\udfff]")
_CODE = lazy_pattern("\x1b([0-9a-f]{4})")


def escape_text(text: str) -> str:
    """The text without NUL and lone surrogates.

    Each of these, and ESC itself, becomes ESC and four hex digits.
    """
    if text.isascii() and "\x00" not in text and "\x1b" not in text:
        return text
    return _UNSAFE.sub(lambda found: f"\x1b{ord(found[0]):04x}", text)


def unescape_text(text: str) -> str:
    """The inverse of `escape_text`."""
    return _CODE.sub(lambda found: chr(int(found[1], 16)), text) if "\x1b" in text else text


def encode_value(value: object) -> bytes:
    """Structs and plain data as JSON, escaped if JSON cannot represent them."""
    try:
        raw = _ENCODER.encode(value)
    except UnicodeEncodeError:
        return _ESCAPED + _ENCODER.encode(_escape_value(msgspec.to_builtins(value)))
    if b"null" in raw:  # msgspec writes NaN and the infinities as null
        plain = msgspec.to_builtins(value)
        if _has_odd_float(plain):
            return _ESCAPED + _ENCODER.encode(_escape_value(plain))
    return raw


@overload
def decode_value(raw: bytes) -> object: ...
@overload
def decode_value(raw: bytes, kind: type[T]) -> T: ...
def decode_value(raw: bytes, kind: type = object) -> object:
    """The inverse of `encode_value`; raises `msgspec.DecodeError` on damaged bytes."""
    if raw[:1] == _ESCAPED:
        return msgspec.convert(_unescape_value(msgspec.json.decode(raw[1:])), kind)
    decoder = _DECODERS.get(kind)
    if decoder is None:
        decoder = _DECODERS[kind] = msgspec.json.Decoder(kind)
    return decoder.decode(raw)


def text_bytes(text: str) -> bytes:
    """The text as UTF-8, lone surrogates included."""
    return text.encode("utf-8", "surrogatepass")


def bytes_text(raw: bytes) -> str:
    """The inverse of `text_bytes`."""
    return raw.decode("utf-8", "surrogatepass")


def _has_odd_float(value: object) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, dict):
        return any(_has_odd_float(item) for item in value.values())
    return isinstance(value, list | tuple) and any(map(_has_odd_float, value))


def _escape_value(value: object) -> object:
    if isinstance(value, str):
        return escape_text(value)
    if isinstance(value, float) and not math.isfinite(value):
        return f"\x1b[{value}]"
    if isinstance(value, dict):
        return {_escape_value(key): _escape_value(item) for key, item in value.items()}
    return [_escape_value(item) for item in value] if isinstance(value, list | tuple) else value


def _unescape_value(value: object) -> object:
    if isinstance(value, str):
        return float(value[2:-1]) if value.startswith("\x1b[") else unescape_text(value)
    if isinstance(value, dict):
        return {_unescape_value(key): _unescape_value(item) for key, item in value.items()}
    return [_unescape_value(item) for item in value] if isinstance(value, list) else value


def island_in_origin(origin: bytes | None) -> int | None:
    """The island in a candidate's `origin` column; None without one."""
    if not origin or b'"island"' not in origin:  # most origins have none and need no decoding
        return None
    return decode_value(origin, Origin).island


# Content-addressed texts: the same bytes are kept once.

INLINE = 64 * 1024
_REF = lazy_pattern("blob:[0-9a-f]{64}")

Lookup = Callable[[Iterable[bytes]], dict[bytes, bytes]]
"""Blobs of the table by SHA-256 (32 bytes); missing ones are left out."""


def blob_reference(sha: bytes) -> str:
    """`blob:<hex>` for a SHA-256 of 32 bytes."""
    return "blob:" + sha.hex()


def is_reference(text: str) -> bool:
    """True if the text has the form of a blob reference."""
    return _REF.fullmatch(text) is not None


class Blobs:
    """The blobs of one run: `lookup` reads the table, this class reads the files."""

    def __init__(self, folder: Path, lookup: Lookup) -> None:
        self._folder, self._lookup = folder, lookup

    def resolve_text(self, ref: str) -> str:
        """The text behind a reference; any other text is returned unchanged."""
        return (
            bytes_text(self.get([bytes.fromhex(ref[5:])]).popitem()[1])
            if is_reference(ref)
            else ref
        )

    def get(self, shas: Iterable[bytes]) -> dict[bytes, bytes]:
        """Bytes by SHA-256; raises `JournalDamaged` if one is missing or altered."""
        wanted = set(shas)
        blobs = self._lookup(wanted)
        for sha, data in blobs.items():
            if hashlib.sha256(data).digest() != sha:
                raise JournalDamaged(
                    f"the text {sha.hex()[:12]} was changed after it was written",
                    where=self._folder.parent,
                    fix="restore the run from a copy",
                )
        for sha in wanted - blobs.keys():
            blobs[sha] = self.read_file(sha)
        return blobs

    def put_file(self, sha: bytes, data: bytes) -> None:
        """Write one large blob to its file; it is durable on return."""
        path = self._file_path(sha)
        if path.exists() and path.stat().st_size == len(data):
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        fd, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
        for folder in (path.parent, self._folder, self._folder.parent):
            _sync_folder(folder)

    def read_file(self, sha: bytes) -> bytes:
        """A large blob; raises `JournalDamaged` if its file is missing or altered."""
        path = self._file_path(sha)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            data = b""
        if hashlib.sha256(data).digest() != sha:
            raise JournalDamaged(
                f"blob {sha.hex()} is missing or altered", where=path, fix="restore the file"
            )
        return data

    def _file_path(self, sha: bytes) -> Path:
        name = sha.hex()
        return self._folder / name[:2] / name


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


# Results to rows and back: candidates and long texts are stored once, by content, outside the row.

LONG = 4096
"""Characters above which feedback and artifacts are stored as blobs."""
SHARED = 256
"""Characters above which prompts and replies are: they compress well beside others of the run."""


class Appearance(msgspec.Struct, frozen=True, array_like=True):
    """A candidate inside an event: its texts by reference, parents and origin in full."""

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
    detail: str = ""


class EditsRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """`Edits` as stored."""

    parts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    data: JsonObject = {}
    fault: str = ""


class StoredResult(NamedTuple):
    """One stored result, and the same result as a reader will return it."""

    shape: str
    raw: bytes
    data: bytes | None
    result: Result


class RowBatch:
    """Blobs and candidates that one append has to store besides its events."""

    def __init__(self) -> None:
        self.blobs: dict[bytes, tuple[str, bytes]] = {}  # kind and data by SHA-256
        # id: candidate, blob of its parts, seq
        self.candidates: dict[str, tuple[Candidate, bytes, int]] = {}

    def add_blob(self, kind: str, data: bytes) -> bytes:
        """Add a blob of a kind, whose blobs are alike; return its SHA-256."""
        sha = hashlib.sha256(data).digest()
        self.blobs[sha] = kind, data
        return sha

    def add_candidate(self, candidate: Candidate, seq: int) -> Appearance:
        """Add a candidate that appears in event `seq`."""
        sha = self.add_blob("parts", encode_value(candidate.parts))
        self.candidates.setdefault(candidate.id, (candidate, sha, seq))
        return Appearance(sha.hex(), candidate.parents, candidate.origin)

    def add_text(self, kind: str, text: str, longest: int = LONG) -> str:
        """The text, or a reference to it if it is long (or has the prefix of a reference)."""
        if len(text) <= longest and not text.startswith("blob:"):
            return text
        return blob_reference(self.add_blob(kind, text_bytes(text)))

    def add_call(self, result: CallResult) -> CallResult:
        """A proposal or a text with its prompt and reply, or references to them."""
        prompt, reply = (
            self.add_text(kind, getattr(result, kind), SHARED) for kind in ("prompt", "reply")
        )
        return msgspec.structs.replace(result, prompt=prompt, reply=reply)


def store_result(result: Result, seq: int, batch: RowBatch) -> StoredResult:
    """The columns of a result; its blobs and candidates are added to `batch`."""
    stored = _STORE[type(result)](result, seq, batch)
    if len(stored.raw) > INLINE:
        return stored._replace(raw=blob_reference(batch.add_blob("result", stored.raw)).encode())
    return stored


def store_body(body: JsonObject, seq: int, batch: RowBatch) -> JsonObject:
    """The body with each `Candidate` under `candidate` or `candidates` replaced by its id.

    The candidates are added to `batch`.
    """
    candidate_value, candidate_values = body.get("candidate"), body.get("candidates")
    if isinstance(candidate_value, Candidate):
        batch.add_candidate(candidate_value, seq)
        body = body | {"candidate": candidate_value.id}
    if (
        isinstance(candidate_values, list | tuple)
        and candidate_values
        and isinstance(candidate_values[0], Candidate)
    ):
        for candidate in candidate_values:
            batch.add_candidate(candidate, seq)
        body = body | {"candidates": [candidate.id for candidate in candidate_values]}
    return body


def _store_observation(result: Observation, seq: int, batch: RowBatch) -> StoredResult:
    row, feedback = result, batch.add_text("feedback", result.feedback)
    if result.artifacts or feedback is not result.feedback:
        artifacts = {
            name: batch.add_text("artifact", text) for name, text in result.artifacts.items()
        }
        row = msgspec.structs.replace(result, feedback=feedback, artifacts=artifacts)
    return StoredResult("observation", encode_value(row), None, result)


def _store_proposal(result: Proposal, seq: int, batch: RowBatch) -> StoredResult:
    result = batch.add_call(result)
    appearances = tuple(batch.add_candidate(candidate, seq) for candidate in result.candidates)
    rest = (
        result.hypothesis,
        result.fault,
        result.model,
        result.usage,
        result.prompt,
        result.reply,
        result.faults,
        result.detail,
    )
    return StoredResult("proposal", encode_value(ProposalRow(appearances, *rest)), None, result)


def _store_text(result: Text, seq: int, batch: RowBatch) -> StoredResult:
    result = batch.add_call(result)
    return StoredResult("text", encode_value(result), None, result)


def _store_vectors(result: Vectors, seq: int, batch: RowBatch) -> StoredResult:
    return StoredResult(
        "vectors", encode_value(msgspec.structs.replace(result, data=b"")), result.data, result
    )


def _store_edits(result: Edits, seq: int, batch: RowBatch) -> StoredResult:
    parts = tuple(batch.add_blob("parts", encode_value(texts)).hex() for texts in result.parts)
    return StoredResult(
        "edits",
        encode_value(EditsRow(parts, result.notes, result.data, result.fault)),
        None,
        result,
    )


def _store_custom(result: Custom, seq: int, batch: RowBatch) -> StoredResult:
    return StoredResult("custom", encode_value(result), None, result)


_STORE: dict[type, Callable[[Any, int, RowBatch], StoredResult]] = {
    Observation: _store_observation,
    Proposal: _store_proposal,
    Text: _store_text,
    Vectors: _store_vectors,
    Edits: _store_edits,
    Custom: _store_custom,
}

StoredRow = Observation | ProposalRow | Text | Vectors | EditsRow | Custom
"""A result as decoded from its row; its blobs are still references."""

_ROWS: dict[str, type[StoredRow]] = {
    "observation": Observation,
    "proposal": ProposalRow,
    "text": Text,
    "vectors": Vectors,
    "edits": EditsRow,
    "custom": Custom,
}


def parse_result(shape: str, raw: bytes) -> StoredRow:
    """The stored form of a result; its blobs are still references."""
    return decode_value(raw, _ROWS[shape])


def blobs_of(row: StoredRow) -> Iterable[bytes]:
    """The blobs that `restore_result` needs."""
    if isinstance(row, ProposalRow):
        return [bytes.fromhex(appearance.parts) for appearance in row.candidates]
    if isinstance(row, EditsRow):
        return [bytes.fromhex(sha) for sha in row.parts]
    if isinstance(row, Observation) and (row.artifacts or row.feedback.startswith("blob:")):
        texts = (row.feedback, *row.artifacts.values())
        return [bytes.fromhex(text[5:]) for text in texts if is_reference(text)]
    return ()


def restore_result(
    row: StoredRow,
    data: bytes | None,
    get: Callable[[bytes], bytes],
    parts: Callable[[bytes], dict[str, str]],
) -> Result:
    """The result in full, except for references in `prompt` and `reply`."""
    if isinstance(row, ProposalRow):
        candidates = tuple(
            Candidate.of(
                parts(bytes.fromhex(appearance.parts)), appearance.parents, appearance.origin
            )
            for appearance in row.candidates
        )
        said = (row.hypothesis, row.fault, row.model, row.usage)
        return Proposal(candidates, *said, row.prompt, row.reply, row.faults, row.detail)
    if isinstance(row, EditsRow):
        return Edits(
            tuple(dict(parts(bytes.fromhex(sha))) for sha in row.parts),
            row.notes,
            row.data,
            row.fault,
        )
    if isinstance(row, Vectors):
        return msgspec.structs.replace(row, data=data or b"")
    if isinstance(row, Observation) and (row.artifacts or row.feedback.startswith("blob:")):
        return msgspec.structs.replace(
            row,
            feedback=_resolve_reference(row.feedback, get),
            artifacts={name: _resolve_reference(text, get) for name, text in row.artifacts.items()},
        )
    return row


def _resolve_reference(text: str, get: Callable[[bytes], bytes]) -> str:
    return bytes_text(get(bytes.fromhex(text[5:]))) if is_reference(text) else text


# Entries that no journal accepts.


def check_entry(entry: Entry) -> None:
    """Raise `ValueError` for an entry that breaks the contract.

    Status ok needs a finite score; every other status excludes a score.
    """
    result = entry.result
    if not isinstance(result, Observation):
        return
    if result.status is Status.OK:
        if result.score is None or not math.isfinite(result.score):
            raise ValueError(
                f"an observation with status ok needs a finite score, not {result.score}"
            )
    elif result.score is not None:
        raise ValueError(
            f"an observation with status {result.status} has no score, but {result.score} was given"
        )


# Texts of a run in few bytes: compressed, with an earlier text of their kind as dictionary.

_LEAST = 256  # bytes of a text that may be a dictionary: shorter ones share little
_LASTS = 200  # texts after which a kind gets a new dictionary, since prompts and programs move on


class Dictionary(NamedTuple):
    """A text of a kind, by number; `uses` texts were compressed with it so far."""

    number: int
    kind: str
    text: bytes
    uses: int = 0


class Packer:
    """Compresses the texts of one append after another.

    A copy compresses those of one append and takes the original's place once they are durable:
    no text may depend on a dictionary that was not stored.
    """

    def __init__(self, newest: Iterable[Dictionary] = (), last: int = 0) -> None:
        self._newest = {each.kind: each for each in newest}
        self._last = last
        self.added: list[Dictionary] = []

    @classmethod
    def load(cls, connection: Connection) -> Packer:
        """The packer of a run that is written further."""
        query = (
            "SELECT number, kind, data FROM dictionary WHERE number IN "
            "(SELECT max(number) FROM dictionary GROUP BY kind)"
        )
        rows = connection.execute(query).all()
        found = [Dictionary(number, kind, decompress(data)) for number, kind, data in rows]
        readable = (each for each in found if each.text)
        return cls(readable, max((each.number for each in found), default=0))

    def copy(self) -> Packer:
        """A packer with the same dictionaries, none of them added."""
        return Packer(self._newest.values(), self._last)

    def pack(self, kind: str, text: bytes) -> tuple[int, bytes]:
        """The number of the dictionary, and the compressed text."""
        found = self._newest.get(kind)
        if len(text) >= _LEAST and (found is None or found.uses >= _LASTS):
            self._last += 1
            # bytes that DEFLATE looks back (RFC 1951)
            found = Dictionary(self._last, kind, text[:32_768])
            self.added.append(found)
        if found is None:
            return 0, compress(text)
        self._newest[kind] = found._replace(uses=found.uses + 1)
        return found.number, compress(text, found.text)


def compress(text: bytes, dictionary: bytes = b"") -> bytes:
    """The text compressed, without a checksum: texts are known by their hashes."""
    # zlib's level: higher ones save a tenth of the bytes for twice the time
    packer = zlib.compressobj(1, zlib.DEFLATED, -zlib.MAX_WBITS, zdict=dictionary)
    return packer.compress(text) + packer.flush()


def decompress(data: bytes, dictionary: bytes = b"") -> bytes:
    """The inverse of `compress`; b"" for damaged bytes, whose hash then differs."""
    try:
        return zlib.decompressobj(-zlib.MAX_WBITS, zdict=dictionary).decompress(data)
    except zlib.error:
        return b""
