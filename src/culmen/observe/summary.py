"""Summary of a run from its journal: result, usage, next command, and problems.

Also the error for a search that ended without any score.
"""

from __future__ import annotations

import textwrap
from itertools import islice
from pathlib import Path

import msgspec

from culmen.core import errors
from culmen.core.errors import NothingScored
from culmen.core.evaluation import EVALUATOR_LOG, Observation
from culmen.core.task import Objective, Task
from culmen.observe import statements
from culmen.observe.diagnosis import DiagnosedRun, Finding, diagnose_run, failure_remedy
from culmen.observe.figures import (
    count_of_limit,
    count_text,
    dollars_text,
    duration_text,
    join_nonempty,
    number_text,
)
from culmen.observe.verdict import RunVerdict, front_span_text, run_verdict
from culmen.store import views
from culmen.store.views import Front, RunStatus


class RunSummary(msgspec.Struct, frozen=True):
    """A summary of a run; `result`, `used` and `next` are one line each.

    `verdict` is the result in one short sentence with details, `cause` the most serious of the
    `findings` if it explains the result (else ""). `command` is the command in `next` and `purpose`
    its purpose; `also` are further commands with theirs.
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

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines at the head of every view of a run, the cause first if there is one."""
        return (*filter(None, [self.cause]), self.result, self.used, self.next)

    @property
    def cause_detail(self) -> str:
        """The cause without the words that the verdict's headline already contains."""
        return self.cause.removeprefix(self.verdict.headline.removeprefix("Failed: ") + ": ")

    @property
    def other_findings(self) -> tuple[Finding, ...]:
        """The findings that `lines` does not contain."""
        return tuple(each for each in self.findings if each.what != self.cause)

    def __str__(self) -> str:
        told = (f"{finding.what}; try: {finding.do}" for finding in self.other_findings)
        return "\n".join([*self.lines, *told])


def summarize_run(run: Path, now: RunStatus | None = None, name: str = "") -> RunSummary:
    """The summary of a run at this moment.

    `name` is the run's name in commands ("": a name that works in this folder).
    """
    now = now or views.run_status(run)
    case = DiagnosedRun(now, run, name)
    findings = tuple(diagnose_run(now, run, case.name))
    cause = next((finding.what for finding in findings[:1] if finding.leads), "")
    (command, why), *also = _next_steps(case, findings)
    line = f"next: {command}  ({why})"
    front, objective = views.pareto_front(run), case.task.objective
    return RunSummary(
        result_line(now, objective, front),
        usage_line(now),
        line,
        findings,
        cause,
        command,
        tuple(also),
        why,
        run_verdict(now, objective, front, has_cause=bool(cause)),
    )


def result_line(now: RunStatus, objective: Objective, front: Front | None = None) -> str:
    """`initial 0.44 ± 0.09 → best 0.52 ± 0.04: +0.08, within noise`."""
    if now.best is None:
        failed = join_nonempty(
            f"{many:,} {status}" for status, many in now.statuses.items() if status != "ok"
        )
        return "nothing has scored" + (f": {failed}" if failed else " yet")
    if front is not None:
        return front_line(front)
    headline = statements.result_headline(now.best, now.state == "finished", objective)
    return join_nonempty([headline, unfinished_text(now)], "; ")


def unfinished_text(now: RunStatus) -> str:
    """`interrupted after 34 of 200 evaluations`; "" for a run that has finished or still runs."""
    if now.state in ("finished", "running"):
        return ""
    return f"{now.state} after {count_of_limit(now.evaluations, now.budget.evaluations)}"


def front_line(front: Front) -> str:
    """`front of 6, confirmed: accuracy 0.81 to 0.95, latency 3 to 20; hypervolume 12.5`."""
    spans = [
        f"{goal.name} {front_span_text(front, goal.name)}"
        for goal in front.objectives
        if front.members
    ]
    sure = "confirmed" if front.confirmed else "not confirmed by fresh evaluations"
    broken = (
        "" if all(member.feasible for member in front.members) else "; none holds every constraint"
    )
    return (
        f"front of {len(front.members)}, {sure}: {join_nonempty(spans)}; hypervolume "
        f"{number_text(front.hypervolume)}{broken}"
    )


def usage_line(now: RunStatus) -> str:
    """Evaluations, calls, money and time."""
    usage = now.usage
    calls = tokens = money = ""
    if usage.calls:
        calls = count_text(usage.calls, "call")
        known = usage.input_tokens + usage.output_tokens
        tokens = f"{usage.input_tokens:,} + {usage.output_tokens:,} tokens" if known else ""
        money = dollars_text(usage.dollars) + (
            f" and {count_text(usage.unpriced, 'call')} of unknown price" * bool(usage.unpriced)
        )
    return join_nonempty(
        [
            "used " + count_text(now.evaluations, "evaluation"),
            calls,
            tokens,
            money,
            duration_text(now.elapsed_seconds),
        ]
    )


def _next_steps(case: DiagnosedRun, findings: tuple[Finding, ...]) -> list[tuple[str, str]]:
    """Useful commands, the most useful first, each with its purpose."""
    now, run = case.now, case.name
    actionable = [finding for finding in findings if finding.command]
    advised = [
        (finding.command, finding.do)
        for finding in actionable
        if finding.leads or finding.topic in _UNSURE
    ]
    others = [(finding.command, finding.do) for finding in actionable]
    if now.state == "running":
        steps = [advised[0]] if findings and findings[0].leads and advised else []
        return _unique_steps(
            [*steps, *_result_steps(case), *others, (f"culmen log {run}", "what happened so far")]
        )
    steps = [] if now.state == "finished" else [(case.resume_command, "go on")]
    if now.findings:
        steps.append((f"culmen audit {run}", "what looks like gaming"))
    if now.reason == "integrity":
        steps.append((case.fork_command("--integrity reject"), "go on without such candidates"))
    steps += advised[:1] if now.state == "finished" else []
    steps += _result_steps(case)
    if now.best is None:
        steps.append((f"culmen log {run}", "what happened"))
    elif now.state == "finished" and case.budget_extension:
        steps.append((case.fork_command(f"--budget {case.budget_extension}"), "go on with more"))
    return _unique_steps([*steps, *others])


_UNSURE = ("within_noise", "fallen")  # findings about a result that should be measured again


def _unique_steps(steps: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [
        step for n, step in enumerate(steps) if step[0] not in [command for command, _ in steps[:n]]
    ]


def _result_steps(case: DiagnosedRun) -> list[tuple[str, str]]:
    if case.now.best is None:
        return []
    changed = [(f"culmen diff {case.name} seed best", "what changed")] if case.task.seeds else []
    is_over = case.now.state != "running"
    return [(f"culmen best {case.name}", "print the best" + " so far" * (not is_over)), *changed]


# The error for a search that ended without any score: the evaluator's message, and the line to
# change.

_LOOKED = 200  # failed evaluations read
_LINES = 30  # of a feedback


def check_scored(run: Path) -> None:
    """Raise `NothingScored` for a finished run none of whose evaluations gave a score.

    A run with `allow_failing`, or without any evaluation, passes.
    """
    meta = views.run_meta(run)
    if meta.allow_failing:
        return
    now = views.run_status(run)
    if (
        now.state != "finished"
        or now.best is not None
        or not now.evaluations
        or now.statuses.get("ok")
    ):
        return
    first = next(islice((o for o in views.stream_observations(run) if not o.ok), _LOOKED), None)
    if first is None:
        return
    headline = _unscored_headline(now.reason, now.evaluations, now.usage.calls)
    raise NothingScored(
        f"{headline}\n\n{_quoted_failure(first)}\n",
        where=_failure_location(meta.task, first),
        fix=_failure_fix(meta.task, first, now.reason),
    )


def failure_output(run: Path, now: RunStatus) -> str:
    """The evaluator's own output on the first failed evaluation of a run that failed.

    Else the error that ended the run, if it has several lines; "" for other runs.
    """
    if now.shown_state != "failed":
        return ""
    if now.error:
        return now.error if "\n" in now.error.strip() else ""
    failed = next(islice((o for o in views.stream_observations(run) if not o.ok), _LOOKED), None)
    return "" if failed is None else textwrap.dedent(_quoted_failure(failed))


def _unscored_headline(reason: str, evaluations: int, calls: int) -> str:
    spent = f"{count_text(calls, 'model call')} made" if calls else "no model was asked"
    if reason == "initial_fails":
        return (
            f"the initial program gives no score ({count_text(evaluations, 'evaluation')} failed, "
            f"{spent}):"
        )
    if reason == "always_fails":
        return (
            f"the first {count_text(evaluations, 'evaluation')} all failed alike, so the search "
            f"was ended ({spent}):"
        )
    return f"none of {count_text(evaluations, 'evaluation')} gave a score ({spent}); the first one:"


def _quoted_failure(failed: Observation) -> str:
    """Status, reason and the evaluator's output, indented."""
    case = f" on case {failed.case}" if failed.case else ""
    reason = (
        ""
        if failed.reason in ("", failed.status.value)
        else f" ({failed.reason.replace('_', ' ')})"
    )
    lines = failed.feedback.strip().splitlines()[-_LINES:]
    if printed := failed.artifacts.get(EVALUATOR_LOG, "").strip():
        lines += ["the evaluator printed:", *printed.splitlines()[-_LINES:]]
    return "\n".join(
        [f"    {failed.status.value}{reason}{case}", *(f"    {line}".rstrip() for line in lines)]
    )


def _failure_location(task: Task, failed: Observation) -> str:
    location = errors.place_in_text(failed.feedback)
    return str(location) if location is not None else task.evaluator.path or "the evaluator"


def _failure_fix(task: Task, failed: Observation, reason: str) -> str:
    alone = (
        "culmen.check(seed, evaluator)"
        if task.evaluator.form == "function"
        else f"culmen check {task.root or '.'}"
    )
    anyway = "; to search all the same: allow_failing (--allow-failing)" if reason else ""
    return f"{failure_remedy(failed)}; {alone} tries it without a search{anyway}"
