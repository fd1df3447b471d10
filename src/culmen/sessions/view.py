"""What agents read: the common history, results, programs, leaderboard. Mounted read-only, and only ever a copy.

    past_experiments.jsonl    one row an experiment, of all agents and seeds
    results/TICKET.json       the row an agent waits for
    programs/ID/PART          every candidate's texts
    leaderboard.md
    closing/aNN               why no more experiments are taken from this agent
    evaluate, history         the programs that agents call

The journal is the truth; all of this is made again from it at every start.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from culmen.core.session import Answer, Row
from culmen.sessions import safe
from culmen.sessions.layout import tag
from culmen.sessions.settings import REFUSALS

HISTORY = "past_experiments.jsonl"
_SCRIPTS = Path(__file__).parent / "scripts"


class View:
    """The view of one run, in `folder`; `about` is what scripts want to know of the task."""

    def __init__(self, folder: Path, about: Mapping[str, Any]) -> None:
        self.folder, self._about = folder, about
        self._rows: dict[str, Row] = {}
        self._parts: dict[str, dict[str, str]] = {}
        self._leaderboard = ""
        self._closing: dict[int, str] = {}
        self._refusals: dict[int, int] = {}
        self._lock = threading.RLock()

    def make(self, answers: Iterable[Answer]) -> None:
        """Make it from nothing but these answers, in order."""
        for answer in answers:
            self._remember(answer)
        self.restore()

    def restore(self) -> None:
        """Write all of it anew, whatever became of the files."""
        with self._lock:
            self._restore()

    def _restore(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        for name in ("results", "programs", "closing"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        for script in ("evaluate", "history"):
            self._write(script, (_SCRIPTS / f"{script}.py").read_text(encoding="utf-8"), 0o755)
        self._write("about.json", msgspec.json.encode(self._about).decode())
        self._write(HISTORY, "".join(map(line, self._rows.values())))
        for row in self._rows.values():
            self._result(row.ticket, line(row))
        for candidate, parts in self._parts.items():
            self._program(candidate, parts)
        for agent, reason in self._closing.items():
            self._write(f"closing/{tag(agent)}", reason)
        self._write("leaderboard.md", self._leaderboard)

    def answer(self, answer: Answer) -> None:
        """Add what was answered; what is there already is not added again. May be called on any thread."""
        with self._lock:
            self._answer(answer)

    def _answer(self, answer: Answer) -> None:
        for row in self._remember(answer):
            with (self.folder / HISTORY).open("ab") as file:
                file.write(line(row).encode())
            self._result(row.ticket, line(row))
        for candidate, parts in answer.parts.items():
            self._program(candidate, parts)
        if answer.closing:
            self._write(f"closing/{tag(answer.agent)}", answer.closing)
        if answer.leaderboard:
            self._write("leaderboard.md", answer.leaderboard)

    def refuse(self, agent: int, refused: Mapping[str, str]) -> None:
        """Answer requests that never became experiments; an agent that goes on for ever hears nothing any more."""
        for ticket, reason in refused.items():
            self._refusals[agent] = count = self._refusals.get(agent, 0) + 1
            if count <= REFUSALS:
                row = {"ticket": ticket, "status": "refused", "reason": reason}
                with self._lock:
                    self._result(ticket, msgspec.json.encode(row).decode() + "\n")

    def answered(self, ticket: str) -> bool:
        """Whether this experiment is in the history."""
        return ticket in self._rows

    @property
    def leaderboard(self) -> str:
        """The latest leaderboard."""
        return self._leaderboard

    def _remember(self, answer: Answer) -> list[Row]:
        new = [row for row in answer.rows if _key(row) not in self._rows]
        self._rows.update((_key(row), row) for row in new)
        self._parts.update(answer.parts)
        self._leaderboard = answer.leaderboard or self._leaderboard
        if answer.closing:
            self._closing[answer.agent] = answer.closing
        return new

    def _result(self, ticket: str, text: str) -> None:
        if ticket and safe.sound(ticket):
            self._write(f"results/{ticket}.json", text)

    def _program(self, candidate: str, parts: Mapping[str, str]) -> None:
        if not safe.sound(candidate):
            return
        folder = self.folder / "programs" / candidate
        for name, text in parts.items():
            try:
                path = folder.joinpath(*safe.split(name))
                path.parent.mkdir(parents=True, exist_ok=True)
                self._write(str(path.relative_to(self.folder)), text)
            except (safe.Refused, FileExistsError, NotADirectoryError, IsADirectoryError):
                continue  # a part whose name is no path, or runs into another's; it is in the journal all the same

    def _write(self, name: str, text: str, mode: int = 0o644) -> None:
        """Replace a file by renaming, so that readers see the old or the new one."""
        path = self.folder / name
        temporary = path.with_name(f".{path.name}.new")
        temporary.write_bytes(text.encode("utf-8", "replace"))
        os.chmod(temporary, mode)
        os.replace(temporary, path)


def _key(row: Row) -> str:
    return row.ticket or f"#{row.n}"


def line(row: Row) -> str:
    """A row as a line of JSON with every field, defaults too: agents query it with small scripts."""
    fields: dict[str, Any] = {name: getattr(row, name) for name in row.__struct_fields__}
    return msgspec.json.encode(fields).decode() + "\n"
