"""Confinement of a freshly forked child before it reads a candidate.

If any step fails, the child ends. The order matters: mounts need capabilities that are given up
next, Landlock forbids mounts, seccomp comes last.
"""

from __future__ import annotations

import fcntl
import math
import os
import resource
import signal
import socket
import time
from dataclasses import dataclass, field
from typing import NotRequired, TypedDict

from culmen.jail import kernel, procfs, wire
from culmen.jail.disk import file_limit
from culmen.jail.seccomp import SyscallFilter
from culmen.jail.streams import seed_globals

CHANNEL = 3  # the descriptor the request comes in and the answer leaves by
LINE = 4  # the descriptor that joins the two processes of one evaluation, if there are two
# the socket by which the fork-server gets the descriptor for questions of the filter; closed before
# anything runs
HANDOVER = 5
WORK = "/w"  # work folder at level namespaces
# removes a folder that is thousands of folders deep or full of closed ones; shutil.rmtree fails
# at both
REMOVE = (
    "/bin/sh",
    "-c",
    'rm -rf -- "$0" 2>/dev/null || { chmod -R u+rwx -- "$0"; rm -rf -- "$0"; } 2>/dev/null',
)
_MB = 1 << 20
_PENDING = 1024  # queued signals and timers
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")
_PROC_FILES = (
    "/proc/self",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/loadavg",
    "/proc/sys",
)


@dataclass(frozen=True)
class JailPolicy:
    """Confinement of children: facts about the fork-server's own jail.

    level     name of the isolation level
    switch    source of a child's identity: "uid" (the fork-server is root: a host uid for each
              slot, from `first_uid`), "user" (a user namespace of its own) or "" (unchanged)
    proc      a fresh /proc can be mounted
    readable  folders that candidates may read
    shut      folders hidden from a `blind` child, though visible to the fork-server
    spared    folders below those that stay visible
    unshut    paths that a `blind` child may read at level restricted; `listed`: may only list
    search    keep the right to read files closed to others (root with interpreter or evaluator in
              such a folder); mounts or Landlock still decide on visibility
    scratch   folder of the work folders, removed at the end; "" at level namespaces
    baseline  bytes of data that the fork-server itself has mapped
    groups    descriptor of the folder of its control groups, -1 if it has none
    """

    level: str
    switch: str = ""
    first_uid: int = 0
    proc: bool = True
    readable: tuple[str, ...] = ()
    shut: tuple[str, ...] = ()
    spared: tuple[str, ...] = ()
    unshut: tuple[str, ...] = ()
    listed: tuple[str, ...] = ()
    search: bool = False
    scratch: str = ""
    baseline: int = 0
    groups: int = -1
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def descriptor_limit(self) -> int:
        """The number below which a child's descriptors stay."""
        return procfs.DESCRIPTORS


class ChildLimits(TypedDict):
    """The fields of a `ForkRequest` that its sender chooses."""

    slot: int
    seed: int
    seconds: float
    memory_mb: int
    processes: int
    files_mb: int
    blind: NotRequired[bool]
    connects: NotRequired[bool]
    keeps_orphans: NotRequired[bool]


@dataclass(frozen=True)
class ForkRequest:
    """One child to fork, and its limits; sizes in megabytes, `work` the work folder.

    blind     see no more than candidates beside a proxy may see
    connects  may connect Unix sockets below the work folder, also if candidates may make none
    keeps_orphans  orphans stay below the child, so that their time is seen as its own
    """

    id: int
    slot: int
    seed: int
    seconds: float
    memory_mb: int
    processes: int
    files_mb: int
    work: str = WORK
    blind: bool = False
    connects: bool = False
    keeps_orphans: bool = False


def confine_process(policy: JailPolicy, job: ForkRequest, *, is_paired: bool = False) -> None:
    """Confine the calling process for `job`.

    One of a pair that shares a line passes descriptors to its own processes. Raises OSError; the
    caller must then exit without running anything.
    """
    os.setsid()
    if policy.level == "namespaces":
        _mount_work_folder(policy, job)
    _change_identity(policy, job)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)  # a change of identity would clear it
    rules = _syscall_filter(policy, job, is_paired)
    asks = rules.apart and _hand_over_questions(rules)
    set_limits(policy, job, is_paired=is_paired)
    kernel.prctl(
        kernel.PR_SET_DUMPABLE, 1
    )  # after a change of uid /proc/self is closed to its owner
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    if policy.level == "namespaces":
        _add_landlock_layer(job)
        rules.install()
    elif policy.level == "restricted":
        kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, int(job.keeps_orphans))
        readable, listed = (policy.unshut, policy.listed) if job.blind else (policy.readable, ())
        kernel.restrict_paths((*readable, *_PROC_FILES), (job.work, *_DEVICES), listed)
        rules.install(asks=asks)
    set_surroundings(policy, job)


def _syscall_filter(policy: JailPolicy, job: ForkRequest, is_paired: bool) -> SyscallFilter:
    if policy.level != "restricted":
        return SyscallFilter()
    return SyscallFilter(
        apart=True,
        streams=job.connects,
        messages=is_paired,
        own_signals=not kernel.landlock_scopes_signals(),
        own_truncation=not kernel.landlock_guards_truncation(),
    )


def _hand_over_questions(rules: SyscallFilter) -> bool:
    """Install the filter that asks, and have the fork-server answer it; False if there is none."""
    with socket.socket(fileno=HANDOVER) as handover:
        listener = rules.install_questions()
        if listener < 0:
            return False
        wire.send_descriptors(handover, b"D", [listener])
        os.close(listener)
    return True


def _add_landlock_layer(job: ForkRequest) -> None:
    """A second layer besides the mounts, if the kernel supports it."""
    if kernel.landlock_version():
        kernel.restrict_paths(("/",), (job.work, "/tmp", "/dev/shm", *_DEVICES))


def arrange_descriptors(channel: int, log: int, line: int = -1, handover: int = -1) -> None:
    """Arrange this process's descriptors and close all others.

    0 is empty, 1 and 2 are the log, 3 is the channel; 4 is the line and 5 the socket for the
    handover, if they are given.
    """
    null = os.open(os.devnull, os.O_RDONLY)
    wanted = [(null, 0), (log, 1), (log, 2), (channel, CHANNEL), (line, LINE), (handover, HANDOVER)]
    wanted = [(source, target) for source, target in wanted if source >= 0]
    # above all targets, so that no dup2 closes the source of a later one
    parked = [
        (fcntl.fcntl(source, fcntl.F_DUPFD, HANDOVER + 1), target) for source, target in wanted
    ]
    for source, target in parked:
        os.dup2(source, target, inheritable=True)
    kept = {target for _, target in wanted}
    for target in (LINE, HANDOVER):
        if target not in kept:
            os.closerange(target, target + 1)
    os.closerange(HANDOVER + 1, 1 << 20 if kernel.LINUX else os.sysconf("SC_OPEN_MAX"))


def _mount_work_folder(policy: JailPolicy, job: ForkRequest) -> None:
    """Mount a private work folder with a size limit.

    /tmp and /dev/shm live in it, so one limit holds for all three.
    """
    kernel.unshare(kernel.CLONE_NEWNS | kernel.CLONE_NEWIPC)
    uid = policy.first_uid + job.slot if policy.switch == "uid" else 0
    options = (
        f"size={job.files_mb}m,nr_inodes={file_limit(job.files_mb)},mode=0755,uid={uid},gid={uid}"
    )
    kernel.mount("tmpfs", WORK, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, options)
    for hidden, target in ((".tmp", "/tmp"), (".shm", "/dev/shm")):
        folder = f"{WORK}/{hidden}"
        os.mkdir(folder)
        os.chmod(folder, 0o1777)
        for path in policy.readable:  # those below /tmp must stay visible
            if (
                path.startswith(f"{target}/")
                and os.path.isdir(path)
                and not (job.blind and path in policy.shut)
            ):
                kept = folder + path[len(target) :]
                os.makedirs(kept, exist_ok=True)
                kernel.mount(path, kept, "", kernel.MS_BIND | kernel.MS_REC)
        kernel.mount(folder, target, "", kernel.MS_BIND | kernel.MS_REC)
    if job.blind:
        _hide_paths(policy)
    if policy.proc:
        kernel.mount("proc", "/proc", "proc", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)


def _hide_paths(policy: JailPolicy) -> None:
    """Mount empty folders over hidden paths; put visible paths below them back."""
    spared = [(path, f"{WORK}/.spared-{number}") for number, path in enumerate(policy.spared)]
    for path, aside in spared:
        os.mkdir(aside)
        kernel.mount(path, aside, "", kernel.MS_BIND | kernel.MS_REC)
    for path in policy.shut:
        if os.path.isdir(path):
            kernel.mount(
                "tmpfs",
                path,
                "tmpfs",
                kernel.MS_NOSUID | kernel.MS_NODEV,
                "size=64k,nr_inodes=1k,mode=0755",
            )
    for path, aside in spared:
        os.makedirs(path, exist_ok=True)
        kernel.mount(aside, path, "", kernel.MS_BIND | kernel.MS_REC)
        kernel.unmount(aside)
        os.rmdir(aside)
    for path in policy.shut:
        if os.path.isdir(path):
            kernel.mount("", path, "", kernel.MS_REMOUNT | kernel.MS_BIND | kernel.MS_RDONLY)


def _change_identity(policy: JailPolicy, job: ForkRequest) -> None:
    """Give the child an identity of its own.

    Processes are counted per uid and user namespace: with a shared one, a fork bomb starves its
    neighbours.
    """
    if policy.switch == "uid":
        uid = policy.first_uid + job.slot
        kernel.prctl(kernel.PR_SET_KEEPCAPS, int(policy.search))
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    elif policy.switch == "user":
        kernel.unshare(kernel.CLONE_NEWUSER)
        for name, line in (("setgroups", "deny"), ("uid_map", "1000 0 1"), ("gid_map", "1000 0 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(line)
    if policy.switch:
        kernel.keep_capabilities(*([kernel.CAP_DAC_READ_SEARCH] if policy.search else []))


def set_limits(
    policy: JailPolicy, job: ForkRequest, *, hard: bool = True, is_paired: bool = False
) -> None:
    """Set the operating system's limits; with `hard` the child can never raise them again.

    One of a pair can raise that of descriptors, to pass some, until a candidate runs in it.

    If the child keeps the user's uid, the user's running processes are added to the process limit.
    """
    data = policy.baseline + job.memory_mb * _MB
    cpu = math.ceil(job.seconds * (os.cpu_count() or 1)) + 1
    others = 0 if policy.switch else procfs.processes_of(os.getuid(), time.monotonic() // 1)
    for name, value in (
        ("CORE", 0),
        ("CPU", cpu),
        ("DATA", data),
        ("AS", data + 1024 * _MB),  # shared mappings count here only, like code and files
        ("FSIZE", job.files_mb * _MB),
        ("NOFILE", policy.descriptor_limit),
        ("NPROC", job.processes + others),
        ("STACK", 8 * _MB),
        ("MEMLOCK", 0),
        ("MSGQUEUE", 0),
        ("SIGPENDING", _PENDING),  # each timer counts as one
    ):
        limit = getattr(resource, f"RLIMIT_{name}", None)
        if limit is None:  # this system has no such limit
            continue
        hard_limit = resource.getrlimit(limit)[1]
        value = value if hard_limit == resource.RLIM_INFINITY else min(value, hard_limit)
        try:
            is_kept = hard and not (is_paired and name == "NOFILE")
            resource.setrlimit(limit, (value, value if is_kept else hard_limit))
        except (OSError, ValueError):
            if kernel.LINUX:  # other systems have limits that cannot be set
                raise


def set_surroundings(policy: JailPolicy, job: ForkRequest) -> None:
    """Set a fixed environment, the work folder as current folder, and the random seed."""
    os.environ.clear()
    os.environ.update(policy.environment)
    temporary = "/tmp" if policy.level == "namespaces" else job.work
    os.environ.update(HOME=job.work, TMPDIR=temporary)
    os.umask(0o022)
    os.chdir(job.work)
    seed_globals(job.seed)
