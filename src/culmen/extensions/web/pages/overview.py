"""Overview: state, best so far, budgets, effects in flight, and latest events."""

from __future__ import annotations

import difflib
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from culmen.core.candidate import key_of
from culmen.core.event import Event
from culmen.core.json import JsonObject
from culmen.core.pictures import is_picture
from culmen.core.result import FrontPoint, RunResult
from culmen.core.task import Objective
from culmen.extensions.web.factors.levels import NOTE, level_row, run_factors
from culmen.extensions.web.labels import read_labels
from culmen.extensions.web.pages.added import added_titles
from culmen.extensions.web.pages.lineage import score_domain
from culmen.extensions.web.pages.trust import belief_marks
from culmen.extensions.web.runs import Digest, fields_of
from culmen.report import sentences, story
from culmen.report.facts import result_document
from culmen.report.figures import margin_decimals
from culmen.report.summary import failure_output, summarize_run
from culmen.report.words import describe_entry
from culmen.store import sidecar, views
from culmen.store.address import read_pointer
from culmen.store.views import RunStatus

_KINDS = ("done", "note", "torn", "stop", "state", "tell")
# characters of a part, before and after, beyond which only the candidate's page shows its change
_BOOK = 60_000
_CELLS = 40, 15  # columns and rows of the chart of a run with many evaluations
_CHANGE = 120  # lines of a step's change


def overview_page(run: Digest, params: Mapping[str, str]) -> JsonObject:
    """All contents of the first page.

    Scores are in the task's own direction, times in active seconds.
    """
    run.refresh()
    # first the course: it reads the evidence that all others share
    course = run.memoise_result("course", run.last, lambda: _leader_course(run))
    now, about, running = views.run_status(run.run), run.meta, views.in_flight(run.run)
    progress = run.memoise_result("progress", run.last, lambda: progress_series(run))
    scores = run.memoise_result("scores", run.last, lambda: _search_evaluations(run))
    lines = reference_levels(about.task.objective, run, now.best)
    return {
        **run_facts(now, run),
        "goal": about.task.goal.strip(),
        "config": about.strategy.get("config") or {},
        "spending": spending_facts(now),
        "summary": _run_summary(run, now)
        if now.state == "running"
        else run.memoise_result(
            f"summary {now.state} {run.run.name}", run.last, lambda: _run_summary(run, now)
        ),
        "score": "" if now.best is None else sentences.reported_score_text(now.best),
        "progress": progress[-1:] if course else progress,
        "course": course,
        "scores": scores,
        "domain": _axis_of_scores(scores, course or progress, lines, now),
        "story": _run_story(run, now),
        "lines": lines,
        "bounds": list(about.task.objective.bounds),
        "front": _kept_front(run),
        "belief": belief_marks(run, now),
        "in_flight": _in_flight(run, running[:50]),  # effects in flight that are listed
        "questions": _waiting_questions(run),
        "running": len(running) if now.state == "running" else 0,
        "pictures": run.memoise_result("pictures", run.last, lambda: _best_pictures(run, now)),
        "change": run.memoise_result("change", run.last, lambda: _best_changes(run, now)),
        "events": [_event_row(event) for event in _latest_events(run)],
        "usage": msgspec.to_builtins(now.usage),
        "statuses": now.statuses,
        "notes": list(about.task.notes),
    }


def _axis_of_scores(
    scores: Sequence[JsonObject],
    course: Sequence[JsonObject],
    lines: Mapping[str, float | None],
    now: RunStatus,
) -> tuple[float, float]:
    """The range of the chart of scores: the lines on it, and all scores that are not far off."""
    kept = [*(point["score"] for point in course), *lines.values()]
    kept += [] if now.best is None else [now.best.score]
    return score_domain(
        [each["score"] for each in scores if each["score"] is not None],
        [value for value in kept if value is not None],
        -1 if now.direction == "min" else 1,
    )


def _run_story(run: Digest, now: RunStatus) -> JsonObject:
    """The story of the run with its texts."""
    return run.memoise_result("story", _story_stage(run, now), lambda: _story_document(run, now))


def _story_stage(run: Digest, now: RunStatus) -> int:
    """A number that changes when the story is to be made anew: of a running run, now and then."""
    best = 0 if now.best is None else key_of(now.best.id)
    if now.state != "running":
        return best ^ run.last
    return best ^ (now.evaluations // max(20, 10 ** (len(str(now.evaluations)) - 1)))


def _story_document(run: Digest, now: RunStatus) -> JsonObject:
    told = story.run_story(run.run, now, run.dollars_at)
    moves = _metric_moves(run)
    steps = [
        {
            **msgspec.to_builtins(step),
            "gained": story.gain_text(step),
            "facts": [*(facts := story.step_facts(told, step))[:-2], *moves(step), facts[-2]],
            "cost": story.cost_text(step),
            "change": _change_text(run, step.base, step.end),
        }
        for step in told.steps
    ]
    vain = [{**msgspec.to_builtins(group), "words": story.vain_text(group)} for group in told.vain]
    line = story.way_line(told) if steps else ""
    return {**msgspec.to_builtins(told), "line": line, "steps": steps, "vain": vain}


def _metric_moves(run: Digest) -> Callable[[story.StoryStep], list[str]]:
    """A function from a step to how each of several objectives changed in it."""
    front = _kept_front(run)
    points = [] if front is None else [*front["others"], *front["members"], front["start"]]
    known = {each["id"]: msgspec.convert(each, FrontPoint) for each in points if each}
    goals = run.meta.task.objective.metrics

    def moves(step: story.StoryStep) -> list[str]:
        if step.base not in known or step.end not in known:
            return []
        ends = known[step.base], known[step.end]
        return [sentences.moved_text(goal, *ends) for goal in goals]

    return moves


def factors_page(run: Digest, params: Mapping[str, str]) -> JsonObject:
    """The gain of each kind of origin, with its texts."""
    run.refresh()
    now = views.run_status(run.run)
    return run.memoise_result("factors", _story_stage(run, now), lambda: _factors_document(run))


def _factors_document(run: Digest) -> JsonObject:
    found = [
        msgspec.to_builtins(each)
        | {"levels": [msgspec.to_builtins(one) | {"row": level_row(one)} for one in each.levels]}
        for each in run_factors(run.run, run.spent_at)
    ]
    return {"factors": found, "note": NOTE}


def _change_text(run: Digest, first: str, second: str) -> str:
    """The unified diff between two candidates, cut at `_CHANGE` lines; long parts are left out."""
    old, new = (
        views.candidate_detail(run.run, name, observations=0, children=0).parts
        for name in (first, second)
    )
    lines: list[str] = []
    for name in dict.fromkeys([*old, *new]):
        before, after = old.get(name, ""), new.get(name, "")
        if before != after and len(before) + len(after) <= _BOOK:
            texts = before.splitlines(), after.splitlines()
            lines += difflib.unified_diff(*texts, name, name, lineterm="")
    rest = len(lines) - _CHANGE
    return "\n".join([*lines[:_CHANGE], *([f"... {rest:,} more lines"] if rest > 0 else [])])


def _in_flight(run: Digest, running: Sequence[views.EffectMark]) -> list[JsonObject]:
    """Effects in flight, oldest first, with their start and their candidate."""
    subjects = views.effect_subjects(run.run, [mark.seq for mark in running])
    facts = [
        {"key": mark.key, "effect": mark.effect, "since": mark.elapsed, "of": "", "case": ""}
        for mark in running
    ]
    return [fact | subjects.get(mark.seq, {}) for fact, mark in zip(facts, running)]


def _waiting_questions(run: Digest) -> list[JsonObject]:
    """Prompts that wait for a person, with their waiting time in seconds."""
    now = time.time()
    return [
        {"number": q.number, "text": q.text, "waits": max(0.0, now - q.asked)}
        for q in sidecar.waiting_questions(run.run)
    ]


def _kept_front(run: Digest) -> JsonObject | None:
    return run.memoise_result("front", run.last, lambda: _pareto_front(run))


def _pareto_front(run: Digest) -> JsonObject | None:
    """The Pareto front; None if the task has a single score."""
    if not run.meta.task.objective.metrics:
        return None
    front = views.pareto_front(run.run, history=True)
    if front is None:
        return None
    plain = msgspec.to_builtins(front)
    return plain | {
        "others": plain["others"][:1000],  # candidates drawn besides the front
        "constraints": [
            msgspec.to_builtins(each) | {"text": str(each)} for each in front.constraints
        ],
        "why": sentences.choice_reason(front) if front.members else "",
    }


def _leader_course(run: Digest) -> list[JsonObject]:
    """The leader over time: its expected score with the 95 % interval."""
    points = views.leader_course(run.run, run.meta)
    return [
        fields_of(point, "evaluations", "candidate", "score", "low", "high")
        | {"seconds": point.elapsed, "dollars": dollars}
        for point, dollars in zip(points, run.dollars_at([point.seq for point in points]))
    ]


def _search_evaluations(run: Digest) -> list[JsonObject]:
    """Evaluations of the search.

    One may represent `count` similar ones; `score` is None if it gave none.
    """
    found = views.search_evaluations(run.run, _CELLS)
    return [
        fields_of(each, "score", "count", "status", "candidate", "operator", "model", "island")
        | {"evaluations": each.n, "seconds": each.elapsed, "dollars": dollars}
        for each, dollars in zip(found, run.dollars_at([each.seq for each in found]))
    ]


def _best_changes(run: Digest, now: RunStatus) -> JsonObject | None:
    """Changes of the best candidate from the initial program.

    Only parts that differ and are not too long. None without an initial program, or if it is the
    best itself.
    """
    initial = views.initial_program(run.run)
    if now.best is None or initial in ("", now.best.id):
        return None
    was, best = (
        views.candidate_detail(run.run, name, observations=0, children=0)
        for name in (initial, now.best.id)
    )
    parts = {
        name: {"before": before, "after": after}
        for name in dict.fromkeys([*was.parts, *best.parts])
        if (before := was.parts.get(name, "")) != (after := best.parts.get(name, ""))
        and len(before) + len(after) <= _BOOK
    }
    return {
        "from": was.id,
        "to": best.id,
        "parts": parts,
        "patch": _change_text(run, was.id, best.id),
        "language": run.meta.task.surface.language,
    }


def _best_pictures(run: Digest, now: RunStatus) -> list[JsonObject]:
    """Pictures of the best by name, each beside the initial program's ("" where it has none)."""
    if now.best is None:
        return []
    initial = views.initial_program(run.run)
    best = _last_pictures(run, now.best.id)
    was = _last_pictures(run, initial) if initial and best else {}
    return [
        {"name": name, "initial": was.get(name, ""), "best": text} for name, text in best.items()
    ]


def _last_pictures(run: Digest, name: str) -> dict[str, str]:
    """Pictures of the last evaluation of a candidate that drew some."""
    seen = views.candidate_detail(run.run, name, observations=20, children=0).observations
    drawn = (
        {key: text for key, text in (each.artifacts or {}).items() if is_picture(text)}
        for each in reversed(seen)
    )
    return next((found for found in drawn if found), {})


def _run_summary(run: Digest, now: RunStatus) -> JsonObject:
    """The summary of the run: its lines, and further findings."""
    summary = summarize_run(run.run, now, run.run.name)
    others = [msgspec.to_builtins(each) for each in summary.other_findings]
    return {
        **msgspec.to_builtins(summary),
        "lines": list(summary.lines),
        "cause_detail": summary.cause_detail,
        "failure": failure_output(run.run, now),
        "others": others,
    }


def head_page(run: Digest, params: Mapping[str, str]) -> JsonObject:
    """The heading of every page; its cost does not grow with the run."""
    return run_facts(views.run_status(run.run), run)


_FACTS = (
    *("run", "reason", "error", "direction", "evaluations", "candidates", "isolation", "models"),
    *("workers", "seed", "created"),
)


def run_facts(now: RunStatus, run: Digest) -> JsonObject:
    """Facts about the run on every page."""
    return {
        **fields_of(now, *_FACTS),
        **fields_of(run, "name", "strategy"),
        "task": run.meta.task.label,
        "state": now.state,
        "label": sentences.state_label(now.state, now.reason),
        "over": now.is_finished,
        "ended": sentences.end_reason(now),
        "elapsed": now.elapsed_seconds,
        "best": None if now.best is None else result_document(now.best),
        **fields_of(read_labels(run.run), "tags", "remark"),
        "owner": None if now.owner is None else str(now.owner),
        "path": str(read_pointer(run.run) or now.path),
        "added": added_titles(run),
    }


def spending_facts(now: RunStatus) -> JsonObject:
    """Every budget with its spending, `limit` None without a limit, and the pace so far."""
    usage = now.usage
    spent = {
        "evaluations": now.evaluations,
        "calls": usage.calls,
        "tokens": usage.input_tokens + usage.output_tokens,
        "dollars": usage.dollars,
        "seconds": now.elapsed_seconds,
    }
    return {
        "rows": [
            {"name": name, "spent": value, "limit": getattr(now.budget, name)}
            for name, value in spent.items()
        ],
        "final": now.budget.final,
        "state": now.state,
        "evaluations": now.evaluations,
        "dollars": usage.dollars,
        "elapsed": now.elapsed_seconds,
    }


def progress_series(run: Digest, steps: tuple[int, int] = views.FINE) -> list[JsonObject]:
    """The best candidate against evaluations, active seconds and known dollars."""
    points = views.progress_points(run.run, steps)
    return [
        fields_of(point, "evaluations", "count", "candidate")
        | {"seconds": point.elapsed, "dollars": dollars, "score": point.mean}
        for point, dollars in zip(points, run.dollars_at([point.seq for point in points]))
    ]


def reference_levels(
    objective: Objective, run: Digest, result: RunResult | None = None
) -> dict[str, float | None]:
    """Levels for comparison: the initial program's score, target, and best known value.

    The initial program has the score that the result compares with, once there is one, to the
    digits that its margin justifies.
    """
    initial = objective.start
    if result is not None and (first := result.initial) is not None:
        initial = round(first.score, margin_decimals(first.margin)) if first.margin else first.score
    elif initial is None:
        seeds = views.candidate_rows(run.run, "old", operator="seed", limit=1)
        initial = seeds[0].mean if seeds else None
    known = getattr(objective, "known", None)
    return {"initial": initial, "target": objective.target, "known": known}


def _latest_events(run: Digest) -> list[Event]:
    """The latest events to show, newest first."""
    # latest events among which those to show are searched
    events = views.log_events(run.run, max(0, run.last - 200), 200, _KINDS)
    return list(reversed(events))[:12]


def _event_row(event: Event) -> JsonObject:
    entry = event.entry
    return {
        **fields_of(event, "seq", "time"),
        **fields_of(entry, "elapsed", "kind", "effect"),
        "words": describe_entry(entry),
        "candidate": getattr(entry.result, "candidate", ""),
    }
