"""ChildConfinement of a freshly forked child before it reads a candidate.

If any step fails, the child ends. The order matters: mounts need capabilities that are given up
next, Landlock forbids mounts, seccomp comes last.
"""

from __future__ import annotations

import fcntl
import functools
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
from culmen.jail.kernel import PreparedCall
from culmen.jail.seccomp import SyscallFilter
from culmen.jail.streams import global_seed, seed_globals, seed_random

CHANNEL = 3  # the descriptor the request comes in and the answer leaves by
LINE = 4  # the descriptor that joins the two processes of one evaluation, if there are two
# the socket by which the fork-server gets the descriptor for questions of the filter; closed before
# anything runs
HANDOVER = 5
RULES = 6  # the Landlock ruleset; closed before anything runs
WORK = "/w"  # work folder at level namespaces
# removes a folder that is thousands of folders deep or full of closed ones; shutil.rmtree fails
# at both
REMOVE = (
    "/bin/sh",
    "-c",
    'rm -rf -- "$0" 2>/dev/null || { chmod -R u+rwx -- "$0"; rm -rf -- "$0"; } 2>/dev/null',
)
_MB = 1 << 20
_CORES = os.cpu_count() or 1
_PENDING = 1024  # queued signals and timers
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")
_PROC_FILES = (
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/loadavg",
    "/proc/sys",
)


@dataclass(frozen=True)
class JailPolicy:
    """ChildConfinement of children: facts about the fork-server's own jail.

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
    environment: dict[str, str] = field(default_factory=dict, hash=False)

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


class ChildConfinement:
    """The confinement of children under one policy, prepared before each is forked.

    A child copies every page of memory that it writes to, so it makes prepared calls. It finds the
    Landlock ruleset as `RULES`.
    """

    def __init__(self, policy: JailPolicy) -> None:
        self.policy, self.ruleset = policy, -1
        # besides the mounts a second layer, if the kernel supports it
        self._is_layered = policy.level == "namespaces" and kernel.landlock_version() > 0

    def prepare(self, job: ForkRequest, *, is_paired: bool = False) -> None:
        """Prepare the next child; one of a pair that shares a line passes descriptors on."""
        self.forget()
        self._job, policy = job, self.policy
        if os.environ.get("HOME") != job.work:
            _set_environment(policy, job)
        seed_globals(job.seed)
        mounts = _mount_steps(policy, job.slot, job.files_mb, job.blind)
        identity = _identity_steps(policy, job.slot)
        # a change of identity clears the signal, and closes /proc/self to its owner
        own = [kernel.prctl_step(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)]
        own += [kernel.prctl_step(kernel.PR_SET_DUMPABLE, 1)]
        own += [kernel.prctl_step(kernel.PR_SET_NO_NEW_PRIVS, 1)]
        self._beginning = [PreparedCall(os.setsid, ()), *mounts, *identity, *own]
        self._limits = limit_steps(policy, job, is_paired=is_paired)
        self._filter = _syscall_filter(policy, job, is_paired)
        ways = () if self._filter.own_signals else (False, True)
        self._install = {asks: self._filter.step(asks) for asks in ways}
        self._layer = list[PreparedCall]()
        if self._is_layered:
            self.ruleset = kernel.new_ruleset(("/",), _DEVICES)
        elif policy.level == "restricted":
            readable, listed = (
                (policy.unshut, policy.listed) if job.blind else (policy.readable, ())
            )
            writable = (job.work, *_DEVICES)
            self.ruleset = kernel.new_ruleset((*readable, *_PROC_FILES), writable, listed)
            reaper = kernel.PR_SET_CHILD_SUBREAPER
            self._layer = [kernel.prctl_step(reaper, int(job.keeps_orphans))]
        if self.ruleset >= 0:
            self._layer += kernel.restrict_steps(RULES)

    def forget(self) -> None:
        """Close this process's copy of the ruleset that the child has."""
        if self.ruleset >= 0:
            os.close(self.ruleset)
            self.ruleset = -1

    def confine(self) -> None:
        """Confine the calling process, forked after `prepare`.

        Raises OSError; the caller must then exit without running anything.
        """
        kernel.perform(self._beginning)
        asks = self._filter.apart and _hand_over_questions(self._filter)
        kernel.perform(self._limits)
        if self._is_layered:
            for folder in (self._job.work, "/tmp", "/dev/shm"):
                kernel.allow_path(RULES, folder)
        elif self._layer:
            kernel.allow_path(RULES, "/proc/self", kernel.READ_ONLY)  # its own, not the server's
        kernel.perform(self._layer)
        if self.policy.level != "limits":
            kernel.perform([self._install.get(asks) or self._filter.step(asks)])
        os.chdir(self._job.work)
        seed_random(global_seed(self._job.seed))  # Python drew a new one at the fork


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


def arrange_descriptors(
    channel: int, log: int, line: int = -1, handover: int = -1, ruleset: int = -1
) -> None:
    """Arrange this process's descriptors and close all others.

    0 is empty, 1 and 2 are the log, 3 is the channel; 4 is the line, 5 the socket for the handover
    and 6 the ruleset, if they are given.
    """
    null = os.open(os.devnull, os.O_RDONLY)
    wanted = (null, log, log, channel, line, handover, ruleset)
    # above all targets, so that no dup2 closes the source of a later one
    parked = [fd if fd < 0 else fcntl.fcntl(fd, fcntl.F_DUPFD, RULES + 1) for fd in wanted]
    for target, fd in enumerate(parked):
        if fd >= 0:
            os.dup2(fd, target)
        else:
            os.closerange(target, target + 1)
    os.closerange(RULES + 1, 1 << 20 if kernel.LINUX else os.sysconf("SC_OPEN_MAX"))


@functools.lru_cache
def _mount_steps(policy: JailPolicy, slot: int, files_mb: int, blind: bool) -> list[PreparedCall]:
    """Mount a private work folder with a size limit, at level namespaces.

    /tmp and /dev/shm live in it, so one limit holds for all three.
    """
    if policy.level != "namespaces":
        return []
    uid = policy.first_uid + slot if policy.switch == "uid" else 0
    options = f"size={files_mb}m,nr_inodes={file_limit(files_mb)},mode=0755,uid={uid},gid={uid}"
    private, bind = kernel.MS_NOSUID | kernel.MS_NODEV, kernel.MS_BIND | kernel.MS_REC
    steps = [
        PreparedCall(kernel.unshare, (kernel.CLONE_NEWNS | kernel.CLONE_NEWIPC,)),
        kernel.mount_step("tmpfs", WORK, "tmpfs", private, options),
    ]
    for hidden, target in ((".tmp", "/tmp"), (".shm", "/dev/shm")):
        folder = f"{WORK}/{hidden}"
        steps += [PreparedCall(os.mkdir, (folder,)), PreparedCall(os.chmod, (folder, 0o1777))]
        for path in policy.readable:  # those below /tmp must stay visible
            if (
                path.startswith(f"{target}/")
                and os.path.isdir(path)
                and not (blind and path in policy.shut)
            ):
                kept = folder + path[len(target) :]
                steps.append(PreparedCall(os.makedirs, (kept, 0o777, True)))
                steps.append(kernel.mount_step(path, kept, "", bind))
        steps.append(kernel.mount_step(folder, target, "", bind))
    if blind:
        steps.append(PreparedCall(_hide_paths, (policy,)))
    if policy.proc:
        steps.append(kernel.mount_step("proc", "/proc", "proc", private | kernel.MS_NOEXEC))
    return steps


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


@functools.lru_cache
def _identity_steps(policy: JailPolicy, slot: int) -> list[PreparedCall]:
    """Give the child an identity of its own.

    Processes are counted per uid and user namespace: with a shared one, a fork bomb starves its
    neighbours.
    """
    if not policy.switch:
        return []
    steps = [PreparedCall(_enter_user_namespace, ())]
    if policy.switch == "uid":
        uid = policy.first_uid + slot
        steps = [
            kernel.prctl_step(kernel.PR_SET_KEEPCAPS, int(policy.search)),
            PreparedCall(os.setgroups, ((),)),
            PreparedCall(os.setresgid, (uid, uid, uid)),
            PreparedCall(os.setresuid, (uid, uid, uid)),
        ]
    kept = [kernel.CAP_DAC_READ_SEARCH] if policy.search else []
    return [*steps, *kernel.capability_steps(*kept)]


def _enter_user_namespace() -> None:
    kernel.unshare(kernel.CLONE_NEWUSER)
    for name, line in (("setgroups", "deny"), ("uid_map", "1000 0 1"), ("gid_map", "1000 0 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(line)


def set_limits(policy: JailPolicy, job: ForkRequest, *, hard: bool = True) -> None:
    """Set the operating system's limits; with `hard` this process can never raise them again."""
    for step in limit_steps(policy, job, hard=hard):
        try:
            kernel.perform([step])
        except (OSError, ValueError):
            if kernel.LINUX:  # other systems have limits that cannot be set
                raise


def limit_steps(
    policy: JailPolicy, job: ForkRequest, *, hard: bool = True, is_paired: bool = False
) -> list[PreparedCall]:
    """The operating system's limits, as steps from those that this process has.

    One of a pair can raise that of descriptors, to pass some, until a candidate runs in it.

    If the child keeps the user's uid, the user's running processes are added to the process limit.
    """
    data = policy.baseline + job.memory_mb * _MB
    cpu = math.ceil(job.seconds * _CORES) + 1
    others = 0 if policy.switch else procfs.processes_of(os.getuid(), time.monotonic() // 1)
    steps = list[PreparedCall]()
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
        is_kept = hard and not (is_paired and name == "NOFILE")
        bounds = (value, value if is_kept else hard_limit)
        steps.append(PreparedCall(resource.setrlimit, (limit, bounds)))
    return steps


def set_surroundings(policy: JailPolicy, job: ForkRequest) -> None:
    """Set a fixed environment, the work folder as current folder, and the random seed."""
    _set_environment(policy, job)
    os.umask(0o022)
    os.chdir(job.work)
    seed_globals(job.seed)


def _set_environment(policy: JailPolicy, job: ForkRequest) -> None:
    os.environ.clear()
    os.environ.update(policy.environment)
    temporary = "/tmp" if policy.level == "namespaces" else job.work
    os.environ.update(HOME=job.work, TMPDIR=temporary)
