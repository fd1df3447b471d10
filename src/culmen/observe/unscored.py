"""What to say of a search that has ended without a single score: its evaluator's own words, and the line to change."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from culmen.core import blame
from culmen.core.errors import NothingScored
from culmen.core.evaluation import EVALUATOR_LOG, Observation, Status
from culmen.core.task import Task
from culmen.observe.figures import count
from culmen.store import views

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
    place = blame.in_text(failed.feedback)
    return str(place) if place is not None else task.evaluator.path or "the evaluator"


def _fix(task: Task, failed: Observation, reason: str) -> str:
    place = blame.in_text(failed.feedback)
    alone = "culmen.check(seed, evaluator)" if task.evaluator.form == "function" else f"culmen check {task.root or '.'}"
    if failed.status is Status.TIMEOUT:
        first = "raise the limit of seconds, or make the program faster"
    elif place is not None:
        first = f"correct {place.short}"
    else:
        first = "correct the evaluator, or the initial program if the evaluator is right"
    anyway = "; to search all the same: allow_failing (--allow-failing)" if reason else ""
    return f"{first}; {alone} tries it without a search{anyway}"
