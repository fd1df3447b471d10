"""Final measurement of given candidates, on the same cases and random seeds.

    wanted = measurement_of_run(run, ["seed", "best"], ScoreRequest(split="test"))
    make_evaluations(wanted)
    print(measure_candidates(wanted).rows)

Evaluations are kept one by one in `scores.jsonl` of the run, or of runs/score-TASK-DIGEST for a
task, so that a measurement cut off goes on where it was. Intervals are those of the final choice
(`culmen.evidence.intervals`), with what the search of the run knows of the noise.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from culmen.core.candidate import Candidate
from culmen.core.errors import UserError
from culmen.core.evaluation import CULPRITS, weakest_trust
from culmen.core.options import RunOptions
from culmen.core.task import Task
from culmen.core.usage import Budget
from culmen.evidence.account import FINAL, Fact
from culmen.evidence.evidence import Evidence
from culmen.evidence.intervals import Chance, Error, mean_difference, mean_of
from culmen.evidence.verdict import FreshComparison
from culmen.extensions.bench.fresh_scores import (
    FreshScore,
    fresh_scores,
    keep_scores,
    of_candidates,
    scored_candidates,
)
from culmen.extensions.bench.records import programs_of
from culmen.extensions.bench.score import Scored, ScorePlan, Told, score_candidates, score_plan
from culmen.report.figures import RUNS, run_name
from culmen.run import assemble
from culmen.run.options import RunObjects
from culmen.store import views
from culmen.store.database import RunMeta

REPEATS = 10
"""Evaluations of each candidate on each case, of a task whose scores are not declared exact."""

SEED, BEST = "seed", "best"


class ScoreRequest(msgspec.Struct, frozen=True):
    """Choices for a measurement.

    By default the split is test, else val, else train, and repeats are `REPEATS`, or 1 if scores
    are declared exact. `options` replace those of the run, `objects` are those that it was made
    with, such as a model that is no name.
    """

    split: str = ""
    repeats: int | None = None
    budget: Budget = Budget()
    options: Mapping[str, object] = {}
    objects: RunObjects = RunObjects()


class Wanted(msgspec.Struct, frozen=True):
    """A measurement to be made, or to go on with.

    `names` are the words for the candidates by id, in the order of the table; `folder` keeps the
    scores; `is_run` tells whether it is a run, whose search knows something of the noise. `budget`
    limits the measurement as a whole.
    """

    names: Mapping[str, str]
    meta: RunMeta
    folder: Path
    plan: ScorePlan
    is_run: bool
    budget: Budget = Budget()
    objects: RunObjects = RunObjects()

    @property
    def evaluations(self) -> int:
        """Number of evaluations of the whole measurement."""
        return len(self.plan.candidates) * len(self.plan.cases) * self.plan.repeats

    @property
    def scores(self) -> list[FreshScore]:
        """Evaluations of this measurement made so far."""
        return [
            each
            for each in of_candidates(fresh_scores(self.folder), self.names)
            if each.split == self.plan.split
            and each.repeat < self.plan.repeats
            and each.case in {case.id if case else "" for case in self.plan.cases}
        ]

    @property
    def looked(self) -> set[str]:
        """Ids of all candidates with scores on this split, by the final choice or after it."""
        seen = scored_candidates(self.folder, self.plan.split)
        best = views.best_result(self.folder) if self.is_run else None
        if best is None or not best.confirmed or best.split != self.plan.split:
            return seen
        return seen | {each.id for each in (best, best.initial, best.challenger) if each}


class MeasuredCandidate(msgspec.Struct, frozen=True):
    """One row of a final measurement.

    `score` is the mean over `evaluations`, of which `failures` gave no score and count at the
    floor; None if all failed. `margin` is half the width of the 95 % interval for these cases,
    `new_margin` for new cases of the kind (None: unknown). `difference` is that to the first
    candidate, on the evaluations that both have. `excused` further evaluations failed by the fault
    of the evaluator or the machine, and do not count.
    """

    id: str
    name: str
    score: float | None
    margin: float | None
    new_margin: float | None
    evaluations: int
    failures: int
    excused: int
    difference: float | None
    difference_margin: float | None
    dollars: float
    trust: str


class FinalMeasurement(msgspec.Struct, frozen=True):
    """A final measurement as made so far: a row for each candidate.

    `cases` of `split` (0 and "": no data set), each `repeats` times, take `wanted` evaluations in
    all, of which `made` are made. `looked` candidates were ever scored on this split.
    """

    task: str
    direction: str
    bounds: tuple[float | None, float | None]
    split: str
    cases: int
    repeats: int
    wanted: int
    made: int
    dollars: float
    looked: int
    rows: tuple[MeasuredCandidate, ...]

    @property
    def is_complete(self) -> bool:
        """True if no evaluation is missing."""
        return self.made >= self.wanted


def measurement_of_run(
    run: Path, words: Sequence[str] = (), request: ScoreRequest | None = None
) -> Wanted:
    """The measurement of a run's candidates; by default of its best and initial program.

    A word is an id, `best`, `seed`, or a file with a program. Raises `UserError` for unknown
    candidates, a split without cases, an evaluator that has changed since, and a budget that does
    not hold one evaluation of each candidate on each case.
    """
    meta, request = views.run_meta(run), request or ScoreRequest()
    _check_evaluator_unchanged(run, meta)
    chosen = tuple(words) or ((SEED, BEST) if meta.task.seeds else (BEST,))
    found = {word: _run_candidate(run, meta.task, word) for word in chosen}
    return _wanted(msgspec.structs.replace(meta, **request.options), run, found, request, True)


def measurement_of_task(
    task: Task, words: Sequence[str] = (), request: ScoreRequest | None = None
) -> Wanted:
    """The measurement of programs of a task without a run: files, or `seed`, the default.

    Raises `UserError` as `measurement_of_run` does.
    """
    from culmen.evaluate.backends import usual_workers
    from culmen.run.plan import RunPlan, run_meta
    from culmen.strategies import catalog

    request = request or ScoreRequest()
    strategy = catalog.strategy_object(catalog.make_strategy("best_of_n"))
    stem = "".join(c if c.isalnum() or c in "-_" else "-" for c in task.name)[:40]
    folder = RUNS / f"score-{stem}-{task.digest[:8]}"
    options = msgspec.structs.replace(RunOptions(), **request.options)
    workers = options.workers or usual_workers(options.backend)
    options = msgspec.structs.replace(options, workers=workers)
    meta = run_meta(RunPlan(task, strategy, options, RunObjects()), folder.name)
    found = {word: _task_candidate(task, word) for word in words or (SEED,)}
    return _wanted(meta, folder, found, request, False)


def _run_candidate(run: Path, task: Task, word: str) -> Candidate:
    """The candidate of a run that a word stands for; a file is a program of the run's task."""
    if Path(word).is_file():
        return _program_in_file(task, Path(word))
    near = difflib.get_close_matches(word, (SEED, BEST), 1)
    if word not in near and near:
        fix = f"did you mean {near[0]}?"
        raise UserError(f"there is no candidate '{word}'", where=str(run), fix=fix)
    name = word
    if near:
        program, initial = programs_of(views.best_result(run), task)
        name = initial if word == SEED else program
    if not name:
        what = "nothing has scored yet" if word == BEST else "this run had no initial program"
        fix = f"name candidates by id: culmen show {run_name(run)} --log"
        raise UserError(what, where=str(run), fix=fix)
    return views.candidate_detail(run, name, observations=0, children=0).candidate


def _task_candidate(task: Task, word: str) -> Candidate:
    """The program of a task that a word stands for: a file, or the initial one."""
    if word != SEED and not Path(word).is_file():
        raise UserError(
            f"there is no program file '{word}'",
            where=f"task {task.name}",
            fix="of a task, name files or 'seed'; of a run, ids of candidates",
        )
    if word == SEED and not task.seeds:
        fix = "name a file with a program"
        raise UserError(
            "this task has no initial program to score", where=f"task {task.name}", fix=fix
        )
    return task.initial_candidates()[0] if word == SEED else _program_in_file(task, Path(word))


def _program_in_file(task: Task, path: Path) -> Candidate:
    """The program in a file: the initial one with this text for its part."""
    parts = dict(task.seeds[0]) if task.seeds else {task.evaluator.module or path.name: ""}
    part = path.name if path.name in parts else next(iter(parts))
    if len(parts) > 1 and path.name not in parts:
        raise UserError(
            f"'{path.name}' is no part of a program of this task",
            where=f"task {task.name}",
            fix=f"call the file as the part that it replaces: {', '.join(parts)}",
        )
    return Candidate.of({**parts, part: path.read_text(encoding="utf-8")})


def _check_evaluator_unchanged(run: Path, meta: RunMeta) -> None:
    """Raise `UserError` if the evaluator's files are not those that the run had."""
    from culmen.tasks import with_present_files

    if with_present_files(meta.task).evaluator.digest != meta.task.evaluator.digest:
        folder = meta.task.root or "TASK"
        raise UserError(
            "the evaluator has changed since this run: its scores would be of another task",
            where=meta.task.evaluator.path,
            fix=(
                f"culmen best {run_name(run)} --out DIR, then "
                f"culmen compare score {folder} DIR/FILE"
            ),
        )


def _wanted(
    meta: RunMeta,
    folder: Path,
    found: Mapping[str, Candidate],
    request: ScoreRequest,
    is_run: bool,
) -> Wanted:
    from culmen.models.roles import check_models, read_roles

    task, limits = meta.task, request.budget
    names: dict[str, str] = {}
    for word, each in found.items():
        names.setdefault(each.id, word)
    for name in ("calls", "tokens", "final"):
        if getattr(limits, name) is not None:
            fix = "limit evaluations, dollars or seconds"
            raise UserError(f"a measurement has no limit of {name}", where="--budget", fix=fix)
    if task.evaluator.options.get("roles"):
        # only these are asked, in the caller's own world or not, and no bank is
        model = request.objects.model_of(meta)
        check_models(read_roles(model, meta.models_file), limits)
    times = request.repeats or (1 if task.deterministic else REPEATS)
    whole = score_plan(task, found.values(), (), request.split, times, limits.evaluations)
    plan = score_plan(task, found.values(), fresh_scores(folder), whole.split, whole.repeats)
    return Wanted(names, meta, folder, plan, is_run, limits, request.objects)


def make_evaluations(wanted: Wanted, told: Told | None = None) -> Scored:
    """Make the missing evaluations and keep each one as it ends."""
    if not wanted.plan.missing:
        return Scored()
    meta, limits = wanted.meta, wanted.budget
    spent = sum(each.dollars for each in wanted.scores)
    left = None if limits.dollars is None else max(0.0, limits.dollars - spent)
    backend = assemble.backend_outside_run(meta, wanted.objects)
    wanted.folder.mkdir(parents=True, exist_ok=True)
    work = score_candidates(
        wanted.plan,
        backend,
        lambda score: keep_scores(wanted.folder, [score]),
        meta.workers or backend.workers or 1,
        msgspec.structs.replace(limits, dollars=left),
        told,
    )
    return assemble.run_blocking(work)


def measure_candidates(wanted: Wanted) -> FinalMeasurement:
    """The measurement as made so far, whole or in part."""
    plan, scores, goals = wanted.plan, wanted.scores, wanted.plan.task.objective
    with _search_evidence(wanted) as evidence:
        for each in scores:
            evidence.observe_fact(_fresh_fact(plan.task, each))
        comparison = _ScoreComparison(evidence, plan.split, scores)
        first = next(iter(wanted.names))
        rows = tuple(comparison.row_of(id, name, first) for id, name in wanted.names.items())
    return FinalMeasurement(
        task=plan.task.label,
        direction=goals.direction,
        bounds=goals.bounds,
        split=plan.split,
        cases=len(plan.cases) if plan.split else 0,
        repeats=plan.repeats,
        wanted=wanted.evaluations,
        made=len(scores),
        dollars=sum(each.dollars for each in scores),
        looked=len(wanted.looked),
        rows=rows,
    )


@contextmanager
def _search_evidence(wanted: Wanted) -> Iterator[Evidence]:
    """The evidence of the run without what its final choice measured; empty for a task."""
    if not wanted.is_run:
        yield Evidence(wanted.plan.task)
        return
    from culmen.store.evidence import evidence_before

    with evidence_before(wanted.folder, 2**62) as evidence:  # beyond the last event of a journal
        evidence.account.fresh.clear()
        yield evidence


def _fresh_fact(task: Task, score: FreshScore) -> Fact:
    reward = None if score.score is None else task.objective.reward(score.score)
    told = (score.candidate, (), score.case, reward, FINAL)
    return Fact(*told, culprit=score.culprit, trust=score.trust)


_Rewards = dict[tuple[str, int], float]
"""Rewards of a candidate by case and repeat, failures at the floor."""


class _ScoreComparison:
    """Rows of a measurement from its scores, by the rules of the final choice."""

    def __init__(self, evidence: Evidence, split: str, scores: Sequence[FreshScore]) -> None:
        self._fresh, self._scores = FreshComparison(evidence.ranking, split), scores
        self._objective = evidence.task.objective
        self._is_searched = evidence.account.evaluations > 0
        self._known = [self._reward(each.score) for each in scores if each.score is not None]
        declared = self._objective.floor
        searched = evidence.account.floor if self._is_searched else min(self._known, default=0.0)
        self._floor = searched if declared is None else declared

    def row_of(self, id: str, name: str, first: str) -> MeasuredCandidate:
        """The row of a candidate; `first` is the one with which the others are compared."""
        own = [each for each in self._scores if each.candidate == id]
        rewards, failures = self._rewards_of(id), self._failures(own)
        scored = any(each.score is not None for each in own)
        found = mean_of(_by_case(rewards), failures, self._chance(id, failures)) if scored else None
        gain, error = self._difference(id, first) if scored else (None, Error(None, None))
        return MeasuredCandidate(
            id=id,
            name=name,
            score=None if found is None else self._objective.score(found.mean),
            margin=None if found is None else found.margin,
            new_margin=None if found is None or not self._fresh.split else found.new_margin,
            evaluations=len(rewards),
            failures=failures,
            excused=sum(map(_is_excused, own)),
            difference=None if gain is None else self._objective.score(gain),
            difference_margin=error.margin,
            dollars=sum(each.dollars for each in own),
            trust=weakest_trust(each.trust for each in own if each.score is not None),
        )

    def _reward(self, score: float | None) -> float:
        return self._floor if score is None else self._objective.reward(score)

    def _rewards_of(self, id: str) -> _Rewards:
        return {
            (each.case, each.repeat): self._reward(each.score)
            for each in self._scores
            if each.candidate == id and not _is_excused(each)
        }

    def _failures(self, scores: Sequence[FreshScore]) -> int:
        return sum(each.score is None and not _is_excused(each) for each in scores)

    def _chance(self, id: str, failures: int) -> Chance:
        """Prior knowledge of the noise; without a search, failures cost what they do here."""
        chance = self._fresh.noise_prior(id, failures)
        if self._is_searched or chance.floor is None:
            return chance
        return chance._replace(floor=self._floor, top=max(self._known, default=self._floor))

    def _difference(self, id: str, first: str) -> tuple[float | None, Error]:
        """Difference of the means over the evaluations that both have, and its error."""
        one, other = self._rewards_of(id), self._rewards_of(first)
        shared = one.keys() & other.keys()
        both = [
            each
            for each in self._scores
            if each.candidate in (id, first) and (each.case, each.repeat) in shared
        ]
        if id == first or not {each.candidate for each in both if each.score is not None} >= {
            first
        }:
            return None, Error(None, None)
        rewards, other_rewards = (
            _by_case({unit: side[unit] for unit in shared}) for side in (one, other)
        )
        chance, other_chance = (
            self._chance(each, self._failures([seen for seen in both if seen.candidate == each]))
            for each in (id, first)
        )
        return mean_difference(rewards, other_rewards, chance, other_chance)


def _is_excused(score: FreshScore) -> bool:
    return score.score is None and score.culprit in CULPRITS[1:]


def _by_case(rewards: _Rewards) -> dict[str, list[float]]:
    """Rewards by case, each in the order of the repeats."""
    found: dict[str, list[float]] = {}
    for (case, _), reward in sorted(rewards.items()):
        found.setdefault(case, []).append(reward)
    return found
