"""ChildConfinement by the kernel: Linux calls that Python 3.11 lacks, and Landlock.

seccomp.py has the other half. The calls go through libc; every failure raises OSError. The
scorer's process imports this file, too, so it stays light.

Landlock: a process limits its own file, network and signal access, without privileges (Linux 5.13
and later). Structures and constants: Documentation/userspace-api/landlock.rst of the Linux kernel.
"""

from __future__ import annotations

import ctypes
import fcntl
import functools
import os
import signal
import stat
import threading
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID = (
    0x00020000,
    0x08000000,
    0x10000000,
    0x20000000,
)
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_PRIVATE, MNT_DETACH = 4096, 16384, 1 << 18, 2
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_KEEPCAPS = 1, 4, 8
PR_SET_NO_NEW_PRIVS, PR_SET_CHILD_SUBREAPER, PR_CAP_AMBIENT = 38, 36, 47
CAP_DAC_READ_SEARCH = 2
_CAPABILITY_V3 = 0x20080522

libc = ctypes.CDLL(None, use_errno=True)
# other systems have only children with limits (portable.py)
LINUX = hasattr(libc, "prctl")


class PreparedCall(NamedTuple):
    """A call prepared before a fork; one of libc has a `name`, its negative result is an error."""

    function: Callable[..., Any]
    arguments: tuple[object, ...]
    name: str = ""


def perform(steps: Iterable[PreparedCall]) -> None:
    """Make prepared calls in their order; raise OSError at the first that fails."""
    for function, arguments, name in steps:
        result = function(*arguments)
        if name:
            checked_result(result, name)


def checked_result(result: int, what: str) -> int:
    """The result of a libc call; raise OSError if it is negative."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def prctl_step(option: int, *values: int) -> PreparedCall:
    """prctl(2) as a step."""
    words = [ctypes.c_ulong(each) for each in (*values, 0, 0, 0, 0)[:4]]
    return PreparedCall(libc.prctl, (option, *words), f"prctl({option})")


def prctl(option: int, *values: int) -> None:
    """prctl(2); no-op on systems without it."""
    if LINUX:
        perform([prctl_step(option, *values)])


def unshare(flags: int) -> None:
    """unshare(2)."""
    checked_result(libc.unshare(flags), f"unshare({flags:#x})")


def setns(fd: int, kind: int) -> None:
    """setns(2)."""
    checked_result(libc.setns(fd, kind), f"setns({kind:#x})")


def mount_step(
    source: str, target: str, kind: str = "", flags: int = 0, data: str = ""
) -> PreparedCall:
    """mount(2) as a step."""
    texts = [text.encode() if text else None for text in (source, target, kind, data)]
    return PreparedCall(
        libc.mount, (*texts[:3], ctypes.c_ulong(flags), texts[3]), f"mount {target}"
    )


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """mount(2)."""
    perform([mount_step(source, target, kind, flags, data)])


def unmount(target: str) -> None:
    """umount2(2), detaching at once even if in use."""
    checked_result(libc.umount2(target.encode(), MNT_DETACH), f"umount {target}")


class _CapHeader(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


class _CapData(ctypes.Structure):
    _fields_ = [
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    ]


def capability_steps(*kept: int) -> list[PreparedCall]:
    """Give up every capability except `kept` (numbers below 32), inherited over exec."""
    bits = sum(1 << number for number in kept)
    data = (_CapData * 2)(_CapData(bits, bits, bits), _CapData(0, 0, 0))
    header = _CapHeader(_CAPABILITY_V3, 0)
    given_up = PreparedCall(libc.capset, (ctypes.byref(header), ctypes.byref(data)), "capset")
    return [given_up, *(prctl_step(PR_CAP_AMBIENT, 2, number) for number in kept)]


def die_with_pipe(fd: int) -> None:
    """Have the kernel kill this process when the other end of the pipe `fd` closes.

    Unlike PR_SET_PDEATHSIG this is not tied to the thread that started the process, and it needs no
    thread here: the pipe carries no data, so its only event is the death of every holder of the
    other end.
    """
    if not hasattr(fcntl, "F_SETSIG"):
        threading.Thread(
            target=lambda: os.read(fd, 1) == b"" and os.kill(os.getpid(), signal.SIGKILL),
            daemon=True,
        ).start()
        return
    fcntl.fcntl(fd, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC | os.O_NONBLOCK)
    try:
        if os.read(fd, 1) == b"":
            os._exit(1)  # it closed before the signal was set up
    except BlockingIOError:
        pass


# -- Landlock (system call numbers are the same on every architecture)
# -------------------------------------------------

_CREATE, _ADD, _RESTRICT = 444, 445, 446
_RULE_PATH = 1
_EXECUTE, _WRITE, _READ, _LIST, _TRUNCATE, _IOCTL = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 14, 1 << 15
_FILE_ONLY = _EXECUTE | _WRITE | _READ | _TRUNCATE | _IOCTL
_EVERYTHING = (1 << 16) - 1
READ_ONLY = _EXECUTE | _READ | _LIST
_RIGHTS_BY_ABI = {1: 13, 2: 14, 3: 15, 4: 15}  # number of file rights known; 16 from ABI 5 on
_TCP = 0b11  # bind and connect, ABI 4
_SCOPES = 0b11  # abstract Unix sockets and signals, ABI 6


class _Ruleset(ctypes.Structure):
    _fields_ = [("files", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64)]


class _PathRule(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("allowed", ctypes.c_uint64), ("fd", ctypes.c_int32)]


@functools.cache
def landlock_version() -> int:
    """The Landlock version of this kernel, 0 if it has none or it is switched off."""
    if not LINUX:
        return 0
    return max(0, libc.syscall(_CREATE, None, ctypes.c_size_t(0), 1))


def landlock_scopes_signals() -> bool:
    """True if signals to processes outside can be refused (ABI 6, Linux 6.12)."""
    return landlock_version() >= 6


def landlock_guards_truncation() -> bool:
    """True if truncating a file takes a right of its own (ABI 3, Linux 6.2)."""
    return landlock_version() >= 3


def restrict_paths(
    readable: Iterable[str], writable: Iterable[str], listable: Iterable[str] = ()
) -> None:
    """Restrict this process by a `new_ruleset` of these paths; raise OSError if that fails."""
    perform(restrict_steps(new_ruleset(readable, writable, listable)))


def restrict_steps(ruleset: int) -> list[PreparedCall]:
    """Restrict this process by a ruleset, and close it.

    Layers add up: a later ruleset can only remove rights.
    """
    restrict = PreparedCall(libc.syscall, (_RESTRICT, ruleset, 0), "landlock_restrict_self")
    return [prctl_step(PR_SET_NO_NEW_PRIVS, 1), restrict, PreparedCall(os.close, (ruleset,))]


def new_ruleset(
    readable: Iterable[str], writable: Iterable[str], listable: Iterable[str] = ()
) -> int:
    """The descriptor of a new ruleset of Landlock; raise OSError if there is none.

    Only reading and executing remains below `readable`, everything below `writable`; no TCP, no
    signals to processes outside. Names below `listable` can be listed, not read. Paths that do not
    exist are ignored.
    """
    version = landlock_version()
    rules = _Ruleset(_rights(), _TCP if version >= 4 else 0, _SCOPES if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = checked_result(
        libc.syscall(_CREATE, ctypes.byref(rules), ctypes.c_size_t(size), 0),
        "landlock_create_ruleset",
    )
    try:
        for paths, allowed in ((readable, READ_ONLY), (listable, _LIST), (writable, _EVERYTHING)):
            for path in paths:
                allow_path(ruleset, path, allowed)
    except OSError:
        os.close(ruleset)
        raise
    return ruleset


def _rights() -> int:
    """All rights to files that this kernel knows."""
    return (1 << _RIGHTS_BY_ABI.get(landlock_version(), 16)) - 1


def allow_path(ruleset: int, path: str, allowed: int = _EVERYTHING) -> None:
    """Let a ruleset allow this below one more path."""
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            allowed &= _FILE_ONLY
        rule = _PathRule(allowed & _rights(), fd)
        checked_result(
            libc.syscall(_ADD, ruleset, _RULE_PATH, ctypes.byref(rule), 0),
            f"landlock_add_rule {path}",
        )
    finally:
        os.close(fd)
