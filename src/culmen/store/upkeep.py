"""The space that runs take: how much, giving it back, deleting a run of a database."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

from culmen.core.errors import UserError
from culmen.store.address import Address, has_run, pointer
from culmen.store.database import meanings
from culmen.store.seat import take


def drop(address: Address) -> None:
    """Delete a run of a database; raises `RunLocked` if somebody writes it."""
    from culmen.store import catalogue, postgres

    with closing(postgres.Seat.take(address, None)), postgres.session(address, write=True) as connection:
        catalogue.drop(connection, catalogue.number_of(connection, address))


def vacuum(run: Path) -> tuple[int, int]:
    """Give back what a run's store no longer uses; bytes before and after. Raises `RunLocked` if somebody writes it.

    In a folder also the half-written files that a crash left are removed.
    """
    if not has_run(run):
        raise UserError("there is no run here", where=str(run), fix="culmen status lists the latest run")
    before = size(run)
    with meanings(run), closing(take(run, None)) as seat:
        raw: Any = seat.connection.connection.driver_connection
        if pointer(run) is None:
            raw.execute("VACUUM")
            raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            for left in (run / "blobs").glob("??/.new-*"):
                left.unlink()
        else:
            from culmen.store import schema

            raw.rollback()
            raw.autocommit = True
            for table in schema.metadata.sorted_tables:
                raw.execute(f'VACUUM (FULL, ANALYZE) "{table.name}"')
            raw.autocommit = False
    return before, size(run)


def size(run: Path) -> int:
    """Bytes that a run takes on disk: its folder, or its tables and indexes in the database."""
    address = pointer(run)
    if address is None:
        return sum(path.stat().st_size for path in run.rglob("*") if path.is_file())
    from sqlalchemy import text

    from culmen.store import postgres

    query = "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c JOIN pg_namespace n"
    query += " ON n.oid = c.relnamespace WHERE c.relkind = 'r' AND n.nspname = current_schema()"
    with postgres.reading(address) as connection:
        return int(connection.execute(text(query)).scalar_one())
