"""Space on disk that a candidate's files take, all together.

At level namespaces the kernel limits it; elsewhere the fork-server looks. A folder is only searched
once the file system has lost more space than its candidate may take, for whatever reason.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass

_BLOCK = 512  # bytes of a block that stat(2) counts


@dataclass(frozen=True)
class FreeSpace:
    """Bytes and files that the file system of a folder had free at some time."""

    folder: str
    size: int
    files: int

    @classmethod
    def of(cls, folder: str) -> FreeSpace:
        """The free space now."""
        system = os.statvfs(folder)
        return cls(folder, system.f_bavail * system.f_frsize, system.f_ffree)

    def has_lost(self, size: int, files: int) -> bool:
        """True if more bytes or files are gone since."""
        now = FreeSpace.of(self.folder)
        return self.size - now.size > size or self.files - now.files > files


def file_limit(files_mb: int) -> int:
    """The largest number of files and folders for `files_mb` megabytes of files."""
    return 64 * files_mb + 1024


def is_overfull(folder: str, processes: Iterable[int], files_mb: int) -> bool:
    """True if the files below a folder are too many or too large together.

    So are those that the processes have open there and have removed, and folders that cannot be
    read: nobody can tell what is in them.
    """
    most = (files_mb << 20) * 11 // 10  # a file of the largest size fits, with what is around it
    device = os.stat(folder).st_dev
    size = sum(_removed_bytes(pid, device) for pid in processes)
    entries, queue = 0, [folder]
    while queue:
        try:
            with os.scandir(queue.pop()) as directory:
                for entry in directory:
                    entries += 1
                    size += _entry_bytes(entry)
                    if size > most or entries > file_limit(files_mb):
                        return True
                    if entry.is_dir(follow_symlinks=False):
                        queue.append(entry.path)
        except FileNotFoundError:
            continue
        except OSError:
            return True
    return size > most


def _entry_bytes(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_blocks * _BLOCK
    except FileNotFoundError:
        return 0


def _removed_bytes(pid: int, device: int) -> int:
    """Bytes of the files on a device that a process has open though they have no name."""
    total = 0
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return 0
    for name in names:
        try:
            info = os.stat(f"/proc/{pid}/fd/{name}")
        except OSError:
            continue
        if stat.S_ISREG(info.st_mode) and not info.st_nlink and info.st_dev == device:
            total += info.st_blocks * _BLOCK
    return total
