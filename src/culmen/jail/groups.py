"""Control groups (cgroup v2): the kernel's own limit on all memory and processes of a child.

It counts what no limit of one process does: buffers of sockets, page tables, memory that processes
share. Groups can be made where the system has handed this process a group of its own: in a service
or scope with `Delegate=yes`, and in containers that may write to /sys/fs/cgroup; the orchestrator
looks for one (`fork_server`), and the fork-server makes one for each child.
Documentation/admin-guide/cgroup-v2.rst of the Linux kernel.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field


@dataclass
class ChildGroups:
    """Groups of one fork-server's children, used again; `folder` is a descriptor, -1: none."""

    folder: int
    _free: list[str] = field(default_factory=list)
    _made: int = 0

    def take(self, memory_kb: int, processes: int) -> str:
        """The name of an empty group with these limits; "" if there are no groups."""
        if self.folder < 0:
            return ""
        name = next((each for each in self._free if not self._number(each, "cgroup.events")), "")
        if name:
            self._free.remove(name)
        else:
            self._made += 1
            name = f"child-{self._made}"
            os.mkdir(name, dir_fd=self.folder)
        self._write(name, "memory.max", str(memory_kb << 10))
        self._write(name, "memory.oom.group", "1")
        self._write(name, "pids.max", str(processes + 1))
        with contextlib.suppress(OSError):  # without swap there is no such file
            self._write(name, "memory.swap.max", "0")
        return name

    def enter(self, name: str) -> None:
        """Move the calling process into a group."""
        if name:
            self._write(name, "cgroup.procs", "0")

    def kills(self, name: str) -> int:
        """Number of processes that the kernel has ended so far for the memory of a group."""
        return self._number(name, "memory.events", "oom_kill") if name else 0

    def give_back(self, name: str) -> None:
        """End all that is left in a group, which may be used again once it is empty."""
        if name:
            with contextlib.suppress(OSError):  # since Linux 5.14
                self._write(name, "cgroup.kill", "1")
            self._free.append(name)

    def _number(self, name: str, file: str, key: str = "populated") -> int:
        fd = os.open(f"{name}/{file}", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self.folder)
        with open(fd) as lines:
            return next(int(line.split()[1]) for line in lines if line.split()[0] == key)

    def _write(self, name: str, file: str, text: str) -> None:
        fd = os.open(f"{name}/{file}", os.O_WRONLY | os.O_CLOEXEC, dir_fd=self.folder)
        try:
            os.write(fd, text.encode())
        finally:
            os.close(fd)
