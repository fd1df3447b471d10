"""What is said of a run, from its journal alone, wherever it is shown.

Three lines (what came out, what was used, what to do next), what ails it, and why a search ended without any score.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import msgspec

from culmen.core import errors
from culmen.core.errors import NothingScored
from culmen.core.evaluation import EVALUATOR_LOG, Observation, Status
from culmen.core.task import Task
from culmen.observe.figures import count, dollars, duration, joined, measured, number, result_line, run_name, short_path
from culmen.store import views
from culmen.store.views import Front, RunStatus
from culmen.store.views.events import FailureCauses, failure_causes


class RunSummary(msgspec.Struct, frozen=True):
    """`result`, `used` and `next` are the three lines; `findings` what ails the run, with one thing to try each."""

    result: str
    used: str
    next: str
    findings: tuple[Finding, ...] = ()

    @property
    def lines(self) -> tuple[str, str, str]:
        """The three lines."""
        return self.result, self.used, self.next

    def __str__(self) -> str:
        told = (f"{finding.what}; try: {finding.do}" for finding in self.findings)
        return "\n".join([*self.lines, *told])


def summarize(run: Path, now: RunStatus | None = None, name: str = "") -> RunSummary:
    """The summary of a run as it stands; `name` is what commands call it ("": what works in this folder)."""
    now = now or views.status(run)
    name = name or run_name(run)
    found = tuple(msgspec.structs.replace(f, do=_named(f.do, name, now)) for f in diagnose(now, run))
    command, why = _advised(now, name, found) or next_steps(now, run, name)[0]
    return RunSummary(result(now, run), used(now), f"next: {command}  ({why})", found)


def _advised(now: RunStatus, run: str, found: tuple[Finding, ...]) -> tuple[str, str] | None:
    """The command that what ails a finished run calls for, where there is one."""
    topics, more = {finding.topic for finding in found}, now.budget.again(now.reason)
    if now.state != "finished" or not more:
        return None
    if topics & {"within_noise", "fallen"}:
        return f"culmen fork {run} --budget {more},final=0.3", "measure longer: the result is not sure yet"
    if topics & {"stalled", "failing", "nothing_accepted"}:
        return f"culmen fork {run} --model NAME --budget {more}", "go on with another model"
    return None


def result(now: RunStatus, run: Path) -> str:
    """`initial 0.44 ± 0.09 → best 0.52 ± 0.04: +0.08, within noise`; of a search that goes on, what it believes."""
    best = now.best
    if best is None:
        failed = joined(f"{many:,} {status}" for status, many in now.statuses.items() if status != "ok")
        return "nothing has scored" + (f": {failed}" if failed else " yet")
    if (found := views.front(run)) is not None:
        return front_line(found)
    if said := result_line(best, now.direction):
        return said
    first = next(iter(views.candidates(run, "old", operator="seed", limit=1)), None)
    before = "" if first is None or first.mean is None else f"initial {measured(first.mean, first.margin)} → "
    if first is not None and first.id == best.id:
        return f"nothing better than the initial program yet ({number(best.score)})"
    doubt = "" if best.confirmed else ", not confirmed by fresh evaluations" + " yet" * (now.state != "finished")
    return f"{before}best {measured(best.score, best.margin)}{doubt}"


def front_line(found: Front) -> str:
    """`front of 6, confirmed: accuracy 0.81 to 0.95, latency 3 to 20; hypervolume 12.5`."""
    spans = [
        f"{goal.name} " + " to ".join(dict.fromkeys([number(min(values)), number(max(values))]))
        for goal in found.objectives
        if (values := [member.metrics[goal.name] for member in found.members])
    ]
    sure = "confirmed" if found.confirmed else "not confirmed by fresh evaluations"
    broken = "" if all(member.feasible for member in found.members) else "; none holds every constraint"
    return f"front of {len(found.members)}, {sure}: {joined(spans)}; hypervolume {number(found.hypervolume)}{broken}"


def used(now: RunStatus) -> str:
    """Evaluations, calls, money and time."""
    usage = now.usage
    calls = tokens = money = ""
    if usage.calls:
        calls = count(usage.calls, "call")
        tokens = f"{usage.input_tokens:,} + {usage.output_tokens:,} tokens"
        money = dollars(usage.dollars) + (
            f" and {count(usage.unpriced, 'call')} of unknown price" * bool(usage.unpriced)
        )
    return joined(["used " + count(now.evaluations, "evaluation"), calls, tokens, money, duration(now.elapsed_seconds)])


def next_steps(now: RunStatus, path: Path, name: str = "") -> list[tuple[str, str]]:
    """Commands worth typing now, the first one first, each with what it is for."""
    run, first = name or run_name(path), bool(views.meta(path).task.seeds)
    if now.state == "running":
        return [(f"culmen watch {run}", "follow it"), *_results(now, run, first)]
    steps = [] if now.state == "finished" else [(f"culmen resume {run}", "go on")]
    if now.findings:
        steps.append((f"culmen audit {run}", "what looks like gaming"))
    if now.best is None:
        return [*steps, *_unscored(now, path, run)]
    if now.reason == "integrity":
        steps.append((f"culmen fork {run} --integrity reject", "go on without such candidates"))
    steps += _results(now, run, first)
    if now.state == "finished" and (more := now.budget.again(now.reason)):
        steps.append((f"culmen fork {run} --budget {more}", "go on with more"))
    return steps


def _results(now: RunStatus, run: str, first: bool) -> list[tuple[str, str]]:
    if now.best is None:
        return []
    changed = [(f"culmen diff {run} seed best", "what changed")] if first else []
    return [(f"culmen best {run}", "print the best"), *changed]


def _unscored(now: RunStatus, path: Path, run: str) -> list[tuple[str, str]]:
    """Where nothing has scored: try the task alone, where it lies in a folder."""
    root = views.meta(path).task.root
    folder = [(f"culmen check {shlex.quote(short_path(root))}", "why it fails")] if root and now.evaluations else []
    return [*folder, (f"culmen log {run}", "what happened")]


def _named(text: str, run: str, now: RunStatus) -> str:
    best = now.best.id if now.best is not None else "ID"
    return text.replace("RUN", run).replace(f"show {run} ID", f"show {run} {best}")


# What ails a run, in words, with one thing to try for each.

_ENOUGH = 10  # evaluations, or answers, below which a share says nothing
_FAILING = 0.3  # share of candidates without any score that is worth a word
_LOSING = 0.1  # the same of evaluations that were lost
_STALL = 0.4  # share of the evaluations since the best was found
_LONG = 30  # evaluations that a stall lasts at least
_VAIN = 0.5  # share of the answers that brought nothing
_NAMED = re.compile(r"^([A-Za-z_][\w.]*(?:Error|Exception|Warning|Exit|Interrupt|Invalid))\b")


class Finding(msgspec.Struct, frozen=True):
    """`what` is so, in a sentence, and one thing to `do` about it; `topic` is a word for programs."""

    topic: str
    what: str
    do: str


def diagnose(now: RunStatus, run: Path | None = None) -> list[Finding]:
    """What is worth saying of the run, the gravest first."""
    path = run or Path(now.path)
    causes = failure_causes(path)
    found = [*_nothing_scored(now), *_failing(now, causes), *_lost(now, causes), *_vain(now, path), *_turns(now)]
    return [*found, *_fallen(now), *_undecided(now), *_stalled(now, path), *_unpriced(now)]


def _nothing_scored(now: RunStatus) -> Iterator[Finding]:
    if now.best is None and now.evaluations and now.state != "running":
        yield Finding(
            "nothing_scored",
            f"nothing has scored in {count(now.evaluations, 'evaluation')}",
            "culmen check TASK evaluates the initial program alone, with the evaluator's own words",
        )


def _failing(now: RunStatus, causes: FailureCauses) -> Iterator[Finding]:
    if causes.candidates < _ENOUGH or causes.fruitless < _FAILING * causes.candidates:
        return
    kinds: dict[str, int] = {}
    for words, times in causes.kinds.items():
        kinds[_kind(words)] = kinds.get(_kind(words), 0) + times
    kind = max(kinds, key=lambda each: kinds[each], default="")
    part = kinds.get(kind, 0) / max(1, sum(kinds.values()))
    named = f": {kind}" + (f" ({part:.0%} of them)" if part < 0.995 else "") if kind else ""
    yield Finding("failing", f"{causes.fruitless / causes.candidates:.0%} of candidates fail{named}", _cure(kind))


def _kind(words: str) -> str:
    """`SyntaxError` of a last line of feedback or, where it names no exception, the reason of the failure."""
    reason, _, last = words.partition("\n")
    named = _NAMED.match(last)
    return named[1].rpartition(".")[2] if named else reason.replace("_", " ")


_CURES = {
    "SyntaxError": "a stronger model: --model NAME; culmen show RUN ID --prompt shows what one was asked and answered",
    "ModuleNotFoundError": "say in the goal which packages there are, or install what candidates ask for",
    "ImportError": "say in the goal which packages there are, or install what candidates ask for",
    "timeout": "raise [limits] seconds, or say in the goal how long a candidate may take",
    "cpu limit": "raise [limits] seconds, or say in the goal how long a candidate may take",
    "memory limit": "raise [limits] memory_mb, or say in the goal how much memory there is",
    "scorer raised": "correct the evaluator: it raises on what candidates return (culmen show RUN ID)",
    "immutable text changed": "say in the goal which lines may change, or widen the EVOLVE-BLOCK markers",
}


def _cure(kind: str) -> str:
    return _CURES.get(kind, "say in the goal what a candidate must return; culmen log RUN names failed candidates")


def _lost(now: RunStatus, causes: FailureCauses) -> Iterator[Finding]:
    lost = now.statuses.get("lost", 0)
    if now.evaluations < _ENOUGH or lost < _LOSING * now.evaluations:
        return
    away = now.failures.get("provider_away", 0) >= lost / 2
    yield Finding(
        "lost",
        f"{lost / now.evaluations:.0%} of evaluations were lost"
        + (": what the evaluator asks elsewhere did not answer" if away else ", by no fault of candidates"),
        "see to the service that the evaluator asks, then culmen fork RUN evaluates them again"
        if away
        else "culmen doctor says what this machine lacks; fewer --workers need less memory",
    )


def _vain(now: RunStatus, path: Path) -> Iterator[Finding]:
    asked = sum(row.effects for row in views.calls(path) if row.effect == "propose")
    faults = sum(now.faults.values())
    if asked < _ENOUGH or faults < _VAIN * asked:
        return
    worst = next(iter(now.faults))
    what = "nothing was accepted" if faults >= asked else f"{faults / asked:.0%} of answers brought less than asked"
    yield Finding("nothing_accepted", f"{what}: {worst.replace('_', ' ')}", _FAULTS.get(worst, _FAULTS[""]))


_FAULTS = {
    "": "culmen show RUN ID --prompt shows a prompt and its reply; a stronger model: --model NAME",
    "diff_mismatch": "a model that quotes exactly: --model NAME, or a shorter program, which is rewritten whole",
    "unchanged": "another model or a higher temperature; culmen tell RUN --hint TEXT gives it an idea",
    "duplicate": "a higher temperature, or several models at once: --model 'A|B'",
    "truncated": "raise max_tokens of the model in a models file",
    "too_long": "set context of the model in a models file, or choose one with a larger context",
    "refused": "another model, or a goal in other words: the provider refuses to answer this one",
    "no_model": "name a model for this role: --model ROLE=NAME",
}


def _turns(now: RunStatus) -> Iterator[Finding]:
    few = now.few_turns
    if few is not None:
        many = "no turn" if not few.turns else f"only {count(few.turns, 'turn')}"
        yield Finding(
            "few_turns",
            f"the strategy finished {many} in {count(few.evaluations, 'evaluation')}",
            f"--budget evaluations={few.needed}, or fewer programs and cases a turn (culmen strategies NAME)",
        )


def _fallen(now: RunStatus) -> Iterator[Finding]:
    best = now.best
    if best is None or not best.confirmed or best.search_score is None:
        return
    fall = best.search_score - best.score if now.direction == "max" else best.score - best.search_score
    spread = best.noise.sd or (best.se or 0.0) * math.sqrt(best.count)
    if fall <= max(best.margin or 0.0, 1e-9 * abs(best.search_score)):
        return
    verb = "fell" if now.direction == "max" else "rose"
    why = f"noise {spread:.2g} per evaluation" if spread else "fresh evaluations differ from those of the search"
    yield Finding(
        "fallen",
        f"the final value {verb} from {number(best.search_score)} to {number(best.score)}: {why}",
        "evaluate more: --budget evaluations=+N, or a strategy's setting for more evaluations of each candidate",
    )


def _undecided(now: RunStatus) -> Iterator[Finding]:
    best = now.best
    if best is None or best.gain is None or not best.gain_margin or abs(best.gain) > best.gain_margin:
        return
    times = min(100, math.ceil((best.gain_margin / max(abs(best.gain), 1e-12)) ** 2))  # a margin shrinks with the root
    yield Finding(
        "within_noise",
        f"the gain of {best.gain:+.2g} is within the noise (± {best.gain_margin:.2g})",
        f"measure longer: about {max(2, times)} times as many evaluations in the final choice (final= in the budget)",
    )


def _stalled(now: RunStatus, path: Path) -> Iterator[Finding]:
    points = views.progress(path) if now.evaluations >= 2 * _LONG else []
    if not points:
        return
    since = next(point.evaluations for point in points if point.candidate == points[-1].candidate)
    idle = now.evaluations - since
    if idle < max(_LONG, _STALL * now.evaluations) or _reached(now):
        return
    offline = set(now.models.values()) == {"offline"}
    if now.state == "running":
        do = "culmen tell RUN --hint TEXT, an idea of yours for the models" if not offline else "culmen stop RUN"
    elif offline:
        do = "a language model finds what edits do not: culmen fork RUN --model NAME"
    else:
        do = "another method from the same results: culmen fork RUN --strategy NAME (culmen strategies)"
    yield Finding("stalled", f"stalled since evaluation {since:,} of {now.evaluations:,}", do)


def _reached(now: RunStatus) -> bool:
    if now.target is None or now.best is None:
        return False
    return now.best.value >= now.target if now.direction == "max" else now.best.value <= now.target


def _unpriced(now: RunStatus) -> Iterator[Finding]:
    if now.usage.unpriced and now.budget.dollars is not None:
        yield Finding(
            "unpriced",
            f"{count(now.usage.unpriced, 'call')} had no known price, so dollars limited nothing there",
            "give the model a price in a models file",
        )


# What to say of a search that has ended without a single score: its evaluator's own words, and the line to change.

_LOOKED = 200  # failed evaluations read
_LINES = 30  # of a feedback


def check_scored(run: Path) -> None:
    """Raise `NothingScored` for a finished run that has evaluated something, none of which gave a score, unless it was
    told to put up with that."""
    about = views.meta(run)
    if about.allow_failing:
        return
    now = views.status(run)
    if now.state != "finished" or now.best is not None or not now.evaluations or now.statuses.get("ok"):
        return
    first = next(islice((o for o in views.observations(run) if not o.ok), _LOOKED), None)
    if first is None:
        return
    raise NothingScored(
        f"{_headline(now.reason, now.evaluations, now.usage.calls)}\n\n{_quoted(first)}\n",
        where=_where(about.task, first),
        fix=_fix(about.task, first, now.reason),
    )


def _headline(reason: str, evaluations: int, calls: int) -> str:
    spent = f"{count(calls, 'model call')} made" if calls else "no model was asked"
    if reason == "initial_fails":
        return f"the initial program gives no score ({count(evaluations, 'evaluation')} failed, {spent}):"
    if reason == "always_fails":
        return f"the first {count(evaluations, 'evaluation')} all failed alike, so the search was ended ({spent}):"
    return f"none of {count(evaluations, 'evaluation')} gave a score ({spent}); the first one:"


def _quoted(failed: Observation) -> str:
    """Status, reason, and what the evaluator said, indented."""
    case = f" on case {failed.case}" if failed.case else ""
    reason = "" if failed.reason in ("", failed.status.value) else f" ({failed.reason.replace('_', ' ')})"
    lines = failed.feedback.strip().splitlines()[-_LINES:]
    if printed := failed.artifacts.get(EVALUATOR_LOG, "").strip():
        lines += ["the evaluator printed:", *printed.splitlines()[-_LINES:]]
    return "\n".join([f"    {failed.status.value}{reason}{case}", *(f"    {line}".rstrip() for line in lines)])


def _where(task: Task, failed: Observation) -> str:
    place = errors.in_text(failed.feedback)
    return str(place) if place is not None else task.evaluator.path or "the evaluator"


def _fix(task: Task, failed: Observation, reason: str) -> str:
    place = errors.in_text(failed.feedback)
    alone = "culmen.check(seed, evaluator)" if task.evaluator.form == "function" else f"culmen check {task.root or '.'}"
    if failed.status is Status.TIMEOUT:
        first = "raise the limit of seconds, or make the program faster"
    elif place is not None:
        first = f"correct {place.short}"
    else:
        first = "correct the evaluator, or the initial program if the evaluator is right"
    anyway = "; to search all the same: allow_failing (--allow-failing)" if reason else ""
    return f"{first}; {alone} tries it without a search{anyway}"
