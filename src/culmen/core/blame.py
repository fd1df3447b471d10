"""Whose line it is: the places in tracebacks that are the user's own, neither culmen's nor a library's."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from types import TracebackType
from typing import NamedTuple

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_TASKS = os.path.join(_OURS, "tasks") + os.sep  # written as a user's are
_LIBRARY = re.compile(r"[/\\]lib[/\\]python\d|[/\\]site-packages[/\\]|^<frozen ")
_IN_TEXT = re.compile(r'File "([^"]+)", line (\d+)(?:, in (\S+))?')


class Place(NamedTuple):
    """A line of a file, and the function it is in ("" outside any)."""

    file: str
    line: int
    function: str = ""

    def __str__(self) -> str:
        inside = f", in {self.function}" if self.function and not self.function.startswith("<") else ""
        return f"{self.file} line {self.line}{inside}"

    @property
    def short(self) -> str:
        """`evaluator.py line 12`."""
        return f"{os.path.basename(self.file)} line {self.line}"


def ours(file: str) -> bool:
    """Whether a file is culmen's; the built-in tasks are not."""
    return file.startswith(_OURS) and not file.startswith(_TASKS)


def in_text(trace: str) -> Place | None:
    """The innermost place of a traceback's text that is the user's own."""
    found = [Place(file, int(line), name) for file, line, name in _IN_TEXT.findall(trace)]
    own = [place for place in found if not ours(place.file) and not _LIBRARY.search(place.file)]
    named = [place for place in own if not place.file.startswith("<")]
    return named[-1] if named else None


def called(error: BaseException) -> Place | None:
    """The innermost place of the user's own code that culmen had called when this was raised; None: culmen's own."""
    place, inside = None, False
    for frame in _frames(error.__traceback__):
        file = frame.tb_frame.f_code.co_filename
        inside = inside or ours(file)
        if inside and not ours(file) and not _LIBRARY.search(file) and not file.startswith("<"):
            place = Place(file, frame.tb_lineno, frame.tb_frame.f_code.co_name)
    return place


def _frames(trace: TracebackType | None) -> Iterator[TracebackType]:
    while trace is not None:
        yield trace
        trace = trace.tb_next
