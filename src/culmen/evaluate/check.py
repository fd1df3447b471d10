"""Checks of a task before a search: scores of its initial programs, noise, time, problems."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean, median, stdev

import msgspec

from culmen.core.answers import settle_answer
from culmen.core.candidate import Candidate
from culmen.core.evaluation import (
    CHANCE_LOOKS,
    EVALUATOR_LOG,
    LOG,
    BackendNote,
    Case,
    Observation,
    is_excused,
    weakest_trust,
)
from culmen.core.ports import Backend
from culmen.core.spread import pooled_deviation
from culmen.core.task import Task
from culmen.evaluate.backends import SettlingBackend
from culmen.evaluate.failing_programs import FailingResult, failing_programs, try_failing_programs
from culmen.evaluate.findings import (
    CASE_LIMIT,
    TaskFinding,
    describe_failed_evaluation,
    distinct_names,
    find_problems,
    sample_findings,
    text_findings,
)
from culmen.evaluate.repeats import Wanted, repeat_otherwise

_SHOWN_LINES = 40  # lines of a traceback or of printed output
CASES = 4  # training cases for repeated evaluations, spread over the data set


class SeedReport(msgspec.Struct, frozen=True):
    """Measurements of one initial program, scores in the task's own unit.

    mean            over cases, of each the mean over random seeds, repeats counted once; None if
                    nothing scored
    noise           standard deviation between evaluations of the same case with the same random
                    seed, pooled over cases
    seed_noise      the same between different random seeds
    case_spread     standard deviation between the cases' means; None for fewer than two cases
    seconds         median wall seconds of an evaluation, `slowest` the longest
    statuses        number of evaluations with each status
    cause           the kind of repeat that changed the score, of `repeats.CAUSES`; "" for none
    failure         status, reason and feedback of the first failure, "" if there is none
    printed         printed output of the first evaluation: program and evaluator
    """

    candidate: str
    mean: float | None = None
    noise: float | None = None
    seed_noise: float | None = None
    case_spread: float | None = None
    seconds: float = 0.0
    slowest: float = 0.0
    statuses: dict[str, int] = {}
    cause: str = ""
    failure: str = ""
    printed: str = ""
    observations: tuple[Observation, ...] = ()


class TaskReport(msgspec.Struct, frozen=True):
    """The result of `check`.

    `repeatable` is True if equal evaluations gave equal results, `seed_free` if the random seed
    made no difference either (None: unknown). `trust` is the level of the weakest score
    (`core.evaluation`; "" if nothing scored) and `why` the reason that it is not higher. `draws`
    names the random generators that evaluations drew from, `leaves` the state that they changed. A
    task is `fit` if no finding is an error.
    """

    task: str
    isolation: str
    seeds: tuple[SeedReport, ...]
    repeatable: bool | None
    seed_free: bool | None
    evaluations: int
    findings: tuple[TaskFinding, ...]
    trust: str = ""
    why: str = ""
    draws: tuple[str, ...] = ()
    leaves: tuple[str, ...] = ()

    @property
    def fit(self) -> bool:
        """True if a search can start."""
        return not any(finding.level == "error" for finding in self.findings)

    @property
    def observations(self) -> list[Observation]:
        """All evaluations."""
        return [observation for seed in self.seeds for observation in seed.observations]

    def __repr__(self) -> str:
        """The report in words, with the traceback and printed output of each failure."""
        verdict = "can be searched" if self.fit else "cannot be searched yet"
        trust = f", scores are {self.trust}" if self.trust else ""
        lines = [f"{self.task} {verdict} (isolation {self.isolation}{trust})"]
        for seed in self.seeds:
            lines += _describe_seed(seed)
        for finding in self.findings:
            lines += [
                f"{finding.level}: {finding.what}",
                *([f"  -> {finding.fix}"] if finding.fix else []),
            ]
        return "\n".join(lines)


def _describe_seed(seed: SeedReport) -> list[str]:
    score = "no score" if seed.mean is None else f"score {seed.mean:.6g}"
    noise = "" if seed.noise is None else f", noise {max(seed.noise, seed.seed_noise or 0.0):.3g}"
    lines = [
        f"initial program {seed.candidate}: {score}{noise}, {seed.seconds:.3g} s an evaluation"
    ]
    failed = next((o for o in seed.observations if not o.ok), None)
    sections = [("failed", "" if failed is None else failed.feedback), ("printed", seed.printed)]
    for title, text in sections:
        if text.strip():
            lines += [
                f"  {title}:",
                *(f"    {line}" for line in text.strip().splitlines()[:_SHOWN_LINES]),
            ]
    return lines


# evaluations done, evaluations in total, seconds of the last
ProgressCallback = Callable[[int, int, float], None]


async def check_task(
    task: Task,
    backend: Backend,
    runs: int = 5,
    on_progress: ProgressCallback | None = None,
    case_limit: int = CASE_LIMIT,
) -> TaskReport:
    """Evaluate every initial program; return their measurements and the task's problems.

    Each program is evaluated on up to four training cases: `runs` times with the same random seed
    (in the same process, in a new one, and with another hash seed), and with `runs` different ones;
    the first one that scores also once on every case of every split, or on `case_limit` of them,
    evenly spread. A program that fails on each of the four cases is not repeated, except up to
    `CHANCE_LOOKS` times in all where chance may have failed it. Programs that fail on purpose show
    whether failing pays (`evaluate.failing_programs`). With `runs` and `case_limit` 1 there is one
    evaluation and no repeat. The callback is called after every evaluation of an initial program.
    Starts and closes the backend; raises `UserError` if it cannot start (isolation, an evaluator
    that cannot be loaded).
    """
    runs, case_limit = max(1, runs), max(1, case_limit)
    cases, rest = _choose_cases(task, case_limit)
    keeps = task.evaluator.keeps_state
    progress = _Progress(planned_evaluations(task, runs, case_limit), on_progress)
    seeds: list[SeedReport] = []
    failing: list[FailingResult] = []
    try:
        isolation = await backend.start()
        progress.report_progress(0.0)
        settling = SettlingBackend(backend, task)
        for seed in task.initial_candidates():
            seeds.append(await _try_program(settling, seed, cases, rest, runs, progress, keeps))
            if seeds[-1].mean is not None:
                rest = ()
        progress.skip_evaluations(len(rest))
        failing = await _try_failing(task, backend, seeds, cases)
    finally:
        await backend.close()
    seeds = _settle_reports(task, seeds, failing)
    observations = [o for seed in seeds for o in seed.observations]
    repeatable, seed_free = _compare_repeats(seeds)
    why = backend.scoring.why
    causes = tuple(dict.fromkeys(seed.cause for seed in seeds if seed.cause))
    findings = [
        *find_problems(task, isolation, observations, repeatable, seed_free, why, causes, failing),
        *text_findings(task),
        *sample_findings(task, case_limit),
        *map(_backend_finding, getattr(backend, "notes", ())),
    ]
    trust = weakest_trust(o.trust for o in observations if o.ok)
    return TaskReport(
        task.name,
        isolation,
        tuple(seeds),
        repeatable,
        seed_free,
        len(observations),
        tuple(findings),
        trust,
        why,
        distinct_names(o.drew for o in observations),
        distinct_names(o.left for o in observations),
    )


async def _try_failing(
    task: Task, backend: Backend, seeds: Sequence[SeedReport], cases: Sequence[Case | None]
) -> list[FailingResult]:
    """Results of failing programs, made from the first initial program that scores."""
    scored = [seed.candidate for seed in seeds if seed.mean is not None]
    initial = [each for each in task.initial_candidates() if each.id in scored]
    programs = failing_programs(task, initial[0]) if initial else []
    return await try_failing_programs(backend, programs, cases)


def _settle_reports(
    task: Task, seeds: Sequence[SeedReport], failing: Sequence[FailingResult]
) -> list[SeedReport]:
    """The reports, where answers that say that they failed score no more than failing programs."""
    rewards = [task.objective.reward(each.score) for each in failing if each.score is not None]
    if not rewards:
        return list(seeds)
    programs = {each.id: each for each in task.initial_candidates()}

    def settled(seen: Observation) -> Observation:
        return settle_answer(programs[seen.candidate], seen, task.objective, failing=max(rewards))

    return [
        seed
        if not any(each.refusal for each in seed.observations)
        else build_seed_report(
            programs[seed.candidate],
            [settled(each) for each in seed.observations if each.seed == 0],
            [settled(each) for each in seed.observations if each.seed != 0],
            seed.cause,
        )
        for seed in seeds
    ]


def _backend_finding(note: BackendNote) -> TaskFinding:
    return TaskFinding("warning" if note.fix else "note", note.what, note.fix)


def spread_cases(cases: Sequence[Case], limit: int = CASES) -> tuple[Case | None, ...]:
    """Up to `limit` cases, evenly spread over the data set; one None without a data set."""
    if len(cases) <= limit:
        return tuple(cases) or (None,)
    return tuple(cases[round(i * (len(cases) - 1) / max(1, limit - 1))] for i in range(limit))


def _choose_cases(
    task: Task, limit: int
) -> tuple[tuple[Case | None, ...], tuple[Case | None, ...]]:
    """The cases for repeated evaluations, and those for one evaluation."""
    often = spread_cases(task.split("train"), min(CASES, limit))
    names = {(case.split, case.id) for case in often if case is not None}
    others = [case for case in task.cases if (case.split, case.id) not in names]
    remaining = limit - len(names)
    return often, spread_cases(others, remaining) if others and remaining > 0 else ()


def planned_evaluations(task: Task, runs: int, limit: int = CASE_LIMIT) -> int:
    """Number of evaluations of all initial programs if none of them fails."""
    often, once = _choose_cases(task, max(1, limit))
    return len(task.seeds) * len(often) * (2 * max(1, runs) - 1) + (len(once) if task.seeds else 0)


class _Progress:
    """Counts evaluations and reports progress."""

    def __init__(self, total: int, on_progress: ProgressCallback | None) -> None:
        self._done, self._total, self._on_progress = 0, total, on_progress

    def report_progress(self, seconds: float) -> None:
        if self._on_progress is not None:
            self._on_progress(self._done, self._total, seconds)

    async def evaluate(
        self, backend: Backend, program: Candidate, case: Case | None, number: int
    ) -> Observation:
        """One evaluation, begun by whoever awaits it: a Ctrl-C before leaves none behind."""
        observation = await backend.evaluate(program, case, number)
        self._done += 1
        self.report_progress(observation.seconds)
        return observation

    def skip_evaluations(self, evaluations: int) -> None:
        self._total -= evaluations


async def _try_program(
    backend: Backend,
    seed: Candidate,
    cases: Sequence[Case | None],
    rest: Sequence[Case | None],
    runs: int,
    progress: _Progress,
    keeps_state: bool,
) -> SeedReport:
    """Evaluate one program on `cases` repeatedly, on the `rest` once; stop if all fail."""
    first_results: list[Observation] = []
    for case in cases:
        first_results.append(await progress.evaluate(backend, seed, case, 0))
        if first_results[-1].ok:
            break
    by_chance = await _repeat_failure(backend, seed, cases, first_results, progress)
    scores = first_results[-1].ok or any(each.ok for each in by_chance)
    again = [runs - (index < len(first_results)) for index in range(len(cases))]
    other = [(case, number) for case in cases for number in range(1, runs)]
    if not scores:
        progress.skip_evaluations(sum(again) + len(other))
        return build_seed_report(seed, first_results, by_chance)

    async def evaluate_all(wanted: Wanted) -> list[Observation]:
        waiting = (progress.evaluate(backend, seed, case, number) for case, number in wanted)
        return list(await asyncio.gather(*waiting))

    if by_chance:  # the rate of failures shows with new random seeds only
        other = [(case, CHANCE_LOOKS + number) for case in cases for number in range(2 * runs - 2)]
        again = [0] * len(cases)
    others = await evaluate_all([*((case, 0) for case in rest), *other])
    repeats = list(zip(cases, again))
    same, cause = await repeat_otherwise(backend, evaluate_all, repeats, first_results, keeps_state)
    alike = [*first_results, *others[: len(rest)], *same]
    return build_seed_report(seed, alike, [*by_chance, *others[len(rest) :]], cause)


async def _repeat_failure(
    backend: Backend,
    seed: Candidate,
    cases: Sequence[Case | None],
    failed: Sequence[Observation],
    progress: _Progress,
) -> list[Observation]:
    """Evaluations with other random seeds of a program that failed, maybe by chance.

    The last one scored, or the program has failed `CHANCE_LOOKS` times.
    """
    last, made = failed[-1], list[Observation]()
    while last.may_be_chance and len(failed) + len(made) < CHANCE_LOOKS:
        number = len(failed) + len(made)
        progress.skip_evaluations(-1)
        last = await progress.evaluate(backend, seed, cases[number % len(cases)], number)
        made.append(last)
    return made


def build_seed_report(
    seed: Candidate,
    same: Sequence[Observation],
    other: Sequence[Observation],
    cause: str = "",
) -> SeedReport:
    """The report of one initial program.

    `same` are evaluations with random seed 0, `other` those with other random seeds; `cause` is
    the kind of repeat that changed the result.
    """
    everything = [*same, *other]
    groups = _by_case(same)
    across = _by_case([*_first_of_each(same), *other])
    means = [fmean(scores) for scores in across.values() if scores]
    failed = next((o for o in everything if not o.ok), None)
    counts: dict[str, int] = {}
    for observation in everything:
        counts[observation.status.value] = counts.get(observation.status.value, 0) + 1
    return SeedReport(
        candidate=seed.id,
        mean=fmean(means) if means else None,
        noise=pooled_deviation(groups.values()),
        seed_noise=pooled_deviation(across.values()),
        case_spread=stdev(means) if len(means) > 1 else None,
        seconds=median(o.seconds for o in everything),
        slowest=max(o.seconds for o in everything),
        statuses=counts,
        cause=cause,
        failure=describe_failed_evaluation(failed) if failed else "",
        printed=printed_output(everything[0]),
        observations=tuple(everything),
    )


def printed_output(observation: Observation) -> str:
    """Printed output of an evaluation, by program and evaluator."""
    return "".join(observation.artifacts.get(name, "") for name in (LOG, EVALUATOR_LOG))


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


def _compare_repeats(seeds: Iterable[SeedReport]) -> tuple[bool | None, bool | None]:
    """(repeatable, seed_free): True if all outcomes were equal, None if nothing was repeated.

    `repeatable` compares evaluations with the same random seed, `seed_free` also those with
    different ones. Equal outcomes say nothing if an evaluator got replies of models from the cache,
    and failures that are not the program's say nothing of its results.
    """
    alike: dict[tuple[str, str, int], set[tuple[str, float | None]]] = {}
    across: dict[tuple[str, str], set[tuple[str, float | None]]] = {}
    repeats = [o for seed in seeds if len(seed.observations) > 1 for o in seed.observations]
    repeats = [o for o in repeats if not is_excused(o)]
    for o in repeats:
        outcome = (o.status.value, o.score)
        alike.setdefault((o.candidate, o.case, o.seed), set()).add(outcome)
        across.setdefault((o.candidate, o.case), set()).add(outcome)
    if not alike:
        return None, None
    cached = any(call.usage.cache_hits for o in repeats for call in o.asked)
    agree = (all(len(v) == 1 for v in seen.values()) for seen in (alike, across))
    repeatable, seed_free = (None if each and cached else each for each in agree)
    return repeatable, seed_free
