"""Checks before a run goes on: the versions of what decides in it, and its first score.

The engine, the strategy and the proposer each have an integer beside their code, raised when they
decide otherwise than before, with a sentence that says how. A run's settings and each of its
sessions name them. A resume replays the journal with the code of today, so it is refused at once if
one of them differs.

Scores of a run are comparable only if the evaluator still scores as it did. Its files are sealed,
but not the data that it reads or draws at its import. Where scores were exact so far, a resumed
session first evaluates the initial program on a known case and seed, and another score than the
recorded one stops it. That evaluation is no part of the run: it is not journaled, enters no
statistics and costs no budget.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from culmen.core.errors import UserError
from culmen.core.evaluation import Observation, Status, culprit_of
from culmen.core.event import Effect, EvaluateRequest, request_mark
from culmen.core.options import RunOptions
from culmen.core.ports import Proposer, Strategy, World, with_protocol_defaults
from culmen.core.task import Task
from culmen.engine import search as engine
from culmen.engine.search import Search
from culmen.evidence.account import Account
from culmen.run.options import RunObjects
from culmen.store import views
from culmen.store.database import RunMeta
from culmen.strategies import catalog

_ROUNDING = 1e-9  # relative difference of equal scores, of other processors and libraries


class Decider(NamedTuple):
    """A part that decides: its name for people, its version, and what each version changed."""

    name: str
    version: int
    changes: Mapping[int, str]


def deciders_of(strategy: object, proposer: object, path: str = "") -> dict[str, Decider]:
    """The deciding parts of a run, by the keys of `RunMeta.versions`.

    `strategy` and `proposer` are objects or classes; without a proposer, requests go to the model
    as they are. `path` is the strategy's, for its name. Strategies that it runs are `arm 0`, ...
    """
    searching = with_protocol_defaults(Strategy, strategy)
    name = catalog.strategy_name(path) or "the strategy"
    parts = {
        "engine": Decider("the engine", engine.VERSION, engine.CHANGES),
        "strategy": Decider(name, searching.version, searching.changes),
    }
    for number, part in enumerate(searching.parts):
        whole = with_protocol_defaults(Strategy, part)
        path = catalog.path_of(type(part))
        name = catalog.strategy_name(path)
        parts[f"arm {number}"] = Decider(name, whole.version, whole.changes)
    if proposer is not None:
        asking = with_protocol_defaults(Proposer, proposer)
        parts["proposer"] = Decider("the proposer", asking.version, asking.changes)
    return parts


def proposer_of(options: RunOptions, objects: RunObjects) -> object:
    """The proposer of a run, or its class: the object given, else culmen's own."""
    if objects.proposer is not None:
        return objects.proposer
    if objects.search_offline(options):
        from culmen.models.offline.proposer import OfflineProposer

        return OfflineProposer
    from culmen.models.prompts.writer import FallbackProposer

    return FallbackProposer


def require_same_versions(meta: RunMeta, parts: Mapping[str, Decider]) -> None:
    """Raise `UserError` if a part of the run decides otherwise today than when it was made.

    A part that the run does not name had version 1.
    """
    differing: list[str] = []
    for key, part in parts.items():
        made = meta.versions.get(key, 1)
        if made == part.version:
            continue
        differing.append(f"{part.name} was version {made}, and is version {part.version} now")
        later = sorted(number for number in part.changes if number > made)
        differing += [f"  since version {number}: {part.changes[number]}" for number in later]
    if not differing:
        return
    lines = "\n  ".join(differing)
    made_by = f"with culmen {meta.culmen}" if meta.culmen else "with the culmen that made it"
    raise UserError(
        f"this run cannot go on as it began: what decides in it has changed\n  {lines}",
        where=f"run {meta.id}",
        fix=f"culmen runs fork {meta.id}  (a new run that reuses every finished result), or resume "
        f"it {made_by}",
    )


class ScoresChanged(UserError):
    """The initial program scores otherwise than when the run began."""


class ResumeCheck:
    """Compares the initial program's score with the recorded one, if scores are exact.

    `search` must have replayed the journal in `run` when the check is made.
    """

    def __init__(self, run: Path, task: Task, search: Search, world: World) -> None:
        self._run, self._task, self._search, self._world = run, task, search, world

    async def check(self) -> None:
        """Evaluate the initial program again; raise `ScoresChanged` if its score is another one.

        Nothing is evaluated in a run's first session, in one that is over, and if another score
        would not prove a change.
        """
        if self._search.is_done or not views.log_events(self._run, limit=1, kinds=("state",)):
            return
        initial = {each.id: each for each in self._task.initial_candidates()}
        before = views.first_score_of(self._run, initial)
        account = self._search.evidence.account
        if before is None or not is_repeatable(self._task, account, before):
            return
        case = next((case for case in self._task.cases if case.id == before.case), None)
        if before.case and case is None:
            return
        request = EvaluateRequest(initial[before.candidate], case, before.seed)
        effect = Effect(0, request_mark(request), request)
        now = before
        # evaluations that must differ from the recorded one: a single one may be bad luck
        for _ in range(2):
            seen = await self._world.perform(effect)
            if not isinstance(seen, Observation) or not _is_other(before, seen):
                return
            now = seen
        raise _changed_error(before, now)


def is_repeatable(task: Task, account: Account, before: Observation) -> bool:
    """True if a recorded evaluation must give the same score today.

    Scores are exact, by the account or as the task declares, and the evaluation drew no random
    numbers, asked no model, measured no time and depends on none before it.
    """
    evaluator = task.evaluator
    if evaluator.keeps_state or evaluator.metric == "speedup":
        return False
    if before.asked or evaluator.options.get("roles") or before.drew:
        return False
    is_exact = account.is_exact or bool(task.deterministic)
    return is_exact and not account.is_flaky


def _is_other(before: Observation, now: Observation) -> bool:
    """True if an evaluation shows that the evaluator changed.

    One that was lost, was refused or ran out of time may be the machine's or a service's fault.
    """
    if now.score is None:
        is_ours = culprit_of(now) in ("", "candidate", "scorer")
        return is_ours and now.status in (Status.ERROR, Status.INVALID)
    return not _is_equal(before, now)


def _is_equal(before: Observation, now: Observation) -> bool:
    def is_near(one: float, other: float) -> bool:
        return math.isclose(one, other, rel_tol=_ROUNDING, abs_tol=_ROUNDING * _ROUNDING)

    assert before.score is not None and now.score is not None
    return is_near(before.score, now.score)


def _changed_error(before: Observation, now: Observation) -> ScoresChanged:
    if now.score is None:
        words = f"gives none now ({now.last_words or now.reason or now.status.value})"
    else:
        words = f"scores {now.score!r} now"
    case = f"case {before.case}, " if before.case else ""
    return ScoresChanged(
        f"the initial program scored {before.score!r} before and {words}: the evaluator's data or "
        "surroundings changed since the run began",
        where=f"{case}seed {before.seed}, evaluated again before anything else",
        fix="restore them, then culmen resume RUN; or let a new run evaluate all anew: "
        "culmen runs fork RUN",
    )


def has_stopped(state: Mapping[str, object]) -> bool:
    """True if this state of a run is that of one whose scores no longer hold."""
    return str(state.get("error", "")).startswith(f"{ScoresChanged.__name__}:")
