"""Bring a run's tables up to date (Alembic, revisions in store/migrations)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from culmen.store.schema import REVISION, version

if TYPE_CHECKING:
    from alembic.config import Config
    from sqlalchemy import Connection


def upgrade(connection: Connection) -> None:
    """Upgrade to the newest revision inside the connection's transaction. Alembic is loaded only if there is need."""
    from sqlalchemy import inspect, select

    stamped = inspect(connection).has_table(version.name)
    if stamped and connection.execute(select(version.c.version_num)).scalar() == REVISION:
        return
    from alembic import command

    command.upgrade(configuration(connection), "head")


def configuration(connection: Connection) -> Config:
    """Alembic's settings for one run, on an open connection."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "culmen.store:migrations")
    config.attributes["connection"] = connection
    return config
