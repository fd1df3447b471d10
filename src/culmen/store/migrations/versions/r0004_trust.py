"""Weakest trust of each candidate, counts of levels and signs, an index of other events.

The index covers events that are not observations.
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_RANK = "CASE trust WHEN 'certified' THEN 0 WHEN 'verified' THEN 1 WHEN 'proxied' THEN 2 ELSE 3 END"


def upgrade() -> None:
    op.add_column("tally", sa.Column("trust", sa.Integer(), nullable=True))
    few = sa.text("shape <> 'observation'")
    op.create_index(
        "event_other", "event", ["shape", "seq"], sqlite_where=few, postgresql_where=few
    )
    op.execute(
        f"UPDATE tally SET trust = (SELECT max({_RANK}) FROM observation"
        " WHERE observation.candidate = tally.candidate AND observation.status = 'ok')"
    )
    op.execute(
        "INSERT INTO counter (scope, name, value)"
        " SELECT 'trust', trust, count(*) FROM observation WHERE status = 'ok' GROUP BY trust"
    )
    held = (
        "position('\"signs\"'::bytea in result)"
        if op.get_bind().dialect.name == "postgresql"
        else _IN_SQLITE
    )
    op.execute(
        "INSERT INTO counter (scope, name, value) SELECT 'sign', '', signed FROM (SELECT "
        "count(*) AS signed FROM event"
        f" WHERE shape = 'observation' AND {held} > 0) AS found WHERE signed > 0"
    )


_IN_SQLITE = "instr(result, CAST('\"signs\"' AS BLOB))"
