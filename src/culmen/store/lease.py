"""One writer per run: an exclusive `flock` on RUN/lock.

The system releases it when its process dies.
"""

from __future__ import annotations

import fcntl
import os
import socket
import time
import weakref
from contextlib import closing
from pathlib import Path

import msgspec

from culmen.core.errors import RunLocked, UserError
from culmen.store.address import FILE, PART, Owner, read_pointer
from culmen.store.database import (
    NOT_ALLOWED,
    Make,
    WriteLease,
    connect,
    may_not_write,
    run_database,
)
from culmen.store.sql import Connection

_PATIENCE = 0.5  # seconds; a reader that looks up the owner holds a shared lock for an instant
_held: weakref.WeakSet[RunLock] = weakref.WeakSet()


class RunLock:
    """The held lock; children made by fork do not inherit it."""

    def __init__(self, fd: int, owner: Owner) -> None:
        self._fd, self.owner = fd, owner
        _held.add(self)

    @classmethod
    def acquire(cls, run_dir: Path) -> RunLock:
        """Take the lock; raises `RunLocked`, naming the owner, if another process holds it."""
        path = run_dir / "lock"
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            if error.errno not in NOT_ALLOWED:
                raise
            raise may_not_write(error, run_dir) from error
        deadline = time.monotonic() + _PATIENCE
        while not _try_lock(fd, fcntl.LOCK_EX):
            if time.monotonic() >= deadline:
                other = _read_owner(fd)
                os.close(fd)
                raise RunLocked(
                    f"another process is writing this run: {other}",
                    where=run_dir,
                    fix=(
                        f"wait for it or stop it (kill -INT {other.pid}); reading is always "
                        "possible: culmen status"
                    ),
                )
            time.sleep(0.02)
        owner = Owner(os.getpid(), socket.gethostname(), time.time())
        os.ftruncate(fd, 0)
        os.pwrite(fd, msgspec.json.encode(owner), 0)
        return cls(fd, owner)

    def release(self) -> None:
        """Release the lock, even if another process has inherited the descriptor.

        A second call does nothing.
        """
        if self._fd >= 0:
            fcntl.flock(self._fd, fcntl.LOCK_UN)
        self.close_descriptor()

    def close_descriptor(self) -> None:
        """Close the descriptor without unlocking: a forked child leaves the lock to its parent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def lock_owner(run_dir: Path) -> Owner | None:
    """The process that holds RUN/lock now; None without one. Creates no file."""
    try:
        fd = os.open(run_dir / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        return None if _try_lock(fd, fcntl.LOCK_SH) else _read_owner(fd)
    finally:
        os.close(fd)


def _try_lock(fd: int, how: int) -> bool:
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read_owner(fd: int) -> Owner:
    try:
        return msgspec.json.decode(os.pread(fd, 4096, 0), type=Owner)
    except msgspec.DecodeError:
        return Owner()


def _forget_all() -> None:
    for lock in list(_held):
        lock.close_descriptor()


os.register_at_fork(after_in_child=_forget_all)


class FolderLease:
    """RUN/lock and a connection to RUN/journal.db."""

    files = True

    def __init__(self, run_dir: Path, make: Make | None) -> None:
        self._lock = RunLock.acquire(run_dir)
        try:
            if make is not None:
                _make_database(run_dir, make)
            self.connection = connect(run_dir / FILE, write=True)
        except BaseException:
            self._lock.release()
            raise

    def renew(self) -> Connection:
        """The existing connection: a lease on files is not lost."""
        return self.connection

    def close(self) -> None:
        """Release the run."""
        self.connection.close()
        self._lock.release()


def _make_database(run_dir: Path, make: Make) -> None:
    """Make a run's database under a temporary name and rename it.

    Other processes therefore see either no database or a complete one.
    """
    if (run_dir / FILE).exists():  # another process was faster
        raise UserError("there is a run already", where=run_dir, fix=f"culmen resume {run_dir}")
    part = run_dir / PART
    for suffix in ("", "-wal", "-shm"):  # left by a process that was killed here
        Path(f"{part}{suffix}").unlink(missing_ok=True)
    with closing(connect(part, write=True)) as connection, connection.begin():
        make(connection)
    part.replace(run_dir / FILE)
    folder = os.open(run_dir, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def take_lease(run_dir: Path, make: Make | None) -> WriteLease:
    """Own a run; with `make`, a new run, whose tables it makes.

    Raises `RunLocked`, naming the owner, if another process is writing the run.
    """
    address = read_pointer(run_dir)
    if address is None:
        return FolderLease(run_dir, make)
    return run_database(address).take_lease(make)


def current_owner(run_dir: Path) -> Owner | None:
    """The process that writes a run now; None without one."""
    address = read_pointer(run_dir)
    if address is None:
        return lock_owner(run_dir)
    return run_database(address).read_owner()


def run_signature(run_dir: Path) -> tuple[object, ...]:
    """A value that changes when the run does, and when it gets or loses an owner.

    For a run in a folder: sizes and times of its files.
    """
    address = read_pointer(run_dir)
    if address is not None:
        return run_database(address).read_signature()
    facts: list[object] = []
    for name in (FILE, f"{FILE}-wal"):
        try:
            stat = (run_dir / name).stat()
            facts += [stat.st_size, stat.st_mtime_ns]
        except FileNotFoundError:
            facts.append(None)
    return (*facts, lock_owner(run_dir) is not None)
