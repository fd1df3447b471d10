"""The Pareto front of a run with several objectives, and how its hypervolume grew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from culmen.core.brief import Proposal
from culmen.core.candidate import Candidate
from culmen.core.errors import UserError
from culmen.core.evaluation import Observation
from culmen.core.task import Constraint, MetricGoal, constraint
from culmen.store.database import read_meta, reading
from culmen.store.ranking import last_state

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from culmen.memory.front import Floats, FrontModel, FrontPoint

_POINTS = 60  # of the line of hypervolume


class Front(msgspec.Struct, frozen=True):
    """The candidates that no other one beats in all objectives, best first in the first objective.

    `confirmed`: measured by evaluations made after the search; else what the search believes so far. `hypervolume` is
    that of the members' means, measured from `reference` (in the task's own directions; found from the candidates where
    the task names none, so it can be compared within a run only). `growth` is (candidates, hypervolume) of those tried
    by then, judged by what is known at the end. `others` are the candidates that are not on the front.
    """

    objectives: tuple[MetricGoal, ...]
    constraints: tuple[Constraint, ...]
    members: tuple[FrontPoint, ...]
    reference: dict[str, float]
    hypervolume: float
    confirmed: bool
    growth: tuple[tuple[int, float], ...] = ()
    others: tuple[FrontPoint, ...] = ()

    def choose(self, weights: Mapping[str, float] | None = None, limits: Sequence[str] = ()) -> FrontPoint:
        """The member for these trade-offs: of those whose means hold the `limits` ("latency <= 20"), the one nearest to
        the best value of every objective, by `weights` (those that are not named weigh 0; None: all alike). Raises
        `UserError` for names and limits that cannot be met."""
        from culmen.memory.front import chosen

        named = [goal.name for goal in self.objectives]
        for name, value in (weights or {}).items():
            if name not in named or not 0 <= value < float("inf"):
                what = f"{name}={value:g} is no weight of an objective"
                raise UserError(what, where="weights", fix=f"give numbers from 0 for {', '.join(named)}")
        if weights is not None and not any(weights.values()):
            raise UserError("no objective has a weight", where="weights", fix=f"{named[0]}=1")
        asked = [constraint(limit, "limit") for limit in limits]
        for each in asked:
            if not any(each.metric in member.metrics for member in self.members):
                raise UserError(f"no metric is called '{each.metric}'", where="limit", fix=f"use {', '.join(named)}")
        left = [m for m in self.members if not any(each.excess(m.metrics[each.metric]) for each in asked)]
        if not left:
            raise UserError(f"no member of the front holds {', '.join(map(str, asked))}", where="limit", fix="relax it")
        return chosen(left, self.objectives, [1.0 if weights is None else weights.get(name, 0.0) for name in named])


def front(run: Path | str, history: bool = False) -> Front | None:
    """The front of a run; None where the task has one score. With `history`, how it grew, and the other candidates: the
    whole journal is read, as it is while a run is not over."""
    with reading(Path(run)) as connection:
        objective = read_meta(connection).task.objective
        winner = last_state(connection).get("winner")
    if not objective.metrics:
        return None
    from culmen.memory.front import FrontPoint, hypervolume, reference, turned  # numpy comes with it

    final = winner.get("front") if isinstance(winner, dict) else None
    members = tuple(msgspec.convert(each, FrontPoint) for each in final or ())
    model = _model(Path(run)) if history or not final else None
    if model is not None and not final:
        members = tuple(model.point(row) for row in model.front())
    members = tuple(sorted(members, key=lambda m: -objective.metrics[0].reward(m.metrics[objective.metrics[0].name])))
    points = turned(members, objective.metrics)
    origin = reference(points, objective.metrics)
    growth: tuple[tuple[int, float], ...] = ()
    others: tuple[FrontPoint, ...] = ()
    if model is not None and history:
        rewards, _ = model.rewards()
        known = (rewards == rewards).all(axis=1).nonzero()[0]  # without those that have no number yet
        growth = _growth(rewards, known, origin)
        on = {member.id for member in members}
        others = tuple(model.point(row) for row in known.tolist() if model.ids[row] not in on)
    return Front(
        objective.metrics,
        objective.constraints,
        members,
        {goal.name: goal.reward(float(value)) for goal, value in zip(objective.metrics, origin)},
        hypervolume(points, origin) if len(points) else 0.0,
        bool(members) and all(member.confirmed for member in members),
        growth,
        others,
    )


def _growth(rewards: Floats, known: NDArray[np.int64], origin: Floats) -> tuple[tuple[int, float], ...]:
    import numpy as np

    from culmen.memory.front import hypervolume, nondominated

    grown: list[tuple[int, float]] = []
    step, kept = max(1, -(-len(known) // _POINTS)), known[:0]
    for start in range(0, len(known), step):
        kept = np.append(kept, known[start : start + step])
        kept = kept[nondominated(rewards[kept])]
        grown.append((min(start + step, len(known)), hypervolume(rewards[kept], origin)))
    return tuple(grown)


def _model(run: Path) -> FrontModel:
    """What the search's evaluations say, read from the journal."""
    from culmen.memory.front import FrontModel
    from culmen.store.journal import SqlJournal

    with SqlJournal.open(run, write=False) as journal:
        task = journal.meta.task
        model = FrontModel(task.objective.metrics, task.objective.constraints, task.deterministic)
        known: dict[str, Candidate] = {}
        for event in journal.read():
            entry = event.entry
            if isinstance(entry.result, Proposal):
                known |= {candidate.id: candidate for candidate in entry.result.candidates if candidate.id not in known}
            elif isinstance(entry.result, Observation) and entry.body.get("phase") != "final":
                found = known.get(entry.result.candidate) or Candidate(entry.result.candidate, {}, "")
                model.observe(found, entry.result)
    return model
