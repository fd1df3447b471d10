"""The file queue: an agent leaves requests in its tree, and culmen reads them.

Files work in every sandbox, sockets do not. A request is one small JSON file, queue/NAME.json, put
there by renaming it:

    {"path": "candidates/a03/x.py", "note": "...", "parents": ["3f2a..."]}
                                                evaluate this file, or folder of parts
    {"paths": ["candidates/a03/x.py", ...]}     evaluate all of these in parallel
    {"report": "..."}                           report an observation to culmen
    {"finish": "..."}                           end the agent's work, with its last message

The answer to aNN's request NAME is view/results/aNN-NAME.json; for the k-th of `paths`,
aNN-NAME.k.json.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from culmen.extensions.agents.messages import Experiment
from culmen.extensions.agents.sandbox import safe
from culmen.extensions.agents.sandbox.layout import QUEUE, agent_tag
from culmen.extensions.agents.sandbox.safe import IntakeRefused
from culmen.extensions.agents.sandbox.settings import (
    BATCH,
    CANDIDATE_BYTES,
    CANDIDATE_FILES,
    NOTE_CHARS,
    PENDING,
    RECORDED,
    SCAN,
    WORD_CHARS,
)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}\.json")
_PATH_CHARS = 1000  # a longer path of a request is refused


class QueueRequest(msgspec.Struct, frozen=True):
    """One request as the agent wrote it; exactly one of path, paths, report, finish is set."""

    path: str = ""
    paths: tuple[str, ...] = ()
    note: str = ""
    parents: tuple[str, ...] = ()
    report: str | None = None
    finish: str | None = None


@dataclass
class QueueScan:
    """Result of one scan of the queue.

    `taken` are requests that are settled once the rest is durable; `refused` maps a refused ticket
    to the reason.
    """

    experiments: list[Experiment] = field(default_factory=list[Experiment])
    reports: list[str] = field(default_factory=list[str])
    finish: str | None = None
    taken: list[str] = field(default_factory=list[str])
    refused: dict[str, str] = field(default_factory=dict[str, str])


def parse_request(data: bytes) -> QueueRequest:
    """A request from its bytes, texts bounded.

    Raises IntakeRefused: garbage, bad_request.
    """
    try:
        request = msgspec.json.decode(data, type=QueueRequest)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise IntakeRefused("garbage") from None
    kinds = (
        bool(request.path),
        bool(request.paths),
        request.report is not None,
        request.finish is not None,
    )
    if sum(kinds) != 1 or len(request.paths) > 256:
        raise IntakeRefused("bad_request")
    return QueueRequest(
        request.path,
        request.paths,
        printable_text(request.note, NOTE_CHARS),
        tuple(printable_text(parent, 64) for parent in request.parents[:16]),
        None if request.report is None else printable_text(request.report, WORD_CHARS),
        None if request.finish is None else printable_text(request.finish, WORD_CHARS),
    )


def printable_text(text: str, limit: int) -> str:
    """A text cut to `limit` characters, without characters that act on a terminal.

    Characters that cannot be stored as UTF-8 are replaced.
    """
    kept = text[:limit].encode("utf-8", "replace").decode("utf-8")
    return "".join(
        char for char in kept if char in "\n\t" or (char >= " " and not "\x7f" <= char <= "\x9f")
    )


class RequestQueue:
    """The queue of one agent.

    `part` is the name of the task's only part, "" if it has several; `faults` is the number of the
    agent's earlier invalid requests.
    """

    def __init__(self, tree: Path, agent: int, part: str, faults: int = 0) -> None:
        self._tree, self._agent, self._part = tree, agent, part
        self._faults, self._reports = faults, 0

    def scan_requests(self, known: Callable[[str], bool], patient: bool = False) -> QueueScan:
        """Read the queue, oldest name first, at most about `BATCH` experiments.

        `known` returns True for tickets that were handed over before. Only entries that are not
        requests are removed. A missing queue, or a link in its place, counts as empty. Requests
        beyond `PENDING` are refused, unless `patient`.
        """
        batch = QueueScan()
        try:
            with safe.open_folder(self._tree, (QUEUE,)) as fd:
                names = _request_names(fd)
                for name in names[:PENDING]:
                    if len(batch.experiments) >= BATCH or batch.finish is not None:
                        break
                    self._take_request(fd, name, known, batch)
                excess = [] if patient else names[PENDING:]
                batch.refused.update((self.ticket(name), "queue_full") for name in excess)
                batch.taken += excess
        except (IntakeRefused, OSError):
            return batch
        return batch

    def remove_requests(self, names: Iterable[str]) -> None:
        """Remove settled requests from the queue."""
        with (
            contextlib.suppress(IntakeRefused, OSError),
            safe.open_folder(self._tree, (QUEUE,)) as fd,
        ):
            for name in names:
                _remove_entry(fd, name)

    def ticket(self, name: str) -> str:
        """The ticket of a request."""
        return f"{agent_tag(self._agent)}-{name.removesuffix('.json')}"

    def _take_request(
        self, fd: int, name: str, known: Callable[[str], bool], batch: QueueScan
    ) -> None:
        ticket = self.ticket(name)
        batch.taken.append(name)
        if known(ticket):
            return
        try:
            request = parse_request(safe.read_at(fd, name, 256 * 1024))
        except IntakeRefused as refused:
            return self._record_invalid_request(Experiment(ticket, fault=str(refused)), batch)
        if request.report is not None:
            self._reports += 1
            if self._reports > RECORDED:
                batch.refused[ticket] = "too_many_reports"
            else:
                batch.reports.append(request.report)
        elif request.finish is not None:
            batch.finish = request.finish
        elif request.paths:
            for n, path in enumerate(request.paths):
                if not known(f"{ticket}.{n}"):
                    self._add_experiment(f"{ticket}.{n}", path, request, batch)
        else:
            self._add_experiment(ticket, request.path, request, batch)

    def _add_experiment(
        self, ticket: str, path: str, request: QueueRequest, batch: QueueScan
    ) -> None:
        experiment = self._read_experiment(ticket, path, request)
        self._record_invalid_request(
            experiment, batch
        ) if experiment.fault else batch.experiments.append(experiment)

    def _record_invalid_request(self, experiment: Experiment, batch: QueueScan) -> None:
        """Record an invalid request as an experiment; after `RECORDED` of them, refuse it."""
        self._faults += 1
        if self._faults > RECORDED:
            batch.refused[experiment.ticket] = experiment.fault
        else:
            batch.experiments.append(experiment)

    def _read_experiment(self, ticket: str, path: str, request: QueueRequest) -> Experiment:
        try:
            if len(path) > _PATH_CHARS:
                raise IntakeRefused("bad_name")
            names = safe.split_path(path)
            if names[0] != "candidates" or len(names) < 2:
                raise IntakeRefused("outside_candidates")
            parts, fault = self._read_candidate_parts(names), ""
        except IntakeRefused as refused:
            parts, fault = {}, "outside_candidates" if str(refused) == "outside" else str(refused)
        return Experiment(
            ticket, printable_text(path, _PATH_CHARS), parts, request.note, request.parents, fault
        )

    def _read_candidate_parts(self, names: tuple[str, ...]) -> dict[str, str]:
        """The texts of a file, or of all files of a folder by their paths in it."""
        with safe.open_folder(self._tree, names[:-1]) as fd:
            try:
                mode = os.stat(names[-1], dir_fd=fd, follow_symlinks=False).st_mode
            except OSError:
                raise IntakeRefused("missing") from None
            if not stat.S_ISDIR(mode):
                return {
                    self._part or names[-1]: safe.decode_text(
                        safe.read_at(fd, names[-1], CANDIDATE_BYTES)
                    )
                }
        parts: dict[str, str] = {}
        bytes_left = CANDIDATE_BYTES
        for path, regular in safe.walk_folder(self._tree, names, CANDIDATE_FILES + 1):
            if not regular:
                raise IntakeRefused("not_a_file")
            if len(parts) >= CANDIDATE_FILES:
                raise IntakeRefused("too_many_files")
            data = safe.read_regular_file(self._tree, path, bytes_left)
            bytes_left -= len(data)
            parts[path.removeprefix("/".join(names) + "/")] = safe.decode_text(data)
        if not parts:
            raise IntakeRefused("empty")
        return parts


def _request_names(fd: int) -> list[str]:
    """Names of requests in the open folder, sorted.

    Other entries are removed, except hidden files (requests being written), up to a number.
    """
    names: list[str] = []
    hidden = 0
    with os.scandir(fd) as entries:
        for count, entry in enumerate(entries):
            if count >= SCAN:
                break
            if _NAME.fullmatch(entry.name):
                names.append(entry.name)
            elif not entry.name.startswith(".") or (hidden := hidden + 1) > PENDING:
                _remove_entry(fd, entry.name)
    return sorted(names)


def _remove_entry(fd: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=fd)
    except OSError:
        with contextlib.suppress(OSError):  # a folder of that name; one that is not empty stays
            os.rmdir(name, dir_fd=fd)
