"""System calls of children that the fork-server makes for them, inside their work folders.

The kernel cannot restrict these calls to one folder: changes of modes and times and, from a proxied
evaluator, connecting a Unix socket. The filter of a child (seccomp.py) hands them over. No call is
ever let through: paths are read from the child once, opened anew below its work folder, and the
call is made here on the opened file. So the child's other actions meanwhile do not matter, nor that
its number may belong to another process by then: only its own work folder can change.

Structures and request numbers: include/uapi/linux/seccomp.h and seccomp_unotify(2); openat2(2).
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import socket
import struct
from typing import NamedTuple

from culmen.jail.kernel import checked_result, libc
from culmen.jail.seccomp import CHANGES, CONNECT

_RECEIVE, _SEND, _ADD_DESCRIPTOR = 0xC0502100, 0xC0182101, 0x40182103
# number, process, flags; call, architecture, instruction pointer; arguments
_QUESTION = struct.Struct("QIIiIQ6Q")
_PUT_THERE, _AT_CWD, _NO_FOLLOW = 1, -100, 0x100
_OPENAT2, _BENEATH, _NO_MAGIC = 437, 0x08, 0x02
_MODES = 0o1777  # no program here changes its identity
_PAGE, _PATH_LIMIT = 4096, 4096  # bytes of a page, and of a path at most
_TIMES, _ADDRESS = 32, 110  # bytes of two struct timespec, of struct sockaddr_un
_COLUMN = {"x86_64": 0, "aarch64": 1}.get(platform.machine(), 0)
_NAMES = {
    numbers[_COLUMN]: name for name, numbers in (CHANGES | CONNECT).items() if numbers[_COLUMN] >= 0
}


class _Question(NamedTuple):
    id: int
    process: int
    call: str
    arguments: tuple[int, ...]

    def int_argument(self, index: int) -> int:
        """An argument that is an int."""
        return ctypes.c_int(self.arguments[index]).value


class Deputy:
    """Answers the questions of one child's processes, through the descriptor `listener`.

    It owns the descriptor.
    """

    def __init__(self, listener: int, work: str) -> None:
        self.listener = listener
        self._work = os.open(work, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._names = {work, os.path.realpath(work)}

    def close(self) -> None:
        """Stop answering: from now on the calls fail."""
        os.close(self.listener)
        os.close(self._work)

    def answer_syscall(self) -> None:
        """Answer one question, if one is still pending."""
        buffer = bytearray(_QUESTION.size)
        try:
            self._control_listener(_RECEIVE, buffer)
        except OSError:
            return  # the asking process has ended
        number, process, _, call, _, _, *arguments = _QUESTION.unpack(buffer)
        question = _Question(number, process, _NAMES.get(call, ""), tuple(arguments))
        failure = 0
        try:
            self._perform_call(question)
        except OSError as error:
            failure = error.errno or errno.EPERM
        try:
            self._control_listener(_SEND, struct.pack("QqiI", number, 0, -failure, 0))
        except OSError:
            return

    def _control_listener(self, request: int, data: bytes | bytearray) -> None:
        """ioctl(2) on the listener, repeated if the end of another child interrupts it."""
        while True:
            try:
                fcntl.ioctl(self.listener, request, data)
                return
            except InterruptedError:
                continue

    def _perform_call(self, question: _Question) -> None:
        argument = question.int_argument
        match question.call:
            case "chmod":
                self._change_mode(question, _AT_CWD, 0, argument(1))
            case "fchmod":
                self._change_mode(question, argument(0), None, argument(1))
            case "fchmodat":
                self._change_mode(question, argument(0), 1, argument(2))
            case "fchmodat2":
                self._change_mode(
                    question, argument(0), 1, argument(2), follow=not argument(3) & _NO_FOLLOW
                )
            case "utimensat":
                self._change_times(question)
            case "connect":
                self._replace_socket(question)
            case _:
                raise PermissionError(errno.EPERM, "not a forwarded call")

    def _change_mode(
        self, question: _Question, folder: int, path: int | None, mode: int, *, follow: bool = True
    ) -> None:
        fd = self._open_call_file(question, folder, path, follow=follow)
        try:
            os.chmod(f"/proc/self/fd/{fd}", mode & _MODES)
        finally:
            os.close(fd)

    def _change_times(self, question: _Question) -> None:
        folder, path, times, flags = question.arguments[:4]
        timespecs = self._read_memory(question.process, times, _TIMES) if times else None
        fd = self._open_call_file(
            question, ctypes.c_int(folder).value, 1 if path else None, follow=not flags & _NO_FOLLOW
        )
        try:
            checked_result(
                libc.utimensat(_AT_CWD, f"/proc/self/fd/{fd}".encode(), timespecs, 0), "utimensat"
            )
        finally:
            os.close(fd)

    def _replace_socket(self, question: _Question) -> None:
        """Replace the child's socket by a connected one.

        Never waits: with a full queue the call fails.
        """
        size = question.int_argument(2)
        if not 2 < size <= _ADDRESS:
            raise PermissionError(errno.EPERM, "not a path")
        address = self._read_memory(question.process, question.arguments[1], size)
        path = address[2:].partition(b"\0")[0]
        if address[:2] != struct.pack("H", socket.AF_UNIX) or not path:
            raise PermissionError(errno.EPERM, "not a path")
        fd = self._open_in_work_folder(
            self._absolute_path(question.process, _AT_CWD, os.fsdecode(path)), follow=True
        )
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connected:
            try:
                connected.setblocking(False)
                connected.connect(f"/proc/self/fd/{fd}")
                connected.setblocking(True)
            finally:
                os.close(fd)
            values = (
                question.id,
                _PUT_THERE,
                connected.fileno(),
                question.int_argument(0),
                os.O_CLOEXEC,
            )
            self._control_listener(_ADD_DESCRIPTOR, struct.pack("QIIII", *values))

    def _open_call_file(
        self, question: _Question, folder: int, path: int | None, *, follow: bool
    ) -> int:
        """The file of a call, opened.

        It is the argument number `path` below the descriptor `folder`, or that descriptor itself.
        """
        text = (
            ""
            if path is None
            else self._path_from_memory(question.process, question.arguments[path])
        )
        return self._open_in_work_folder(
            self._absolute_path(question.process, folder, text), follow=follow
        )

    def _absolute_path(self, process: int, folder: int, path: str) -> str:
        """The absolute path, as the process sees it."""
        if path.startswith("/"):
            return path
        if not path and folder == _AT_CWD:
            raise FileNotFoundError(errno.ENOENT, "an empty path")
        base = os.readlink(
            f"/proc/{process}/cwd" if folder == _AT_CWD else f"/proc/{process}/fd/{folder}"
        )
        return f"{base}/{path}" if path else base

    def _open_in_work_folder(self, path: str, *, follow: bool) -> int:
        """Open a path inside the work folder; raise PermissionError for any other."""
        rest = next(
            (
                path[len(name) :].lstrip("/")
                for name in self._names
                if f"{path}/".startswith(f"{name}/")
            ),
            None,
        )
        if rest is None:
            raise PermissionError(errno.EPERM, "outside the work folder")
        flags = os.O_PATH | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
        how = struct.pack("QQQ", flags, 0, _BENEATH | _NO_MAGIC)
        fd = libc.syscall(
            _OPENAT2, self._work, os.fsencode(rest or "."), how, ctypes.c_size_t(len(how))
        )
        if fd < 0 and ctypes.get_errno() == errno.EXDEV:
            raise PermissionError(errno.EPERM, "leads outside the work folder")
        return checked_result(fd, "openat2")

    def _path_from_memory(self, process: int, address: int) -> str:
        """A path in the memory of a process; it may end at the end of readable memory."""
        data = b""
        while b"\0" not in data and len(data) < _PATH_LIMIT:
            start = address + len(data)
            data += self._read_memory(process, start, _PAGE - start % _PAGE)
        return os.fsdecode(data.partition(b"\0")[0])

    def _read_memory(self, process: int, address: int, size: int) -> bytes:
        with open(f"/proc/{process}/mem", "rb", buffering=0) as memory:
            try:
                memory.seek(address)
                data = memory.read(size)
            except (OSError, OverflowError, ValueError):
                data = b""
        if len(data) < size:
            raise OSError(errno.EFAULT, "no such memory")
        return data
