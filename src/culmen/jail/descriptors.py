"""Descriptors of the user's process, which the processes of a Python function keep.

The user's are those that were open when a session began: culmen opens its own later (journal,
lock, event loop, connections, channels), and all of Python's are close-on-exec, so nothing in a
descriptor shows its owner. Three kinds are left out although they were open: descriptors that an
event loop watches (a copy would go on waking that loop after it closed its own), the loops
themselves, and control sockets of other function servers (a copy would keep those servers from
seeing that this process ended). Files of another session that is under way may be taken for the
user's. That is harmless: locks of SQLite belong to a process, and a run's lock is closed in every
forked child (`store.lease`).

A descriptor that is left out is not closed but replaced by the null device. Its number stays
taken, because libraries remember numbers: libuv closes two of them in every forked child.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import resource
import socket
import stat
import sys
import threading
import weakref
from collections.abc import Collection, Iterable, Iterator

Identity = tuple[int, int, int]  # device, inode and kind of a file
Descriptors = dict[int, Identity]

# culmen's own go below this number, so that the kernel's table of descriptors stays small
_TABLE = 1024
_OWN = 64  # numbers below the limit from which culmen's own are taken
_FILES = (stat.S_IFREG, stat.S_IFDIR, stat.S_IFCHR, stat.S_IFBLK)
_WRITERS = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)
_control_sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def open_descriptors() -> Descriptors:
    """The open descriptors of this process, each with the identity of its file."""
    found: Descriptors = {}
    for number in _open_numbers():
        with contextlib.suppress(OSError):
            about = os.fstat(number)
            found[number] = about.st_dev, about.st_ino, stat.S_IFMT(about.st_mode)
    return found


def _open_numbers() -> Collection[int]:
    for folder in ("/proc/self/fd", "/dev/fd"):
        with contextlib.suppress(OSError):
            return [int(name) for name in os.listdir(folder)]
    return range(_descriptor_limit())


def _descriptor_limit() -> int:
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return soft if 0 < soft < _TABLE else _TABLE


def _watched_numbers(numbers: Collection[int]) -> set[int]:
    """Event loops among these descriptors, and the descriptors that they watch."""
    watched: set[int] = set()
    for number in numbers:
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{number}") != "anon_inode:[eventpoll]":
                continue
            watched.add(number)
            with open(f"/proc/self/fdinfo/{number}") as file:
                rows = [line.split() for line in file if line.startswith("tfd:")]
            watched.update(int(row[1]) for row in rows)
    return watched


def keep_from_servers(control: socket.socket) -> None:
    """Keep this end of a function server's control socket out of other servers."""
    with _sessions.lock:
        _control_sockets.add(control)


class _Sessions:
    """Sessions of culmen under way in this process, and the descriptors before them."""

    def __init__(self) -> None:
        self.lock, self.count = threading.Lock(), 0
        self.before: Descriptors = {}

    def begin(self) -> None:
        with self.lock:
            now = user_candidates()
            if self.count:  # sockets and pipes opened since may be those of the other session
                now = {number: each for number, each in now.items() if each[2] in _FILES}
                now |= self.before
            self.before = now
            self.count += 1

    def end(self) -> None:
        with self.lock:
            self.count -= 1


_sessions = _Sessions()


def _forget_sessions() -> None:
    global _sessions
    _sessions = _Sessions()


# an evaluator that begins a search of its own has other descriptors
os.register_at_fork(after_in_child=_forget_sessions)


@contextlib.contextmanager
def user_session() -> Iterator[None]:
    """Take the descriptors that are open now for the user's, as long as the session lasts."""
    sessions = _sessions
    sessions.begin()
    try:
        yield
    finally:
        sessions.end()


def user_candidates() -> Descriptors:
    """Open descriptors except those of standard streams and event loops."""
    now = open_descriptors()
    watched = _watched_numbers(now)
    return {number: each for number, each in now.items() if number > 2 and number not in watched}


def user_descriptors(without_session: Descriptors) -> set[int]:
    """Numbers of the user's descriptors that are still open.

    `without_session` holds the candidates for an evaluation outside of any session.
    """
    before = _sessions.before if _sessions.count else without_session
    now = user_candidates()
    with _sessions.lock:
        own = {each.fileno() for each in _control_sockets}
    return {n for n, each in before.items() if now.get(n) == each and n not in own}


# -- before and after the fork
# ------------------------------------------------------------------------------


def flush_writers(objects: Iterable[object], numbers: Collection[int]) -> list[io.TextIOWrapper]:
    """Write the buffers of the user's files among these objects; return the text files.

    Otherwise every forked child that writes would write them again. Pipes and sockets are left out,
    because a write to them may wait for a reader.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    written = {number for number in numbers if _is_written_file(number)}
    texts: list[io.TextIOWrapper] = []
    for each in objects if written else ():
        # `isinstance` of the object itself would wake one that is made at first use
        if not issubclass(type(each), _WRITERS) or not isinstance(each, _WRITERS):
            continue
        with contextlib.suppress(OSError, ValueError):
            if not each.closed and each.writable() and each.fileno() in written:
                each.flush()
                texts += [each] if isinstance(each, io.TextIOWrapper) else []
    return texts


def _is_written_file(number: int) -> bool:
    with contextlib.suppress(OSError):
        if stat.S_ISREG(os.fstat(number).st_mode):
            return bool(fcntl.fcntl(number, fcntl.F_GETFL) & (os.O_WRONLY | os.O_RDWR))
    return False


def write_whole_lines(texts: Collection[io.TextIOWrapper]) -> None:
    """Let text files write each line at once: processes of a function are ended, not closed."""
    for text in texts:
        with contextlib.suppress(OSError, ValueError):
            text.reconfigure(line_buffering=True)


def move_far_above(number: int) -> int:
    """A copy of a descriptor, far above the user's, that programs started later do not get."""
    return fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, max(3, _descriptor_limit() - _OWN))


def drop_others(kept: Collection[int]) -> None:
    """Replace every descriptor above 2 that is not to be kept by the null device."""
    null = os.open(os.devnull, os.O_RDWR)
    for number in open_descriptors():
        if number > 2 and number != null and number not in kept:
            os.dup2(null, number, inheritable=False)
    if null not in kept:
        os.close(null)


def read_on_ones_own(numbers: Collection[int]) -> None:
    """Give this process positions of its own in the files that are only read.

    Forked processes share positions: what one reads, the others would miss.
    """
    for number in numbers:
        with contextlib.suppress(OSError):
            flags = fcntl.fcntl(number, fcntl.F_GETFL)
            if not stat.S_ISREG(os.fstat(number).st_mode) or flags & os.O_ACCMODE != os.O_RDONLY:
                continue
            again = os.open(f"/proc/self/fd/{number}", os.O_RDONLY)
            os.lseek(again, os.lseek(number, 0, os.SEEK_CUR), os.SEEK_SET)
            os.dup2(again, number, inheritable=os.get_inheritable(number))
            os.close(again)


def settle_worker(channel: int, log: int) -> int:
    """Make 0 empty and 1 and 2 the log; return the channel's number, far above the user's."""
    far = move_far_above(channel)
    null, written = os.open(os.devnull, os.O_RDONLY), move_far_above(log)
    for source, target in ((null, 0), (written, 1), (written, 2)):
        os.dup2(source, target)
    for number in {null, written, channel, log} - {0, 1, 2}:
        os.close(number)
    return far
