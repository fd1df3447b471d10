"""Tallies of the search's scores only, without evaluations of the final choice."""

from collections import Counter
from math import fsum

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_FAILURES = ("invalid", "error", "timeout", "rejected")


def upgrade() -> None:
    connection = op.get_bind()
    asked = "SELECT DISTINCT candidate FROM observation WHERE phase = 'final'"
    rows = "SELECT score, status FROM observation WHERE phase <> 'final' AND candidate = :candidate"
    columns = ("count", "mean", "spread", "failed", *_FAILURES, "lost")
    update = (
        f"UPDATE tally SET {', '.join(f'{name} = :{name}' for name in columns)} WHERE candidate = "
        ":candidate"
    )
    for candidate in connection.execute(sa.text(asked)).scalars().all():
        seen = connection.execute(sa.text(rows), {"candidate": candidate}).all()
        scores = [row.score for row in seen if row.score is not None]
        mean = fsum(scores) / len(scores) if scores else 0.0
        failures = Counter(row.status for row in seen if row.score is None)
        values = {name: failures[name] for name in (*_FAILURES, "lost")}
        values |= {
            "failed": sum(failures[name] for name in _FAILURES),
            "count": len(scores),
            "mean": mean,
        }
        spread = fsum((score - mean) ** 2 for score in scores)
        connection.execute(sa.text(update), {**values, "spread": spread, "candidate": candidate})
