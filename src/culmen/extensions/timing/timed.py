"""The program's side of a timed evaluation: load, take an input, run, hand over the result.

Each step is one frame in and one out, so that the clock, which belongs to another process
(speedup.py), sees the run alone. Nothing here is trusted once the program is loaded.

Frames in: P ping (core) · B begin · I input · G go · O output. Out: L ready · R done · E exception.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import socket
from collections.abc import Callable
from pathlib import Path

from culmen.core.json import JsonObject
from culmen.extensions.timing import packed
from culmen.jail import wire
from culmen.jail.runner import REQUEST_LIMIT, encode_exception, load_part

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt(3)


def run_timed(channel: socket.socket, request: JsonObject, work: Path) -> None:
    """Serve the clock's process until it closes the connection."""
    wire.send(channel, "L")
    program = TimedProgram(request, work)
    while True:
        try:
            kind, payload = wire.receive(channel, REQUEST_LIMIT)
        except (EOFError, OSError):
            return
        try:
            answer = program.perform(kind, payload)
        except Exception as error:  # noqa: BLE001 - a program may raise anything; it becomes a value
            wire.send(channel, "E", encode_exception(error))
        else:
            wire.send(channel, "R", answer)


class TimedProgram:
    """A program with the input and the result of its current run."""

    def __init__(self, request: JsonObject, work: Path) -> None:
        self._request, self._work = request, work
        self._entry: Callable[..., object] = _no_entry
        self._value: object = None
        self._result: object = None

    def perform(self, kind: str, payload: wire.Data) -> bytes:
        """Perform one step; return the payload of its answer."""
        if kind == "G":
            self._result = self._entry(self._value)
        elif kind == "I":
            self._value = packed.decode(payload)
        elif kind == "O":
            answer = packed.encode(self._result)
            self._value = self._result = None
            return answer
        elif kind == "P":
            pin_to_core(int(payload))
        elif kind == "B":
            keep_memory()
            module = load_part(self._work, self._request["module"])
            self._entry = find_entry(module, self._request["entry"])
            gc.collect()
            gc.freeze()  # modules that only one of the two programs imports cost it no time later
        return b""


def find_entry(module: object, name: str) -> Callable[..., object]:
    """The function `name` of a module; of `Class.method`, the method of a new object."""
    owner, _, method = name.rpartition(".")
    return getattr(getattr(module, owner)() if owner else module, method)


def keep_memory() -> None:
    """Let this process keep the memory of large arrays that it frees, if the system can do that.

    glibc gives it back unless other memory lies behind it, by chance: equal programs then differed
    by half of their page faults, and by a tenth of their time.
    """
    with contextlib.suppress(OSError, AttributeError):
        change = ctypes.CDLL(None).mallopt
        change(_MMAP_THRESHOLD, 1 << 25)  # the highest that glibc takes
        change(_TRIM_THRESHOLD, (1 << 31) - 1)


def pin_to_core(core: int) -> None:
    """Let this process run on one core, if the system can do that."""
    if core >= 0 and hasattr(os, "sched_setaffinity"):
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, {core})


def _no_entry(_value: object) -> object:
    raise RuntimeError("the program is not loaded")
