"""The few Linux calls that Python 3.11 does not offer, through libc. Every failure raises OSError."""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal

CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID = 0x00020000, 0x08000000, 0x10000000, 0x20000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_PRIVATE, MNT_DETACH = 4096, 16384, 1 << 18, 2
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_KEEPCAPS = 1, 4, 8
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, PR_SET_CHILD_SUBREAPER, PR_CAP_AMBIENT = 22, 38, 36, 47
CAP_DAC_READ_SEARCH = 2
_CAPABILITY_V3 = 0x20080522

libc = ctypes.CDLL(None, use_errno=True)


def check(result: int, what: str) -> int:
    """The result of a libc call; a negative one becomes the OSError it stands for."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def prctl(option: int, *values: int | ctypes.c_void_p) -> int:
    """prctl(2)."""
    words = [v if isinstance(v, ctypes.c_void_p) else ctypes.c_ulong(v) for v in values]
    words += [ctypes.c_ulong(0)] * (4 - len(words))
    return check(libc.prctl(option, *words), f"prctl({option})")


def unshare(flags: int) -> None:
    """unshare(2)."""
    check(libc.unshare(flags), f"unshare({flags:#x})")


def setns(fd: int, kind: int) -> None:
    """setns(2)."""
    check(libc.setns(fd, kind), f"setns({kind:#x})")


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """mount(2)."""
    texts = [text.encode() if text else None for text in (source, target, kind)]
    check(libc.mount(*texts, ctypes.c_ulong(flags), data.encode() or None), f"mount {target}")


def unmount(target: str) -> None:
    """umount2(2), at once, whoever still uses it."""
    check(libc.umount2(target.encode(), MNT_DETACH), f"umount {target}")


class _CapHeader(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


class _CapData(ctypes.Structure):
    _fields_ = [("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32)]


def keep_capabilities(*kept: int) -> None:
    """Give up every capability but `kept` (numbers below 32), which are also inherited over exec."""
    bits = sum(1 << number for number in kept)
    data = (_CapData * 2)(_CapData(bits, bits, bits), _CapData(0, 0, 0))
    check(libc.capset(ctypes.byref(_CapHeader(_CAPABILITY_V3, 0)), ctypes.byref(data)), "capset")
    for number in kept:
        prctl(PR_CAP_AMBIENT, 2, number)


def die_with(fd: int) -> None:
    """Have the kernel kill this process when the other end of the pipe `fd` closes.

    Unlike PR_SET_PDEATHSIG it is not tied to the thread that started us, and it needs no thread of ours: the pipe
    carries no data, so its only event is the death of everyone who holds the other end.
    """
    fcntl.fcntl(fd, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC | os.O_NONBLOCK)
    try:
        if os.read(fd, 1) == b"":
            os._exit(1)  # it closed before we could arm
    except BlockingIOError:
        pass
