"""The evaluator's process before and after the evaluator: stubs where it expects the program, and an account."""

from __future__ import annotations

import ctypes
import json
import linecache
import os
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from culmen.evaluate.jail.confine import LINE
from culmen.evaluate.jail.kernel import check, libc
from culmen.evaluate.openevolve.proxy import stub
from culmen.evaluate.openevolve.proxy.session import NOTES, SETTINGS, SOCKET

_IN_OPEN, _IN_CLOSE = 0x20, 0x18
_NONBLOCK = 0x800
_EVENT = 16  # bytes of an event on a file of its own
_MAX_NOTES = 1 << 20


class Guest:
    """What the evaluator finds in its work folder."""

    def __init__(self, work: Path, request: dict[str, Any]) -> None:
        self._folder = work / f".program-{os.urandom(8).hex()}"  # nobody else can guess where the socket is
        self._folder.mkdir(mode=0o700)
        settings = {"accept": request["accept"], "learn": request["learn"]}
        (self._folder / SETTINGS).write_text(json.dumps(settings), encoding="utf-8")
        self._listen()
        self._watch = check(libc.inotify_init1(_NONBLOCK), "inotify_init1")
        package = str(Path(__file__).resolve().parents[3])
        for name in request["programs"]:
            path = work / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(stub.text(package, str(self._folder), name), encoding="utf-8")
            linecache.cache[str(path)] = (0, None, [], str(path))  # traces need not open it
            watched = libc.inotify_add_watch(self._watch, os.fsencode(path), ctypes.c_uint32(_IN_OPEN | _IN_CLOSE))
            check(watched, "inotify_add_watch")
        stub.hook()

    def _listen(self) -> None:
        """A socket that every process of the evaluator can reach and the candidate's process answers on."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(self._folder / SOCKET))
        listener.listen(64)
        with listener, socket.socket(fileno=LINE) as line:
            socket.send_fds(line, [b"L"], [listener.fileno()])

    def account(self) -> dict[str, Any]:
        """What the evaluator's processes noted: things that crossed, were refused, or ended; and how often the text of
        the program was read, beyond what imports read."""
        notes = Notes.read(self._folder / NOTES)
        opened = _opened(self._watch)
        return {
            "used": notes.used,
            "refused": notes.refused,
            "unsupported": notes.unsupported,
            "gone": os.getpid() in notes.gone,
            "lost": bool(notes.gone),
            "reads": max(0, opened - notes.imports),
            "imports": notes.imports,
        }


@dataclass
class Notes:
    """The lines of the file of notes."""

    imports: int = 0
    used: list[str] = field(default_factory=list)
    refused: list[list[str]] = field(default_factory=list)
    unsupported: list[str] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)

    @staticmethod
    def read(path: Path) -> Notes:
        """The notes so far; a line that was cut off is passed over."""
        notes = Notes()
        try:
            with path.open("rb") as file:
                lines = file.read(_MAX_NOTES).decode("utf-8", "replace").splitlines()
        except FileNotFoundError:
            return notes
        for line in lines:
            try:
                notes.add(*json.loads(line))
            except (ValueError, TypeError):
                continue
        return notes

    def add(self, what: str, text: str, reason: str, pid: int) -> None:
        """One line."""
        if what == "import":
            self.imports += int(text)
        elif what == "used" and text not in self.used:
            self.used.append(text)
        elif what == "refused":
            self.refused.append([reason, text])
        elif what == "unsupported":
            self.unsupported.append(text)
        elif what == "gone":
            self.gone.append(pid)


def _opened(watch: int) -> int:
    """How often the watched files were opened so far."""
    count = 0
    while True:
        try:
            events = os.read(watch, 1 << 16)
        except BlockingIOError:
            return count
        masks = (int.from_bytes(events[at + 4 : at + 8], "little") for at in range(0, len(events), _EVENT))
        count += sum(1 for mask in masks if mask & _IN_OPEN)
