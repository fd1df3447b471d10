"""Diagnosis: the problems of a run by cause, from its status and result.

Each cause is a function from a diagnosed run to a finding or None; `CAUSES` lists them, the most
serious first. A finding names the share of evaluations (or candidates, answers, budget) it
concerns, and the command that fixes it.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Callable
from functools import cached_property
from itertools import islice
from pathlib import Path

import msgspec

from culmen.core import errors
from culmen.core.brief import BANK_EMPTY
from culmen.core.evaluation import Observation, Status, culprit_of
from culmen.core.result import RunResult
from culmen.core.task import Task
from culmen.observe import statements
from culmen.observe.figures import (
    count_text,
    difference_text,
    duration_text,
    number_text,
    run_name,
    short_path,
)
from culmen.store import views
from culmen.store.views import RunStatus
from culmen.store.views.events import FailureCauses, failure_causes

ENOUGH = 10  # evaluations, answers or candidates below which a share is not meaningful
_LOOKED = 200  # failed evaluations read
_FAILING = 0.3  # share of candidates without any score that is reported
# shares from which on this leads: of a model's candidates, of random edits
_MANY, _RANDOM = 0.4, 0.8
_LOSING = 0.1  # share of lost evaluations that is reported
_CUT_OFF = 0.2  # share of the workers' time in evaluations that the end cut off
_SCORER = 0.05  # share of evaluations in which the evaluator itself failed that is reported
# candidates that one line of the evaluator failed on, and the share of them that also scored
_STRUCK, _ALSO_SCORED = 4, 0.3
_VAIN = 0.5  # share of the answers without a new candidate
_RETRIED = 0.3  # share of the calls that failed and were retried
_ALIKE = 0.8  # share of candidates with the same score
_EARLY = 0.8  # share of a budget up to which a met target leaves budget to save
_DECIDES = 0.9  # share of the score's changes that one case accounts for
_BELIEVABLE = 10.0  # largest multiple of a budget that is proposed
_QUANTILE = 2.3  # of a difference of means of few evaluations
_STALL = 0.4  # share of the evaluations made since the best was found
_LONG = 30  # smallest number of evaluations of a stall
_NAMED = re.compile(r"^([A-Za-z_][\w.]*(?:Error|Exception|Warning|Exit|Interrupt|Invalid))\b")
_DISK = re.compile(r"No space left on device|Disk quota exceeded|database or disk is full")
_GAINS = re.compile(
    r"(^|_)(acc|accuracy|auc|f1|precision|recall|reward|correct|passed|wins?|success)(_|$)"
)
_LOSSES = re.compile(r"(^|_)(loss|error|errors|cost|regret|latency|mae|mse|rmse|perplexity)(_|$)")


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One problem of a run.

    `what` states it in a sentence; `command` fixes it, and `do` describes the fix. `topic` is a
    word for programs, `share` (0..1) the share of the evaluations, candidates, answers or budget
    concerned, `culprit` the party at fault (`core.evaluation.CULPRITS`), `place` the evaluator's
    `file:line`. `leads`: the finding is shown before the result.
    """

    topic: str
    what: str
    do: str
    command: str = ""
    share: float | None = None
    culprit: str = ""
    place: str = ""
    leads: bool = True


class DiagnosedRun:
    """A run under diagnosis with facts read on demand; `name` is its name in commands."""

    def __init__(self, now: RunStatus, path: Path, name: str = "") -> None:
        self.now, self.path, self.name = now, path, name or run_name(path)

    @cached_property
    def task(self) -> Task:
        """The run's task."""
        return views.run_meta(self.path).task

    @cached_property
    def inherits_candidates(self) -> bool:
        """True if candidates of another run are among the initial programs: a fork, or a pool."""
        meta = views.run_meta(self.path)
        return bool(meta.fork_of or meta.pool)

    @cached_property
    def causes(self) -> FailureCauses:
        """Causes of candidates' failures."""
        return failure_causes(self.path)

    @cached_property
    def failed_evaluations(self) -> list[Observation]:
        """The first `_LOOKED` failed evaluations."""
        return list(islice((o for o in views.stream_observations(self.path) if not o.ok), _LOOKED))

    @cached_property
    def request_count(self) -> int:
        """Number of requests for candidates."""
        return sum(row.effects for row in views.call_costs(self.path) if row.effect == "propose")

    @property
    def new_candidate_count(self) -> int:
        """Number of candidates besides the initial programs."""
        return max(0, self.now.candidates - len(self.task.seeds))

    @property
    def is_over(self) -> bool:
        """True if no process runs the search."""
        return self.now.state != "running"

    @property
    def is_offline(self) -> bool:
        """True if no language model proposes."""
        return set(self.now.models.values()) <= {"offline"}

    @property
    def model(self) -> str:
        """Name of the model that proposes, for use in a sentence."""
        names = self.now.models
        return (
            "the offline proposer"
            if self.is_offline
            else names.get("proposer") or names.get("default", "the model")
        )

    @property
    def check_command(self) -> str:
        """The command that tests the task without a search."""
        if self.needs_function:
            return "culmen.check(seed, evaluator)"
        return (
            f"culmen check {shlex.quote(short_path(self.task.root))}"
            if self.task.root
            else "culmen check TASK"
        )

    @property
    def needs_function(self) -> bool:
        """True if only Python can continue the run: its evaluator is a function."""
        return self.task.evaluator.form == "function"

    @property
    def resume_command(self) -> str:
        """The command that continues an interrupted run."""
        if self.needs_function:
            return f'culmen.Study.resume("{self.name}", evaluator=evaluator).run()'
        return f"culmen resume {self.name}"

    def fork_command(self, options: str = "") -> str:
        """The command that continues with other options and reuses earlier results."""
        if self.needs_function:
            more = "".join(f", {each}" for each in self._keywords(options))
            return f'culmen.Study.fork("{self.name}", evaluator=evaluator{more}).run()'
        return f"culmen fork {self.name} {options}".rstrip()

    def _keywords(self, options: str) -> list[str]:
        """Options of the command line as keywords of `Study.fork`; a budget with its totals."""
        keywords: list[str] = []
        for option in re.split(r"(?:^|\s)--", options)[1:]:
            name, _, value = option.strip().partition(" ")
            name = "models_file" if name == "models" else name.replace("-", "_")
            text = " ".join(shlex.split(value))
            if name == "budget":
                text = re.sub(r"(\w+)=\+([\d.]+)", self._total_limit, text)
            is_plain = not value or text.isdecimal()
            keywords.append(f"{name}={(text or True) if is_plain else json.dumps(text)}")
        return keywords

    def _total_limit(self, extension: re.Match[str]) -> str:
        """`evaluations=400` for `evaluations=+200` of a run with 200."""
        total = (getattr(self.now.budget, extension[1], None) or 0) + float(extension[2])
        return f"{extension[1]}={total:g}" if total < 1e6 else f"{extension[1]}={total:.0f}"

    @property
    def budget_extension(self) -> str:
        """The amount of the budget that ended the run, once more; "" if no budget did."""
        return self.now.budget.extension_text(self.now.reason)

    def extended_fork_command(self, options: str) -> str:
        """The command `fork` with these options and, if the budget ended the run, `more`."""
        return self.fork_command(
            " ".join(
                filter(
                    None,
                    [options, f"--budget {self.budget_extension}" if self.budget_extension else ""],
                )
            )
        )


Cause = Callable[[DiagnosedRun], Finding | None]


def diagnose_run(now: RunStatus, run: Path | None = None, name: str = "") -> list[Finding]:
    """Findings about the run, the most serious first."""
    case = DiagnosedRun(now, run or Path(now.path), name)
    causes = [c for c in CAUSES if c not in _OF_ONE_SCORE or not case.task.objective.metrics]
    found = (cause(case) for cause in causes)
    return [finding for finding in found if finding is not None]


# -- words
# ------------------------------------------------------------------------------


def percent_text(share: float) -> str:
    """`31 %`; 0 % and 100 % only for shares of exactly 0 and 1."""
    return f"{min(99, max(1, round(100 * share))) if 0 < share < 1 else round(100 * share)} %"


def last_words(failed: Observation) -> str:
    """The evaluator's last line on a failed evaluation; else the reason of the failure."""
    line = failed.last_words.rstrip(".")
    return line[:200] if line else (failed.reason or failed.status.value).replace("_", " ")


def failure_location(failed: Observation) -> str:
    """The user's own `file:line` in a traceback; "" without one."""
    location = errors.place_in_text(failed.feedback)
    return "" if location is None else location.file_and_line


def _location_suffix(location: str) -> str:
    return f" ({location})" if location else ""


# -- nothing, or hardly anything, could be evaluated
# ------------------------------------------------


def _out_of_disk(case: DiagnosedRun) -> Finding | None:
    full = sum(times for words, times in case.causes.kinds.items() if _DISK.search(words))
    share = full / max(1, case.now.evaluations)
    if not full and not _DISK.search(case.now.error):
        return None
    consequence = (
        f": {percent_text(share)} of evaluations failed for that reason"
        if full
        else ", so the run could not go on"
    )
    command = case.fork_command() if case.now.state == "finished" else case.resume_command
    do = "once there is room: df -h shows which disk is full"
    return Finding(
        "disk_full", f"no space is left on the disk{consequence}", do, command, share, "machine"
    )


def _nothing_scored(case: DiagnosedRun) -> Finding | None:
    now = case.now
    if (
        now.best is not None
        or not now.evaluations
        or not case.is_over
        or not case.failed_evaluations
    ):
        return None
    first = case.failed_evaluations[0]
    alike = sum(each.failure_kind == first.failure_kind for each in case.failed_evaluations)
    share, location = alike / len(case.failed_evaluations), failure_location(first)
    who = (
        "the initial program gives no score"
        if now.reason == "initial_fails"
        else "nothing has scored"
    )
    count = f"in {alike:,} of {count_text(len(case.failed_evaluations), 'evaluation')}"
    what = f"{who}: {last_words(first)}{_location_suffix(location)}, {count}"
    if first.reason == "provider_away":
        what = f"{who}: the service that the evaluator asks did not answer, {count}"
    culprit = culprit_of(first) or ("scorer" if location else "")
    return Finding(
        "nothing_scored", what, failure_remedy(first), case.check_command, share, culprit, location
    )


def failure_remedy(failed: Observation) -> str:
    """The fix, in words, for an evaluation without a score."""
    location = failure_location(failed)
    if failed.status is Status.TIMEOUT:
        return "raise the limit of seconds, or make the program faster"
    if failed.reason == "provider_away":
        return "restore the service that the evaluator asks"
    if location:
        return f"correct {location}"
    return "correct the evaluator, or the initial program if the evaluator is right"


def _bank_exhausted(case: DiagnosedRun) -> Finding | None:
    if case.now.reason != BANK_EMPTY:
        return None
    tried = len(views.run_meta(case.path).bank)
    what = (
        f"the bank is empty: all {count_text(tried, 'program')} were drawn and evaluated, and "
        "the search ended there"
    )
    do = "a model that can be asked, or --model offline, improves on them; a bank cannot"
    return Finding("bank_empty", what, do, case.fork_command("--model NAME"), leads=False)


def _scorer_failures(case: DiagnosedRun) -> Finding | None:
    best = case.now.best
    failed = 0 if best is None else best.failed.get("scorer", 0)
    if best is None or failed <= _SCORER * best.evaluations:
        return None
    share = failed / best.evaluations
    example = _most_common_failure(
        [each for each in case.failed_evaluations if culprit_of(each) in ("", "scorer")]
    )
    words, location = (last_words(example), failure_location(example)) if example else ("", "")
    what = (
        f"the evaluator itself failed in {percent_text(share)} of evaluations: "
        f"{words}{_location_suffix(location)}"
    )
    do = f"correct {location or 'the evaluator'}: no candidate is to blame"
    return Finding("scorer_fails", what, do, case.check_command, share, "scorer", location)


def _failures_by_chance(case: DiagnosedRun) -> Finding | None:
    """Failures of one line of the evaluator that strike candidates which also score.

    Attributed to nobody, as the initial program was not struck. The share is of the evaluations
    read, the first ones.
    """
    best, failed = case.now.best, case.now.evaluations - case.now.statuses.get("ok", 0)
    if best is None or failed < _SCORER * case.now.evaluations or best.failed.get("scorer", 0):
        return None
    seen = list(islice(views.stream_observations(case.path), _LOOKED))
    scored = {each.candidate for each in seen if each.ok}
    undecided = [each for each in seen if not each.ok and not culprit_of(each)]
    example = _most_common_failure([each for each in undecided if failure_location(each)])
    if example is None:
        return None
    alike = [each for each in undecided if each.failure_kind == example.failure_kind]
    struck = {each.candidate for each in alike}
    share, both = len(alike) / len(seen), len(struck & scored)
    if len(struck) < _STRUCK or both < _ALSO_SCORED * len(struck) or share < _SCORER:
        return None
    location = failure_location(example)
    what = (
        f"{percent_text(share)} of evaluations failed by chance: "
        f"{last_words(example)}{_location_suffix(location)}; of "
        f"{count_text(len(struck), 'candidate')} with this failure {both} also scored"
    )
    do = f"if candidates are not to blame, let {location or 'the evaluator'} try again by itself"
    return Finding(
        "fails_by_chance", what, do, case.check_command, share, "", location, leads=False
    )


def _most_common_failure(failed: list[Observation]) -> Observation | None:
    """The first failure of the most frequent kind."""
    kinds = [each.failure_kind for each in failed]
    return max(failed, key=lambda each: kinds.count(each.failure_kind), default=None)


def _lost_evaluations(case: DiagnosedRun) -> Finding | None:
    lost, all_ = case.now.statuses.get("lost", 0), case.now.evaluations
    if all_ < ENOUGH or lost < _LOSING * all_:
        return None
    share, away = lost / all_, case.now.failures.get("provider_away", 0) >= lost / 2
    loss = f"{percent_text(share)} of evaluations were lost"
    if away:
        what = f"{loss}: the service that the evaluator asks did not answer"
        do = "restore that service first: lost evaluations are repeated"
        return Finding("lost", what, do, case.extended_fork_command(""), share, "provider")
    do = "fewer at once need less memory; culmen doctor says what this machine lacks"
    return Finding(
        "lost",
        f"{loss} by this machine",
        do,
        case.extended_fork_command("--workers 1"),
        share,
        "machine",
    )


_CALL_FAULTS = {
    "rate_limited": "the provider's rate limit",
    "server_error": "errors of the provider",
    "no_connection": "no connection to the provider",
    "timeout": "no reply in time",
    "cut": "connections that broke off",
    "not_json": "replies that were no JSON",
    "too_large": "replies of more than 16 MiB",
    "encoded": "replies in an encoding that was not asked for",
    "error_body": "errors of the provider",
    "no_choices": "replies without a text",
    "no_content": "replies without a text",
}


def _cut_off_evaluations(case: DiagnosedRun) -> Finding | None:
    """Time that went into evaluations which the end of the time cut off."""
    seconds = case.now.budget.seconds
    if case.now.reason != "seconds" or not seconds:
        return None
    cut = views.cut_off_evaluations(case.path)
    share = sum(cut) / (seconds * case.now.workers)
    if share < _CUT_OFF:
        return None
    what = (
        f"{percent_text(min(1.0, share))} of the time went into "
        f"{count_text(len(cut), 'evaluation')} without a result when time was over"
        f"{', the longest' if len(cut) > 1 else ''} after {duration_text(cut[0])}"
    )
    do = "limit an evaluation: " + (
        "limits=culmen.Limits(seconds=10)"
        if case.needs_function
        else "[limits] seconds for the candidate, scorer_seconds for the evaluator"
    )
    return Finding("cut_off", what, do, case.check_command, share, leads=False)


def _retried_calls(case: DiagnosedRun) -> Finding | None:
    failed = {name: n for name, n in case.now.faults.items() if name in _CALL_FAULTS}
    attempts = max(case.now.usage.calls, sum(failed.values()))
    share = sum(failed.values()) / max(1, attempts)
    if attempts < ENOUGH or share < _RETRIED:
        return None
    worst = max(failed, key=lambda name: failed[name])
    what = (
        f"{percent_text(share)} of {count_text(attempts, 'attempt')} to ask {case.model} failed: "
        f"{_CALL_FAULTS[worst]}"
    )
    do = "once the provider answers again; fewer workers ask less often"
    return Finding(
        "retried", what, do, case.extended_fork_command("--workers 1"), share, "provider"
    )


# -- answers and candidates
# -------------------------------------------------------------------------

_FAULTS = {
    "empty": ("were empty", "a stronger model", "--model NAME"),
    "unparsable": ("held no program in the format asked for", "a stronger model", "--model NAME"),
    "diff_mismatch": (
        "quoted text that is not in the program",
        "a model that quotes exactly",
        "--model NAME",
    ),
    "outside_blocks": ("changed what may not be changed", "a stronger model", "--model NAME"),
    "truncated": (
        "were cut off",
        "raise max_tokens of the model in a models file",
        "--models FILE",
    ),
    "too_long": (
        "could not be asked for: the prompt is too long",
        "a model with a larger context",
        "--model NAME",
    ),
    "duplicate": (
        "gave a program that is known already",
        "another model, or several at once",
        "--model 'A|B'",
    ),
    "refused": ("were refusals", "another model, or a goal in other words", "--model NAME"),
    "no_model": ("could not be asked for: no model has this role", "name one", "--model ROLE=NAME"),
}


def _unproductive_answers(case: DiagnosedRun) -> Finding | None:
    faults = {name: n for name, n in case.now.faults.items() if name not in _CALL_FAULTS}
    asked = max(case.request_count, 0)
    if asked < ENOUGH or sum(faults.values()) < _VAIN * asked:
        return None
    worst = max(faults, key=lambda name: faults[name])
    share = min(1.0, faults[worst] / asked)
    if worst in ("unchanged", "duplicate"):
        worst, share = "duplicate", max(share, 1 - case.new_candidate_count / asked)
    fault, do, options = _FAULTS.get(
        worst, (f"brought nothing ({worst.replace('_', ' ')})", *_FAULTS["empty"][1:])
    )
    if case.is_offline:
        do, options = "a language model finds what edits do not", "--model NAME"
    what = f"{percent_text(share)} of {count_text(asked, 'answer')} of {case.model} {fault}"
    if case.now.state == "running":
        return Finding("nothing_accepted", what, do, f"culmen stop {case.name}", share)
    return Finding("nothing_accepted", what, do, case.extended_fork_command(options), share)


def _repeated_programs(case: DiagnosedRun) -> Finding | None:
    """Many known programs, inferred from few new candidates for many answers."""
    if (
        case.request_count < ENOUGH
        or case.new_candidate_count > (1 - _ALIKE) * case.request_count
        or sum(case.now.faults.values()) >= _VAIN * case.request_count
    ):
        return None
    share = 1 - case.new_candidate_count / case.request_count
    what = (
        f"{percent_text(share)} of {count_text(case.request_count, 'answer')} of {case.model} "
        "gave a program that is known already"
    )
    return Finding(
        "nothing_accepted",
        what,
        _FAULTS["duplicate"][1],
        case.extended_fork_command("--model 'A|B'"),
        share,
    )


def _failing_candidates(case: DiagnosedRun) -> Finding | None:
    causes = case.causes
    if causes.candidates < ENOUGH or causes.fruitless < _FAILING * causes.candidates:
        return None
    kinds: dict[str, int] = {}
    for words, times in causes.kinds.items():
        kinds[kind_of(words)] = kinds.get(kind_of(words), 0) + times
    kind = max(kinds, key=lambda each: kinds[each], default="")
    words = (
        next((each for each in causes.kinds if kind_of(each) == kind), "")
        .partition("\n")[2]
        .rstrip(".")
    )
    part = kinds.get(kind, 0) / max(1, sum(kinds.values()))
    share = causes.fruitless / causes.candidates
    of_them = f" ({percent_text(part)} of failures)" if part < 0.995 else ""
    description = _failure_description(kind, words, case)
    what = f"{percent_text(share)} of candidates fail: {description}{of_them}"
    do, command = _remedy_and_command(kind, case)
    location = next(
        (
            failure_location(each)
            for each in case.failed_evaluations
            if kind_of(_failure_key(each)) == kind
        ),
        "",
    )
    leads = share >= (_RANDOM if case.is_offline else _MANY)
    return Finding("failing", what, do, command, share, "candidate", location, leads)


def _failure_key(failed: Observation) -> str:
    return f"{failed.reason or failed.status.value}\n{failed.last_words}"


def kind_of(words: str) -> str:
    """`SyntaxError` from the last line of feedback or, without an exception in it, the reason."""
    reason, _, last = words.partition("\n")
    named = _NAMED.match(last)
    return named[1].rpartition(".")[2] if named else reason.replace("_", " ")


_TIMES, _IMPORTS = ("timeout", "cpu limit", "TimeoutError"), ("ModuleNotFoundError", "ImportError")


def _failure_description(kind: str, words: str, case: DiagnosedRun) -> str:
    if kind in _TIMES:
        return f"{kind}, the limit of {case.task.limits.seconds or 60:g} s"
    if kind in _IMPORTS and words:
        return words[:120]
    return kind if _NAMED.match(kind) or not words else f"{kind}: {words[:120]}"


def _remedy_and_command(kind: str, case: DiagnosedRun) -> tuple[str, str]:
    """The fix for candidates that fail alike, in words, and a command for it."""
    show = next(
        (
            f"culmen show {case.name} {each.candidate}"
            for each in case.failed_evaluations
            if kind_of(_failure_key(each)) == kind
        ),
        "",
    )
    log = show or f"culmen log {case.name}"
    if kind in _TIMES:
        return (
            "raise [limits] seconds, and say in the goal how long a candidate may take",
            case.check_command,
        )
    if kind == "memory limit":
        return (
            "raise [limits] memory_mb, and say in the goal how much memory there is",
            case.check_command,
        )
    if kind in _IMPORTS:
        return "install what is missing, or say in the goal which packages there are", log
    if kind == "SyntaxError" and not case.is_offline:
        return "a stronger model", case.extended_fork_command("--model NAME")
    if kind == "scorer raised":
        return "correct the evaluator: it raises on what candidates return", log
    if kind == "immutable text changed":
        return "widen the EVOLVE-BLOCK markers, or say in the goal which lines may change", log
    if case.is_offline:
        return "see what failed: random edits break programs that have no markers", log
    return "see what failed, and say in the goal what a candidate must return", log


# -- the score
# ------------------------------------------------------------------------------


def _is_met(case: DiagnosedRun, score: float, target: float) -> bool:
    return score >= target if case.now.direction == "max" else score <= target


def _first_score(case: DiagnosedRun) -> float | None:
    best = case.now.best
    if best is not None and best.initial is not None:
        return best.initial.score
    first = next(iter(views.candidate_rows(case.path, "old", operator="seed", limit=1)), None)
    return None if first is None else first.mean


def _wrong_direction(case: DiagnosedRun) -> Finding | None:
    now, first = case.now, None if case.now.best is None else _first_score(case)
    if first is None:
        return None
    better = "lower" if now.direction == "min" else "higher"
    other = "min" if now.direction == "max" else "max"
    do = f'set direction = "{other}" in the task if so'
    beyond = now.target is not None and first != now.target and _is_met(case, first, now.target)
    if beyond and not case.inherits_candidates:
        what = (
            f"the direction looks wrong: {better} is better here, so that the initial program "
            f"({number_text(first)}) "
            f"already meets the target of {number_text(now.target or 0.0)}"
        )
        return Finding("direction", what, do, case.check_command, 1.0, "scorer")
    wrong = _GAINS if now.direction == "min" else _LOSSES
    observation = next((o for o in views.stream_observations(case.path) if o.ok), None)
    same = (
        []
        if observation is None
        else [
            k
            for k, v in observation.metrics.items()
            if v == observation.score and wrong.search(k.lower())
        ]
    )
    if not same:
        return None
    what = (
        f"the direction looks wrong: the score is {same[0]}, and {better} is taken for better in "
        "all evaluations"
    )
    return Finding("direction", what, do, case.check_command, 1.0, "scorer")


def _equal_scores(case: DiagnosedRun) -> Finding | None:
    best = case.now.best
    if (
        best is None
        or best.scored < ENOUGH
        or best.equal < _ALIKE * best.scored
        or not best.kept_initial
    ):
        return None
    share, value = best.equal / best.scored, number_text(best.score)
    if best.equal == best.scored:
        what = (
            f"all {best.scored:,} programs got the same score, {value} (100 %): the evaluator "
            "tells none apart"
        )
        return Finding(
            "constant",
            what,
            "make the evaluator look at what a candidate returns",
            case.check_command,
            share,
            "scorer",
        )
    what = (
        f"{percent_text(share)} of {best.scored:,} programs got the very score of the initial one, "
        f"{value}: it is flat"
    )
    return Finding(
        "flat",
        what,
        "let the evaluator give part of the score for part of the task",
        case.check_command,
        share,
        "scorer",
    )


def _best_possible_score(case: DiagnosedRun) -> float | None:
    """The best score within the task's bounds; None without a bound."""
    low, high = case.task.objective.bounds
    return high if case.now.direction == "max" else low


def _at_bound(case: DiagnosedRun) -> Finding | None:
    bound, best = _best_possible_score(case), case.now.best
    first = None if best is None or bound is None else _first_score(case)
    if best is None or bound is None or first is None or not _is_met(case, first, bound):
        return None
    what = (
        f"the initial program scores {number_text(first)}, the best that the task's bounds allow "
        "(100 %): nothing is to gain"
    )
    return Finding(
        "at_bound",
        what,
        "make the task harder: more cases, or a finer score",
        case.check_command,
        1.0,
        "scorer",
    )


def _target_met_early(case: DiagnosedRun) -> Finding | None:
    now, best = case.now, case.now.best
    level = now.target if now.target is not None else _best_possible_score(case)
    if (
        best is None
        or level is None
        or not now.budget.evaluations
        or not _is_met(case, best.value, level)
    ):
        return None
    points = views.progress_points(case.path)
    met = next(
        (point.evaluations for point in points if _is_met(case, point.mean, level)), now.evaluations
    )
    share = met / now.budget.evaluations
    if share > _EARLY or now.evaluations <= met / _EARLY:
        return None
    name = "target" if now.target is not None else "best possible score"
    of = f"{met:,} of {count_text(now.budget.evaluations, 'evaluation')} ({percent_text(share)})"
    what = f"the {name}, {number_text(level)}, was met after {of}"
    do = f"with --stop-at {number_text(level)} a search ends there"
    command = f"culmen stop {case.name}" if now.state == "running" else f"culmen best {case.name}"
    return Finding("target_met", what, do, command, share)


# -- too few data
# ------------------------------------------------------------------------------


def _too_few_evaluations(case: DiagnosedRun) -> Finding | None:
    now, cases = case.now, len(case.task.split("train"))
    if now.few_turns is not None:
        few, need = now.few_turns, now.few_turns.needed
        many = "no turn" if not few.turns else f"only {count_text(few.turns, 'turn')}"
        what = f"the strategy finished {many} in {few.evaluations:,}"
        takes = "ten turns take"
    elif case.is_over and cases > 1 and now.evaluations < 2 * cases and now.best is not None:
        need = 10 * cases
        what = (
            f"{now.evaluations:,} for {cases:,} cases and {count_text(now.candidates, 'candidate')}"
        )
        takes = "ten looks at every case take"
    else:
        return None
    share, do = now.evaluations / need, "or fewer programs and cases a turn"
    what = f"too few evaluations: {what} ({percent_text(share)} of what {takes})"
    return Finding(
        "few_turns",
        what,
        do,
        case.fork_command(f"--budget evaluations={need}"),
        share,
        "budget",
        leads=share < 0.5,
    )


def _one_case(case: DiagnosedRun) -> Finding | None:
    best = case.now.best
    if best is None or best.deciding_share < _DECIDES:
        return None
    what = (
        f"one case decides: {best.deciding_case} makes up {percent_text(best.deciding_share)} "
        "of all change of the score"
    )
    do = "see what it did to that case; more cases like it would tell more"
    return Finding("one_case", what, do, f"culmen diff {case.name} seed best", best.deciding_share)


def _gain_within_noise(case: DiagnosedRun) -> Finding | None:
    best = case.now.best
    if (
        best is None
        or best.gain is None
        or not best.gain_margin
        or abs(best.gain) > best.gain_margin
    ):
        return None
    gain, margin = difference_text(best.gain, best.gain_margin), f"{best.gain_margin:.2g}"
    ratio = best.gain_margin / max(abs(best.gain), 1e-12)
    what = f"the gain of {gain} is within the noise, whose margin is ± {margin}"
    leads = best.noise.sd > 0 and (best.kept_initial or ratio > 2)
    if leads:
        what = f"noise hides any gain: one evaluation deviates by {best.noise.sd:.2g}, and {what}"
    share, budget = min(1.0, 1 / ratio), case.now.budget.evaluations or case.now.evaluations
    if worst := _costly_failure(case, best):
        do = (
            f"a failed evaluation counts as {worst}, the bad end of [objective] bounds: inf there, "
            "unless a failure is as bad"
        )
        return Finding("within_noise", what, do, case.check_command, share, leads=leads)
    if best.score_difference(best.gain, 0.0) <= 0 or ratio**2 > _BELIEVABLE:
        do = "reduce the noise or add cases: no budget of this size can prove such a gain"
        return Finding("within_noise", what, do, case.check_command, share, leads=leads)
    need = math.ceil(
        budget * max(1.0, ratio**2 - 1)
    )  # a margin shrinks with the square root of the number of evaluations
    do = f"about {budget + need:,} evaluations would tell it"
    command = case.fork_command(f"--budget evaluations=+{need},final=0.3")
    return Finding("within_noise", what, do, command, share, leads=leads)


def _costly_failure(case: DiagnosedRun, best: RunResult) -> str:
    """The score of a failure if that makes most of the margin; "" otherwise."""
    objective, counts = case.task.objective, [best.count, best.initial.count if best.initial else 0]
    if objective.floor is None or not best.failed.get("candidate") or min(counts) < 1:
        return ""
    noise = best.noise.sd * math.sqrt(sum(1.0 / count for count in counts))
    is_most = (best.gain_margin or 0.0) > 2 * _QUANTILE * noise
    return number_text(objective.score(objective.floor)) if noise and is_most else ""


def _fallen_final_score(case: DiagnosedRun) -> Finding | None:
    best = case.now.best
    if best is None or not statements.has_fallen(best):
        return None
    verb = "fell" if case.now.direction == "max" else "rose"
    spread = best.noise.sd or (best.se or 0.0) * math.sqrt(best.count)
    why = (
        f"noise {spread:.2g} per evaluation"
        if spread
        else "fresh evaluations differ from those of the search"
    )
    before, after = statements.search_score_text(best), statements.reported_score_text(best)
    what = f"the final value {verb} from {before} to {after}: {why}"
    do = "measure longer: more evaluations of each candidate"
    return Finding("fallen", what, do, _longer_fork_command(case), leads=False)


def _longer_fork_command(case: DiagnosedRun) -> str:
    return (
        case.fork_command(f"--budget {case.budget_extension},final=0.3")
        if case.budget_extension
        else ""
    )


def _stalled_search(case: DiagnosedRun) -> Finding | None:
    now = case.now
    points = views.progress_points(case.path) if now.evaluations >= 2 * _LONG else []
    if not points or (
        now.target is not None
        and now.best is not None
        and _is_met(case, now.best.value, now.target)
    ):
        return None
    since = next(point.evaluations for point in points if point.candidate == points[-1].candidate)
    idle = now.evaluations - since
    if idle < max(_LONG, _STALL * now.evaluations):
        return None
    what, share = (
        f"stalled since evaluation {since:,} of {now.evaluations:,}",
        idle / now.evaluations,
    )
    if now.state == "running":
        do, command = "an idea of yours for the models", f"culmen tell {case.name} --hint TEXT"
        if case.is_offline:
            do, command = "end it, and keep the best", f"culmen stop {case.name}"
    elif case.is_offline:
        do, command = (
            "a language model finds what edits do not",
            case.extended_fork_command("--model NAME"),
        )
    else:
        do, command = (
            "another method from the same results (culmen strategies)",
            case.extended_fork_command("--strategy NAME"),
        )
    return Finding("stalled", what, do, command, share, leads=False)


def _unpriced_calls(case: DiagnosedRun) -> Finding | None:
    unpriced = case.now.usage.unpriced
    if not unpriced or case.now.budget.dollars is None:
        return None
    what = f"{count_text(unpriced, 'call')} had no known price, so dollars limited nothing there"
    return Finding("unpriced", what, "give the model a price in a models file", leads=False)


CAUSES: tuple[Cause, ...] = (
    _out_of_disk,
    _nothing_scored,
    _bank_exhausted,
    _scorer_failures,
    _failures_by_chance,
    _lost_evaluations,
    _cut_off_evaluations,
    _retried_calls,
    _unproductive_answers,
    _repeated_programs,
    _failing_candidates,
    _wrong_direction,
    _equal_scores,
    _at_bound,
    _target_met_early,
    _too_few_evaluations,
    _one_case,
    _gain_within_noise,
    _fallen_final_score,
    _stalled_search,
    _unpriced_calls,
)
"""All causes, the most serious first."""

_OF_ONE_SCORE = (
    _wrong_direction,
    _equal_scores,
    _at_bound,
    _target_met_early,
    _one_case,
    _gain_within_noise,
    _fallen_final_score,
    _stalled_search,
)
"""Causes about the one score of a task; several objectives have none."""
