"""Content-addressed texts: the same bytes are kept once.

Up to `INLINE` bytes live in the journal's blob table, larger ones as files RUN/blobs/ab/<sha256>, which are durable
before any row refers to them. A reference is `blob:<sha256 in hex>`.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from culmen.core.errors import JournalDamaged
from culmen.store.codec import bytes_text

INLINE = 64 * 1024
_REF = re.compile("blob:[0-9a-f]{64}")

Lookup = Callable[[Iterable[bytes]], dict[bytes, bytes]]
"""Blobs of the table by SHA-256 (32 bytes); those that are not there are left out."""


def reference(sha: bytes) -> str:
    """`blob:<hex>` for a SHA-256 of 32 bytes."""
    return "blob:" + sha.hex()


def is_reference(text: str) -> bool:
    """Whether the text has the form of a reference."""
    return _REF.fullmatch(text) is not None


class Blobs:
    """The blobs of one run: `lookup` reads the table, files are read here."""

    def __init__(self, folder: Path, lookup: Lookup) -> None:
        self._folder, self._lookup = folder, lookup

    def text(self, ref: str) -> str:
        """The text behind a reference; a text that is no reference is returned as it is."""
        return bytes_text(self.get([bytes.fromhex(ref[5:])]).popitem()[1]) if is_reference(ref) else ref

    def get(self, shas: Iterable[bytes]) -> dict[bytes, bytes]:
        """Bytes by SHA-256; raises `JournalDamaged` if one is missing or altered."""
        wanted = set(shas)
        found = self._lookup(wanted)
        for sha in wanted - found.keys():
            found[sha] = self.file(sha)
        return found

    def put_file(self, sha: bytes, data: bytes) -> None:
        """Write one large blob; durable on return."""
        path = self._path(sha)
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

    def file(self, sha: bytes) -> bytes:
        """A large blob; raises `JournalDamaged` if its file is missing or altered."""
        path = self._path(sha)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            data = b""
        if hashlib.sha256(data).digest() != sha:
            raise JournalDamaged(f"blob {sha.hex()} is missing or altered", where=str(path), fix="restore the file")
        return data

    def _path(self, sha: bytes) -> Path:
        name = sha.hex()
        return self._folder / name[:2] / name


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
