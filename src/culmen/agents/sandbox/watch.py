"""Limits that no system call holds for a whole session: memory and processes of a tree, space of a few folders."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from culmen.agents.sandbox.settings import Settings
from culmen.evaluate.jail import procfs

_LOOK, _LOOK_AT_DISK = 0.5, 10.0  # seconds between looks
_ENTRIES = 500_000  # more files than that are too many, whatever their size


async def watch(
    pid: int, folders: Iterable[Path], settings: Settings, going: Callable[[], bool], over: Callable[[], bool]
) -> str:
    """Return when a limit is broken: memory | processes | disk, or "stopped" when the run no longer goes on.

    Returns "" when it is `over` by itself.
    """
    places, next_disk = tuple(folders), time.monotonic()
    while not over():
        if not going():
            return "stopped"
        used = (await asyncio.to_thread(procfs.memory, [pid], lambda _: settings.memory_mb << 10)).get(pid, 0)
        if used > settings.memory_mb << 10:
            return "memory"
        if await asyncio.to_thread(below, pid, settings.processes) > settings.processes:
            return "processes"
        if time.monotonic() >= next_disk:
            if await asyncio.to_thread(space, places) > settings.disk_mb << 20:
                return "disk"
            next_disk = time.monotonic() + _LOOK_AT_DISK
        await asyncio.sleep(_LOOK)
    return ""


def below(pid: int, most: int) -> int:
    """Processes that descend from `pid`, counted no further than just over `most`."""
    count, queue = 0, [pid]
    while queue and count <= most:
        found = procfs.children(queue.pop())
        count += len(found)
        queue += found
    return count


def space(folders: Iterable[Path]) -> float:
    """Bytes on disk below these folders; infinity if there are too many files to count. Links are not followed."""
    total, entries = 0, 0
    for folder in folders:
        queue = [str(folder)]
        while queue:
            try:
                with os.scandir(queue.pop()) as found:
                    for entry in found:
                        entries += 1
                        if entry.is_dir(follow_symlinks=False):
                            queue.append(entry.path)
                        else:
                            total += entry.stat(follow_symlinks=False).st_blocks * 512
                        if entries > _ENTRIES:
                            return float("inf")
            except OSError:  # gone meanwhile, or closed to us
                continue
    return total
