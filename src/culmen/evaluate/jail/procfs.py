"""Processes seen through /proc, or `ps` on systems without it: children, threads, memory."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from collections.abc import Callable

_TREE = 1000  # processes of a tree that are looked at
_PAGE_KB = os.sysconf("SC_PAGE_SIZE") // 1024


def child_pids(pid: int) -> list[int]:
    """The direct children of `pid`."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", "rb", 0) as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return [child for child, (parent, _) in _process_table().items() if parent == pid]


def marked_pids(mark: str) -> list[int]:
    """Processes with `mark` in the environment that they, or a process they forked from, got."""
    pids: list[int] = []
    if not _has_procfs():
        return pids
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                if mark.encode() in file.read():
                    pids.append(int(name))
        except OSError:
            continue
    return pids


def processes_of(uid: int) -> int:
    """Threads of this user on the machine; processes on systems without /proc."""
    if not _has_procfs():
        return sum(row[1] == uid for row in _ps_rows())
    total = 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.stat(f"/proc/{name}").st_uid == uid:
                total += len(os.listdir(f"/proc/{name}/task"))
        except OSError:
            continue
    return total


def group_kb(group: int) -> int:
    """Kilobytes of memory that a process group occupies."""
    return sum(row[3] for row in _ps_rows() if row[2] == group)


def descriptor_count() -> int:
    """Number of open files of this process; 0 if it cannot be read."""
    for folder in ("/proc/self/fd", "/dev/fd"):
        with contextlib.suppress(OSError):
            return len(os.listdir(folder))
    return 0


def _has_procfs() -> bool:
    return os.path.exists("/proc/self/stat")


def _ps_rows() -> list[tuple[int, ...]]:
    """Every process as parent, user, group, resident kilobytes, number."""
    listing = subprocess.run(
        ["ps", "-A", "-o", "ppid=,uid=,pgid=,rss=,pid="],
        capture_output=True,
        text=True,
        check=False,
    )
    return [tuple(map(int, line.split())) for line in listing.stdout.splitlines()]


def thread_count() -> int:
    """Number of threads of this process, including those not started by Python."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return threading.active_count()


def data_bytes() -> int:
    """Bytes of data that this process has mapped (VmData), 0 if it cannot be read."""
    try:
        with open("/proc/self/statm", "rb", 0) as file:
            return int(file.read().split()[5]) * _PAGE_KB * 1024
    except OSError:
        return 0


def tree_kb(roots: list[int], limit_kb: Callable[[int], int]) -> dict[int, int]:
    """Kilobytes in use by the tree below each root.

    Resident pages are summed, which counts shared pages once per process; only if that exceeds
    `limit_kb(root)` the kernel is asked for the exact, slower share of each process.
    """
    table = _process_table()
    trees: dict[int, list[int]] = {root: [root] for root in roots if root in table}
    owner = {root: root for root in trees}
    for pid in sorted(table):
        _find_root(pid, table, owner)
    for pid, root in owner.items():
        if pid != root and root:
            trees[root].append(pid)
    result = {}
    for root, tree in trees.items():
        used = sum(table[pid][1] for pid in tree)
        if used > limit_kb(root) and len(tree) > 1:
            used = sum(_share_kb(pid, table[pid][1]) for pid in tree)
        result[root] = used
    return result


def descendants_kb(pid: int, limit_kb: int) -> int:
    """Kilobytes in use by a process and its descendants; exact if it seems more than a limit."""
    tree = [pid]
    for parent in tree:
        tree += child_pids(parent) if len(tree) < _TREE else ()
    used = {each: resident_kb(each) for each in tree}
    if sum(used.values()) <= limit_kb or len(tree) == 1:
        return sum(used.values())
    return sum(_share_kb(each, kilobytes) for each, kilobytes in used.items())


def resident_kb(pid: int) -> int:
    """Kilobytes of memory that one process occupies; 0 if it has ended."""
    try:
        with open(f"/proc/{pid}/statm", "rb", 0) as file:
            return int(file.read().split()[1]) * _PAGE_KB
    except OSError:
        return 0 if _has_procfs() else _process_table().get(pid, (0, 0))[1]


def cpu_seconds(pid: int) -> float:
    """Seconds of processor time of a process and of the children that it has waited for.

    0 if the process has ended.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _find_root(pid: int, table: dict[int, tuple[int, int]], owner: dict[int, int]) -> int:
    """The root that `pid` descends from, 0 if it descends from none."""
    path = []
    while pid not in owner and pid in table and len(path) <= len(table):
        path.append(pid)
        pid = table[pid][0]
    root = owner.get(pid, 0)
    owner.update((step, root) for step in path)
    return root


def _process_table() -> dict[int, tuple[int, int]]:
    """pid -> (parent, resident kilobytes)."""
    if not _has_procfs():
        return {row[4]: (row[0], row[3]) for row in _ps_rows()}
    table = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue
        table[int(name)] = (int(fields[1]), int(fields[21]) * _PAGE_KB)
    return table


def _share_kb(pid: int, resident_kb: int) -> int:
    """Proportional set size in kilobytes; the resident size if that may not be read."""
    try:
        with open(f"/proc/{pid}/smaps_rollup") as file:
            return next(
                (int(line.split()[1]) for line in file if line.startswith("Pss:")), resident_kb
            )
    except OSError:
        return resident_kb
