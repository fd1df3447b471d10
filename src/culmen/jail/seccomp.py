"""seccomp: system calls that reach outside the jail are refused with EPERM.

No candidate needs these calls. Numbers: arch/x86/entry/syscalls/syscall_64.tbl and
include/uapi/asm-generic/unistd.h; `struct seccomp_data` and the classic BPF instructions:
Documentation/userspace-api/seccomp_filter.rst; questions and answers: seccomp_unotify(2).

For a candidate without mounts and identity of its own (level restricted) Landlock alone does not
suffice: it does not cover modes, owners and times, Unix sockets in the file system (before ABI 9),
and the limits and priorities of other processes. The operations of these that an honest program
needs in its own work folder are made for it by the fork-server (deputy.py).
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import struct
from dataclasses import dataclass

from culmen.jail.kernel import PR_SET_NO_NEW_PRIVS, PreparedCall, libc, perform, prctl

# name: (x86_64, aarch64); -1: the architecture has no such call
_DENIED = {
    # other processes' memory and descriptors
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424),
    "process_madvise": (440, 440),
    # namespaces and mounts
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264),
    # large kernel attack surface, memory outside the limits
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    # System V objects, which outlive a process that has no IPC namespace of its own
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "fanotify_init": (300, 262),
    "lookup_dcookie": (212, 18),
    "move_pages": (279, 239),
    "migrate_pages": (256, 238),
    "modify_ldt": (154, -1),
    "personality": (135, 92),
    "uselib": (134, -1),
    "iopl": (172, -1),
    "ioperm": (173, -1),
    # the machine
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "syslog": (103, 116),
    "vhangup": (153, 58),
    "nfsservctl": (180, 42),
    # filters and listeners of its own, which could answer in our place
    "seccomp": (317, 277),
}
# calls that reach beyond the work folder if a candidate shares files, processes and IPC with the
# user
_APART = {
    # message queues outlive a process that has no IPC namespace of its own
    "mq_open": (240, 180),
    # owners, attributes and the older calls for times: open to the owner of a file, whatever
    # the Landlock rules
    "chown": (92, -1),
    "fchown": (93, 55),
    "lchown": (94, -1),
    "fchownat": (260, 54),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "setxattrat": (463, 463),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "removexattrat": (466, 466),
    "file_setattr": (469, 469),
    "utime": (132, -1),
    "utimes": (235, -1),
    "futimesat": (261, -1),
}
CHANGES = {
    "chmod": (90, -1),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "utimensat": (280, 88),
}
CONNECT = {"connect": (42, 203)}
# messages that may carry descriptors: the kernel counts those in flight for the user, so that one
# candidate's would keep the fork-server and all others from passing theirs
_MESSAGES = {"sendmsg": (46, 211), "sendmmsg": (307, 269)}
_SIGNALS = {
    "kill": (62, 129),
    "tkill": (200, 130),
    "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
}
# name: place of the argument that names a process or thread; 0 is the caller itself
_OTHERS = {
    "prlimit64": ((302, 261), 0),
    "setpriority": ((141, 140), 1),
    "ioprio_set": ((251, 30), 1),
    "sched_setaffinity": ((203, 122), 0),
    "sched_setscheduler": ((144, 119), 0),
    "sched_setparam": ((142, 118), 0),
    "sched_setattr": ((314, 274), 0),
}
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_CLONE, _CLONE3, _IOCTL, _FCNTL, _SECCOMP = (56, 220), (435, 435), (16, 29), (72, 25), (317, 277)
_SOCKET, _SOCKETPAIR, _SETSOCKOPT, _FALLOCATE = (41, 198), (53, 199), (54, 208), (285, 47)
_BUFFER_SIZES = (7, 8, 32, 33)  # SO_SNDBUF, SO_RCVBUF, and the same by force
_TRUNCATE, _OPEN, _OPENAT, _OPENAT2, _PRCTL = (76, 45), (2, -1), (257, 56), (437, 437), (157, 167)
_CLONE_NAMESPACES = 0x7E020000  # every CLONE_NEW* bit
_TIOCSTI, _TIOCLINUX, _FICLONE, _FICLONERANGE = 0x5412, 0x541C, 0x40049409, 0x4020940D
_TERMINAL = 0x5400  # family of requests to terminals, pipes and descriptors, not to files
_AF_UNIX, _STREAM, _PACKETS, _KIND = 1, 1, 5, 0xF
_F_SETOWN, _F_SETSIG, _F_SETOWN_EX, _F_SETLEASE, _F_SETPIPE_SZ = 8, 10, 15, 1024, 1031
_O_TRUNC, _PR_SET_SECCOMP, _PR_SET_CHILD_SUBREAPER = 0x200, 22, 36
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_ALLOW, _ASK, _EPERM, _ENOSYS = 0x7FFF0000, 0x7FC00000, 0x00050000 | 1, 0x00050000 | 38
_DONE, _NOT_SUPPORTED = 0x00050000, 0x00050000 | 95  # without effect; EOPNOTSUPP
_NR, _ARCH = 0, 4
_NEW_LISTENER = 1 << 3


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_char_p)]


@dataclass(frozen=True)
class SyscallFilter:
    """A seccomp filter: the fixed list and, by choice, more.

    apart           also calls that reach beyond the work folder if files, processes and IPC are
                    shared; then connected pairs are the only sockets that can be made
    streams         with `apart`: stream sockets of the Unix family can be made; the listener is
                    asked to connect them
    messages        with `apart`: messages that may carry descriptors can be sent
    own_signals     signals reach this process alone, if Landlock does not enforce that
    own_truncation  truncating a file takes the right to write it, if Landlock does not enforce that
    """

    apart: bool = False
    streams: bool = False
    messages: bool = False
    own_signals: bool = False
    own_truncation: bool = False

    def install_questions(self) -> int:
        """Install the filter that asks, before the other one: that refuses to pass descriptors on.

        Returns the descriptor on which questions arrive, -1 if this machine gives none.
        """
        prctl(PR_SET_NO_NEW_PRIVS, 1)
        ask = _install_step(_NEW_LISTENER, self.assemble_questions())
        return ask.function(*ask.arguments)

    def install(self, *, asks: bool = False) -> None:
        """Install this filter on the calling process permanently; raise OSError if that fails.

        It also holds for children and over exec. Unless the filter that `asks` is installed, calls
        that would raise a question are refused.
        """
        prctl(PR_SET_NO_NEW_PRIVS, 1)
        perform([self.step(asks)])

    def step(self, asks: bool) -> PreparedCall:
        """`install` as a step of this process, and with `own_signals` of no other."""
        return _filter_step(self, os.getpid() if self.own_signals else 0, asks)

    def assemble_questions(self, machine: str = platform.machine()) -> bytes:
        """The BPF program that asks. Of two filters, the one that refuses a call decides."""
        column, audit = _ARCHITECTURES[_known_machine(machine)]
        code = [
            _bpf_op(_LOAD, _ARCH),
            _bpf_op(_EQUAL, audit, 1, 0),
            _bpf_op(_RETURN, _ALLOW),
            _bpf_op(_LOAD, _NR),
        ]
        for numbers in (CHANGES | CONNECT if self.streams else CHANGES).values():
            code += _answer_rules(numbers[column], _ASK)
        return b"".join([*code, _bpf_op(_RETURN, _ALLOW)])

    def assemble(
        self, machine: str = platform.machine(), pid: int | None = None, *, asks: bool = True
    ) -> bytes:
        """The BPF program for `machine` (x86_64 or aarch64); raise OSError for any other.

        With `asks` the calls of `assemble_questions` are left to that program.
        """
        column, audit = _ARCHITECTURES[_known_machine(machine)]
        # another architecture is another set of numbers: 32-bit programs, and their socketcall,
        # have none here
        code = [
            _bpf_op(_LOAD, _ARCH),
            _bpf_op(_EQUAL, audit, 1, 0),
            _bpf_op(_RETURN, _EPERM),
            _bpf_op(_LOAD, _NR),
        ]
        if machine == "x86_64":  # the x32 numbers would walk past the list
            code += [_bpf_op(_AT_LEAST, 0x40000000, 0, 1), _bpf_op(_RETURN, _EPERM)]
        for numbers in (_DENIED | _APART if self.apart else _DENIED).values():
            code += _answer_rules(numbers[column], _EPERM)
        # clone3 passes its flags in memory, where a filter cannot look: "not there" makes libc use
        # clone
        code += _answer_rules(_CLONE3[column], _ENOSYS)
        code += _with_argument(
            _CLONE[column],
            0,
            [_bpf_op(_ANY_BIT, _CLONE_NAMESPACES, 0, 1), _bpf_op(_RETURN, _EPERM)],
        )
        code += _with_argument(
            _PRCTL[column], 0, [_bpf_op(_EQUAL, _PR_SET_SECCOMP, 0, 1), _bpf_op(_RETURN, _EPERM)]
        )
        code += _socket_rules(column, anything=not self.apart, streams=self.streams)
        code += _buffer_rules(column)
        for request in (_TIOCSTI, _TIOCLINUX):
            code += _with_argument(
                _IOCTL[column], 1, [_bpf_op(_EQUAL, request, 0, 1), _bpf_op(_RETURN, _EPERM)]
            )
        if self.apart:
            # orphans stay below their candidate (see confine.py), with the time that they take
            reaper = [_bpf_op(_EQUAL, _PR_SET_CHILD_SUBREAPER, 0, 1), _bpf_op(_RETURN, _EPERM)]
            code += _with_argument(_PRCTL[column], 0, reaper)
            code += _user_rules(column)
            refused = [
                *([] if asks else CHANGES.values()),
                *([] if asks and self.streams else CONNECT.values()),
                *([] if self.messages else _MESSAGES.values()),
            ]
            for numbers in refused:
                code += _answer_rules(numbers[column], _EPERM)
        if self.own_signals:
            code += _signal_rules(column, os.getpid() if pid is None else pid)
        if self.own_truncation:
            code += _truncation_rules(column)
        return b"".join([*code, _bpf_op(_RETURN, _ALLOW)])


@functools.lru_cache
def _filter_step(rules: SyscallFilter, pid: int, asks: bool) -> PreparedCall:
    return _install_step(0, rules.assemble(pid=pid, asks=asks))


def _install_step(flags: int, code: bytes) -> PreparedCall:
    number = _SECCOMP[_ARCHITECTURES[_known_machine(platform.machine())][0]]
    program = ctypes.byref(_Program(len(code) // 8, code))
    return PreparedCall(
        libc.syscall, (number, ctypes.c_ulong(1), ctypes.c_ulong(flags), program), "seccomp"
    )


def _known_machine(machine: str) -> str:
    if machine not in _ARCHITECTURES:
        raise OSError(f"no seccomp table for {machine}")
    return machine


def _socket_rules(column: int, *, anything: bool, streams: bool) -> list[bytes]:
    """The rules for sockets that can be made.

    A socket of a pair can send to, or connect to, any path unless its kind is stream or packets.
    """
    unix = [_bpf_op(_EQUAL, _AF_UNIX, 1, 0), _bpf_op(_RETURN, _EPERM)]
    kind = [_bpf_op(_LOAD, 24), _bpf_op(_AND, _KIND), _bpf_op(_EQUAL, _STREAM, 1, 0)]
    if anything:
        return _with_argument(_SOCKET[column], 0, unix)
    pairs = [
        *unix,
        *kind[:2],
        _bpf_op(_EQUAL, _STREAM, 2, 0),
        _bpf_op(_EQUAL, _PACKETS, 1, 0),
        _bpf_op(_RETURN, _EPERM),
    ]
    sockets = _with_argument(_SOCKET[column], 0, [*unix, *kind, _bpf_op(_RETURN, _EPERM)])
    return [
        *(sockets if streams else _answer_rules(_SOCKET[column], _EPERM)),
        *_with_argument(_SOCKETPAIR[column], 0, pairs),
    ]


def _buffer_rules(column: int) -> list[bytes]:
    """The rules for buffers in the kernel: they keep their usual sizes.

    Above its own limit the kernel, too, gives a socket less than it asked for, without an error.
    """
    code: list[bytes] = []
    for option in _BUFFER_SIZES:
        code += _with_argument(
            _SETSOCKOPT[column], 2, [_bpf_op(_EQUAL, option, 0, 1), _bpf_op(_RETURN, _DONE)]
        )
    return code + _with_argument(
        _FCNTL[column], 1, [_bpf_op(_EQUAL, _F_SETPIPE_SZ, 0, 1), _bpf_op(_RETURN, _EPERM)]
    )


def _user_rules(column: int) -> list[bytes]:
    """The rules for files and processes of the user."""
    code: list[bytes] = []
    for numbers, argument in _OTHERS.values():
        code += _with_argument(
            numbers[column], argument, [_bpf_op(_EQUAL, 0, 1, 0), _bpf_op(_RETURN, _EPERM)]
        )
    code += _with_argument(
        _OTHERS["setpriority"][0][column], 0, [_bpf_op(_EQUAL, 0, 1, 0), _bpf_op(_RETURN, _EPERM)]
    )
    code += _with_argument(
        _OTHERS["ioprio_set"][0][column], 0, [_bpf_op(_EQUAL, 1, 1, 0), _bpf_op(_RETURN, _EPERM)]
    )
    code += _with_argument(
        _FCNTL[column], 1, [_bpf_op(_EQUAL, _F_SETLEASE, 0, 1), _bpf_op(_RETURN, _EPERM)]
    )
    # space beyond the end of a file (KEEP_SIZE, unless a hole is punched) counts as no size of it
    beyond = [_bpf_op(_AND, 3), _bpf_op(_EQUAL, 1, 0, 1), _bpf_op(_RETURN, _NOT_SUPPORTED)]
    code += _with_argument(_FALLOCATE[column], 1, beyond)
    harmless = [
        _bpf_op(_EQUAL, _FICLONE, 4, 0),
        _bpf_op(_EQUAL, _FICLONERANGE, 3, 0),
        _bpf_op(_AND, 0xFFFFFF00),
    ]
    return code + _with_argument(
        _IOCTL[column], 1, [*harmless, _bpf_op(_EQUAL, _TERMINAL, 1, 0), _bpf_op(_RETURN, _EPERM)]
    )


def _signal_rules(column: int, mine: int) -> list[bytes]:
    """The rules for signals: those sent, and the receiver of those that a file sends."""
    code: list[bytes] = []
    for numbers in _SIGNALS.values():
        code += _with_argument(
            numbers[column], 0, [_bpf_op(_EQUAL, mine, 1, 0), _bpf_op(_RETURN, _EPERM)]
        )
    for command in (_F_SETOWN, _F_SETSIG, _F_SETOWN_EX):
        code += _with_argument(
            _FCNTL[column], 1, [_bpf_op(_EQUAL, command, 0, 1), _bpf_op(_RETURN, _EPERM)]
        )
    return code


def _truncation_rules(column: int) -> list[bytes]:
    """The rules against truncation without the right to write.

    They refuse truncate(2), and open(2) that truncates without asking for the right to write.
    openat2 passes its flags in memory, so it is reported as missing (ENOSYS).
    """
    code = _answer_rules(_TRUNCATE[column], _EPERM) + _answer_rules(_OPENAT2[column], _ENOSYS)
    writes = [
        _bpf_op(_AND, 3),
        _bpf_op(_EQUAL, 1, 2, 0),
        _bpf_op(_EQUAL, 2, 1, 0),
        _bpf_op(_RETURN, _EPERM),
    ]
    for numbers, argument in ((_OPEN, 1), (_OPENAT, 2)):
        code += _with_argument(
            numbers[column], argument, [_bpf_op(_ANY_BIT, _O_TRUNC, 0, len(writes)), *writes]
        )
    return code


def _bpf_op(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value & 0xFFFFFFFF)


def _answer_rules(number: int, answer: int) -> list[bytes]:
    """One answer to call `number`, for any arguments; empty if the machine lacks the call."""
    return [_bpf_op(_EQUAL, number, 0, 1), _bpf_op(_RETURN, answer)] if number >= 0 else []


def _with_argument(number: int, argument: int, test: list[bytes]) -> list[bytes]:
    """`test` on the low 32 bits of an argument of call `number`.

    If `test` does not refuse, the rest of the list decides.
    """
    body = [_bpf_op(_LOAD, 16 + 8 * argument), *test, _bpf_op(_LOAD, _NR)]
    return [_bpf_op(_EQUAL, number, 0, len(body)), *body] if number >= 0 else []
