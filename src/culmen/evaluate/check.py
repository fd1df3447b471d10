"""Trying out a task before a search: what its seeds score, how noisy that is, how long it takes, what looks wrong."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from statistics import fmean, median, stdev

import msgspec

from culmen.core.candidate import Candidate
from culmen.core.evaluation import Case, Observation
from culmen.core.ports import Backend
from culmen.core.task import Task
from culmen.core.trust import Scoring, weakest
from culmen.evaluate.integrity import findings
from culmen.evaluate.integrity.findings import Finding

CASES = 4  # training cases tried, spread over the data set


class SeedReport(msgspec.Struct, frozen=True):
    """What was seen of one seed, scores in the task's own unit.

    mean            over cases and random seeds, repeats counted once; None if nothing was scored
    noise           standard deviation between evaluations of the same case with the same random seed, pooled over cases
    seed_noise      the same between different random seeds
    case_spread     standard deviation between the cases' means; None without at least two cases
    seconds         median wall seconds of an evaluation, `slowest` the longest
    statuses        how many evaluations ended in which status
    failure         status, reason and feedback of the first that failed, "" if none did
    """

    candidate: str
    mean: float | None = None
    noise: float | None = None
    seed_noise: float | None = None
    case_spread: float | None = None
    seconds: float = 0.0
    slowest: float = 0.0
    statuses: dict[str, int] = {}
    failure: str = ""
    observations: tuple[Observation, ...] = ()


class Report(msgspec.Struct, frozen=True):
    """What `check` found. `repeatable` says whether equal evaluations gave equal results, `seed_free` whether the
    random seed made no difference either (None: nothing to tell from), `trust` is the level of the weakest score
    (`core.trust`; "" if nothing scored) and `why` it is not stronger. A task is `fit` if no finding is an error.
    """

    task: str
    isolation: str
    seeds: tuple[SeedReport, ...]
    repeatable: bool | None
    seed_free: bool | None
    evaluations: int
    findings: tuple[Finding, ...]
    trust: str = ""
    why: str = ""

    @property
    def fit(self) -> bool:
        """Whether a search can start."""
        return not any(finding.level == "error" for finding in self.findings)


Told = Callable[[int, int, float], None]  # evaluations done, evaluations to do in all, seconds of the last


async def check(task: Task, backend: Backend, runs: int = 5, told: Told | None = None) -> Report:
    """Evaluate every seed on up to four training cases: `runs` times alike, and with `runs` random seeds.

    A seed that fails the first time is not repeated. Starts and closes the backend; raises `UserError` if it cannot
    start (isolation, an evaluator that cannot be loaded). `runs` below 2 counts as 2. `told` hears of every evaluation.
    """
    runs, cases = max(2, runs), spread(task.split("train"))
    progress = _Progress(len(task.seeds) * planned(task, runs), told)
    try:
        isolation = await backend.start()
        progress.say(0.0)
        seeds = [await _try(backend, seed, cases, runs, progress) for seed in task.candidates()]
    finally:
        await backend.close()
    observations = [o for seed in seeds for o in seed.observations]
    repeatable, seed_free = _constancy(seeds)
    why = getattr(backend, "scoring", Scoring()).why
    found = findings.of(task, isolation, observations, repeatable, seed_free, why)
    trust = weakest(o.trust for o in observations if o.ok)
    return Report(
        task.name, isolation, tuple(seeds), repeatable, seed_free, len(observations), tuple(found), trust, why
    )


def spread(cases: Sequence[Case]) -> tuple[Case | None, ...]:
    """Up to four cases, evenly over the data set; one None without a data set."""
    if len(cases) <= CASES:
        return tuple(cases) or (None,)
    return tuple(cases[round(i * (len(cases) - 1) / (CASES - 1))] for i in range(CASES))


def planned(task: Task, runs: int) -> int:
    """Evaluations of one seed that does not fail."""
    return len(spread(task.split("train"))) * (2 * runs - 1)


class _Progress:
    """Counts evaluations, and tells."""

    def __init__(self, total: int, told: Told | None) -> None:
        self._done, self._total, self._told = 0, total, told

    def say(self, seconds: float) -> None:
        if self._told is not None:
            self._told(self._done, self._total, seconds)

    async def of(self, evaluation: Awaitable[Observation]) -> Observation:
        observation = await evaluation
        self._done += 1
        self.say(observation.seconds)
        return observation

    def skip(self, evaluations: int) -> None:
        self._total -= evaluations


async def _try(
    backend: Backend, seed: Candidate, cases: Sequence[Case | None], runs: int, progress: _Progress
) -> SeedReport:
    same = [(case, 0) for case in cases for _ in range(runs)][1:]
    other = [(case, number) for case in cases for number in range(1, runs)]
    first = [await progress.of(backend.evaluate(seed, cases[0], 0))]
    if not first[0].ok:
        progress.skip(len(same) + len(other))
        return summarize(seed, first, [])
    waiting = (progress.of(backend.evaluate(seed, case, number)) for case, number in [*same, *other])
    results = await asyncio.gather(*waiting)
    return summarize(seed, [*first, *results[: len(same)]], list(results[len(same) :]))


def summarize(seed: Candidate, same: Sequence[Observation], other: Sequence[Observation]) -> SeedReport:
    """The report of one seed from evaluations with random seed 0 (`same`) and with others."""
    everything = [*same, *other]
    groups = _by_case(same)
    across = _by_case([*_first_of_each(same), *other])
    means = [fmean(scores) for scores in across.values() if scores]
    distinct = [score for scores in across.values() for score in scores]
    failed = next((o for o in everything if not o.ok), None)
    counts: dict[str, int] = {}
    for observation in everything:
        counts[observation.status.value] = counts.get(observation.status.value, 0) + 1
    return SeedReport(
        candidate=seed.id,
        mean=fmean(distinct) if distinct else None,
        noise=pooled(groups.values()),
        seed_noise=pooled(across.values()),
        case_spread=stdev(means) if len(means) > 1 else None,
        seconds=median(o.seconds for o in everything),
        slowest=max(o.seconds for o in everything),
        statuses=counts,
        failure=findings.describe(failed) if failed else "",
        observations=tuple(everything),
    )


def pooled(groups: Iterable[Sequence[float]]) -> float | None:
    """Standard deviation within groups, pooled over those of at least two; None if there is none."""
    usable = [group for group in groups if len(group) > 1]
    if not usable:
        return None
    freedom = sum(len(group) - 1 for group in usable)
    return math.sqrt(sum(stdev(group) ** 2 * (len(group) - 1) for group in usable) / freedom)


def _by_case(observations: Iterable[Observation]) -> dict[str, list[float]]:
    groups: dict[str, list[float]] = {}
    for observation in observations:
        group = groups.setdefault(observation.case, [])
        if observation.score is not None:
            group.append(observation.score)
    return groups


def _first_of_each(observations: Iterable[Observation]) -> list[Observation]:
    first: dict[str, Observation] = {}
    for observation in observations:
        first.setdefault(observation.case, observation)
    return list(first.values())


def _constancy(seeds: Iterable[SeedReport]) -> tuple[bool | None, bool | None]:
    """Whether all outcomes were alike: with the same random seed, and with different ones."""
    alike: dict[tuple[str, str, int], set[tuple[str, float | None]]] = {}
    across: dict[tuple[str, str], set[tuple[str, float | None]]] = {}
    for seed in seeds:
        if len(seed.observations) < 2:
            continue
        for o in seed.observations:
            outcome = (o.status.value, o.score)
            alike.setdefault((o.candidate, o.case, o.seed), set()).add(outcome)
            across.setdefault((o.candidate, o.case), set()).add(outcome)
    if not alike:
        return None, None
    return all(len(v) == 1 for v in alike.values()), all(len(v) == 1 for v in across.values())
