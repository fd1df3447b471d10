"""Results of verifiers and guards for each candidate, beside its scores."""

import json

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_COUNTS = ("asked", "accepted", "strict", "barred")


def upgrade() -> None:
    with op.batch_alter_table("tally") as table:
        for name in _COUNTS:
            table.add_column(sa.Column(name, sa.Integer(), nullable=False, server_default="0"))
        table.add_column(sa.Column("low", sa.Float(), nullable=True))
        table.add_column(sa.Column("high", sa.Float(), nullable=True))
        table.add_column(
            sa.Column("grave", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True)
        )
    with op.batch_alter_table("tally") as table:
        for name in _COUNTS:
            table.alter_column(name, server_default=None)
        table.create_index(
            "tally_judged",
            ["candidate"],
            sqlite_where=sa.text("(asked > 0 OR barred > 0 OR grave IS NOT NULL)"),
            postgresql_where=sa.text("(asked > 0 OR barred > 0 OR grave IS NOT NULL)"),
        )
    _fill_tallies(op.get_bind())


def _fill_tallies(connection) -> None:
    """Fill in certified evaluations; there were no signs before this revision."""
    found: dict[str, list] = {}
    rows = connection.execute(sa.text("SELECT result FROM event WHERE shape = 'observation'"))
    for (raw,) in rows:
        if raw is None or b'"strict":' not in raw:
            continue
        seen = json.loads(raw)
        tally = found.setdefault(seen["candidate"], [0, 0, 0, []])
        tally[0] += 1
        tally[2] += bool(seen["strict"])
        if seen.get("certified") is not None:
            tally[1] += 1
            tally[3].append(seen["certified"])
    for candidate, (asked, accepted, strict, values) in found.items():
        connection.execute(
            sa.text(
                "UPDATE tally SET asked = :asked, accepted = :accepted, strict = :strict, low "
                "= :low, high = :high "
                "WHERE candidate = :candidate"
            ),
            {
                "asked": asked,
                "accepted": accepted,
                "strict": strict,
                "low": min(values, default=None),
                "high": max(values, default=None),
                "candidate": candidate,
            },
        )
