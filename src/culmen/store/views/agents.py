"""How far a strategy with agents has come, from its notes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from culmen.store.views import noted

if TYPE_CHECKING:
    from sqlalchemy import Connection


class Agents(msgspec.Struct, frozen=True):
    """`begun` of `of` agents, of which `ended` had their turn; `experiments` by all of them, seeds included; `best` is
    the score that counts for thresholds: certified where the task has a verifier."""

    begun: int
    of: int
    ended: int
    experiments: int
    best: float | None
    program: str = ""


def agents(connection: Connection) -> Agents | None:
    """The agents of a run; None if its strategy has none, or none has begun."""
    told, tried = noted.latest(connection, "agent"), noted.latest(connection, "experiment")
    if not told and "agent" not in tried:  # other strategies note experiments, too
        return None
    return Agents(
        begun=noted.number(connection, "agent"),
        of=int(told.get("agents") or tried.get("agents") or 0),
        ended=noted.number(connection, "agent ended"),
        experiments=int(tried.get("n", 0)),
        best=tried.get("best"),
        program=str(told.get("program", "")),
    )
