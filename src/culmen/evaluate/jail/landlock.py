"""Landlock: a process limits its own file, network and signal access, without privileges (Linux 5.13 and later).

Structures and constants: Documentation/userspace-api/landlock.rst of the Linux kernel. The system call numbers are the
same on every architecture.
"""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Iterable

from culmen.evaluate.jail.kernel import PR_SET_NO_NEW_PRIVS, check, libc, prctl

_CREATE, _ADD, _RESTRICT = 444, 445, 446
_RULE_PATH = 1
_EXECUTE, _WRITE, _READ, _LIST, _TRUNCATE, _IOCTL = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 14, 1 << 15
_FILE_ONLY = _EXECUTE | _WRITE | _READ | _TRUNCATE | _IOCTL
_READ_ONLY = _EXECUTE | _READ | _LIST
_RIGHTS_BY_ABI = {1: 13, 2: 14, 3: 15, 4: 15}  # number of file rights known; 16 from ABI 5 on
_TCP = 0b11  # bind and connect, ABI 4
_SCOPES = 0b11  # abstract Unix sockets and signals, ABI 6


class _Ruleset(ctypes.Structure):
    _fields_ = [("files", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64)]


class _PathRule(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("allowed", ctypes.c_uint64), ("fd", ctypes.c_int32)]


def abi() -> int:
    """The Landlock version of this kernel, 0 if it has none or it is switched off."""
    return max(0, libc.syscall(_CREATE, None, ctypes.c_size_t(0), 1))


def scopes_signals() -> bool:
    """Whether signals to processes outside can be refused (ABI 6, Linux 6.12)."""
    return abi() >= 6


def restrict(readable: Iterable[str], writable: Iterable[str], listable: Iterable[str] = ()) -> None:
    """From now on only read and execute below `readable` and anything below `writable`; no TCP, no foreign signals.

    Below `listable` names can be seen and nothing read. Paths that do not exist are passed over. Layers add up: a later
    call can only take more away. Raises OSError.
    """
    version = abi()
    rights = (1 << _RIGHTS_BY_ABI.get(version, 16)) - 1
    rules = _Ruleset(rights, _TCP if version >= 4 else 0, _SCOPES if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = check(libc.syscall(_CREATE, ctypes.byref(rules), ctypes.c_size_t(size), 0), "landlock_create_ruleset")
    try:
        for path in readable:
            _allow(ruleset, path, _READ_ONLY & rights)
        for path in listable:
            _allow(ruleset, path, _LIST)
        for path in writable:
            _allow(ruleset, path, rights)
        prctl(PR_SET_NO_NEW_PRIVS, 1)
        check(libc.syscall(_RESTRICT, ruleset, 0), "landlock_restrict_self")
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, allowed: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            allowed &= _FILE_ONLY
        rule = _PathRule(allowed, fd)
        check(libc.syscall(_ADD, ruleset, _RULE_PATH, ctypes.byref(rule), 0), f"landlock_add_rule {path}")
    finally:
        os.close(fd)
