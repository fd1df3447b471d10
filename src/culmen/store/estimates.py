"""What a run's search knows of its candidates' true rewards: the value model (`memory.pedigree`) made from the tables.

Making it reads every observation, so the latest few are kept, each until its run has grown.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING

from culmen.core.task import Task
from culmen.store import sql
from culmen.store.codec import unescape

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from culmen.memory.pedigree import StepLaw, ValueModel

_MODELLED = 20_000  # evaluations up to which it is made
_KEPT = 8
ANCESTOR = ""  # common parent, never evaluated, of candidates without parents
_Key = tuple[str, int, int]

_lock = threading.Lock()
_kept: OrderedDict[_Key, ValueModel | None] = OrderedDict()


def estimates(connection: Connection, folder: Path, task: Task) -> ValueModel | None:
    """The model of the search so far; None where it would tell nothing more than the scores themselves (they are exact
    and there is one case at most), or where the run is too long for it."""
    seen = sql.observation.c
    count, last = connection.execute(sql.select(sql.func.count(), sql.func.max(seen.seq))).one()
    if not count or count > _MODELLED:
        return None
    key = (str(folder.absolute()), int(count), int(last))
    with _lock:
        if key not in _kept:
            _kept[key] = _made(connection, task)
        _kept.move_to_end(key)
        while len(_kept) > _KEPT:
            _kept.popitem(last=False)
        return _kept[key]


def step_law(connection: Connection, task: Task) -> StepLaw | None:
    """What the search of this run learnt of steps and noise; None without scores."""
    return _fed(connection, task).law


def _made(connection: Connection, task: Task) -> ValueModel | None:
    model = _fed(connection, task)
    if model.noiseless:
        return None
    model.update()
    return model


def _fed(connection: Connection, task: Task) -> ValueModel:
    """The model with all observations of the search."""
    from culmen.memory.pedigree import ValueModel

    model = ValueModel(task.objective.floor, task.deterministic)
    born = sql.select(sql.candidate.c.id, sql.candidate.c.parents).order_by(sql.candidate.c.seq, sql.candidate.c.id)
    family = [(unescape(row.id), unescape(row.parents).split()) for row in connection.execute(born)]
    many = sum(not parents for _, parents in family) > 2
    if many:  # of one family: programs without parents tell what to expect of one another
        model.add(ANCESTOR)
    for name, parents in family:
        model.add(name, parents or ((ANCESTOR,) if many else ()))
    seen = sql.observation.c
    made = sql.select(seen.candidate, seen.score, seen.case).where(seen.phase != "final", seen.status != "lost")
    for name, score, case in connection.execute(made.order_by(seen.seq)):
        model.observe(unescape(name), None if score is None else task.objective.reward(score), unescape(case))
    return model
