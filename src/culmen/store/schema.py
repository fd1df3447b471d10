"""The tables of one run. Imports SQLAlchemy, so import this module late.

`event` is the source of all others: `recover` rebuilds them from it. `candidate`, `observation`,
`tally`, `spend`, `counter`, `progress` and `pack` are updated in the same transaction, so that
views need not read events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    text,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import GenericFunction

if TYPE_CHECKING:
    from sqlalchemy.sql.compiler import SQLCompiler


REVISION = "0008"
"""The newest revision in store/migrations: the schema that `create_all` makes."""

_Big = BigInteger().with_variant(Integer, "sqlite")  # SQLite's row id is spelled INTEGER

metadata = MetaData()

version = Table("alembic_version", metadata, Column("version_num", String(32), primary_key=True))

run = Table(
    "run",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),  # always 1
    Column("format", Integer, nullable=False),
    Column(
        "epoch", Integer, nullable=False
    ),  # grows with every opening for writing: an older owner cannot write
    Column("meta", LargeBinary, nullable=False),
)

event = Table(
    "event",
    metadata,
    Column("seq", _Big, primary_key=True, autoincrement=False),
    Column("time", Float, nullable=False),
    Column("kind", String(16), nullable=False),
    Column("effect", Text, nullable=False),
    Column("topic", Text),  # name of a note or a state; NULL for the many started and done
    Column("key", _Big, nullable=False),
    Column("mark", Text, nullable=False),
    Column("elapsed", Float, nullable=False),
    Column("shape", String(16)),  # which struct `result` is
    Column("body", LargeBinary),
    Column("result", LargeBinary),
    Column("data", LargeBinary),  # raw bytes of vectors
)
# Partial indexes: `sqlite_where` alone, since `postgresql_where` would import PostgreSQL's dialect
# whenever a run is read. `culmen.cluster.postgres` gives PostgreSQL the same conditions.
Index(
    "event_topic",
    event.c.kind,
    event.c.topic,
    event.c.seq,
    sqlite_where=text("topic IS NOT NULL"),
)
others = text("shape <> 'observation'")  # the condition that makes a query use the index
Index("event_other", event.c.shape, event.c.seq, sqlite_where=others)

blob = Table(
    "blob",
    metadata,
    Column("sha", LargeBinary(32), primary_key=True),
    Column("data", LargeBinary, nullable=False),
)

candidate = Table(
    "candidate",
    metadata,
    Column("id", String(12), primary_key=True),
    Column("digest", String(64), nullable=False),
    Column("seq", _Big, nullable=False, index=True),  # the event it first appeared in
    Column("parts", LargeBinary(32), nullable=False),  # blob holding {name: text}
    Column("parents", Text, nullable=False),  # ids, separated by spaces
    Column("operator", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("origin", LargeBinary, nullable=False),
)

observation = Table(
    "observation",
    metadata,
    Column("seq", _Big, primary_key=True, autoincrement=False),
    Column("candidate", String(12), nullable=False),
    Column("case", Text, nullable=False),
    Column("score", Float),
    Column("status", String(16), nullable=False),
    Column("reason", Text, nullable=False),
    Column("seconds", Float, nullable=False),
    Column("seed", Text, nullable=False),
    Column("phase", Text, nullable=False),
    Column("trust", String(16), nullable=False),
    Column("culprit", String(16), nullable=False, server_default=""),
    Column(
        "kind", Text, nullable=False, server_default=""
    ),  # of a failure (`Observation.failure_kind`)
)
Index("observation_candidate", observation.c.candidate, observation.c.seq)

# The hash chain, see `chain.py`: the hash of each event, and where the chain begins and ends.
link = Table(
    "link",
    metadata,
    Column("seq", _Big, primary_key=True, autoincrement=False),
    Column("hash", LargeBinary(16), nullable=False),
)
seal = Table(
    "seal",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),  # always 1
    Column("origin", LargeBinary(16), nullable=False),  # random; the hash before the first event
    Column("since", _Big, nullable=False),  # first event with a hash
    Column("seq", _Big, nullable=False),  # last event, and its hash
    Column("hash", LargeBinary(16), nullable=False),
    Column("settings", LargeBinary(16), nullable=False),  # hash of `run.meta`
)

# of each candidate in the search: count, mean and sum of squared deviations of its scores; failures
tally = Table(
    "tally",
    metadata,
    Column("candidate", String(12), primary_key=True),
    Column("count", Integer, nullable=False),
    Column("mean", Float, nullable=False),
    Column("spread", Float, nullable=False),
    Column("failed", Integer, nullable=False),
    Column("invalid", Integer, nullable=False),
    Column("error", Integer, nullable=False),
    Column("timeout", Integer, nullable=False),
    Column("rejected", Integer, nullable=False),
    Column("lost", Integer, nullable=False),
    Column("first", _Big, nullable=False),  # seq of its first observation
    Column("asked", Integer, nullable=False),  # observations for which the verifier was asked
    Column("accepted", Integer, nullable=False),  # those with a certified value
    Column("strict", Integer, nullable=False),  # those that passed as given
    Column("barred", Integer, nullable=False),  # observations rejected for their integrity
    Column(
        "low", Float
    ),  # least and greatest certified value; the objective decides which one is worse
    Column("high", Float),
    Column("grave", _Big),  # seq of its first observation with a grave sign
    Column("trust", Integer),  # `core.evaluation.rank` of its weakest score
)
judged = text(
    "(asked > 0 OR barred > 0 OR grave IS NOT NULL)"
)  # the condition that makes a query use the index
Index("tally_judged", tally.c.candidate, sqlite_where=judged)
Index("tally_rank", tally.c.failed, tally.c.count, tally.c.mean, tally.c.first)

spend = Table(
    "spend",
    metadata,
    Column("effect", Text, primary_key=True),
    Column("role", Text, primary_key=True),
    Column("model", Text, primary_key=True),
    Column("effects", Integer, nullable=False),
    Column("evaluations", Integer, nullable=False),
    Column("calls", Integer, nullable=False),
    Column("input_tokens", _Big, nullable=False),
    Column("output_tokens", _Big, nullable=False),
    Column("dollars", Float, nullable=False),
    Column("unpriced", Integer, nullable=False),
    Column("cache_hits", Integer, nullable=False),
)

# how many events of each kind, observations of each status, scores of each trust, proposals by
# fault
counter = Table(
    "counter",
    metadata,
    Column("scope", String(16), primary_key=True),
    Column("name", Text, primary_key=True),
    Column("value", _Big, nullable=False),
)

progress = Table(  # the best candidate, recorded as the run went on
    "progress",
    metadata,
    Column("seq", _Big, primary_key=True, autoincrement=False),
    Column("evaluations", _Big, nullable=False),
    Column("elapsed", Float, nullable=False),
    Column("candidate", String(12), nullable=False),
    Column("mean", Float, nullable=False),
    Column("count", Integer, nullable=False),
)

# Columns of many rows as arrays, and candidates whose packed tally is out of date, see `packs.py`.
pack = Table(
    "pack",
    metadata,
    Column("name", String(32), primary_key=True),  # TABLE.COLUMN
    Column("seq", _Big, primary_key=True, autoincrement=False),  # last event of its rows
    Column("data", LargeBinary, nullable=False),
)
loose = Table("loose", metadata, Column("candidate", String(12), primary_key=True))


# Expressions that databases spell differently, each written once here.


class holds(GenericFunction[bool]):
    """True if a column of bytes contains these bytes."""

    type = Boolean()
    inherit_cache = True


@compiles(holds)
def _holds_in_sqlite(element: holds, compiler: SQLCompiler, **options: object) -> str:
    column, wanted = (compiler.process(each, **options) for each in element.clauses)
    return f"(instr({column}, {wanted}) > 0)"


@compiles(holds, "postgresql")
def _holds_in_postgresql(element: holds, compiler: SQLCompiler, **options: object) -> str:
    column, wanted = (compiler.process(each, **options) for each in element.clauses)
    return f"(position({wanted} in {column}) > 0)"
