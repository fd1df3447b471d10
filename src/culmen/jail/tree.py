"""Memory of a child and its descendants, looked at again and again while they run.

What processes share takes long to read, and they take more meanwhile. So they are stopped for it;
until what they took since could exceed the limit, counters that are read in microseconds suffice.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from culmen.jail import procfs

_PAGE_KB = os.sysconf("SC_PAGE_SIZE") // 1024
_CORES = os.cpu_count() or 1
# pages that each core may hold back from the count of a process's resident ones
_UNCOUNTED_KB = max(32, 2 * _CORES) * _CORES * _PAGE_KB


class TreeUse(NamedTuple):
    """Memory in use by a process and its descendants, at most, and the threads of each."""

    kilobytes: int
    processes: dict[int, int]

    @property
    def threads(self) -> int:
        """The number of threads of all processes together."""
        return sum(self.processes.values())


class _Counters(NamedTuple):
    """Counters of one process.

    shared    resident kilobytes that it may copy by writing, without occupying more than before
    """

    resident: int
    faults: int
    threads: int
    descriptors: int
    shared: int = 0

    def most_taken(self, before: _Counters) -> int:
        """The most kilobytes taken since: new pages, copies of shared ones, buffers."""
        faulted = max(0, self.faults - before.faults) * _PAGE_KB
        return (
            max(0, self.resident - before.resident)
            + min(faulted, before.shared + _UNCOUNTED_KB)
            + procfs.SOCKET_KB * max(0, self.descriptors - before.descriptors)
        )


_NOTHING = _Counters(0, 0, 0, 0)


class TreeWatch:
    """Looks at the tree below `root`, which never say too little and are exact near a limit.

    Resident pages that processes share count once per process, and each descriptor as a socket with
    full buffers, until that exceeds the limit; then exact shares and kinds of descriptors are read,
    while all processes are stopped. Later looks add what each process can have taken since.
    """

    def __init__(self, root: int) -> None:
        self.root = root
        self._exact_kb = 0
        self._before: dict[int, _Counters] = {}

    def look(self, limit_kb: int) -> TreeUse:
        """Memory in use. Processes are left stopped if they exceed the limit, to be ended."""
        tree = _read_tree(self.root)
        most = self._exact_kb + sum(
            each.most_taken(self._before.get(pid, _NOTHING)) for pid, each in tree.items()
        )
        if most <= limit_kb:
            return TreeUse(most, _thread_counts(tree))
        if len(tree) > 1:
            tree = _stop_tree(self.root)
        self._read_exactly(tree, limit_kb)
        if len(tree) > 1 and self._exact_kb <= limit_kb:
            _signal_all(tree, signal.SIGCONT)
        return TreeUse(self._exact_kb, _thread_counts(tree))

    def _read_exactly(self, tree: dict[int, _Counters], limit_kb: int) -> None:
        self._before, total = {}, 0
        for pid, each in sorted(tree.items(), key=lambda item: -item[1].resident):
            used, shared = each.resident, 0
            if len(tree) > 1 and total <= limit_kb:  # more than the limit is as good as exact
                used, shared = procfs.own_and_shared_kb(pid, each.resident)
            total += used
            self._before[pid] = each._replace(shared=shared)
        self._exact_kb = total + procfs.buffers_kb(list(tree))


def _thread_counts(tree: dict[int, _Counters]) -> dict[int, int]:
    return {pid: each.threads for pid, each in tree.items()}


def _read_tree(root: int) -> dict[int, _Counters]:
    """The processes of a tree with their counters, `root` first; those that ended have none."""
    tree, queue = {}, [root]
    for pid in queue:
        tree[pid] = each = _read_counters(pid)
        if len(queue) < procfs.TREE:
            queue += procfs.children_of(pid, each.threads)
    return tree


def _read_counters(pid: int) -> _Counters:
    try:
        with open(f"/proc/{pid}/stat", "rb", 0) as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return _Counters(procfs.resident_kb(pid), 0, 0, 0)
    return _Counters(
        resident=int(fields[21]) * _PAGE_KB,
        faults=int(fields[7]),
        threads=int(fields[17]),
        descriptors=procfs.count_descriptors(pid),
    )


def _stop_tree(root: int) -> dict[int, _Counters]:
    """Stop all processes of a tree, those too that are started meanwhile; the tree as it stands."""
    stopped: set[int] = set()
    while True:
        tree = _read_tree(root)
        if not tree.keys() - stopped:
            return tree
        _signal_all(tree.keys() - stopped, signal.SIGSTOP)
        stopped |= tree.keys()


def _signal_all(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, number)


# Control groups (cgroup v2): the kernel's own limit on all memory and processes of a child.


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
