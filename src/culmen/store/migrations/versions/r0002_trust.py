"""Levels of trust in a score instead of verified or not."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("observation") as table:
        table.add_column(
            sa.Column("trust", sa.String(length=16), nullable=False, server_default="")
        )
    op.execute(
        "UPDATE observation SET trust = CASE WHEN verified THEN 'verified' ELSE 'self-reported' END"
    )
    with op.batch_alter_table("observation") as table:
        table.drop_column("verified")
        table.alter_column("trust", server_default=None)
