"""Checks of a task before a search: scores of its initial programs, noise, time, problems."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Literal

import msgspec

from culmen.core import errors
from culmen.core.answers import refusal_remedy, settle_answer
from culmen.core.candidate import Candidate
from culmen.core.evaluation import (
    CHANCE_LOOKS,
    DIFFERENCE,
    EVALUATOR_LOG,
    FILE_MARK,
    LOG,
    REFUSED,
    BackendNote,
    Case,
    Observation,
    Status,
    is_excused,
    meets_trust_level,
    names_of_files,
    place_in,
    weakest_trust,
)
from culmen.core.faults import EvaluationRow, EvaluatorFault, evaluator_faults
from culmen.core.foreign import Unreadable
from culmen.core.packages import install_hint
from culmen.core.ports import Backend
from culmen.core.task import Task
from culmen.core.usage import total_usage
from culmen.evaluate.backends import SettlingBackend
from culmen.evaluate.failing_programs import FailingResult, failing_programs, try_failing_programs
from culmen.evaluate.integrity import signs
from culmen.evaluate.integrity.guard import APART, REWRITTEN
from culmen.evaluate.misleading_cases import case_problems
from culmen.evidence.spread import pooled_deviation
from culmen.tasks.surface import surface_fault

_SHOWN_LINES = 40  # lines of a traceback or of printed output
# levels without protection of files and processes outside the jail
WEAK = ("seatbelt", "limits", "portable", "none")
CASES = 4  # training cases for repeated evaluations, spread over the data set
CASE_LIMIT = 500  # cases evaluated at least once; of a larger data set a sample


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
        *_text_findings(task),
        *_sample_findings(task, case_limit),
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


def distinct_names(found: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """All names, each once, in the order in which they were found."""
    return tuple(dict.fromkeys(name for names in found for name in names))


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


def tried_cases(task: Task, limit: int = CASE_LIMIT) -> int:
    """Number of cases that are evaluated at least once, 0 without a data set."""
    return min(len(task.cases), max(1, limit))


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


# -- findings: problems of a task, each with a remedy
# ------------------------------------------------------------------

# a mean further than this share (and three standard errors) from the declared start is reported
START_SHARE = 0.05
SLOW_SHARE = 0.5  # evaluations longer than this share of the limit are reported


class TaskFinding(msgspec.Struct, frozen=True):
    """A problem of a task, or a remark on it.

    error: no search can start or be trusted · warning: probably a mistake · note: information.
    `place` is the line of the evaluator that raised (`evaluator.py:12`), `cases` the ids of the
    cases that it raised on.
    """

    level: Literal["error", "warning", "note"]
    what: str
    fix: str = ""
    place: str = ""
    cases: tuple[str, ...] = ()


class TaskEvidence(msgspec.Struct, frozen=True):
    """The evaluations of a task's initial programs, as input of the rules below."""

    task: Task
    isolation: str
    observations: tuple[Observation, ...]
    repeatable: bool | None
    seed_free: bool | None
    why: str = ""
    causes: tuple[str, ...] = ()
    failing: tuple[FailingResult, ...] = ()

    @property
    def scores(self) -> list[float]:
        """One score for each program and case, in the task's unit.

        With fewer than two cases: one for each program and random seed.
        """
        unique = {
            (o.candidate, o.case, o.seed): o.score for o in self.observations if o.score is not None
        }
        if len({case for _, case, _ in unique}) < 2:
            return list(unique.values())
        groups: dict[tuple[str, str], list[float]] = {}
        for (candidate, case, _), score in unique.items():
            groups.setdefault((candidate, case), []).append(score)
        return [fmean(group) for group in groups.values()]

    @property
    def faults(self) -> list[EvaluatorFault]:
        """Lines of the evaluator that raised for a program which scored elsewhere."""
        rows = [EvaluationRow(o.candidate, o.case, o.failure_kind) for o in self.observations]
        return [
            fault
            for fault in evaluator_faults(rows, {row.candidate for row in rows})
            if fault.scored
        ]


def find_problems(
    task: Task,
    isolation: str,
    observations: Iterable[Observation],
    repeatable: bool | None,
    seed_free: bool | None,
    why: str = "",
    causes: tuple[str, ...] = (),
    failing: Sequence[FailingResult] = (),
) -> list[TaskFinding]:
    """All findings, errors first; `why` is the reason that scores are not trusted more.

    `causes` are the kinds of repeats that changed a score, `failing` programs that fail on purpose.
    """
    seen = tuple(observations)
    evidence = TaskEvidence(
        task, isolation, seen, repeatable, seed_free, why, causes, tuple(failing)
    )
    findings = [finding for rule in _RULES for finding in rule(evidence)]
    found = (each.artifacts.get(DIFFERENCE) for each in seen)
    notes = dict.fromkeys((*task.notes, *filter(None, found)))
    findings += [TaskFinding("note", note) for note in notes]
    findings += [*_model_call_findings(evidence), *_written_file_findings(evidence)]
    return sorted(findings, key=lambda finding: ("error", "warning", "note").index(finding.level))


def _case_findings(evidence: TaskEvidence) -> Iterator[TaskFinding]:
    """Doubled cases, contradicting answers, and inputs that hold the answer.

    The input of a rollout is its instruction alone: tasks may differ in their files only.
    """
    if evidence.task.evaluator.form == "rollout":
        return
    for what, fix in case_problems(evidence.task.cases):
        yield TaskFinding("warning", what, fix)


def _model_call_findings(evidence: TaskEvidence) -> Iterator[TaskFinding]:
    """Calls of the evaluator to models, by role."""
    calls = [call for observation in evidence.observations for call in observation.asked]
    for role, model in sorted({(call.role, call.model) for call in calls}):
        spent = total_usage(
            call.usage for call in calls if (call.role, call.model) == (role, model)
        )
        price = f", {spent.dollars:.4f} dollars" if spent.dollars else ""
        what = (
            f"the evaluator asked {model} as {role}: {spent.calls} calls, {spent.cache_hits} from "
            "the cache"
        )
        yield TaskFinding("note", f"{what}, {spent.tokens:,} tokens{price}", "")


def _written_file_findings(evidence: TaskEvidence) -> Iterator[TaskFinding]:
    """Files that were written beside the evaluator while it judged."""
    files = names_of_files({name for o in evidence.observations for name in o.left})
    rewritten = [name.removesuffix(REWRITTEN) for name in files if name.endswith(REWRITTEN)]
    logs = [name for name in files if not name.endswith(REWRITTEN) and name not in rewritten]
    if logs:
        fix = "a log is fine; a score that is computed from it depends on earlier evaluations"
        yield TaskFinding("note", f"files written: {', '.join(logs)}", fix)
    if rewritten:
        what = f"files rewritten while the evaluator judged: {', '.join(rewritten)}"
        if evidence.task.evaluator.keeps_state:
            yield TaskFinding("note", what, "keeps_state = true: scores may depend on them")
        else:
            yield TaskFinding("warning", f"{what}; once they are there, that is an error", APART)


def describe_failed_evaluation(observation: Observation) -> str:
    """Status, reason and the last lines of a failed evaluation's feedback."""
    case = f" on case {observation.case}" if observation.case else ""
    reason = (
        f" ({observation.reason})"
        if observation.reason and observation.reason != observation.status
        else ""
    )
    last = observation.last_words
    if last and observation.reason in last:
        reason = ""
    return f"{observation.status.value}{reason}{case}" + (
        f": {last[:300]}{_traceback_place(observation)}" if last else ""
    )


def _traceback_place(observation: Observation) -> str:
    """` (evaluator.py line 12)`: the last place of a traceback in the user's own files.

    "" if there is none.
    """
    place = errors.place_in_text(observation.feedback)
    return "" if place is None else f" ({place.file_and_line})"


def _failure_findings(evidence: TaskEvidence) -> Iterator[TaskFinding]:
    if not evidence.task.seeds:
        yield TaskFinding(
            "note",
            "the task has no initial program: a model writes the first program, nothing was run",
            "",
        )
    shown: set[tuple[str, str]] = set()
    partial = {fault.place for fault in evidence.faults}
    for observation in evidence.observations:
        kind = (observation.candidate, observation.reason)
        if observation.ok or observation.reason == REFUSED or kind in shown:
            continue
        if place_in(observation.failure_kind) in partial:
            continue
        shown.add(kind)
        level = (
            "warning"
            if any(o.ok and o.candidate == observation.candidate for o in evidence.observations)
            else "error"
        )
        yield TaskFinding(
            level,
            f"initial program {observation.candidate} ends with "
            f"{describe_failed_evaluation(observation)}",
            _suggest_remedy(evidence, observation),
        )


def _partial_fault_findings(evidence: TaskEvidence) -> Iterator[TaskFinding]:
    """Lines of the evaluator that raise on some cases only, or intermittently."""
    for fault in evidence.faults:
        file, _, line = fault.place.rpartition(":")
        cases = tuple(filter(None, fault.cases))
        fix = f"correct {file} line {line}" + (", or the data of these cases" if cases else "")
        yield TaskFinding("error", fault.sentence, fix, fault.place, cases)


def _text_findings(task: Task) -> Iterator[TaskFinding]:
    """Faults of the initial programs' texts, which a run reads like a candidate's."""
    try:
        context = signs.ScanContext.from_task(task)
        for seed in task.initial_candidates():
            signs.of_parts(seed.parts, task, context)
            if fault := surface_fault(task, seed):
                what = f"a run would reject the initial program: {fault.replace('_', ' ')}"
                yield TaskFinding("error", what, "correct it, or [surface] in task.toml")
    except Unreadable as error:
        yield TaskFinding("error", f"a run could not read a program: {error.what}", error.fix)


def _sample_findings(task: Task, limit: int) -> Iterator[TaskFinding]:
    """The evaluated share of a large data set."""
    tried, every = tried_cases(task, limit), len(task.cases)
    if task.seeds and tried < every:
        what = f"{tried:,} of {every:,} cases were tried ({max(1, round(100 * tried / every))} %)"
        yield TaskFinding("note", what, f"culmen check TASK --cases {every} tries all of them")


def _refused_findings(evidence: TaskEvidence) -> Iterator[TaskFinding]:
    """Initial programs whose evaluator reports that it, or the program, failed."""
    made = evidence.observations
    for candidate in dict.fromkeys(each.candidate for each in made if each.reason == REFUSED):
        own = [each for each in made if each.candidate == candidate]
        refused = [each for each in own if each.reason == REFUSED]
        scored = any(each.ok for each in own)
        rate = f" in {len(refused)} of {len(own)} evaluations" if len(own) > len(refused) else ""
        is_evaluators = is_excused(refused[0])
        score = refused[0].metrics["claimed_score"]
        what = (
            f"the initial program is refused{rate}: it scores {score:.6g}, but its evaluator "
            f"reports {_shown_words(refused[0])}"
        )
        yield TaskFinding(
            "error" if is_evaluators or not scored else "warning",
            what,
            install_hint(refused[0].feedback) or refusal_remedy(refused[0]),
            cases=tuple(dict.fromkeys(each.case for each in refused if each.case)),
        )
    for seen in made:
        if seen.ok and seen.refusal is not None and not seen.refusal.raised:
            what = f"initial program {seen.candidate} scores {seen.score:.6g}, but its evaluator "
            fix = "correct the initial program before a search starts from it"
            yield TaskFinding("warning", f"{what}reports {_shown_words(seen)}", fix)
            return


def _shown_words(seen: Observation) -> str:
    """The evaluator's own words on a failure, shortened."""
    return "" if seen.refusal is None else seen.refusal.words[:400]


def _failing_pays_findings(evidence: TaskEvidence) -> Iterator[TaskFinding]:
    """Programs that fail on purpose and score above the initial programs."""
    reward = evidence.task.objective.reward
    by_program: dict[str, list[float]] = {}
    for each in evidence.observations:
        if each.score is not None:
            by_program.setdefault(each.candidate, []).append(each.score)
    if not by_program:
        return
    scores = max(by_program.values(), key=lambda scores: reward(fmean(scores)))
    mean = fmean(scores)
    error = stdev(scores) / len(scores) ** 0.5 if len(scores) > 1 else 0.0
    least = max(3 * error, 1e-9 * abs(mean))
    above = "above" if evidence.task.objective.direction == "max" else "better than"
    for each in evidence.failing:
        others = (mean, mean if each.control is None else each.control)
        if each.score is None or reward(each.score) - max(map(reward, others)) <= least:
            continue
        what = (
            f"failing pays: a program that {each.program.does} scores {each.score:.6g}, {above} "
            f"the initial program's {mean:.6g}, so a search would find such programs"
        )
        fix = (
            "let the evaluator raise, or return None, for a program that fails; a number it gives "
            "must be worse than that of any program that works"
        )
        yield TaskFinding("error" if each.program.is_crash else "warning", what, fix)
        return


def _suggest_remedy(evidence: TaskEvidence, observation: Observation) -> str:
    remedies = {
        "memory_limit": (
            "raise [limits] scorer_memory_mb, or let the evaluator need less"
            if "scorer_memory_mb" in observation.feedback
            else "raise [limits] memory_mb, or make the initial program need less"
        ),
        "files_limit": "raise [limits] files_mb, or let the initial program write less",
        "output_limit": "raise [limits] output_kb, or let the initial program return less",
        "score_out_of_bounds": "correct [objective] bounds, or the evaluator",
        "scorer_error": "correct the evaluator",
        "scorer_raised": "correct the evaluator: it must be able to judge its own initial program",
        "score_nan": "let the evaluator return None for outputs it does not accept",
    }
    if observation.reason in remedies:
        return remedies[observation.reason]
    if observation.status is Status.TIMEOUT:
        return f"raise {_time_limit_setting(evidence.task)}, or make the initial program faster"
    if fix := install_hint(observation.feedback):
        return fix
    if "PermissionError" in observation.feedback and "synchronize.py" in observation.feedback:
        return (
            "multiprocessing's locks need a stronger isolation level: install bubblewrap; culmen "
            "doctor explains how"
        )
    own = (
        bool(evidence.task.root)
        and f"Permission denied: '{evidence.task.root}/" in observation.feedback
    )
    if own or "Read-only file system" in observation.feedback:
        return (
            "an evaluator's folder is read-only to it: write to its working directory, or with "
            "tempfile"
        )
    if observation.status is Status.LOST:
        return (
            "the evaluator or the machine failed, not the initial program: see the feedback, and "
            "culmen doctor"
        )
    form = evidence.task.evaluator.form
    if form in ("call", "serve") and "FileNotFoundError" in observation.feedback:
        return (
            "a program sees its own files, and those under [evaluator] options = "
            "{ readable = [...] }: correct the path, or add it there"
        )
    return "correct the initial program, or the evaluator if the program is right"


def _time_limit_setting(task: Task) -> str:
    """The setting that cuts off an evaluation."""
    own = task.evaluator.form != "legacy" or Path(task.root, "task.toml").is_file()
    return (
        "[limits] seconds"
        if own
        else f"timeout under evaluator in config.yaml (now {task.limits.seconds:g} s)"
    )


def _determinism_findings(evidence: TaskEvidence) -> Iterator[TaskFinding]:
    if evidence.repeatable is None or not evidence.scores:
        return
    drew = distinct_names(o.drew for o in evidence.observations)
    lost = any(map(is_excused, evidence.observations))
    if evidence.task.deterministic and drew:
        yield TaskFinding(
            "warning",
            f"the task is declared deterministic, but evaluations draw from {', '.join(drew)}",
            "remove deterministic = true; same_draws = true gives all programs the same numbers",
        )
    elif evidence.task.deterministic and not evidence.seed_free:
        cause = (
            "with the random seed"
            if evidence.repeatable
            else "from one run to the next, even with the same random seed"
        )
        yield TaskFinding(
            "warning",
            f"the task is declared deterministic, but results change {cause}",
            "remove deterministic = true, or make evaluator and initial program deterministic",
        )
    elif not (evidence.task.deterministic or drew) and evidence.seed_free and not lost:
        yield TaskFinding(
            "note",
            "all repeated evaluations agreed",
            "if candidates use no randomness either, deterministic = true saves evaluating "
            "them again",
        )
    elif (
        not evidence.task.deterministic
        and not evidence.repeatable
        and not evidence.causes
        and evidence.task.evaluator.form != "legacy"
        and not evidence.task.evaluator.metric  # times vary
    ):
        yield TaskFinding(
            "note",
            "results change even with the same random seed, so a single result cannot be "
            "reproduced",
            "draw random numbers from the random seed that the evaluation is given",
        )


def _cause_findings(evidence: TaskEvidence) -> Iterator[TaskFinding]:
    """Kinds of repeats that changed a score."""
    for cause in evidence.causes:
        yield TaskFinding("warning", *CAUSES[cause])


def _state_findings(evidence: TaskEvidence) -> Iterator[TaskFinding]:
    """State that evaluations change, and what becomes of it."""
    left = distinct_names(o.left for o in evidence.observations)
    changed = [name for name in left if not name.startswith(FILE_MARK)]
    if not changed or evidence.task.evaluator.keeps_state:
        return
    if evidence.task.evaluator.form == "legacy":
        what = (
            f"an evaluation changes {', '.join(changed)}; the next one begins as after the import. "
            "OpenEvolve keeps it for later evaluations, unless there is an evaluate_stage1"
        )
        yield TaskFinding("note", what, "compute at import what all evaluations need")
        return
    what = (
        f"evaluations change {', '.join(changed)}, so their process is replaced by one as after "
        "the import"
    )
    is_function = evidence.task.evaluator.form == "function"
    keeps = "keeps_state=True" if is_function else "[evaluator] keeps_state = true"
    fix = (
        f"compute at import what all evaluations need; with {keeps} it stays, and scores may "
        "depend on earlier programs"
    )
    yield TaskFinding("note", what, fix)


def _score_level_findings(evidence: TaskEvidence) -> Iterator[TaskFinding]:
    """The mean against the declared start and target."""
    scores, objective = evidence.scores, evidence.task.objective
    if not scores:
        return
    mean = fmean(scores)
    if objective.reaches_target(mean):
        yield TaskFinding(
            "warning",
            f"the initial programs score {mean:.6g} and so already reach the target "
            f"{objective.target:.6g}",
            f"raise the target, or check that direction = {objective.direction} is right",
        )
    error = stdev(scores) / len(scores) ** 0.5 if len(scores) > 1 else 0.0
    start = objective.start
    if start is not None and abs(mean - start) > max(
        3 * error, START_SHARE * max(abs(start), abs(mean))
    ):
        fix = "correct [objective] start, or find out what changed"
        yield TaskFinding(
            "warning",
            f"initial programs score {mean:.6g}, the task declares a start of {start:.6g}",
            fix,
        )
    worst = objective.floor
    if worst is not None and all(objective.reward(score) <= worst for score in scores):
        fix = "an initial program that scores a little more gives a search something to improve"
        yield TaskFinding(
            "warning", f"every evaluation scored {mean:.6g}, the worst the bounds allow", fix
        )


def _trust_findings(evidence: TaskEvidence) -> Iterator[TaskFinding]:
    if any(o.ok and not meets_trust_level(o.trust, "proxied") for o in evidence.observations):
        what = (
            "scores are self-reported: the evaluator runs in the candidate's process and a "
            "candidate could forge them"
        )
        form = "call" if evidence.task.evaluator.suffix == ".py" else "command"
        fix = f"write the evaluator as score(output) with form = {form} to have scores verified"
        if evidence.isolation in WEAK:
            fix = "use stronger isolation first: see culmen doctor"
        yield TaskFinding(
            "warning" if evidence.why else "note",
            f"{what} ({evidence.why})" if evidence.why else what,
            fix,
        )
    if evidence.isolation in WEAK:
        yield TaskFinding(
            "warning",
            f"isolation is only '{evidence.isolation}': candidates can read your files and use the "
            "network",
            "run culmen doctor to see what is missing (usually: apt install bubblewrap)",
        )


def _cascade_findings(evidence: TaskEvidence) -> Iterator[TaskFinding]:
    thresholds, scores = evidence.task.evaluator.thresholds, evidence.scores
    if thresholds and scores and max(scores) < thresholds[0]:
        yield TaskFinding(
            "warning",
            f"no initial program reaches the first cascade threshold ({max(scores):.6g} < "
            f"{thresholds[0]:.6g}), "
            "so later stages never run",
            "lower cascade_thresholds, or let the stages score on one scale",
        )


def _duration_findings(evidence: TaskEvidence) -> Iterator[TaskFinding]:
    times = [o.seconds for o in evidence.observations if o.ok]
    limit = evidence.task.limits.seconds
    if times and max(times) > SLOW_SHARE * limit:
        yield TaskFinding(
            "warning",
            f"evaluations take up to {max(times):.3g} s (median {median(times):.3g} s) of the "
            f"{limit:g} s allowed",
            f"raise {_time_limit_setting(evidence.task)}, because slower candidates would be cut "
            "off",
        )


_RULES: Sequence[Callable[[TaskEvidence], Iterator[TaskFinding]]] = (
    _failure_findings,
    _partial_fault_findings,
    _refused_findings,
    _failing_pays_findings,
    _determinism_findings,
    _cause_findings,
    _state_findings,
    _score_level_findings,
    _trust_findings,
    _cascade_findings,
    _duration_findings,
    _case_findings,
)


# Repeats of an evaluation that are made otherwise, to find the cause of different scores.

CALL, PROCESS, HASH_SEED = "number of the call", "process", "hash seed"
CAUSES = {
    CALL: (
        "scores differ from one call to the next: the evaluator keeps state, such as a counter",
        "remove keeps_state, unless scores of later programs may depend on earlier ones",
    ),
    PROCESS: (
        "scores differ from one process to the next: the evaluator draws data when it is imported, "
        "without a seed",
        "give that generator a seed, so that all programs are judged on the same data",
    ),
    HASH_SEED: (
        "scores differ with Python's hash seed: they depend on the order of a set",
        "sort what is taken from a set",
    ),
}
"""Kinds of repeats, in the order in which they are made, as (finding, remedy)."""

Wanted = Sequence[tuple[Case | None, int]]
"""Cases and random seeds of evaluations."""


async def repeat_otherwise(
    backend: Backend,
    evaluate_all: Callable[[Wanted], Awaitable[list[Observation]]],
    repeats: Sequence[tuple[Case | None, int]],
    first: Sequence[Observation],
    keeps_state: bool,
) -> tuple[list[Observation], str]:
    """Repeats with random seed 0, `repeats` of each case, and the cause of a difference.

    `first` are the evaluations made before. "" is the cause if all agree, or if evaluations of one
    process differ for no reason that is known: the evaluator is noisy.
    """
    made, cause, is_known = list[Observation](), "", True
    for kind in CAUSES:
        varied = (CALL,) if kind == CALL else await backend.vary_processes(int(kind == HASH_SEED))
        wanted = [(case, 0) for case, count in repeats for _ in range(_share(kind, count))]
        made += await evaluate_all(wanted)
        if is_known and not _agree([*first, *made]):
            is_known = False
            cause = kind if kind in varied and (kind != CALL or keeps_state) else ""
    return made, cause


def _share(kind: str, count: int) -> int:
    """Number of the `count` repeats that are made in this way: half, a quarter, the rest."""
    half = (count + 1) // 2
    quarter = (count - half + 1) // 2
    return {CALL: half, PROCESS: quarter, HASH_SEED: count - half - quarter}[kind]


def _agree(observations: Iterable[Observation]) -> bool:
    """True if all evaluations of each case had the same result."""
    found: dict[str, set[tuple[str, float | None]]] = {}
    for each in observations:
        found.setdefault(each.case, set()).add((each.status.value, each.score))
    return all(len(results) == 1 for results in found.values())
