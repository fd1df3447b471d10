"""The hash chain over events.

Events of before have no hash: the chain of such a run begins when it is next opened for writing.
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def _big() -> sa.types.TypeEngine[int]:
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "link",
        sa.Column("seq", _big(), autoincrement=False, nullable=False),
        sa.Column("hash", sa.LargeBinary(length=16), nullable=False),
        sa.PrimaryKeyConstraint("seq"),
    )
    op.create_table(
        "seal",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("origin", sa.LargeBinary(length=16), nullable=False),
        sa.Column("since", _big(), nullable=False),
        sa.Column("seq", _big(), nullable=False),
        sa.Column("hash", sa.LargeBinary(length=16), nullable=False),
        sa.Column("settings", sa.LargeBinary(length=16), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
