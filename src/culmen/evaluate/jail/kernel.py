"""Confinement by the kernel: Linux calls that Python 3.11 lacks, Landlock and seccomp.

The calls go through libc; every failure raises OSError. The scorer's process imports this file, too: it stays light.

Landlock   a process limits its own file, network and signal access, without privileges (Linux 5.13 and later).
           Structures and constants: Documentation/userspace-api/landlock.rst of the Linux kernel.
seccomp    the system calls that no candidate needs and that reach outside its jail are refused with EPERM. Numbers:
           arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h; `struct seccomp_data` and the
           classic BPF instructions: Documentation/userspace-api/seccomp_filter.rst.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import platform
import signal
import stat
import struct
from collections.abc import Iterable

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
    """umount2(2), detaching at once even if in use."""
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


# -- Landlock (system call numbers are the same on every architecture) -------------------------------------------------

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


def landlock_version() -> int:
    """The Landlock version of this kernel, 0 if it has none or it is switched off."""
    return max(0, libc.syscall(_CREATE, None, ctypes.c_size_t(0), 1))


def landlock_scopes_signals() -> bool:
    """Whether signals to processes outside can be refused (ABI 6, Linux 6.12)."""
    return landlock_version() >= 6


def restrict_paths(readable: Iterable[str], writable: Iterable[str], listable: Iterable[str] = ()) -> None:
    """From now on only read and execute below `readable` and anything below `writable`; no TCP, no foreign signals.

    Below `listable` names can be seen and nothing read. Paths that do not exist are passed over. Layers add up: a later
    call can only take more away. Raises OSError.
    """
    version = landlock_version()
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


# -- seccomp -----------------------------------------------------------------------------------------------------------

# name: (x86_64, aarch64); -1: the architecture has no such call
_DENIED = {
    # other processes' memory and descriptors
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "pidfd_open": (434, 434), "pidfd_getfd": (438, 438), "pidfd_send_signal": (424, 424), "process_madvise": (440, 440),
    # namespaces and mounts
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41),
    "chroot": (161, 51), "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467), "open_by_handle_at": (304, 265), "name_to_handle_at": (303, 264),
    # large kernel attack surface, memory outside the limits
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "memfd_create": (319, 279),
    "memfd_secret": (447, 447), "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "fanotify_init": (300, 262), "lookup_dcookie": (212, 18), "move_pages": (279, 239), "migrate_pages": (256, 238),
    "modify_ldt": (154, -1), "personality": (135, 92), "uselib": (134, -1), "iopl": (172, -1), "ioperm": (173, -1),
    # the machine
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105), "finit_module": (313, 273),
    "delete_module": (176, 106), "reboot": (169, 142), "swapon": (167, 224), "swapoff": (168, 225),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "clock_adjtime": (305, 266), "adjtimex": (159, 171),
    "sethostname": (170, 161), "setdomainname": (171, 162), "acct": (163, 89), "quotactl": (179, 60),
    "quotactl_fd": (443, 443), "syslog": (103, 116), "vhangup": (153, 58), "nfsservctl": (180, 42),
}  # fmt: skip
# System V objects and message queues outlive a process where it has no IPC namespace of its own
_LEFTOVERS = {"shmget": (29, 194), "semget": (64, 190), "msgget": (68, 186), "mq_open": (240, 180)}
_SIGNALS = {
    "kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240),
}  # fmt: skip
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_CLONE, _CLONE3, _SOCKET, _IOCTL_CALL = (56, 220), (435, 435), (41, 198), (16, 29)
_CLONE_NAMESPACES = 0x7E020000  # every CLONE_NEW* bit
_TIOCSTI, _TIOCLINUX, _AF_UNIX = 0x5412, 0x541C, 1
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _EPERM, _ENOSYS = 0x7FFF0000, 0x00050000 | 1, 0x00050000 | 38
_NR, _ARCH = 0, 4


class SyscallFilter:
    """A seccomp filter. Besides the fixed list it refuses System V IPC (`leftovers`) and signals to any other process
    (`own_signals`)."""

    def __init__(self, *, leftovers: bool = False, own_signals: bool = False) -> None:
        self.leftovers, self.own_signals = leftovers, own_signals

    def install(self) -> None:
        """Put this filter on the calling process for good, also for its children and over exec. Raises OSError."""
        code = self.assemble()
        buffer = ctypes.create_string_buffer(code, len(code))
        program = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(buffer))
        holder = ctypes.create_string_buffer(program, len(program))
        prctl(PR_SET_NO_NEW_PRIVS, 1)
        prctl(PR_SET_SECCOMP, 2, ctypes.c_void_p(ctypes.addressof(holder)))

    def assemble(self, machine: str = platform.machine(), pid: int | None = None) -> bytes:
        """The BPF program for `machine` (x86_64 or aarch64; another one raises OSError)."""
        if machine not in _ARCHITECTURES:
            raise OSError(f"no seccomp table for {machine}")
        column, audit = _ARCHITECTURES[machine]
        code = [_op(_LOAD, _ARCH), _op(_EQUAL, audit, 1, 0), _op(_RETURN, _EPERM), _op(_LOAD, _NR)]
        if machine == "x86_64":  # the x32 numbers would walk past the list
            code += [_op(_AT_LEAST, 0x40000000, 0, 1), _op(_RETURN, _EPERM)]
        denied = {**_DENIED, **(_LEFTOVERS if self.leftovers else {})}
        for numbers in denied.values():
            if numbers[column] >= 0:
                code += [_op(_EQUAL, numbers[column], 0, 1), _op(_RETURN, _EPERM)]
        # clone3 passes its flags in memory, where a filter cannot look: "not there" makes libc use clone
        code += [_op(_EQUAL, _CLONE3[column], 0, 1), _op(_RETURN, _ENOSYS)]
        code += _with_argument(_CLONE[column], 0, [_op(_ANY_BIT, _CLONE_NAMESPACES, 0, 1), _op(_RETURN, _EPERM)])
        code += _with_argument(_SOCKET[column], 0, [_op(_EQUAL, _AF_UNIX, 1, 0), _op(_RETURN, _EPERM)])
        for request in (_TIOCSTI, _TIOCLINUX):
            code += _with_argument(_IOCTL_CALL[column], 1, [_op(_EQUAL, request, 0, 1), _op(_RETURN, _EPERM)])
        if self.own_signals:
            mine = os.getpid() if pid is None else pid
            for numbers in _SIGNALS.values():
                code += _with_argument(numbers[column], 0, [_op(_EQUAL, mine, 1, 0), _op(_RETURN, _EPERM)])
        return b"".join([*code, _op(_RETURN, _ALLOW)])


def _op(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value & 0xFFFFFFFF)


def _with_argument(number: int, argument: int, test: list[bytes]) -> list[bytes]:
    """`test` on the low 32 bits of an argument of call `number`; what it does not refuse goes on with the list."""
    body = [_op(_LOAD, 16 + 8 * argument), *test, _op(_LOAD, _NR)]
    return [_op(_EQUAL, number, 0, len(body)), *body]
