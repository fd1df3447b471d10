"""Small durable records of a session, so that what was done before a crash is not done again."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import msgspec


def put(path: Path, value: dict[str, Any]) -> None:
    """Replace a record; durable on return, and never half there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.new")
    with temporary.open("wb") as file:
        file.write(msgspec.json.encode(value))
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def get(path: Path) -> dict[str, Any] | None:
    """A record, None if there is none."""
    try:
        return msgspec.json.decode(path.read_bytes())
    except FileNotFoundError:
        return None


class Log:
    """Records one after another, a JSON line each; a torn last line (the machine went down) is dropped."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.records: list[dict[str, Any]] = []
        path.parent.mkdir(parents=True, exist_ok=True)
        self._load()
        self._file = path.open("ab")

    def _load(self) -> None:
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return
        sound = 0
        for line in data.splitlines(keepends=True):
            if not line.endswith(b"\n"):
                break
            with contextlib.suppress(msgspec.DecodeError):
                self.records.append(msgspec.json.decode(line))
            sound += len(line)
        if sound < len(data):
            os.truncate(self._path, sound)

    def add(self, record: dict[str, Any], *, sync: bool = True) -> None:
        """Append one. On return it outlives this process; with `sync`, or after `sync()`, the machine too."""
        self._file.write(msgspec.json.encode(record) + b"\n")
        self._file.flush()
        self.records.append(record)
        if sync:
            self.sync()

    def sync(self) -> None:
        """Make what was added durable; may be called on another thread."""
        os.fdatasync(self._file.fileno())

    def close(self) -> None:
        """Let the file go."""
        self._file.close()
