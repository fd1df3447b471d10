"""Alembic's entry to a run: the connection is passed in by the caller."""

from alembic import context

from culmen.store.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
