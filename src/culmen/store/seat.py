"""The right to write a run, and the one connection to do it by."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from culmen.store.address import FILE, pointer
from culmen.store.database import engine_for
from culmen.store.lock import RunLock

if TYPE_CHECKING:
    from sqlalchemy import Connection

Make = Callable[["Connection"], None]


class Seat(Protocol):
    """`files`: large blobs are files of the run's folder, and nothing can be lost while the process lives."""

    connection: Connection
    files: bool

    def renew(self) -> Connection:
        """Own the run again after the connection was lost; the new one."""
        ...

    def close(self) -> None:
        """Give the run back."""
        ...


class FolderSeat:
    """RUN/lock and a connection to RUN/journal.db."""

    files = True

    def __init__(self, run_dir: Path, make: Make | None) -> None:
        self._lock = RunLock.acquire(run_dir)
        try:
            self.connection = engine_for(run_dir / FILE, write=True).connect()
            if make is not None:
                with self.connection.begin():
                    make(self.connection)
        except BaseException:
            self._lock.release()
            raise

    def renew(self) -> Connection:
        """The same as before: files are not lost."""
        return self.connection

    def close(self) -> None:
        """Give the run back."""
        engine = self.connection.engine
        self.connection.close()
        engine.dispose()
        self._lock.release()


def take(run_dir: Path, make: Make | None) -> Seat:
    """Own a run; with `make`, a new one, whose tables it makes. Raises `RunLocked`, naming the owner."""
    address = pointer(run_dir)
    if address is None:
        return FolderSeat(run_dir, make)
    from culmen.store import postgres

    return postgres.Seat.take(address, make)
