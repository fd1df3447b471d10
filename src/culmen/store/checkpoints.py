"""The newest checkpoint of a run, in the file RUN/checkpoint; a resume can do without.

It is read only if this user's culmen wrote it (a keyed hash, since it is unpickled), with the same
code, and if the journal still has the event that it follows.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import platform
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import msgspec

from culmen import core
from culmen.core.errors import UserError
from culmen.core.inside import OutsideFolder, read_inside
from culmen.store.address import cache_dir
from culmen.store.database import open_snapshot

FILE = "checkpoint"
"""Name of the file in a run's folder."""

PART = f".{FILE}"
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
    """The state of a search (`engine.checkpoint.pack_state`) after event `seq`."""

    seq: int
    state: bytes


class CheckpointFile:
    """Writes and reads the newest checkpoint of the run `run_id` in a folder."""

    def __init__(self, run_dir: Path, run_id: str, name: str = FILE) -> None:
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
    digest = hashlib.sha256()
    packages = [f"{name} {version(name)}" for name in ("numpy", "msgspec")]
    digest.update(" ".join([platform.python_version(), *packages]).encode())
    root = Path(core.__file__).parents[1]
    for file in sorted(root.rglob("*.py")):
        digest.update(str(file.relative_to(root)).encode())
        digest.update(file.read_bytes())
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
