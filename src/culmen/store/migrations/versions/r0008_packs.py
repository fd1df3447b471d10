"""Columns in packs.

Rows of before are packed when the tables are upgraded, without the dollars up to each observation,
which would need every event decoded; `recover` computes them.
"""

import sqlalchemy as sa
from alembic import op

from culmen.store.packs import pack_all

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    big = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "pack",
        sa.Column("name", sa.String(length=32), nullable=False),
        sa.Column("seq", big, autoincrement=False, nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("name", "seq"),
    )
    op.create_table(
        "loose",
        sa.Column("candidate", sa.String(length=12), nullable=False),
        sa.PrimaryKeyConstraint("candidate"),
    )
    pack_all(op.get_bind())
