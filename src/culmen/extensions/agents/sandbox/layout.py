"""Files of agent sessions in a run folder.

RUN/control/repo.git      the shared repository; not visible to agents
RUN/control/aNN/          culmen's records of one session
RUN/view/                 files for agents to read: mounted read-only as .culmen
RUN/work/aNN/             tree, home and tmp of one agent; it can write nowhere else
RUN/transcripts/          output of the programs
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

VIEW = ".culmen"  # the view's name in a work tree
QUEUE = "queue"


def agent_tag(agent: int) -> str:
    """The agent's name in paths: a00, a01, ..."""
    return f"a{agent:02d}"


@dataclass(frozen=True)
class Layout:
    """Paths of one run."""

    run: Path

    @property
    def repo(self) -> Path:
        """The shared repository."""
        return self.run / "control" / "repo.git"

    @property
    def view(self) -> Path:
        """The view that all agents share."""
        return self.run / "view"

    def control_folder(self, agent: int) -> Path:
        """Folder of the records of one session."""
        return self.run / "control" / agent_tag(agent)

    def work_folder(self, agent: int) -> Path:
        """Folder that holds one agent's tree, home and temporary files."""
        return self.run / "work" / agent_tag(agent)

    def tree_folder(self, agent: int) -> Path:
        """One agent's work tree."""
        return self.work_folder(agent) / "tree"

    def home_folder(self, agent: int) -> Path:
        """One agent's HOME."""
        return self.work_folder(agent) / "home"

    def temporary_folder(self, agent: int) -> Path:
        """One agent's /tmp."""
        return self.work_folder(agent) / "tmp"

    def shared_memory_folder(self, agent: int) -> Path:
        """One agent's /dev/shm."""
        return self.work_folder(agent) / "shm"

    def transcript_file(self, agent: int) -> Path:
        """Output of one agent's program, a line for each event."""
        return self.run / "transcripts" / f"{agent_tag(agent)}.jsonl"

    def create_folders(self) -> None:
        """Create the folders that every session needs, closed to other users."""
        self.run.mkdir(parents=True, exist_ok=True)
        for name in ("control", "work", "transcripts"):
            folder = self.run / name
            folder.mkdir(exist_ok=True)
            os.chmod(folder, 0o700)


# Small durable records of a session, so that work from before a crash is not repeated.


def write_record(path: Path, value: dict[str, Any]) -> None:
    """Replace a record atomically; it is durable on return."""
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


def read_record(path: Path) -> dict[str, Any] | None:
    """A record; None if there is none."""
    try:
        return msgspec.json.decode(path.read_bytes())
    except FileNotFoundError:
        return None


class RecordLog:
    """A log of records, one JSON line each; a torn last line (power failure) is dropped."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.records: list[dict[str, Any]] = []
        path.parent.mkdir(parents=True, exist_ok=True)
        self._load_records()
        self._file = path.open("ab")

    def _load_records(self) -> None:
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

    def append_record(self, record: dict[str, Any], *, sync: bool = True) -> None:
        """Append a record.

        On return it outlives this process; with `sync`, or after `sync()`, a power failure too.
        """
        self._file.write(msgspec.json.encode(record) + b"\n")
        self._file.flush()
        self.records.append(record)
        if sync:
            self.sync()

    def sync(self) -> None:
        """Make the appended records durable; may be called on another thread."""
        os.fdatasync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()
