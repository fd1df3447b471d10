"""The tables of one run.

`event` is the source of all others: `recover` rebuilds them from it. `candidate`, `observation`,
`tally`, `spend`, `counter` and `progress` are updated in the same transaction, so that views need
not read events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from culmen.store.sql import Connection

FORMAT = 5
"""Number of the tables and of what is in them, in `run.format`; 1 to 4 were never released."""

# Types as the databases spell them: whole numbers of 64 bits, doubles, bytes. SQLite's row number
# is a column whose type is INTEGER.
_TYPES = {
    "sqlite": {"WHOLE": "INTEGER", "DOUBLE": "FLOAT", "BYTES": "BLOB"},
    "postgresql": {"WHOLE": "BIGINT", "DOUBLE": "DOUBLE PRECISION", "BYTES": "BYTEA"},
}

_RUN = """
id INTEGER PRIMARY KEY  -- always 1
format INTEGER NOT NULL
epoch INTEGER NOT NULL  -- grows with every opening for writing: an older owner cannot write
meta BYTES NOT NULL
"""

_EVENT = """
seq WHOLE PRIMARY KEY
time DOUBLE NOT NULL
kind VARCHAR(16) NOT NULL
effect TEXT NOT NULL
topic TEXT  -- name of a note or a state; NULL for the many started and done
key WHOLE NOT NULL
mark TEXT NOT NULL
elapsed DOUBLE NOT NULL
shape VARCHAR(16)  -- which struct `result` is
body BYTES
result BYTES
data BYTES  -- raw bytes of vectors
hash BYTES  -- in the chain over all events, see `chain.py`
"""

# texts by their SHA-256, and what they are compressed with, see `codec.Packer`
_BLOB = """
sha BYTES PRIMARY KEY
dictionary INTEGER NOT NULL
data BYTES NOT NULL
"""

_DICTIONARY = """
number INTEGER PRIMARY KEY
kind VARCHAR(16) NOT NULL
data BYTES NOT NULL
"""

_CANDIDATE = """
id VARCHAR(12) PRIMARY KEY
digest VARCHAR(64) NOT NULL
seq WHOLE NOT NULL  -- the event it first appeared in
parts BYTES NOT NULL  -- blob holding {name: text}
parents TEXT NOT NULL  -- ids, separated by spaces
operator TEXT NOT NULL
model TEXT NOT NULL
origin BYTES NOT NULL
"""

_OBSERVATION = """
seq WHOLE PRIMARY KEY
candidate VARCHAR(12) NOT NULL
case TEXT NOT NULL
score DOUBLE
status VARCHAR(16) NOT NULL
reason TEXT NOT NULL
seconds DOUBLE NOT NULL
seed TEXT NOT NULL
phase TEXT NOT NULL
trust VARCHAR(16) NOT NULL
culprit VARCHAR(16) DEFAULT '' NOT NULL
kind TEXT DEFAULT '' NOT NULL  -- of a failure (`Observation.failure_kind`)
"""

# where the hash chain begins and ends, see `chain.py`
_SEAL = """
id INTEGER PRIMARY KEY  -- always 1
origin BYTES NOT NULL  -- random; the hash before the first event
seq WHOLE NOT NULL  -- last event, and its hash
hash BYTES NOT NULL
settings BYTES NOT NULL  -- hash of `run.meta`
"""

# of each candidate in the search: count, mean and sum of squared deviations of its scores; failures
_TALLY = """
candidate VARCHAR(12) PRIMARY KEY
count INTEGER NOT NULL
mean DOUBLE NOT NULL
spread DOUBLE NOT NULL
failed INTEGER NOT NULL
invalid INTEGER NOT NULL
error INTEGER NOT NULL
timeout INTEGER NOT NULL
rejected INTEGER NOT NULL
lost INTEGER NOT NULL
first WHOLE NOT NULL  -- seq of its first observation
asked INTEGER NOT NULL  -- observations for which the verifier was asked
accepted INTEGER NOT NULL  -- those with a certified value
strict INTEGER NOT NULL  -- those that passed as given
barred INTEGER NOT NULL  -- observations rejected for their integrity
low DOUBLE  -- least and greatest certified value; the objective decides which one is worse
high DOUBLE
grave WHOLE  -- seq of its first observation with a grave sign
trust INTEGER  -- `core.evaluation.trust_rank` of its weakest score
"""

_SPEND = """
effect TEXT NOT NULL
role TEXT NOT NULL
model TEXT NOT NULL
effects INTEGER NOT NULL
evaluations INTEGER NOT NULL
calls INTEGER NOT NULL
input_tokens WHOLE NOT NULL
output_tokens WHOLE NOT NULL
dollars DOUBLE NOT NULL
unpriced INTEGER NOT NULL
cache_hits INTEGER NOT NULL
PRIMARY KEY (effect, role, model)
"""

# how many events of each kind, observations of each status, scores of each trust, proposals by
# fault, scores that drew from each random generator, observations that left each kind of trace
_COUNTER = """
scope VARCHAR(16) NOT NULL
name TEXT NOT NULL
value WHOLE NOT NULL
PRIMARY KEY (scope, name)
"""

MARKS = (40, 20)
"""The best candidate is recorded after each of so many evaluations, then of each such part more."""

_PROGRESS = """
seq WHOLE PRIMARY KEY
evaluations WHOLE NOT NULL
elapsed DOUBLE NOT NULL
candidate VARCHAR(12) NOT NULL
mean DOUBLE NOT NULL
count INTEGER NOT NULL
"""


_MANY = 500


def is_mark_due(evaluations: int, marked: int, steps: tuple[int, int]) -> bool:
    """True if a point of a progress series is due, the last one being at `marked` evaluations.

    Behind `_MANY` evaluations points are twice as far apart.
    """
    first, part = steps
    part = max(1, part // 2) if marked >= _MANY else part
    return evaluations > marked and (
        evaluations <= first or evaluations >= marked + max(1, marked // part)
    )


def _lines(text: str) -> list[str]:
    return [line.partition("  --")[0] for line in text.strip().splitlines()]


_DEFINITIONS = {
    "blob": _lines(_BLOB),
    "candidate": _lines(_CANDIDATE),
    "counter": _lines(_COUNTER),
    "dictionary": _lines(_DICTIONARY),
    "event": _lines(_EVENT),
    "observation": _lines(_OBSERVATION),
    "progress": _lines(_PROGRESS),
    "run": _lines(_RUN),
    "seal": _lines(_SEAL),
    "spend": _lines(_SPEND),
    "tally": _lines(_TALLY),
}

TABLES = {
    table: tuple(line.split()[0] for line in lines if not line.startswith("PRIMARY KEY"))
    for table, lines in _DEFINITIONS.items()
}
"""The names of the columns of each table, by its name."""

OTHERS = "shape <> 'observation'"
JUDGED = "(asked > 0 OR barred > 0 OR grave IS NOT NULL)"
"""Conditions of partial indexes: a query that has one uses the index."""

_INDEXES = {
    "event_topic": "event (kind, topic, seq) WHERE topic IS NOT NULL",
    "event_other": f"event (shape, seq) WHERE {OTHERS}",
    "ix_candidate_seq": "candidate (seq)",
    "observation_candidate": "observation (candidate, seq)",
    "tally_judged": f"tally (candidate) WHERE {JUDGED}",
    "tally_rank": "tally (failed, count, mean, first)",
}


def create_tables(connection: Connection) -> None:
    """Make the tables and indexes of a run."""
    types = _TYPES[connection.dialect.name]
    for table, lines in _DEFINITIONS.items():
        columns = ", ".join(_definition(line, types) for line in lines)
        connection.execute(f"CREATE TABLE {table} ({columns})")
    for name, on in _INDEXES.items():
        connection.execute(f"CREATE INDEX {name} ON {on}")


def _definition(line: str, types: dict[str, str]) -> str:
    """A column with the type in the database's spelling, or a primary key as it stands."""
    name, kind, *rest = line.split()
    if name == "PRIMARY":
        return line
    return " ".join([f'"{name}"', types.get(kind, kind), *rest])
