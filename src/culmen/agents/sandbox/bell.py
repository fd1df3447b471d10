"""Rings when something happens in a folder: inotify, and nothing where the kernel has none left (callers also poll)."""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import Callable
from pathlib import Path

from culmen.evaluate.jail.kernel import libc

_MOVED_TO, _CREATE, _DONT_FOLLOW = 0x80, 0x100, 0x02000000


class Bell:
    """Calls `ring` from the running event loop when a file is moved into `folder` or made there."""

    def __init__(self, folder: Path, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self.works = self._fd >= 0 and self._watch(folder)
        if self.works:
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(self._fd, self._heard)

    def _watch(self, folder: Path) -> bool:
        mask = ctypes.c_uint32(_MOVED_TO | _CREATE | _DONT_FOLLOW)
        return libc.inotify_add_watch(self._fd, os.fsencode(folder), mask) >= 0

    def _heard(self) -> None:
        try:
            os.read(self._fd, 1 << 16)
        except BlockingIOError:
            return
        self._ring()

    def close(self) -> None:
        """Stop listening."""
        if self.works:
            self._loop.remove_reader(self._fd)
            self.works = False
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
