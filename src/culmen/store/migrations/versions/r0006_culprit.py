"""Culprit and kind of each failed observation, so that readers need not decode events.

Older rows get the culprit implied by status and reason, and no kind, which would need every event
decoded; `recover` computes it.
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_CULPRIT = (
    """
UPDATE observation SET culprit = CASE
    WHEN status = 'ok' THEN ''
    WHEN status = 'lost' AND reason = 'provider_away' THEN 'provider'
    WHEN status = 'lost' AND reason = 'scorer_error' THEN 'scorer'
    WHEN status = 'lost' AND substr(reason, 1, 7) = 'budget_' THEN 'budget'
    WHEN status = 'lost' THEN 'machine'
    WHEN status = 'error' AND reason IN ('', 'exception', 'exit', 'crash', 'no_output') THEN ''
    WHEN status = 'invalid' AND reason IN ('scorer_raised', 'score_not_a_number', """
    """'score_out_of_bounds',
        'score_missing', 'metric_missing', 'text_read') THEN ''
    WHEN status = 'rejected' AND reason = 'scorer_stalled' THEN ''
    ELSE 'candidate' END
WHERE status <> 'ok'
"""
)


def upgrade() -> None:
    with op.batch_alter_table("observation") as table:
        table.add_column(
            sa.Column("culprit", sa.String(length=16), nullable=False, server_default="")
        )
        table.add_column(sa.Column("kind", sa.Text(), nullable=False, server_default=""))
    op.execute(_CULPRIT)
