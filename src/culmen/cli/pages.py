"""Printed pages on a run: status and end, best, candidate, lineage, next commands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from culmen.cli.screen import Answer, Screen
from culmen.core.candidate import INITIAL
from culmen.core.evaluation import EVALUATOR_LOG, LOG
from culmen.core.extensions import find_part
from culmen.core.json import JsonObject
from culmen.core.usage import Usage
from culmen.core.wording import clip_middle
from culmen.report import sentences, story
from culmen.report.displays import usage_texts
from culmen.report.facts import result_facts
from culmen.report.figures import (
    column_decimals,
    count_text,
    dollars_text,
    duration_text,
    escape_controls,
    failed_text,
    join_nonempty,
    number_text,
    percent_text,
    run_name,
    score_with_margin,
    traces_line,
)
from culmen.report.summary import RunSummary, summarize_run
from culmen.store import views
from culmen.store.views.run import WINDOW

if TYPE_CHECKING:
    from culmen.core.candidate import Candidate
    from culmen.core.evaluation import Observation
    from culmen.report.story import Story
    from culmen.store.views import CandidateDetail, CandidateRow, Front, RunLine, RunStatus, Step

INTERRUPTED, FINDINGS = 130, 1
_NAME = 28  # characters of the name of a group
_MEMBERS = 20  # of a front that a terminal lists
_FEEDBACK = 600  # characters of one feedback


def show_run_list(screen: Screen, lines: Sequence[RunLine]) -> None:
    """One line for each run."""
    decimals = column_decimals(line.best for line in lines if line.best is not None)
    rows: list[tuple[str, ...]] = []
    for line in lines:
        score = number_text(line.best, decimals)
        score = score_with_margin(line.best, line.margin) if line.margin else score
        score = f"front of {line.front:,}" if line.front else score
        made = f"{line.evaluations:,}"
        rows.append((line.run, score, line.trust, made, line.state, strategy_name(line.strategy)))
    columns = ["run", "best", "trust", "evaluations", "state", "strategy"]
    screen.print_table(columns, rows, right="best evaluations")


def _origin_text(operator: str, model: str, note: str = "") -> str:
    """Origin of a candidate: `offline:cma`, `rewrite, openai/gpt-5-mini`."""
    name = "initial program" if operator == INITIAL else operator
    return join_nonempty([name, "" if operator.startswith(model) else model, note])


def show_run_summary(screen: Screen, summary: RunSummary, err: bool = False) -> None:
    """Print the first lines of every page on a run, and further findings."""
    rows = list(summary.lines)
    rows += [row for each in summary.other_findings for row in (f"! {each.what}", _remedy(each.do))]
    _print_lines(screen, summary, rows, err)


def _remedy(do: str) -> str:
    return f"  try: {do}"


def _print_lines(
    screen: Screen, summary: RunSummary, rows: Sequence[str], err: bool = False
) -> None:
    console = screen.err if err else screen.out
    styles = {summary.result: "bold", summary.cause: "bold red"}
    marks = {"!": "yellow", " ": "dim"}
    for text in rows:  # a command must come out of a terminal as one piece
        whole = not console.is_terminal or text.startswith("next:")
        style = styles.get(text) or marks.get(text[:1])
        console.print(escape_controls(text), style=style, markup=False, soft_wrap=whole)
    console.print()


def show_status(screen: Screen, now: RunStatus, path: Path) -> None:
    """One run, label by label."""
    summary, front = summarize_run(path, now), views.pareto_front(path)
    show_run_summary(screen, summary)
    objective = "maximise" if now.direction == "max" else "minimise"
    if front is not None:
        objective = join_nonempty(f"{goal.name} {goal.direction}" for goal in front.objectives)
    target = "" if now.target is None else f", target {number_text(now.target)}"
    owner = "" if now.owner is None else f"by {now.owner}"
    ended = sentences.end_reason(now)
    reason = owner if now.state == "running" else ended
    screen.print_heading(now.run, now.state + (f": {reason}" if reason else ""))
    models = (name if role == "default" else f"{role}={name}" for role, name in now.models.items())
    limit = "" if now.budget.seconds is None else f" of {duration_text(now.budget.seconds)}"
    further = now.evaluations - sum(now.statuses.values())  # these have no status of their own
    method = [strategy_name(now.strategy), f"random seed {now.seed}"]
    screen.print_pairs(
        ("task", f"{now.task_label} ({objective}{target})"),
        ("strategy", join_nonempty([*method, count_text(now.workers, "worker")])),
        ("model", join_nonempty(models)),
        *result_pairs(now, path),
        ("kept", reserve_text(now)),
        (
            "spent",
            join_nonempty([*usage_texts(now), duration_text(now.elapsed_seconds) + limit]),
        ),
        ("by role", by_role(path)),
        ("uncertain", uncertain_text(now)),
        ("lost", _lost_calls_text(now)),
        ("running", _in_flight_text(now, path)),
        ("agents", _agents_text(now)),
        ("advisor", _advisor_text(now)),
        ("alarms", _alarms_text(now)),
        ("candidates", f"{now.candidates:,}"),
        ("outcomes", _counts_text(now.statuses | {"to examine others": further})),
        ("failures", _counts_text(now.failures)),
        ("traces", traces_line(now)),
        ("faults", _faults_text(now, path)),
        ("isolation", now.isolation),
        ("files", f"written: {join_nonempty(now.written)}" if now.written else ""),
        ("folder", str(path)),
    )
    show_front(screen, front)
    screen.print_also(*summary.also)


def reserve_text(now: RunStatus) -> str:
    """The sentence on the reserve of the final choice; "" if it is a plain share."""
    kept = now.reserve
    return "" if kept is None else sentences.reserve_sentence(**msgspec.structs.asdict(kept))


def show_front(screen: Screen, front: Front | None, err: bool = False) -> None:
    """The members of a front, one a row: each metric with half the width of its 95 % interval."""
    if front is None or not front.members:
        return
    rows: list[tuple[str, str]] = []
    for member in front.members:
        failed = f", {member.failures} failed" if member.failures else ""
        facts = [
            sentences.metrics_text(member),
            count_text(member.count, "evaluation") + failed,
            "" if member.feasible else "violates a constraint",
            "← default choice" * (member.id == front.choice and len(front.members) > 1),
        ]
        rows.append((member.id, join_nonempty(facts)))
    rest = len(rows) - _MEMBERS
    if rest > 0 and screen.out.is_terminal:
        rows = [row for row in rows if rows.index(row) < _MEMBERS or row[0] == front.choice]
        rows.append(("", f"... {rest:,} more: --json lists them all"))
    sure = sentences.fresh_words(front.members) if front.confirmed else "not confirmed yet"
    size = f"{count_text(len(front.members), 'member')}, {sure}"
    volume = f"hypervolume {number_text(front.hypervolume)}"
    screen.print_pairs(("front", f"{size}, {volume}"), *rows, err=err)
    screen.print_pairs(("choice", f"{front.choice}: {sentences.choice_reason(front)}"), err=err)


def _in_flight_text(now: RunStatus, path: Path) -> str:
    """`4 effects, evaluate for 35 s already`: effects in flight, and the oldest."""
    if now.state != "running" or not now.in_flight:
        return now.sampling
    texts = [count_text(now.in_flight, "effect")]
    for oldest in views.in_flight(path)[:1]:
        age = duration_text(max(0.0, now.elapsed_seconds - oldest.elapsed))
        texts.append(f"{oldest.effect} for {age} already")
    return join_nonempty([*texts, now.sampling])


def _agents_text(now: RunStatus) -> str:
    """`3 of 10, 2 had their turn, 41 experiments, best that counts 2.61; offline`."""
    agents = now.agents
    if agents is None:
        return ""
    facts = [
        f"{agents.begun} of {agents.of}",
        f"{agents.ended} had their turn",
        count_text(agents.experiments, "experiment"),
        "" if agents.best is None else f"best that counts {number_text(agents.best)}",
    ]
    return join_nonempty([join_nonempty(facts), escape_controls(agents.program)], "; ")


def _advisor_text(now: RunStatus) -> str:
    """`version 14 after 16 barriers, alpha 0.5, mean reward 1.2, entropy 0.8; no step: ...`."""
    training = now.training
    if training is None:
        return ""
    named = {"alpha": training.alpha, "mean reward": training.reward, "entropy": training.entropy}
    facts = [f"version {training.version} after {count_text(training.barriers, 'barrier')}"]
    facts += [
        f"{name} {number_text(round(value, 3))}"
        for name, value in named.items()
        if value is not None
    ]
    skip = f"no step: {training.skip.replace('_', ' ')}" if training.skip else ""
    return join_nonempty([join_nonempty(facts), skip], "; ")


def _alarms_text(now: RunStatus) -> str:
    """`gradient spike in 3 of the last 20 barriers, the last one too`: the most frequent first."""
    training = now.training
    if training is None:
        return ""
    seen = count_text(min(training.barriers, WINDOW), "barrier")
    standing = ", the last one too"
    return join_nonempty(
        (
            f"{name.replace('_', ' ')} in {times} of the last {seen}"
            f"{standing if name in training.standing else ''}"
            for name, times in training.alarms.items()
        ),
        "; ",
    )


def by_role(path: Path) -> str:
    """Cost by role, dearest first, for evaluators that ask models; "" for all others.

    For example `judge 24 calls, 3,210 tokens, $0.02; proposer ...`.
    """
    rows = views.call_costs(path)
    if not any(row.effect == "ask" for row in rows):
        return ""
    spent: dict[str, Usage] = {}
    for row in rows:
        if row.usage.calls or row.usage.cache_hits:
            spent[row.role or row.effect] = spent.get(row.role or row.effect, Usage()) + row.usage
    return join_nonempty(
        (
            f"{role} {count_text(usage.calls, 'call')}, {usage.tokens:,} tokens, "
            f"{dollars_text(usage.dollars)}"
            for role, usage in spent.items()
        ),
        "; ",
    )


def _lost_calls_text(now: RunStatus) -> str:
    lost = now.usage.possibly_lost
    return (
        f"up to {count_text(lost.calls, 'call')}, {_usage_text(lost)} were cut off before a reply"
        if lost.calls
        else ""
    )


def uncertain_text(now: RunStatus) -> str:
    """Tokens and dollars that replies may have cost on top; "" if all costs are known."""
    usage, uncertain = now.usage, now.usage.uncertain
    if uncertain == Usage():
        return ""
    known = usage.input_tokens + usage.output_tokens
    if not known and now.budget.tokens is None and not uncertain.dollars:
        calls = count_text(usage.calls, "call")
        return f"the model reports no usage: tokens of {calls} are not known"
    more = _usage_text(uncertain)
    return f"may have cost up to {more} more: replies broke off, or did not report their usage"


def _usage_text(usage: Usage) -> str:
    return join_nonempty(
        [
            dollars_text(usage.dollars) if usage.dollars else "",
            f"{usage.tokens:,} tokens" if usage.tokens else "",
        ]
    )


def _counts_text(counts: dict[str, int]) -> str:
    return join_nonempty(
        f"{value:,} {name.replace('_', ' ')}" for name, value in list(counts.items())[:6] if value
    )


def _faults_text(now: RunStatus, path: Path) -> str:
    """Faults of answers by name, each with its share of the requests for candidates."""
    asked = sum(row.effects for row in views.call_costs(path) if row.effect == "propose")
    counts = [(name.replace("_", " "), count) for name, count in list(now.faults.items())[:6]]
    return join_nonempty(
        f"{count:,} {name}" + (f" ({percent_text(count / asked)})" if 0 < count <= asked else "")
        for name, count in counts
    )


def exit_code(now: RunStatus) -> int:
    """Exit code for the end of a run."""
    if now.is_finished:
        is_sound = now.best is not None and now.best.has_verdict and not now.is_unanswered
        return FINDINGS if now.reason == "integrity" or not is_sound else 0
    return INTERRUPTED


def status_document(now: RunStatus, path: Path) -> JsonObject:
    """The status as plain data, with next commands.

    The key `error` is reserved for answers that are errors: a run's error is in `message`.
    """
    plain = msgspec.to_builtins(now)
    message = plain.pop("error", "")
    strategy, summary = strategy_name(now.strategy), summarize_run(path, now)
    return {
        **plain,
        "strategy": strategy,
        "result": "" if now.best is None else summary.result,
        "summary": summary,
        "front": views.pareto_front(path),
        "message": message,
        "traces": traces_line(now),
        "next": [summary.command],
        "also": [command for command, _ in summary.also],
    }


class Ending(NamedTuple):
    """The result of a run in the terms of its task, beside culmen's own lines (slot `endings`).

    `key` names `data` in the JSON document.
    """

    key: str
    data: Any
    show: Callable[[Screen], None]


def end_answer(path: Path, more: JsonObject, code: int | None = None) -> Answer:
    """The answer of a verb that ends with this run; `code` replaces the usual exit code."""
    now, form = views.run_status(path), views.run_meta(path).task.evaluator.form
    make: Callable[[Path], Ending | None] | None = find_part("endings", form)
    ending = make(path) if make is not None else None
    data = {**status_document(now, path), **more}
    if ending is not None:
        data[ending.key] = ending.data

    def show(screen: Screen) -> None:
        show_end(screen, now, path)
        if ending is not None:
            ending.show(screen)

    return Answer(data, show, exit_code(now) if code is None else code)


def show_end(screen: Screen, now: RunStatus, path: Path) -> None:
    """Print the end of a run: the result, a picture of the search, and the next command."""
    screen.print_line()
    summary = summarize_run(path, now, with_picture=True)
    _print_lines(screen, summary, summary.ending)


def result_pairs(now: RunStatus, path: Path) -> list[tuple[str, str]]:
    """Score, trust and certificate of the best, and signs of gaming, as labels with texts."""
    best, facts = now.best, result_facts(path, now)
    if best is None:
        return [("best", "nothing has scored"), ("", now.scoring.why)]
    score = (
        f"{sentences.reported_score_text(best)}  {'default choice ' * bool(best.front)}{best.id}"
    )
    return [
        ("front" if best.front else "best", score),
        ("", "" if best.front else sentences.say("basis", facts)),
        ("trust", sentences.say("trust", facts)),
        ("", now.scoring.why),
        ("certified", "" if best.front else sentences.say("certificate", facts)),
        ("tolerance", "" if best.front else escape_controls(best.tolerance)),
        ("findings", sentences.say("signs", facts)),
    ]


def strategy_name(strategy: str) -> str:
    """The catalog name of a strategy's class: `Polca` -> `polca`."""
    from culmen.strategies.catalog import names_by_path

    return next(
        (name for path, name in names_by_path().items() if path.endswith(f":{strategy}")), strategy
    )


def show_best(
    screen: Screen,
    path: Path,
    candidate: Candidate,
    files: Sequence[Path],
    several: Front | None = None,
    asked: str = "",
) -> None:
    """Print the best candidate: facts to standard error, text to standard output.

    The text is not printed if it went to `files`. With several objectives: the front, and the text
    of the `candidate` chosen from it by the weights and limits `asked` for, if any.
    """
    show_run_summary(screen, summarize_run(path), err=True)
    if several is None:
        screen.print_pairs(*result_pairs(views.run_status(path), path), err=True)
    else:
        show_front(screen, several, err=True)
        screen.print_pairs(("printed", _printed_member(candidate.id, asked)), err=True)
    for file in files:
        screen.print_line(f"wrote {file}")
    if not files:
        if screen.out.is_terminal:
            screen.print_line()
        screen.print_text(candidate.text)
    run = run_name(path)
    is_changed = candidate.origin.operator != INITIAL
    changed = [(f"culmen show {run} --diff seed", "what changed")] * is_changed
    screen.print_next_steps(
        *changed,
        (f"culmen show {run}", "its evaluations; --lineage, --explain"),
        err=True,
    )


def _printed_member(name: str, asked: str) -> str:
    """`0a1b2c3d4e5f, the default choice`, or the weights and limits that chose it."""
    return (
        f"{name}, {f'nearest to the best values with {asked}' if asked else 'the default choice'}"
    )


def show_candidate(screen: Screen, detail: CandidateDetail, prompt: bool) -> None:
    """One candidate in full."""
    row, candidate = detail.row, detail.candidate
    origin = candidate.origin
    screen.print_heading(candidate.id, _origin_text(origin.operator, origin.model, origin.note))
    screen.print_pairs(
        ("parents", join_nonempty(candidate.parents)),
        ("children", join_nonempty(detail.children)),
        ("score", score_line(row)),
        ("trust", row.trust),
        ("certified", "" if row.certified is None else repr(row.certified)),
        ("outcomes", _counts_text(detail.outcomes)),
        ("signs", _signs_text(detail.observations)),
        ("idea", detail.hypothesis),
    )
    if detail.observations:
        screen.print_line()
        _show_observations(screen, detail.observations, detail.phases)
    for name, text in candidate.parts.items():
        screen.print_rule(name)
        screen.print_code(text, name)
    if prompt:
        for title, text in (("prompt", detail.prompt), ("reply", detail.reply)):
            screen.print_rule(title)
            screen.print_text(text or f"(no {title}: this candidate did not come from a model)")


def _signs_text(observations: Sequence[Observation]) -> str:
    """`frames (line 12: sys._getframe), clocks (...)`, grave ones first."""
    unique = {(s.name, s.evidence): s for o in observations for s in o.signs}
    ordered = sorted(unique.values(), key=lambda s: not s.grave)
    return join_nonempty(
        f"{s.name} ({f'line {s.line}: ' if s.line else ''}{s.evidence})" for s in ordered
    )


def score_line(row: CandidateRow) -> str:
    """`2.512 ± 0.010, mean of 12 evaluations`; of the final choice or of the search."""
    if row.mean is None:
        return "none"
    score, many = score_with_margin(row.mean, row.margin), count_text(row.count, "evaluation")
    search = number_text(row.search_mean)
    if row.expected:
        return f"{score}, expected from {many} (mean {search}) and its relatives"
    line = f"{score}, mean of {many}"
    if not row.fresh:
        return line
    before = f"the search: {search} over {row.search_count:,}"
    texts = [failed_text(row.fresh_failures), before * bool(row.search_count)]
    return join_nonempty([f"{line} of the final choice", *texts], "; ")


_PHASES = {"": "search", "choice": "choice", "final": "final choice"}


def _show_observations(
    screen: Screen, observations: Sequence[Observation], phases: Sequence[str]
) -> None:
    shown = observations[-20:]  # evaluations listed by `show`; the rest are counted
    decimals = column_decimals(o.score for o in shown if o.score is not None)
    with_cases, with_phases = any(o.case for o in shown), any(phases)
    rows = []
    for o, phase in zip(shown, phases[-len(shown) :], strict=True):
        outcome = (
            number_text(o.score, decimals)
            if o.ok
            else join_nonempty([o.status.value, _reason_text(o.reason)], ": ")
        )
        metrics = join_nonempty(
            f"{name} {value:.4g}" for name, value in o.metrics.items() if name not in ("score",)
        )
        made = (_PHASES.get(phase, phase),) * with_phases
        rows.append((o.case,) * with_cases + (outcome, f"{o.seconds:.2f} s", *made, metrics))
    columns = ["case"] * with_cases + ["score", "time"] + ["made in"] * with_phases + ["metrics"]
    screen.print_table(columns, rows, right="score time")
    if len(observations) > len(shown):
        screen.print_line(
            f"and {count_text(len(observations) - len(shown), 'earlier evaluation')}", style="dim"
        )
    texts = {
        "feedback of the last one": next((o.feedback for o in reversed(shown) if o.feedback), "")
    }
    texts["printed during the last evaluation"] = shown[-1].artifacts.get(LOG, "")
    texts["printed by the evaluator"] = shown[-1].artifacts.get(EVALUATOR_LOG, "")
    for title, text in texts.items():
        if text.strip():
            screen.print_rule(title)
            screen.print_text(clip_middle(text, _FEEDBACK))


def _reason_text(reason: str) -> str:
    """`score out of bounds`; the evaluator, where its own answer was that there is no score."""
    return "by the evaluator" if reason == "invalid" else reason.replace("_", " ")


def show_lineage(screen: Screen, steps: Sequence[Step]) -> None:
    """The ancestors of a candidate, the initial program first."""
    decimals = column_decimals(step.row.mean for step in steps if step.row.mean is not None)
    rows = [
        (
            str(number),
            step.row.id,
            number_text(step.row.mean, decimals),
            "" if step.gain is None else f"{step.gain:+.{decimals}f}",
            step.row.trust,
            str(step.row.count),
            _origin_text(step.row.operator, step.row.model, step.note),
        )
        for number, step in enumerate(steps)
    ]
    screen.print_table(
        ["step", "id", "score", "gain", "trust", "n", "how"], rows, right="step score gain n"
    )


def show_story(screen: Screen, path: Path, told: Story) -> None:
    """The steps of a run with gain, idea and cost; what was tried in vain."""
    screen.print_heading(told.result)
    if told.why:
        screen.print_line(told.why)
    if told.steps:
        screen.print_line(story.way_line(told), style="dim")
        screen.print_line()
        screen.print_definitions(
            (
                f"{step.number}  {story.gain_text(step)}",
                step.sentence,
                join_nonempty(story.step_facts(told, step), " · "),
            )
            for step in told.steps
        )
    for note in told.notes:
        screen.print_line(note, style="dim")
    if told.vain:
        screen.print_rule("tried in vain")
        screen.print_definitions(
            (_shorten_name(group.name), group.sentence, story.vain_text(group))
            for group in told.vain
        )
    if told.steps:
        largest = max(told.steps, key=lambda step: step.share)
        change = f"culmen show {run_name(path)} {largest.end[:8]} --diff {largest.base[:8]}"
        screen.print_next_steps((change, f"what step {largest.number} changed"))


def _shorten_name(name: str) -> str:
    return name if len(name) <= _NAME else name[: _NAME - 1] + "…"
