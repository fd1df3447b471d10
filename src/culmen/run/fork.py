"""Forks: new runs that begin with another run's results, and their budgets.

    budget, carry = settle(meta, 180, "evaluations=+100")
    Study.fork(run, budget=budget, carry=carry)

A resumed run replays under the budget it was made with, which decided the effects that it admitted
and refused. So more of it is a new run. If a model proposes, that retraces the old one from its
journal and continues behind its end. The offline proposer and strategies that leave traces outside
the journal (`Strategy.retraces`) do not retrace: the one depends on the spent share of the budget,
the others act elsewhere. There the new run starts from the best candidates of the old one instead,
which are *carried*. The initial program stays that of the task: a gain is one over it in every run.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from culmen.core.candidate import Candidate
from culmen.core.errors import UserError
from culmen.core.evaluation import Observation, is_excused
from culmen.core.event import Custom
from culmen.core.json import JsonObject
from culmen.core.ports import Strategy, with_protocol_defaults
from culmen.core.task import Task
from culmen.core.usage import Budget
from culmen.report.figures import count_text
from culmen.run import pools
from culmen.run.recheck import has_stopped

if TYPE_CHECKING:
    from culmen.store.database import RunMeta

MOST_CARRIED = 50  # candidates carried over
SPENT = ("evaluations", "calls", "tokens", "dollars", "seconds")


def settle_fork_budget(
    meta: RunMeta, evaluations: int, text: str, carry: int | None = None
) -> tuple[Budget, int]:
    """The budget of a fork of a run with `evaluations`, and the number of candidates to carry.

    `NAME=N` is absolute, and alone replaces the old budget. `NAME=+N` is N more; budgets that are
    not named stay. A run that retraces the old one counts the results it takes over, so N comes on
    top of the old limit. One that begins with candidates makes N evaluations, a quarter of them to
    look at these. Seconds are those of the new run in any case. Raises `UserError` for more of a
    budget that had no limit.
    """
    more = {name: value for name, value in _split_limits(text).items() if value.startswith("+")}
    if not more:
        return Budget.parse(text), carry or 0
    named = Budget.parse(text.replace("=+", "="))
    if carry is None:
        wanted = named.evaluations if "evaluations" in more else evaluations
        carry = (
            0
            if retraces_parent(meta)
            else min(MOST_CARRIED, pools.carried_allowance(meta.task, wanted) or MOST_CARRIED)
        )
    given = {name: getattr(named, name) for name in _split_limits(text)}
    for name in more:
        old = getattr(meta.budget, name, None)
        if old is None and name in SPENT and not carry:
            raise UserError(
                f"the run has no limit on {name}, so there is nothing to add to",
                where=f"--budget {text}",
                fix=(
                    f"write --budget {name}={given[name]:g} for a limit, or add to one of "
                    f"{_limited_names(meta.budget)}"
                ),
            )
        if name == "final":
            raise UserError(
                "a share is not added to", where=f"--budget {text}", fix="write final=0.1"
            )
        if carry == 0 and name != "seconds":
            given[name] += old
    return msgspec.structs.replace(meta.budget, **given), carry


def retraces_parent(meta: RunMeta) -> bool:
    """True if a fork with a larger budget takes its parent's path, from the parent's results."""
    from culmen.strategies import catalog

    path, config = str(meta.strategy["path"]), meta.strategy["config"]
    made: object = catalog.find_by_path(path)
    with suppress(UserError):  # settings of another version: a fork is the way on
        made = made if config is None else catalog.revive_object(path, config)
    return not meta.searches_offline and with_protocol_defaults(Strategy, made).retraces


def with_carried_candidates(task: Task, run: Path, most: int) -> Task:
    """The task with the best `most` candidates of a run carried to it.

    First the one that the run compared with the initial program, then those that never failed, the
    best first.
    """
    own = {candidate.id for candidate in task.initial_candidates()}
    members = {
        each.candidate.id: each.parts for each in pools.build_pool([run], most + len(own)).members
    }
    found = {leader.id: leader.parts} if (leader := _compared_candidate(run)) else {}
    carried = [parts for name, parts in (found | members).items() if name not in own]
    return msgspec.structs.replace(task, carried=tuple(carried[:most]))


def _compared_candidate(run: Path) -> Candidate | None:
    """The candidate that the result of a run compares with the initial program."""
    from culmen.store import views

    best = views.best_result(run)
    compared = None if best is None else best.challenger or best
    if compared is None:
        return None
    return views.candidate_detail(run, compared.id, observations=0, children=0).candidate


def random_seed(meta: RunMeta, wanted: int | None) -> int:
    """The random seed of a fork that carries candidates.

    It differs from its parent's, unless the task is evaluated once: under the same seed it would be
    given the very evaluations that made these candidates the best, also for its final choice, and
    report a score chosen for its luck. Raises `UserError` if the parent's is wanted.
    """
    if wanted is None:
        return meta.seed if meta.task.is_evaluated_once else meta.seed + 1
    if wanted == meta.seed and not meta.task.is_evaluated_once:
        raise UserError(
            "a run that carries candidates needs a random seed of its own",
            where=f"--seed {wanted}",
            fix=f"leave --seed out, or write --seed {wanted + 1}",
        )
    return wanted


def finished_results(run: Path, evaluator: str) -> JsonObject:
    """Results of a run by mark in journal order, the first of each.

    Results of another version of the evaluator, and excused failures, are left out and requested
    again. So are all evaluations of a run that stopped since its scores no longer hold, and results
    of custom effects, which leave traces outside the journal (a repository, weights).
    """
    from culmen.store.journal import SqlJournal

    found, is_void = JsonObject(), False
    with SqlJournal.open(run, write=False) as journal:
        journal.check()  # results of a journal that was changed are not taken over
        for event in journal.read(whole=True):
            entry, result = event.entry, event.entry.result
            is_void = has_stopped(entry.body) if entry.kind == "state" else is_void
            if entry.kind != "done" or not entry.mark or isinstance(result, Custom):
                continue
            if not isinstance(result, Observation) or not is_excused(result):
                found.setdefault(entry.mark, result)
    return {
        m: r
        for m, r in found.items()
        if not isinstance(r, Observation) or (not is_void and r.evaluator in ("", evaluator))
    }


def parent_results(meta: RunMeta) -> JsonObject:
    """Finished results of the run that this one was forked from.

    Empty if there is no such run any more.
    """
    from culmen.store import views
    from culmen.store.address import has_run, is_address

    parent = meta.fork_of or ""
    if not is_address(parent):
        known = bool(parent) and has_run(Path(parent))
        return finished_results(Path(parent), meta.task.evaluator.digest) if known else {}
    with suppress(UserError):
        return finished_results(views.find_run(parent), meta.task.evaluator.digest)
    return {}


def fork_notes(run: str, carry: int) -> list[str]:
    """Messages before such a fork starts."""
    if not carry:
        return []
    candidates = count_text(carry, "candidate")
    return [f"carried from {run}: its best {candidates}, evaluated again here"]


def _split_limits(text: str) -> Mapping[str, str]:
    pairs = (piece.partition("=") for piece in text.split(",") if piece.strip())
    return {name.strip(): value.strip() for name, _, value in pairs}


def _limited_names(budget: Budget) -> str:
    return ", ".join(name for name in SPENT if getattr(budget, name) is not None)
