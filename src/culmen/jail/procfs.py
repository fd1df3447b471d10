"""Processes seen through /proc, or `ps` on systems without it: children, threads, memory."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import subprocess
import threading

DESCRIPTORS = 256  # that a jailed process may open
TREE = 1000  # processes of a tree that are looked at
_PAGE_KB = os.sysconf("SC_PAGE_SIZE") // 1024
# what a socket's queue may hold, by the usual limit and one message more, and a pipe of usual size
SOCKET_KB = 312
_KIND_KB = {"socket": SOCKET_KB, "pipe": 64}


def child_pids(pid: int, thread: int = 0) -> list[int]:
    """The direct children of `pid` that its first thread, or another, has started."""
    try:
        with open(f"/proc/{pid}/task/{thread or pid}/children", "rb", 0) as file:
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


@functools.lru_cache(maxsize=1)
def processes_of(uid: int, _second: float) -> int:
    """Threads of this user on the machine; processes on systems without /proc.

    Counted once a second: a child forked then has its parent's count.
    """
    if not _has_procfs():
        return sum(row[1] == uid for row in _ps_rows())
    total = 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            tasks = os.stat(f"/proc/{name}/task")
            total += max(1, tasks.st_nlink - 2) if tasks.st_uid == uid else 0
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


def kill_tree(root: int) -> None:
    """Kill a child of this process and its descendants, as far as they are known."""
    tree = tree_pids(root)
    os.kill(root, signal.SIGKILL)
    for pid in tree[1:]:
        with contextlib.suppress(OSError):
            process = os.pidfd_open(pid)
            try:  # by now the number may be that of a stranger
                if parent_pid(pid) in (*tree, os.getpid()):
                    signal.pidfd_send_signal(process, signal.SIGKILL)
            finally:
                os.close(process)


def parent_pid(pid: int) -> int:
    """Number of the process that started another."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[1])


def tree_pids(root: int) -> list[int]:
    """A process and its descendants, `root` first."""
    tree = [root]
    for pid in tree:
        if len(tree) < TREE:
            tree += children_of(pid)
    return tree


def children_of(pid: int, threads: int = 0) -> list[int]:
    """The direct children of all threads of `pid`; it need not be asked for them if it has one."""
    tasks = [pid] if threads == 1 else _thread_ids(pid)
    return [child for task in tasks for child in child_pids(pid, task)]


def _exact_kb(used: dict[int, int], limit_kb: int) -> int:
    """Kilobytes of these processes together, given the resident ones of each.

    Not all are read if fewer exceed the limit.
    """
    if len(used) == 1:
        return sum(used.values())
    total = 0
    for pid, kilobytes in sorted(used.items(), key=lambda item: -item[1]):
        total += own_and_shared_kb(pid, kilobytes)[0] if total <= limit_kb else 0
    return total


def _thread_ids(pid: int) -> list[int]:
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return [] if _has_procfs() else [pid]


def count_descriptors(pid: int) -> int:
    """Number of descriptors; all that are allowed if the process hides them, 0 if it has ended."""
    folder = f"/proc/{pid}/fd"
    try:
        return os.stat(folder).st_size or len(os.listdir(folder))  # the size since Linux 6.2
    except PermissionError:
        return DESCRIPTORS
    except OSError:
        return 0


def buffers_kb(tree: list[int]) -> int:
    """Kilobytes that the kernel may hold for the sockets and pipes of these processes."""
    kinds: dict[str, int] = {}
    hidden = 0
    for pid in tree:
        try:
            names = os.listdir(f"/proc/{pid}/fd")
        except PermissionError:
            hidden += DESCRIPTORS
            continue
        except OSError:
            continue
        for name in names:
            with contextlib.suppress(OSError):
                target = os.readlink(f"/proc/{pid}/fd/{name}")
                kinds[target] = _KIND_KB.get(target.partition(":")[0], 0)
    return sum(kinds.values()) + hidden * SOCKET_KB


def descendants_kb(pid: int, limit_kb: int) -> int:
    """Kilobytes in use by a process and its descendants; exact if it seems more than a limit."""
    used = {each: resident_kb(each) for each in tree_pids(pid)}
    rough = sum(used.values())
    return rough if rough <= limit_kb else _exact_kb(used, limit_kb)


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


def reaped_seconds(pid: int) -> float:
    """Seconds of processor time of the children that a process has waited for."""
    try:
        with open(f"/proc/{pid}/stat", "rb", 0) as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[13:15])) / os.sysconf("SC_CLK_TCK")


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


def own_and_shared_kb(pid: int, resident_kb: int) -> tuple[int, int]:
    """A process's share of its resident kilobytes, and how many of these others have, too.

    The resident ones, and none, if that may not be read.
    """
    try:
        with open(f"/proc/{pid}/smaps_rollup") as file:
            sizes = {line.split()[0]: int(line.split()[1]) for line in file.readlines()[1:]}
    except OSError:
        return resident_kb, 0
    shared = sizes.get("Shared_Clean:", 0) + sizes.get("Shared_Dirty:", 0)
    return sizes.get("Pss:", resident_kb), shared
