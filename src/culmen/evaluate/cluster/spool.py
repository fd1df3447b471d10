"""A folder that the driver and its workers share: jobs are files, and whoever renames one has it.

    parcel-SHA  terms  pulse  stop
    jobs/NUMBER  held/WORKER/NUMBER  done/NUMBER  cancel/NUMBER  workers/WORKER  pulses/WORKER  gone/WORKER/NUMBER

Files appear whole: they are written elsewhere and renamed. Clocks of different machines are never compared; a side that
lives changes its pulse, and the other looks whether it changed. A worker can take jobs only while the driver keeps its
folder in held/: made when it is admitted, moved away when it counts as gone. So no job is ever taken by one that nobody
watches.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from pathlib import Path

FOLDERS = ("jobs", "held", "done", "cancel", "workers", "pulses", "gone", "drafts", "logs")
_STALE = 7 * 86400.0  # seconds without a pulse after which a folder belongs to nobody


class Spool:
    """One run's folder, private to its user."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._pulses: dict[str, tuple[str, float]] = {}

    def make(self) -> None:
        """Create it."""
        self.root.mkdir(parents=True, mode=0o700)
        for name in FOLDERS:
            (self.root / name).mkdir(mode=0o700)

    def tidy(self) -> None:
        """Remove folders beside this one whose driver and launcher died with their machine, by the file system's own
        clock."""
        now = (self.root / "pulse").stat().st_mtime
        for pulse in self.root.parent.glob("*/pulse"):
            ours = re.fullmatch(r"[0-9a-f]{16}", pulse.parent.name) and (pulse.parent / "held").is_dir()
            with contextlib.suppress(OSError):
                if ours and now - pulse.stat().st_mtime > _STALE:
                    shutil.rmtree(pulse.parent, ignore_errors=True)

    def put(self, place: str, content: bytes) -> None:
        """Write a file whole."""
        draft = self.root / "drafts" / f"{os.uname().nodename}-{os.getpid()}-{place.replace('/', '-')}"
        draft.write_bytes(content)
        draft.rename(self.root / place)

    def get(self, place: str) -> bytes | None:
        """A file's content, None if it is not there."""
        try:
            return (self.root / place).read_bytes()
        except OSError:
            return None

    def names(self, folder: str) -> list[str]:
        """What lies in a folder, in order."""
        try:
            return sorted(os.listdir(self.root / folder))
        except OSError:
            return []

    def claim(self, number: str, worker: str) -> bytes | None:
        """Take a job, unless another one was faster."""
        held = f"held/{worker}/{number}"
        with contextlib.suppress(OSError):
            (self.root / "jobs" / number).rename(self.root / held)
        return self.get(held)  # a rename that was repeated by the network may have failed and yet be done

    def admit(self, worker: str) -> None:
        """Let a worker take jobs from now on."""
        (self.root / "held" / worker).mkdir(mode=0o700)

    def admitted(self, worker: str) -> bool:
        """Whether it may take jobs."""
        return (self.root / "held" / worker).is_dir()

    def expel(self, worker: str) -> list[str]:
        """Let it take no more; what it held and had not answered."""
        with contextlib.suppress(OSError):
            (self.root / "held" / worker).rename(self.root / "gone" / worker)
        self.drop(f"workers/{worker}")
        return self.names(f"gone/{worker}")

    def drop(self, place: str) -> bool:
        """Remove a file; whether it was there."""
        try:
            (self.root / place).unlink()
        except OSError:
            return False
        return True

    def beat(self, place: str) -> None:
        """Change a pulse."""
        self.put(place, f"{time.monotonic()}".encode())

    def silent(self, place: str) -> float:
        """Seconds since a pulse was last seen to change."""
        now, seen = time.monotonic(), (self.get(place) or b"").decode()
        old, since = self._pulses.get(place, ("", now))
        if seen != old or place not in self._pulses:
            self._pulses[place] = (seen, now)
            return 0.0
        return now - since
