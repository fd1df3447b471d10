"""Summary of a run from its journal: result, usage, next command, and problems.

Also its end in a few lines, and the error for a search that ended without any score.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import msgspec

from culmen.core import errors
from culmen.core.brief import refused_budget
from culmen.core.errors import NoAnswer, NothingScored
from culmen.core.evaluation import EVALUATOR_LOG, REFUSED, Observation
from culmen.core.task import Task
from culmen.report.causes import unanswered_text, words_for
from culmen.report.facts import Facts, check_command, read_facts, result_facts, task_root
from culmen.report.figures import (
    count_text,
    dollars_text,
    duration_text,
    join_nonempty,
    number_text,
)
from culmen.report.forecast import calls_text, spent_so_far
from culmen.report.sentences import (
    Finding,
    RunVerdict,
    failure_remedy,
    find_problems,
    run_verdict,
)
from culmen.store import views
from culmen.store.views import RunStatus


class RunSummary(msgspec.Struct, frozen=True):
    """A summary of a run; `result`, `used` and `next` are one line each.

    `verdict` is the result in one short sentence with details, `result` both together, and `cause`
    the most serious of the `findings` if it explains the result (else ""). `command` is the command
    in `next` and `purpose` its purpose; `also` are further commands with theirs. `picture` draws
    the search, of a run that is summarized with it.
    """

    result: str
    used: str
    next: str
    findings: tuple[Finding, ...] = ()
    cause: str = ""
    command: str = ""
    also: tuple[tuple[str, str], ...] = ()
    purpose: str = ""
    verdict: RunVerdict = RunVerdict("", "quiet")
    picture: str = ""

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines at the head of every view of a run, the cause first if there is one."""
        return (*filter(None, [self.cause]), self.result, self.used, self.next)

    @property
    def ending(self) -> tuple[str, ...]:
        """The end of a run: the result, a picture with what it cost, and one command.

        A cause stands before the result, or in its place if there is none; noise that hides any
        gain in place of the headline.
        """
        result = self.result if not (self.cause and self.verdict.tone == "bad") else ""
        if self.cause and self.findings[0].topic == _UNSURE:  # which says what the headline does
            result = "; ".join(self.verdict.details)
        drawn = "\n".join(filter(None, [self.picture, self.used]))
        drawn = drawn if "\n" in self.picture else drawn.replace("\n", "  ")
        return tuple(filter(None, [self.cause, result, drawn, self.next]))

    @property
    def cause_detail(self) -> str:
        """The cause without the words that the verdict's headline already contains."""
        return self.cause.removeprefix(self.verdict.headline.removeprefix("Failed: ") + ": ")

    @property
    def other_findings(self) -> tuple[Finding, ...]:
        """The findings that `lines` does not contain."""
        return tuple(each for each in self.findings if each.what != self.cause)

    def __str__(self) -> str:
        return "\n".join(self.ending)


def summarize_run(
    run: Path, now: RunStatus | None = None, name: str = "", with_picture: bool = False
) -> RunSummary:
    """The summary of a run at this moment.

    `name` is the run's name in commands ("": a name that works in this folder).
    """
    now = now or views.run_status(run)
    facts = read_facts(run, now, name)
    findings = tuple(find_problems(facts))
    cause = next((finding.what for finding in findings[:1] if finding.leads), "")
    (command, why), *also = _next_steps(facts, findings)
    verdict = run_verdict(facts, has_cause=bool(cause))
    return RunSummary(
        verdict.sentence,
        usage_line(run, now),
        f"next: {command}  ({why})",
        findings,
        cause,
        command,
        tuple(also),
        why,
        verdict,
        search_picture(run, now) if with_picture else "",
    )


def result_line(run: Path, now: RunStatus | None = None) -> str:
    """The result of a run in one sentence."""
    return run_verdict(result_facts(run, now)).sentence


def usage_line(run: Path, now: RunStatus) -> str:
    """Evaluations, calls, money and time."""
    usage = now.usage
    parts = [f"used {count_text(now.evaluations, 'evaluation')}"]
    if usage.calls:
        known = usage.input_tokens + usage.output_tokens
        tokens = f"{usage.input_tokens:,} + {usage.output_tokens:,} tokens" if known else ""
        unpriced = f" and {count_text(usage.unpriced, 'call')} of unknown price"
        limit = f" of {dollars_text(now.budget.dollars)}" if now.budget.dollars else ""
        money = f"{dollars_text(usage.dollars)}{limit}{unpriced * bool(usage.unpriced)}"
        made, answered = (round(each.calls) for each in spent_so_far(run))
        parts += [calls_text(usage.calls, made, answered), tokens, money]
    return join_nonempty([*parts, duration_text(now.elapsed_seconds)])


_BARS, _WIDTH = "▁▂▃▄▅▆▇█", 24  # heights, and columns of the picture


def search_picture(run: Path, now: RunStatus) -> str:
    """`0.96 ▁▂▄▆▇▇██ 2.5`: the best so far, from the first evaluation to the last.

    With several objectives it is the hypervolume of the front; of a run that failed, the end of
    the evaluator's own output. "" if there is no course to draw.
    """
    if now.best is None:
        return "\n".join(failure_output(run, now).splitlines()[-6:])
    if now.best.front:
        front = views.pareto_front(run, history=True)
        course = [] if front is None else list(front.growth)
    else:
        course = [(point.evaluations, point.mean) for point in views.progress_points(run)]
    return draw_course(course)


def draw_course(course: Sequence[tuple[int, float]]) -> str:
    """A course of values over a count as bars between its first and last value."""
    values = [value for _, value in course]
    if not values or min(values) == max(values):
        return ""
    last, low, span = course[-1][0], min(values), max(values) - min(values)
    bars = ""
    for column in range(_WIDTH):
        at = course[0][0] + (last - course[0][0]) * column / (_WIDTH - 1)
        value = [each for count, each in course if count <= at][-1]
        bars += _BARS[round((len(_BARS) - 1) * (value - low) / span)]
    first, end = (number_text(float(f"{value:.4g}")) for value in (values[0], values[-1]))
    return f"{first} {bars} {end}"


_UNSURE = "within_noise"  # the finding on a gain that should be measured longer


def _next_steps(f: Facts, findings: tuple[Finding, ...]) -> list[tuple[str, str]]:
    """Useful commands, the most useful first, each with its purpose."""
    others = [(each.command, each.do) for each in findings if each.command]
    advised = [
        (each.command, each.do)
        for each in findings
        if each.command and (each.leads or each.topic == _UNSURE)
    ]
    log = f"culmen show {f.run} --log"
    if f.state == "running":
        steps = advised[:1] if findings and findings[0].leads else []
        return _unique_steps([*steps, *_result_steps(f), *others, (log, "what happened so far")])
    again = [step for step in advised if step[0] == f.resume_command]
    steps = [] if f.is_finished else [*again, (f.resume_command, "go on")]
    if not f.is_finished and f.error and f.result is None and f.failed and not again:
        steps = [*others[:1], *steps]  # what ended it would end it again
    if f.findings:
        steps.append((f"culmen audit {f.run}", "what looks like gaming"))
    if f.reason == "integrity":
        steps.append((f.fork_command("--set integrity=reject"), "go on without such candidates"))
    steps += advised[:1] if f.is_finished else []
    if f.result is None or (f.is_alone and not f.is_untried):
        steps.append((log, "what happened"))
    more = [(f.fork_command(f"--budget {f.budget_extension}"), "go on with more")]
    more = more if f.is_finished and f.budget_extension and f.result is not None else []
    if f.is_compared and f.gain <= 0 and not f.objective.metrics:
        # the best is the program that one has already
        return _unique_steps([*steps, *more, *others, *_result_steps(f)])
    return _unique_steps([*steps, *_result_steps(f), *more, *others])


def _unique_steps(steps: list[tuple[str, str]]) -> list[tuple[str, str]]:
    purposes: dict[str, str] = {}
    for command, why in steps:
        purposes.setdefault(command, why)
    return list(purposes.items())


def _result_steps(f: Facts) -> list[tuple[str, str]]:
    if f.result is None:
        return []
    initial = f.result.initial
    is_changed = f.initials > 0 and (initial is None or initial.id != f.result.id)
    changed = [(f"culmen show {f.run} best --diff seed", "what changed")] * is_changed
    so_far = " so far" * (f.state == "running")
    what = "front" if f.result.front else "best"
    return [(f"culmen best {f.run}", f"print the {what}{so_far}"), *changed]


# The error for a search that ended without any score: the evaluator's message, and the line to
# change.

_LINES = 30  # of a feedback


def check_scored(run: Path) -> None:
    """Raise `NothingScored` for a finished run none of whose evaluations gave a score.

    Raises its child `NoAnswer` for one without a usable answer of a model. A run with
    `allow_failing`, or without any evaluation, passes.
    """
    meta, now = views.run_meta(run), views.run_status(run)
    if now.is_finished and now.best is not None and now.is_unanswered:
        worst = next(each for each in now.unanswered if each.is_alone)
        fix = words_for(worst.fault).remedy
        raise NoAnswer(unanswered_text(worst), where=worst.where or worst.model, fix=fix)
    if meta.allow_failing or not now.is_finished or now.state != "failed":
        return
    first = _first_failure(run)
    if first is None:
        return
    location = errors.place_in_text(first.feedback)
    where = str(location) if location is not None else meta.task.evaluator.path or "the evaluator"
    if name := refused_budget(first.reason):
        where = f"--budget {name}={getattr(meta.budget, name):g}"
    raise NothingScored(
        f"{_unscored_headline(now, first)}\n\n{_quoted_failure(first)}\n",
        where=where,
        fix=_failure_fix(meta.task, first, now.reason),
    )


def _first_failure(run: Path) -> Observation | None:
    failed = (o for o in views.stream_observations(run) if not o.ok)
    return next(islice(failed, 1), None)


def failure_output(run: Path, now: RunStatus) -> str:
    """The evaluator's own output on the first failed evaluation of a run that failed.

    Else the error that ended the run, if it has several lines; "" for other runs.
    """
    if now.state != "failed":
        return ""
    if now.error:
        return now.error if "\n" in now.error.strip() else ""
    failed = _first_failure(run)
    return "" if failed is None else textwrap.dedent(_quoted_failure(failed))


def _unscored_headline(now: RunStatus, first: Observation) -> str:
    calls, many = now.usage.calls, count_text(now.evaluations, "evaluation")
    spent = f"{count_text(calls, 'model call')} made" if calls else "no model was asked"
    if now.reason == "initial_fails":
        fails = "is refused" if first.reason == REFUSED else "gives no score"
        return f"the initial program {fails} ({many} failed, {spent}):"
    if now.reason == "always_fails":
        return f"the first {many} all failed alike, so the search was ended ({spent}):"
    return f"none of {many} gave a score ({spent}); the first one:"


def _quoted_failure(failed: Observation) -> str:
    """Status, reason and the evaluator's output, indented."""
    case = f" on case {failed.case}" if failed.case else ""
    is_plain = failed.reason in ("", failed.status.value)
    reason = "" if is_plain else f" ({failed.reason.replace('_', ' ')})"
    lines = failed.feedback.strip().splitlines()[-_LINES:]
    if printed := failed.artifacts.get(EVALUATOR_LOG, "").strip():
        lines += ["the evaluator printed:", *printed.splitlines()[-_LINES:]]
    quoted = [f"{failed.status.value}{reason}{case}", *lines]
    return "\n".join(f"    {line}".rstrip() for line in quoted)


def _failure_fix(task: Task, failed: Observation, reason: str) -> str:
    if refused_budget(failed.reason):
        return failure_remedy(failed, task.evaluator.form)
    alone = check_command(task.evaluator.form, task_root(task))
    trial = f"; {alone} tries it without a search" if alone else ""
    anyway = "; to search all the same: --set allow_failing=on" if reason else ""
    return f"{failure_remedy(failed, task.evaluator.form)}{trial}{anyway}"
