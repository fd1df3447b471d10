"""Programs of finished runs scored together, afresh: same split, same random seeds.

`score_candidates` does it for any candidates of a task; `plans` and `score_runs` for the results
and initial programs of runs. An evaluation is kept beside the runs as soon as it ends
(`fresh_scores`), so interrupted scoring continues, and only missing evaluations are made. Equal
programs are evaluated once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import NamedTuple

import msgspec

from culmen.core.answers import refusal_words
from culmen.core.candidate import Candidate
from culmen.core.errors import UserError
from culmen.core.evaluation import REFUSED, Case, Status, culprit_of
from culmen.core.event import seed_from_digest
from culmen.core.ports import Backend
from culmen.core.task import Task, digest_pieces
from culmen.core.usage import Budget
from culmen.evaluate.backends import SettlingBackend
from culmen.extensions.bench.fresh_scores import (
    FreshScore,
    fresh_scores,
    keep_scores,
    of_candidates,
)
from culmen.extensions.bench.records import programs_of
from culmen.run import assemble
from culmen.run.options import RunObjects
from culmen.store import views
from culmen.store.database import RunMeta

EACH = 12  # evaluations of a program behind its mean, if scores are noisy
_SPLITS = ("test", "val", "train")
_LIMITS = ("evaluations", "dollars", "seconds")  # limits that a budget of scoring may have

Keep = Callable[[FreshScore], None]
Told = Callable[[int, int], None]  # evaluations done, evaluations to do in all


class ScorePlan(NamedTuple):
    """Evaluations to be made: the `missing` ones of `candidates` on `cases`.

    Cases are those of `split` (None: no data set), each `repeats` times. In their order, the
    programs have equal numbers of evaluations up to the last one wherever the work is cut off.
    """

    task: Task
    candidates: tuple[Candidate, ...]
    split: str
    cases: tuple[Case | None, ...]
    repeats: int
    missing: tuple[tuple[Candidate, Case | None, int], ...]


class Scored(msgspec.Struct, frozen=True):
    """Outcome of scoring.

    Evaluations `made`, those `lost` to the machine, and `left` for another time, the cost in
    dollars of models that the evaluator asked, and the isolation level in force ("": there was
    nothing to do).
    """

    made: int = 0
    lost: int = 0
    left: int = 0
    dollars: float = 0.0
    isolation: str = ""


def score_plan(
    task: Task,
    candidates: Iterable[Candidate],
    known: Iterable[FreshScore] = (),
    split: str = "",
    repeats: int | None = None,
    most: float | None = None,
) -> ScorePlan:
    """Evaluations missing to score all candidates on the split `repeats` times.

    The split is test, else val, else train. By default once if scores are exact, else until a mean
    rests on `EACH` evaluations; fewer if more than `most` would be needed. Raises `UserError` for a
    split without cases, and if `most` does not hold one round.
    """
    programs = tuple({each.digest: each for each in candidates}.values())
    name, cases = _chosen_split(task, split)
    usual = 1 if task.deterministic else ceil(EACH / len(cases))
    there = {(each.candidate, *each.evaluation_key) for each in known}

    def lacking(times: int) -> tuple[tuple[Candidate, Case | None, int], ...]:
        wanted = (
            (each, case, again) for again in range(times) for case in cases for each in programs
        )
        return tuple(
            (each, case, again)
            for each, case, again in wanted
            if (each.id, name, case.id if case else "", again) not in there
        )

    for times in range(repeats or usual, 0, -1):
        missing = lacking(times)
        if most is None or len(missing) <= most:
            return ScorePlan(task, programs, name, cases, times, missing)
    raise UserError(
        f"scoring {len(programs)} programs together takes {len(lacking(1))} evaluations",
        where=f"task {task.name}, a budget of {most:g}",
        fix="give a larger budget, or fewer programs",
    )


def _chosen_split(task: Task, wanted: str) -> tuple[str, tuple[Case | None, ...]]:
    if wanted and not task.split(wanted):
        known = (
            ", ".join(name for name in _SPLITS if task.split(name))
            or "none: the task has no data set"
        )
        raise UserError(
            f"there are no {wanted} cases", where=f"task {task.name}", fix=f"its splits: {known}"
        )
    name = wanted or next((each for each in _SPLITS if task.split(each)), "")
    return name, task.split(name) if name else (None,)


async def score_candidates(
    plan: ScorePlan,
    backend: Backend,
    keep: Keep,
    workers: int = 1,
    budget: Budget | None = None,
    told: Told | None = None,
) -> Scored:
    """Make the plan's missing evaluations, `workers` at once.

    `keep` gets every score when it arrives, the last argument the progress. Starts and closes the
    backend. With a budget of dollars or seconds no evaluation begins once one is spent.
    """
    backend = SettlingBackend(backend, plan.task)
    waiting, limits, began = list(plan.missing[::-1]), budget or Budget(), time.monotonic()
    made = lost = 0
    dollars = 0.0

    async def work() -> None:
        nonlocal made, lost, dollars
        while waiting and not _is_spent(limits, dollars, time.monotonic() - began):
            score = await _make_fresh_score(plan, backend, *waiting.pop())
            made, lost = made + 1, lost + (score is None)
            if score is not None:
                dollars += score.dollars
                keep(score)
            if told is not None:
                told(made, len(plan.missing))

    try:
        isolation = await backend.start()
        await asyncio.gather(*(work() for _ in range(max(1, workers))))
    finally:
        await backend.close()
    return Scored(made, lost, len(plan.missing) - made + lost, dollars, isolation)


def _is_spent(budget: Budget, dollars: float, seconds: float) -> bool:
    spent = {"dollars": dollars, "seconds": seconds}
    return any(
        getattr(budget, name) is not None and value >= getattr(budget, name)
        for name, value in spent.items()
    )


async def _make_fresh_score(
    plan: ScorePlan, backend: Backend, candidate: Candidate, case: Case | None, repeat: int
) -> FreshScore | None:
    """One fresh score; None if the machine lost it.

    All programs get the same random seed on a case.
    """
    name = case.id if case else ""
    seed = seed_from_digest(digest_pieces("score", plan.split, name, str(repeat)))
    seen = await backend.evaluate(candidate, case, seed)
    if seen.status is Status.LOST:
        return None
    of = len(plan.cases) if case else 0
    refusal = refusal_words(seen) if seen.reason == REFUSED else ""
    told = (
        seen.score,
        seen.status.value,
        seen.trust,
        seen.usage.dollars,
        culprit_of(seen),
        refusal,
    )
    return FreshScore(candidate.id, plan.split, name, of, repeat, *told)


# Results and initial programs of runs.


class RunsPlan(NamedTuple):
    """The plan for the runs of one task.

    `runs` maps each folder to the ids of its programs; `meta` is that of one run.
    """

    runs: Mapping[Path, tuple[str, ...]]
    meta: RunMeta
    plan: ScorePlan


def plan_runs_by_task(
    runs: Sequence[Path], split: str = "", repeats: int | None = None, budget: Budget | None = None
) -> list[RunsPlan]:
    """One plan for each task of these runs; only finished runs with a score count.

    A budget of evaluations is shared out in the order of the tasks. Raises `UserError` as
    `score_plan` does, for a budget of anything else than evaluations, dollars and seconds, and for
    tasks whose evaluator is a Python function.
    """
    left = None if budget is None else _check_budget(budget).evaluations
    groups: dict[str, list[tuple[Path, RunMeta]]] = {}
    for run in runs:
        now = views.run_status(run)
        if now.state == "finished" and now.best is not None:
            meta = views.run_meta(run)
            groups.setdefault(meta.task.digest, []).append((run, meta))
    found: list[RunsPlan] = []
    for each in groups.values():
        made = _runs_plan(each, split, repeats, left)
        left = None if left is None else left - len(made.plan.missing)
        found.append(made)
    return found


def _check_budget(budget: Budget) -> Budget:
    for name in budget.__struct_fields__:
        if name not in _LIMITS and getattr(budget, name) is not None:
            fix = f"limit {', '.join(_LIMITS)}"
            raise UserError(f"scoring has no limit of {name}", where="--score-budget", fix=fix)
    return budget


def _runs_plan(
    group: Sequence[tuple[Path, RunMeta]], split: str, repeats: int | None, most: float | None
) -> RunsPlan:
    programs: dict[str, Candidate] = {}
    names: dict[Path, tuple[str, ...]] = {}
    for run, meta in group:
        names[run] = tuple(
            dict.fromkeys(filter(None, programs_of(views.best_result(run), meta.task)))
        )
        for name in names[run]:
            if name not in programs:
                programs[name] = views.candidate_detail(
                    run, name, observations=0, children=0
                ).candidate
    known = [each for run, _ in group for each in fresh_scores(run)]
    meta = group[0][1]
    return RunsPlan(
        names, meta, score_plan(meta.task, programs.values(), known, split, repeats, most)
    )


def score_runs(
    made: RunsPlan,
    budget: Budget | None = None,
    objects: RunObjects | None = None,
    told: Told | None = None,
) -> Scored:
    """Make the missing evaluations, and give each run the scores of its programs.

    Known scores of other runs are shared, too.
    """
    known = [each for run in made.runs for each in fresh_scores(run)]
    for run, names in made.runs.items():
        own = {(each.candidate, *each.evaluation_key) for each in fresh_scores(run)}
        missing = [
            each
            for each in of_candidates(known, names)
            if (each.candidate, *each.evaluation_key) not in own
        ]
        if missing:
            keep_scores(run, missing)
    if not made.plan.missing:
        return Scored()

    def keep(score: FreshScore) -> None:
        for run, names in made.runs.items():
            if score.candidate in names:
                keep_scores(run, [score])

    backend = assemble.backend_outside_run(made.meta, objects or RunObjects())
    workers = made.meta.workers or backend.workers or 1
    return assemble.run_blocking(score_candidates(made.plan, backend, keep, workers, budget, told))
