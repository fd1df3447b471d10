"""A seccomp filter: the system calls that no candidate needs and that reach outside its jail are refused with EPERM.

Numbers: arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h of the Linux kernel; the layout of
`struct seccomp_data` and of the classic BPF instructions: Documentation/userspace-api/seccomp_filter.rst.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from dataclasses import dataclass

from culmen.evaluate.jail.kernel import PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, prctl

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
_CLONE, _CLONE3, _SOCKET, _IOCTL = (56, 220), (435, 435), (41, 198), (16, 29)
_CLONE_NAMESPACES = 0x7E020000  # every CLONE_NEW* bit
_TIOCSTI, _TIOCLINUX, _AF_UNIX = 0x5412, 0x541C, 1
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _EPERM, _ENOSYS = 0x7FFF0000, 0x00050000 | 1, 0x00050000 | 38
_NR, _ARCH = 0, 4


@dataclass(frozen=True)
class Filter:
    """What is refused besides the fixed list: `leftovers` System V IPC, `own_signals` signals to any other process."""

    leftovers: bool = False
    own_signals: bool = False

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
            code += _with_argument(_IOCTL[column], 1, [_op(_EQUAL, request, 0, 1), _op(_RETURN, _EPERM)])
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
