"""Sidecar files of a run: what is kept beside its journal.

They hold prompts that wait for a person, the progress of an advisor's replies, and the newest
checkpoint.

Readings of a long run's journal, kept in RUN/kept: a cache, never the truth.

Files are as safe as a checkpoint: they are read only if this user's culmen wrote them with the same
code, and if the journal still has the event that they follow. The folder may be deleted.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import pickle
import platform
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import msgspec

from culmen import core
from culmen.core.errors import CulmenError, UserError
from culmen.core.inside import OutsideFolder, read_inside
from culmen.store.address import cache_dir
from culmen.store.database import open_snapshot

# Prompts that wait for a person (`--model ask`): files in RUN/ask, between `models.backends.Person`
# and the person who answers.

QUESTIONS = "ask"
_ANSWER = 1_000_000  # characters of an answer


class Question(msgspec.Struct, frozen=True):
    """An unanswered prompt: its number (`0001`), text, and time (Unix seconds)."""

    number: str
    text: str
    asked: float


def waiting_questions(run: Path) -> list[Question]:
    """The waiting prompts, oldest first, without those that are open in an editor."""
    questions: list[Question] = []
    for prompt in sorted((run / QUESTIONS).glob("[0-9]*.prompt.md")):
        number = prompt.name.partition(".")[0]
        if any((prompt.with_name(f"{number}.reply.{kind}")).exists() for kind in ("md", "draft")):
            continue
        try:
            text, asked = (
                prompt.read_text(encoding="utf-8", errors="replace"),
                prompt.stat().st_mtime,
            )
        except FileNotFoundError:  # answered just now
            continue
        questions.append(Question(number, text, asked))
    return questions


def answer_question(run: Path, number: str, text: str) -> None:
    """Answer a prompt; an empty text is a valid answer.

    Raises `UserError` for a prompt that does not wait.
    """
    if len(text) > _ANSWER:
        raise UserError("the answer is too long", fix=f"at most {_ANSWER:,} characters")
    if number not in {question.number for question in waiting_questions(run)}:
        raise UserError(f"prompt {number[:20]} does not wait for an answer", where=run / QUESTIONS)
    reply = run / QUESTIONS / f"{number}.reply.md"
    part = reply.with_suffix(f".{os.getpid()}")
    try:
        part.write_text(text, encoding="utf-8", errors="replace")
        part.replace(reply)
    except OSError as error:
        raise UserError(
            f"cannot write: {error.strerror}", where=reply, fix="check who owns the folder"
        ) from None


# Progress of the advisor's replies while they are drawn. Nothing depends on it; the file is removed
# when the replies are complete, and a file left by a killed process is not shown.

SAMPLING = Path("policy", "sampling.json")


def sampling_line(run: Path) -> str:
    """`advisor: 14 of 40 replies, 3,120 tokens, 210/s`; "" if no replies are being drawn."""
    with suppress(OSError, ValueError):
        done, of, tokens, rate = json.loads((run / SAMPLING).read_text())
        return f"advisor: {done} of {of} replies, {tokens:,} tokens, {rate:.0f}/s"
    return ""


def sampling_time(run: Path) -> float:
    """Time of the last progress note, as a file's time; 0 if no replies are being drawn."""
    try:
        return (run / SAMPLING).stat().st_mtime
    except OSError:
        return 0.0


# The newest checkpoint of a run, in the file RUN/checkpoint; a resume can do without.

CHECKPOINT = "checkpoint"
"""Name of the file in a run's folder."""

CHECKPOINT_PART = f".{CHECKPOINT}"
"""Its name while it is written."""

_MAC, _KEY = 32, 32  # bytes


class _Header(msgspec.Struct, frozen=True):
    """The origin of a checkpoint: code, run, and the hash of the event that it follows."""

    code: str
    run: str
    seq: int
    link: bytes
    size: int


class StoredCheckpoint(NamedTuple):
    """The state of a search (`engine.loop.pack_state`) after event `seq`."""

    seq: int
    state: bytes


class CheckpointFile:
    """Writes and reads the newest checkpoint of the run `run_id` in a folder."""

    def __init__(self, run_dir: Path, run_id: str, name: str = CHECKPOINT) -> None:
        self._run_dir, self._run_id, self._name = run_dir, run_id, name
        self._path = run_dir / name

    def write(self, seq: int, state: bytes) -> None:
        """Replace the checkpoint; the event `seq` must be durable.

        One that a power failure cuts is not read. Raises `OSError` if it cannot be
        written, `UserError` for a user without a home.
        """
        header = _Header(code_digest(), self._run_id, seq, self._link(seq) or b"", len(state))
        packed = msgspec.msgpack.encode(header)
        body = len(packed).to_bytes(4, "big") + packed + state
        # one that a killed process left is overwritten
        part = self._path.with_name(f".{self._path.name}")
        part.write_bytes(self._mac(body) + body)
        part.replace(self._path)

    def read(self) -> StoredCheckpoint | None:
        """The checkpoint; None if there is none that fits this run, this code and this user."""
        try:
            stored = read_inside(self._run_dir, self._name)
        except (OSError, OutsideFolder):
            return None
        mac, body = stored[:_MAC], stored[_MAC:]
        if not _read_key() or not hmac.compare_digest(mac, self._mac(body)):
            return None
        end = 4 + int.from_bytes(body[:4], "big")
        header, state = msgspec.msgpack.decode(body[4:end], type=_Header), body[end:]
        if (header.code, header.run) != (code_digest(), self._run_id):
            return None
        return (
            StoredCheckpoint(header.seq, state) if self._link(header.seq) == header.link else None
        )

    def _link(self, seq: int) -> bytes | None:
        """The hash of an event in the journal's chain; None if the journal does not have it."""
        with open_snapshot(self._run_dir) as connection:
            return connection.execute("SELECT hash FROM event WHERE seq = :seq", seq=seq).scalar()

    def _mac(self, body: bytes) -> bytes:
        return hmac.digest(_read_key() or _make_key(), body, "sha256")


@cache
def code_digest() -> str:
    """A hash of culmen's code and of the versions of Python, numpy and msgspec."""
    numpy = find_spec("numpy")  # which says where it is without loading it
    digest = hashlib.sha256(f"{platform.python_version()} {msgspec.__version__}".encode())
    if numpy is not None and numpy.origin is not None:
        digest.update(Path(numpy.origin).with_name("version.py").read_bytes())
    root = os.path.dirname(os.path.dirname(core.__file__))
    for folder, below, names in os.walk(root):
        below.sort()
        for name in sorted(names):
            if name.endswith(".py"):
                path = os.path.join(folder, name)
                digest.update(path[len(root) :].encode())
                with open(path, "rb") as file:
                    digest.update(file.read())
    return digest.hexdigest()


def _key_file() -> Path:
    return cache_dir() / "checkpoint.key"


def _read_key() -> bytes:
    with suppress(OSError, UserError):
        key = _key_file().read_bytes()
        return key if len(key) == _KEY else b""
    return b""


def _make_key() -> bytes:
    """A key of this user's own; that of another process that makes one at the same time."""
    file = _key_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f".{file.name}.{os.getpid()}")
    part.touch(mode=0o600)
    part.write_bytes(os.urandom(_KEY))
    with suppress(FileExistsError):
        os.link(part, file)
    part.unlink()
    return _read_key()


KEPT = "kept"
"""Name of the folder in a run's folder."""

LONG = 8_000
"""Evaluations from which a run's readings are kept: shorter ones are made anew as quickly."""

EVENTS = 4 * LONG
"""Events of such a run."""

TOLD = LONG // 4
"""Events from which a run's end keeps what its story reads: to read it takes a fiftieth of it."""


def load_kept(run: Path, run_id: str, name: str) -> StoredCheckpoint | None:
    """The event that a kept value follows, and the value; None if there is none that fits."""
    found = _kept_file(run, run_id, name).read() if (run / KEPT).is_dir() else None
    return None if found is None else found._replace(state=pickle.loads(found.state))


def save_kept(run: Path, run_id: str, name: str, seq: int, value: object) -> None:
    """Keep a value that follows from the journal up to event `seq`.

    Nothing is kept of a value that cannot be pickled, or if the run's folder cannot be written.
    """
    file = _kept_file(run, run_id, name)
    with suppress(OSError, CulmenError, pickle.PicklingError, TypeError, AttributeError):
        (run / KEPT).mkdir(exist_ok=True)
        file.write(seq, pickle.dumps(value, pickle.HIGHEST_PROTOCOL))


def _kept_file(run: Path, run_id: str, name: str) -> CheckpointFile:
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    return CheckpointFile(run, run_id, f"{KEPT}/{digest}")
