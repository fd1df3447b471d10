"""Databases that hold runs: their protocol, and the one that an address names.

Extensions add them in the slot `journals`, by the schemes of their URLs. The journal's SQL is
spelled for the databases as `culmen.store.sql` says; connections are of that module.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from culmen.core.errors import CulmenError, UserError
from culmen.core.extensions import GROUP, find_part
from culmen.store.address import Address, Owner

if TYPE_CHECKING:
    from culmen.store.sql import Connection


Make = Callable[["Connection"], None]
"""A function that makes the tables of a new run, on the connection of its lease."""


class WriteLease(Protocol):
    """The right to write a run, and the connection to its database.

    `files`: large blobs are files of the run's folder, and the lease cannot be lost while the
    process lives.
    """

    connection: Connection
    files: bool

    def renew(self) -> Connection:
        """Own the run again after the connection was lost; return the new connection."""
        ...

    def close(self) -> None:
        """Release the run."""
        ...


class RunDatabase(Protocol):
    """A database, or one run in it: the one that its address names.

    All methods but `list_runs` and those on errors need an address with a run's name, and raise
    `UserError` if there is no such run. They raise `Unavailable` if the database does not answer.
    """

    def list_runs(self) -> list[str]:
        """The names of all runs, newest first."""
        ...

    def open_snapshot(self) -> AbstractContextManager[Connection]:
        """A connection that sees one consistent snapshot of the run's tables."""
        ...

    def take_lease(self, make: Make | None) -> WriteLease:
        """Own the run; with `make`, a new run, whose tables it makes.

        Raises `RunLocked`, naming the owner, if another process is writing the run, and
        `UserError` for a new run whose name is taken.
        """
        ...

    def read_owner(self) -> Owner | None:
        """The process that writes the run now; None without one, or without such a run."""
        ...

    def read_signature(self) -> tuple[object, ...]:
        """A value that changes when the run does, and when it gets or loses an owner."""
        ...

    def insert_message(self, message: str, body: bytes) -> None:
        """Leave a message for the run's owner; its id `message` orders messages by time."""
        ...

    def message_bodies(self) -> list[bytes]:
        """The messages that were not removed, oldest first."""
        ...

    def delete_message(self, message: str) -> None:
        """Remove a message that was journaled; it may be gone already."""
        ...

    def measure_run(self) -> int:
        """The bytes that the run's tables and indexes take."""
        ...

    def vacuum_run(self, connection: Connection) -> None:
        """Free the run's unused space, on the connection of its lease."""
        ...

    def drop_run(self) -> None:
        """Delete the run; raises `RunLocked` if a process is writing it."""
        ...

    def driver_errors(self) -> tuple[type[Exception], ...]:
        """The classes of errors that the driver raises through a raw connection."""
        ...

    def culmen_error(self, error: object) -> CulmenError | None:
        """The culmen error for an error of the driver; None for a bug."""
        ...


def run_database(address: Address) -> RunDatabase:
    """The database at an address, by the scheme of its URL; nothing is connected yet.

    Raises `UserError` if no extension adds databases of this scheme.
    """
    scheme = address.url.partition("://")[0]
    make: Callable[[Address], RunDatabase] | None = find_part("journals", scheme)
    if make is None:
        raise UserError(
            f"no extension adds databases of '{scheme}'",
            where=str(address),
            fix=f"install the package that does (entry points {GROUP}, slot journals)",
        )
    return make(address)
