"""The shared view for agents: history, results, programs, leaderboard; a read-only copy.

    past_experiments.jsonl    one row an experiment, of all agents and initial programs
    results/TICKET.json       the row for which an agent waits
    programs/ID/PART          every candidate's texts
    leaderboard.md
    closing/aNN               reason for which this agent's experiments are refused
    evaluate, history         the programs that agents call

The journal is authoritative; the view is rebuilt from it at every start.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from culmen.core.json import JsonObject
from culmen.extensions.agents.messages import AnswerExperiments, ExperimentRow
from culmen.extensions.agents.sandbox import safe
from culmen.extensions.agents.sandbox.layout import agent_tag

HISTORY = "past_experiments.jsonl"
_SCRIPTS = Path(__file__).parent / "scripts"


class SharedView:
    """The view of one run, in `folder`; methods may be called on any thread.

    `about` holds the task's facts for the scripts. With `keep` the view can be restored, which is
    needed if agents are not confined.
    """

    def __init__(self, folder: Path, about: Mapping[str, object], keep: bool = False) -> None:
        self.folder, self._about = folder, about
        self._kept: list[AnswerExperiments] | None = [] if keep else None
        self._known: set[str] = set()
        self._refusals: dict[int, int] = {}
        self._lock = threading.RLock()
        self.leaderboard = ""

    def build_from(self, answers: Iterable[AnswerExperiments]) -> None:
        """Build the view from these answers alone, in order."""
        with self._lock:
            shutil.rmtree(self.folder, ignore_errors=True)
            self._known.clear()
            for name in ("results", "programs", "closing"):
                (self.folder / name).mkdir(parents=True, exist_ok=True)
            for script in ("evaluate", "history"):
                self._replace_file(
                    script, (_SCRIPTS / f"{script}.py").read_text(encoding="utf-8"), 0o755
                )
            self._replace_file("about.json", msgspec.json.encode(self._about).decode())
            self._replace_file(HISTORY, "")
            self._replace_file("leaderboard.md", "")
            for answer in answers:
                self.publish_answer(answer)

    def restore(self) -> None:
        """Rebuild the view if it keeps its answers, whatever the state of the files."""
        if self._kept is not None:
            with self._lock:
                answers, self._kept = self._kept, []
                self.build_from(answers)

    def publish_answer(self, answer: AnswerExperiments) -> None:
        """Add an answer; rows that are present are not added again."""
        with self._lock:
            if self._kept is not None:
                self._kept.append(answer)
            rows = [row for row in answer.rows if _row_key(row) not in self._known]
            self._known.update(map(_row_key, rows))
            with (self.folder / HISTORY).open("ab") as file:
                file.write("".join(map(row_line, rows)).encode())
            for candidate, parts in answer.parts.items():
                self._write_program(candidate, parts)
            for row in rows:  # last, so that an agent that finds a result also finds the rest
                self._write_result(row.ticket, row_line(row))
            if answer.closing:
                self._replace_file(f"closing/{agent_tag(answer.agent)}", answer.closing)
            if answer.leaderboard:
                self.leaderboard = answer.leaderboard
                self._replace_file("leaderboard.md", answer.leaderboard)

    def publish_refusals(self, agent: int, refused: Mapping[str, str]) -> None:
        """Answer refused requests, at most 5,000 of one agent; later ones get no answer."""
        for ticket, reason in refused.items():
            self._refusals[agent] = count = self._refusals.get(agent, 0) + 1
            if count <= 5000:
                row = {"ticket": ticket, "status": "refused", "reason": reason}
                with self._lock:
                    self._write_result(ticket, msgspec.json.encode(row).decode() + "\n")

    def has_experiment(self, ticket: str) -> bool:
        """True if this experiment is in the history."""
        return ticket in self._known

    def _write_result(self, ticket: str, text: str) -> None:
        if ticket and safe.is_safe_name(ticket):
            self._replace_file(f"results/{ticket}.json", text)

    def _write_program(self, candidate: str, parts: Mapping[str, str]) -> None:
        if not safe.is_safe_name(candidate):
            return
        folder = self.folder / "programs" / candidate
        for name, text in parts.items():
            try:
                path = folder.joinpath(*safe.split_path(name))
                path.parent.mkdir(parents=True, exist_ok=True)
                self._replace_file(str(path.relative_to(self.folder)), text)
            except (safe.IntakeRefused, FileExistsError, NotADirectoryError, IsADirectoryError):
                # a part whose name is not a path, or collides with another; the journal has it
                continue

    def _replace_file(self, name: str, text: str, mode: int = 0o644) -> None:
        """Replace a file by renaming, so that readers see the old or the new one."""
        path = self.folder / name
        temporary = path.with_name(f".{path.name}.new")
        temporary.write_bytes(text.encode("utf-8", "replace"))
        os.chmod(temporary, mode)
        os.replace(temporary, path)


def _row_key(row: ExperimentRow) -> str:
    return row.ticket or f"#{row.n}"


def row_line(row: ExperimentRow) -> str:
    """A row as a line of JSON with every field, so that small scripts can query it."""
    fields: JsonObject = {name: getattr(row, name) for name in row.__struct_fields__}
    return msgspec.json.encode(fields).decode() + "\n"
