"""Findings of a check: problems of a task, each with a remedy."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Literal, NamedTuple

import msgspec

from culmen.core import errors
from culmen.core.answers import refusal_remedy
from culmen.core.evaluation import (
    DIFFERENCE,
    FILE_MARK,
    REFUSED,
    Observation,
    Status,
    is_excused,
    meets_trust_level,
    names_of_files,
    place_in,
)
from culmen.core.foreign import Unreadable
from culmen.core.packages import install_hint
from culmen.core.task import Task
from culmen.core.usage import total_usage
from culmen.evaluate.failing_programs import FailingResult
from culmen.evaluate.integrity import signs
from culmen.evaluate.integrity.guard import APART, REWRITTEN
from culmen.evaluate.misleading_cases import case_problems
from culmen.evaluate.repeats import CAUSES
from culmen.tasks.surface import surface_fault

# levels without protection of files and processes outside the jail
WEAK = ("seatbelt", "limits", "portable", "none")
CASE_LIMIT = 500  # cases evaluated at least once; of a larger data set a sample
# a mean further than this share (and three standard errors) from the declared start is reported
START_SHARE = 0.05
SLOW_SHARE = 0.5  # evaluations longer than this share of the limit are reported


def tried_cases(task: Task, limit: int = CASE_LIMIT) -> int:
    """Number of cases that are evaluated at least once, 0 without a data set."""
    return min(len(task.cases), max(1, limit))


def distinct_names(found: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """All names, each once, in the order in which they were found."""
    return tuple(dict.fromkeys(name for names in found for name in names))


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
        return evaluator_faults(self.observations)


_NAMED_CASES = 8  # that a line of the terminal has room for
_ERROR = re.compile(r"^\S+ \S* ?((?:[A-Za-z_]\w*\.)*[A-Z]\w*)(?::| @|$)")


class EvaluatorFault(NamedTuple):
    """Evaluations that failed at one line of the evaluator, of programs that also scored.

    `place` is `file:line`, `what` a sentence with the most frequent exception and the `cases`, in
    the order in which they were first seen.
    """

    place: str
    what: str
    cases: tuple[str, ...]


def evaluator_faults(observations: Iterable[Observation]) -> list[EvaluatorFault]:
    """Lines of the evaluator that raised for a program which scored elsewhere.

    Most evaluations first.
    """
    every = list(observations)
    scored = {each.candidate for each in every if each.ok}
    by_case = Counter(each.case for each in every)
    hit: dict[str, list[Observation]] = {}
    for each in every:
        if place := place_in(each.failure_kind):
            hit.setdefault(place, []).append(each)
    faults: list[EvaluatorFault] = []
    for place, failed in sorted(hit.items(), key=lambda item: (-len(item[1]), item[0])):
        if scored.isdisjoint(each.candidate for each in failed):
            continue
        matches = (_ERROR.match(each.failure_kind) for each in failed)
        names = Counter(match[1] for match in matches if match).most_common(1)
        what = f"{place} raises {names[0][0] if names else 'an exception'}"
        cases = tuple(case for case in by_case if any(each.case == case for each in failed))
        if cases == ("",):
            what += f" in {len(failed)} of {len(every)} evaluations"
        else:
            more = len(cases) - _NAMED_CASES
            named = [*cases[:_NAMED_CASES], *([f"{more} more"] if more > 0 else [])]
            what += f" on {len(cases)} of {len(by_case)} cases: {', '.join(named)}"
        faults.append(EvaluatorFault(place, what, cases))
    return faults


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
        yield TaskFinding("error", fault.what, fix, fault.place, cases)


def text_findings(task: Task) -> Iterator[TaskFinding]:
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


def sample_findings(task: Task, limit: int) -> Iterator[TaskFinding]:
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
