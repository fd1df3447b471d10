"""Where things of agent sessions lie in a run folder.

RUN/control/repo.git      the shared repository; no agent ever sees it
RUN/control/aNN/          what culmen knows of one session: see `records`
RUN/view/                 what agents read: mounted read-only as .culmen
RUN/work/aNN/             tree, home and tmp of one agent; the only places it can write
RUN/transcripts/          what the programs said
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

VIEW = ".culmen"  # the view's name in a work tree
QUEUE = "queue"


def tag(agent: int) -> str:
    """a00, a01, ...: the agent's name in paths."""
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
        """The view all agents share."""
        return self.run / "view"

    def control(self, agent: int) -> Path:
        """Records of one session."""
        return self.run / "control" / tag(agent)

    def work(self, agent: int) -> Path:
        """Folder that holds one agent's places."""
        return self.run / "work" / tag(agent)

    def tree(self, agent: int) -> Path:
        """One agent's work tree."""
        return self.work(agent) / "tree"

    def home(self, agent: int) -> Path:
        """Its HOME."""
        return self.work(agent) / "home"

    def temporary(self, agent: int) -> Path:
        """Its /tmp."""
        return self.work(agent) / "tmp"

    def shared(self, agent: int) -> Path:
        """Its /dev/shm."""
        return self.work(agent) / "shm"

    def transcript(self, agent: int) -> Path:
        """What its program said, a line for each sign of life."""
        return self.run / "transcripts" / f"{tag(agent)}.jsonl"

    def make(self) -> None:
        """The folders every session needs; closed to other users."""
        self.run.mkdir(parents=True, exist_ok=True)
        for name in ("control", "work", "transcripts"):
            folder = self.run / name
            folder.mkdir(exist_ok=True)
            os.chmod(folder, 0o700)
