"""The one number of a candidate: what every list, page and report shows as its score, with its count.

For the winner and the initial program it is what the final choice measured, on evaluations made after the choice; for
all others, and before the final choice, what the search's evaluations let expect: the posterior mean of the value model
(`store.estimates`), or the mean itself where that tells nothing more. What the final choice evaluated is never mixed
into it.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from culmen.store import sql
from culmen.store.codec import decode
from culmen.store.database import read_meta
from culmen.store.estimates import estimates
from culmen.store.ranking import pooled_sd

if TYPE_CHECKING:
    from sqlalchemy import Connection

Z = 1.959963984540054  # standard errors to either side: the 95 % interval of a normal mean


class Score(msgspec.Struct, frozen=True, omit_defaults=True):
    """A candidate's score (in the task's own direction) over `count` evaluations, with standard error and `margin`,
    half the width of its 95 % interval (None: not known).

    `expected`: the value model's, from these evaluations and those of relatives; else the mean of these. `fresh`:
    measured by the final choice; then `failures` of the `count` gave no score and count as the floor.
    """

    value: float
    count: int
    se: float | None = None
    margin: float | None = None
    fresh: bool = False
    failures: int = 0
    expected: bool = False


class Scores:
    """The scores of a run's candidates at one moment. `model` is None where means tell all that is known."""

    def __init__(self, connection: Connection, folder: Path) -> None:
        task = read_meta(connection).task
        self._objective, self.direction = task.objective, task.objective.direction
        self.model = estimates(connection, folder, task)
        self.sd = pooled_sd(connection)
        winner = last_state(connection).get("winner")
        self.winner = str(winner["id"]) if isinstance(winner, dict) else ""
        self._fresh = fresh_scores(winner) if isinstance(winner, dict) else {}

    def of(self, candidate: str, count: int | None, mean: float | None) -> Score | None:
        """The score of a candidate (its id) whose `count` scored evaluations in the search have this mean; None if
        there is none."""
        if candidate in self._fresh:
            return self._fresh[candidate]
        if not count or mean is None:
            return None
        value = None if self.model is None else self.model.value(candidate)
        if value is None:
            return search_score(mean, count, self.sd)
        return Score(self._objective.score(value[0]), count, value[1], Z * value[1], expected=True)


def search_score(mean: float, count: int, sd: float) -> Score:
    """The score of a candidate from `count` evaluations of the search, whose deviation is `sd` (0: not known)."""
    error = sd / math.sqrt(count) if sd else None
    return Score(mean, count, error, None if error is None else Z * error)


def fresh_scores(winner: dict[str, Any]) -> dict[str, Score]:
    """By id, what the final choice says, as the state event tells it: of the winner and the initial program."""
    initial = winner.get("initial")
    fresh = bool(winner.get("confirmed") or winner.get("failures"))
    found = {str(initial["id"]): _score(initial, True)} if initial else {}
    return found | {str(winner["id"]): _score(winner, fresh)}


def _score(told: dict[str, Any], fresh: bool) -> Score:
    failures = int(told.get("failures", 0))
    return Score(float(told["score"]), int(told["count"]), told.get("se"), margin_of(told), fresh, failures)


def margin_of(told: dict[str, Any]) -> float | None:
    """Half the width of the 95 % interval; from the standard error alone where a run was made before it was told."""
    error = told.get("se")
    return told.get("margin", None if error is None else Z * float(error))


def last_state(connection: Connection) -> dict[str, Any]:
    """The newest state event's body."""
    states = sql.select(sql.event.c.body).where(sql.event.c.kind == "state", sql.event.c.topic.is_not(None))
    raw = connection.execute(states.order_by(sql.event.c.seq.desc()).limit(1)).scalar()
    return {} if raw is None else decode(raw, dict[str, Any])
