"""Printed pages on a run: status and end, best, candidate, lineage, next commands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from culmen.cli.screen import Answer, Screen
from culmen.core.evaluation import EVALUATOR_LOG, LOG, MEANINGS, SHOWN
from culmen.core.extensions import find_part
from culmen.core.json import JsonObject
from culmen.core.result import RunResult
from culmen.core.usage import Usage
from culmen.observe import factors, statements, story
from culmen.observe.displays import usage_texts
from culmen.observe.figures import (
    column_decimals,
    count_text,
    dollars_text,
    duration_text,
    escape_controls,
    join_nonempty,
    number_text,
    run_name,
    score_with_margin,
    short_path,
)
from culmen.observe.summary import RunSummary, summarize_run
from culmen.store import views
from culmen.store.views.run import WINDOW

if TYPE_CHECKING:
    from culmen.core.candidate import Candidate
    from culmen.core.evaluation import Observation
    from culmen.observe.factors import Factor
    from culmen.observe.story import Story
    from culmen.store.views import CandidateDetail, CandidateRow, Front, RunLine, RunStatus, Step

INTERRUPTED, FINDINGS = 130, 1
_SHOWN = 20  # evaluations listed by `show`; the rest are counted
_NAME = 28  # characters of the name of a group
_MEMBERS = 20  # of a front that a terminal lists
_FEEDBACK = 600  # characters of one feedback
_CALLS = {"propose": "proposal", "ask": "answer"}  # calls of models, by the effect that made them


def show_run_list(screen: Screen, lines: Sequence[RunLine]) -> None:
    """One line for each run."""
    decimals = column_decimals(line.best for line in lines if line.best is not None)
    scores = [
        f"front of {x.front:,}"
        if x.front
        else score_with_margin(x.best, x.margin)
        if x.margin
        else number_text(x.best, decimals)
        for x in lines
    ]
    rows = [
        (
            line.run,
            score,
            line.trust,
            f"{line.evaluations:,}",
            line.state,
            strategy_name(line.strategy),
        )
        for line, score in zip(lines, scores)
    ]
    screen.print_table(
        ["run", "best", "trust", "evaluations", "state", "strategy"], rows, right="best evaluations"
    )


def _origin_text(operator: str, model: str, note: str = "") -> str:
    """Origin of a candidate: `offline:cma`, `rewrite, openai/gpt-5-mini`."""
    name = "initial program" if operator == "seed" else operator
    return join_nonempty([name, "" if operator.startswith(model) else model, note])


def show_run_summary(screen: Screen, summary: RunSummary, err: bool = False) -> None:
    """Print the first lines of every page on a run, and further findings."""
    console = screen.err if err else screen.out
    styles = {summary.result: "bold", summary.cause: "bold red"}
    marks = [(f"! {each.what}", f"  try: {each.do}") for each in summary.other_findings]
    rows = [(line, styles.get(line)) for line in summary.lines]
    rows += [row for what, do in marks for row in ((what, "yellow"), (do, "dim"))]
    for text, style in rows:  # a command must come out of a terminal as one piece
        whole = not console.is_terminal or text.startswith("next:")
        console.print(escape_controls(text), style=style, markup=False, soft_wrap=whole)
    console.print()


def show_status(screen: Screen, now: RunStatus, path: Path) -> None:
    """One run, label by label."""
    summary = summarize_run(path, now)
    show_run_summary(screen, summary)
    objective, front = (
        f"{'maximise' if now.direction == 'max' else 'minimise'}",
        views.pareto_front(path),
    )
    if front is not None:
        objective = join_nonempty(f"{goal.name} {goal.direction}" for goal in front.objectives)
    target = "" if now.target is None else f", target {number_text(now.target)}"
    owner = "" if now.state != "running" or now.owner is None else f"by {now.owner}"
    reason = owner if now.state == "running" else run_end_reason(now)
    screen.print_heading(now.run, now.shown_state + (f": {reason}" if reason else ""))
    screen.print_pairs(
        ("task", f"{now.task_label} ({objective}{target})"),
        (
            "strategy",
            f"{strategy_name(now.strategy)}, random seed {now.seed}, "
            f"{count_text(now.workers, 'worker')}",
        ),
        ("model", join_nonempty(_role_and_model(role, name) for role, name in now.models.items())),
        *_best_rows(now.best, now.scoring.why),
        ("findings", findings_text(now)),
        (
            "spent",
            join_nonempty(
                [*usage_texts(now), duration_text(now.elapsed_seconds) + _of_seconds_limit(now)]
            ),
        ),
        ("by role", by_role(path)),
        ("uncertain", uncertain_text(now)),
        ("lost", _lost_calls_text(now)),
        ("running", _in_flight_text(now, path)),
        ("agents", _agents_text(now)),
        ("advisor", _advisor_text(now)),
        ("alarms", _alarms_text(now)),
        ("candidates", f"{now.candidates:,}"),
        ("outcomes", _counts_text(now.statuses)),
        ("failures", _counts_text(now.failures)),
        ("faults", _counts_text(now.faults)),
        ("isolation", now.isolation),
        ("folder", str(path)),
    )
    show_front(screen, front)
    screen.print_also(*summary.also)


def show_front(screen: Screen, front: Front | None, err: bool = False) -> None:
    """The members of a front, one a row: each metric with half the width of its 95 % interval."""
    if front is None or not front.members:
        return
    rows: list[tuple[str, str]] = []
    for member in front.members:
        facts = [
            f"{name} {score_with_margin(value, member.margins.get(name))}"
            for name, value in member.metrics.items()
        ]
        facts.append(
            count_text(member.count, "evaluation")
            + (f", {member.failures} failed" if member.failures else "")
        )
        facts.append("" if member.feasible else "violates a constraint")
        facts.append("← default choice" * (member.id == front.choice and len(front.members) > 1))
        rows.append((member.id, join_nonempty(facts)))
    rest = len(rows) - _MEMBERS
    if rest > 0 and screen.out.is_terminal:
        rows = [row for row in rows if rows.index(row) < _MEMBERS or row[0] == front.choice]
        rows.append(("", f"... {rest:,} more: --json lists them all"))
    sure = "confirmed" if front.confirmed else "not confirmed yet"
    screen.print_pairs(
        ("front", f"{count_text(len(front.members), 'member')}, {sure}"), *rows, err=err
    )
    screen.print_pairs(("choice", f"{front.choice}: {statements.choice_reason(front)}"), err=err)


def _in_flight_text(now: RunStatus, path: Path) -> str:
    """Number of effects in flight, and the oldest.

    For example `4 effects, evaluate for 35 s already`.
    """
    oldest = views.in_flight(path)[:1] if now.state == "running" and now.in_flight else []
    ages = [
        f"{each.effect} for {duration_text(max(0.0, now.elapsed_seconds - each.elapsed))} already"
        for each in oldest
    ]
    return join_nonempty(
        [count_text(now.in_flight, "effect") if now.in_flight else "", *ages, now.sampling]
    )


def _agents_text(now: RunStatus) -> str:
    """Progress of agents.

    For example `3 of 10, 2 had their turn, 41 experiments, best that counts 2.61; offline`.
    """
    agents = now.agents
    if agents is None:
        return ""
    return join_nonempty(
        [
            f"{agents.begun} of {agents.of}",
            f"{agents.ended} had their turn",
            count_text(agents.experiments, "experiment"),
            "" if agents.best is None else f"best that counts {number_text(agents.best)}",
        ]
    ) + (f"; {escape_controls(agents.program)}" if agents.program else "")


def _advisor_text(now: RunStatus) -> str:
    """Progress of a trained advisor.

    For example `version 14 after 16 barriers, alpha 0.5, mean reward 1.2, entropy 0.8; no step:
    group collapsed`.
    """
    training = now.training
    if training is None:
        return ""
    facts = [
        f"version {training.version} after {count_text(training.barriers, 'barrier')}",
        f"alpha {number_text(round(training.alpha, 3))}",
        "" if training.reward is None else f"mean reward {number_text(round(training.reward, 3))}",
        "" if training.entropy is None else f"entropy {number_text(round(training.entropy, 3))}",
    ]
    return join_nonempty(
        [
            join_nonempty(facts),
            "" if not training.skip else f"no step: {training.skip.replace('_', ' ')}",
        ],
        "; ",
    )


def _alarms_text(now: RunStatus) -> str:
    """Alarms of training, the most frequent first.

    For example `gradient spike in 3 of the last 20 barriers, the last one too`.
    """
    training = now.training
    if training is None or not training.alarms:
        return ""
    seen = min(training.barriers, WINDOW)
    alarms = (
        f"{name.replace('_', ' ')} in {times} of the last {count_text(seen, 'barrier')}"
        + (", the last one too" if name in training.standing else "")
        for name, times in training.alarms.items()
    )
    return join_nonempty(alarms, "; ")


def _role_and_model(role: str, name: str) -> str:
    return name if role == "default" else f"{role}={name}"


def spent_line(path: Path, now: RunStatus) -> str:
    """`$0.11 of $0.50: 480 proposals, 600 answers`: the calls of models, "" without any."""
    calls = Counter[str]()
    for row in views.call_costs(path):
        calls[_CALLS.get(row.effect, "other call")] += row.usage.calls
    made = [count_text(many, what) for what, many in calls.items() if many]
    if not made:
        return ""
    usage, limit = now.usage, now.budget.dollars
    money = "price unknown" if usage.unpriced and not usage.dollars else dollars_text(usage.dollars)
    return f"{money}{f' of {dollars_text(limit)}' if limit else ''}: {join_nonempty(made)}"


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


def _of_seconds_limit(now: RunStatus) -> str:
    return "" if now.budget.seconds is None else f" of {duration_text(now.budget.seconds)}"


def _lost_calls_text(now: RunStatus) -> str:
    lost = now.usage.possibly_lost
    return (
        f"up to {count_text(lost.calls, 'call')}, {_usage_text(lost)} were cut off before a reply"
        if lost.calls
        else ""
    )


def uncertain_text(now: RunStatus) -> str:
    """Tokens and dollars that replies may have cost on top; "" if all costs are known."""
    uncertain = now.usage.uncertain
    if uncertain == Usage():
        return ""
    if (
        not now.usage.input_tokens + now.usage.output_tokens
        and now.budget.tokens is None
        and not uncertain.dollars
    ):
        calls = count_text(now.usage.calls, "call")
        return f"the model reports no usage: tokens of {calls} are not known"
    return (
        f"may have cost up to {_usage_text(uncertain)} more: replies broke off, or did not report "
        "their usage"
    )


def _usage_text(usage: Usage) -> str:
    return join_nonempty(
        [
            dollars_text(usage.dollars) if usage.dollars else "",
            f"{usage.tokens:,} tokens" if usage.tokens else "",
        ]
    )


def _counts_text(counts: dict[str, int]) -> str:
    return join_nonempty(
        f"{value:,} {name.replace('_', ' ')}" for name, value in list(counts.items())[:6]
    )


def exit_code(now: RunStatus) -> int:
    """Exit code for the end of a run."""
    if now.state == "finished":
        return FINDINGS if now.reason == "integrity" or now.best is None else 0
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
        "state": now.shown_state,
        "strategy": strategy,
        "result": "" if now.best is None else summary.result,
        "summary": summary,
        "front": views.pareto_front(path),
        "message": message,
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
    """Print the end of a run."""
    screen.print_line()
    summary = summarize_run(path, now)
    show_run_summary(screen, summary)
    screen.print_heading(now.shown_state, run_end_reason(now))
    screen.print_pairs(
        *_best_rows(now.best, now.scoring.why),
        ("spent", spent_line(path, now)),
        ("findings", findings_text(now)),
        ("isolation", now.isolation),
        ("run", short_path(path)),
    )
    screen.print_also(*summary.also)


def _best_rows(best: RunResult | None, why: str = "") -> list[tuple[str, str]]:
    """Score, trust and certificate of the best; `why` explains its level of trust."""
    if best is None:
        return [("best", best_line(None)), ("", why)]
    if best.front:
        return [("front", best_line(best)), ("trust", trust_line(best)), ("", why)]
    return [
        ("best", best_line(best)),
        ("", statements.score_basis_text(best)),
        ("trust", trust_line(best)),
        ("", why),
        ("certified", certified_line(best)),
        ("tolerance", tolerance_line(best)),
    ]


def run_end_reason(now: RunStatus) -> str:
    """Reason for the end, in words."""
    return statements.end_reason(now.state, now.reason, now.error)


def best_line(best: RunResult | None) -> str:
    """`2.5123 ± 0.0012  0a1b2c3d4e5f`: the score with half the width of its 95 % interval.

    Of a front: its size, and its default choice.
    """
    if best is None:
        return "nothing has scored"
    choice = "default choice " * bool(best.front)
    return f"{statements.reported_score_text(best)}  {choice}{best.id}"


def trust_line(best: RunResult | None) -> str:
    """`scored apart: ...`, the level of trust and its meaning; "" without a score."""
    if best is None:
        return ""
    if best.tolerance.startswith(("used", "doubtful")):
        return "doubtful: the score may rest on a tolerance of the evaluator (see tolerance)"
    return f"{SHOWN.get(best.trust, best.trust)}: {MEANINGS[best.trust]}"


def tolerance_line(best: RunResult | None) -> str:
    """Result of the check without the evaluator's tolerances; "" if it was not made."""
    return "" if best is None else escape_controls(best.tolerance)


def certified_line(best: RunResult | None) -> str:
    """Result of the task's exact verifier, in all digits; "" without one or before it has run."""
    if best is None or best.strict is None:
        return ""
    if best.certified is None:
        return "no: the exact verifier does not accept it (show it for the reason)"
    passed = (
        "yes, exactly and as given" if best.strict else "not as given; repaired, strictly feasible"
    )
    return f"{passed}: {best.certified!r}"


def findings_text(now: RunStatus) -> str:
    """Number of candidates with a grave sign, and the best before the first; "" if none."""
    if not now.findings:
        return ""
    before = now.best_before_first_finding
    rest = (
        "nothing had scored before"
        if before is None
        else f"best before the first: {number_text(before.value)}  {before.id}"
    )
    return f"{count_text(now.findings, 'candidate')} with a grave sign ({now.integrity}); {rest}"


def strategy_name(strategy: str) -> str:
    """The catalog name of a strategy's class: `Polca` -> `polca`."""
    from culmen.strategies.catalog import names_by_path

    return next(
        (name for path, name in names_by_path().items() if path.endswith(f":{strategy}")), strategy
    )


def show_best(
    screen: Screen,
    path: Path,
    result: RunResult,
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
        screen.print_pairs(*_best_rows(result), err=True)
    else:
        show_front(screen, several, err=True)
        screen.print_pairs(("printed", _printed_member(candidate.id, asked)), err=True)
    if files:
        for file in files:
            screen.print_line(f"wrote {file}")
        return
    if screen.out.is_terminal:
        screen.print_line()
    screen.print_text(candidate.text)


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
        ("failed", _counts_text(row.statuses)),
        ("signs", _signs_text(detail.observations)),
        ("idea", detail.hypothesis),
    )
    if detail.observations:
        screen.print_line()
        _show_observations(screen, detail.observations)
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
    if row.expected:
        return (
            f"{score}, expected from {many} (mean {number_text(row.search_mean)}) and its relatives"
        )
    line = f"{score}, mean of {many}"
    if not row.fresh:
        return line
    failed = (
        f"; {row.fresh_failures} of them failed and count as the floor"
        if row.fresh_failures
        else ""
    )
    before = (
        f"; the search: {number_text(row.search_mean)} over {row.search_count:,}"
        if row.search_count
        else ""
    )
    return f"{line} of the final choice{failed}{before}"


def _show_observations(screen: Screen, observations: Sequence[Observation]) -> None:
    shown = observations[-_SHOWN:]
    decimals = column_decimals(o.score for o in shown if o.score is not None)
    with_cases = any(o.case for o in shown)
    rows = []
    for o in shown:
        outcome = (
            number_text(o.score, decimals)
            if o.ok
            else join_nonempty([o.status.value, o.reason.replace("_", " ")], ": ")
        )
        metrics = join_nonempty(
            f"{name} {value:.4g}" for name, value in o.metrics.items() if name not in ("score",)
        )
        rows.append(((o.case,) if with_cases else ()) + (outcome, f"{o.seconds:.2f} s", metrics))
    columns = ["case"] * with_cases + ["score", "time", "metrics"]
    screen.print_table(columns, rows, right="score time")
    if len(observations) > len(shown):
        screen.print_line(
            f"and {count_text(len(observations) - len(shown), 'earlier evaluation')}", style="dim"
        )
    last = next((o for o in reversed(shown) if o.feedback), None)
    if last is not None:
        screen.print_rule("feedback of the last one")
        text = last.feedback
        screen.print_text(text if len(text) <= _FEEDBACK else text[:_FEEDBACK] + " ...")
    for name, title in (
        (LOG, "printed during the last evaluation"),
        (EVALUATOR_LOG, "printed by the evaluator"),
    ):
        text = shown[-1].artifacts.get(name, "")
        if text.strip():
            screen.print_rule(title)
            screen.print_text(text if len(text) <= _FEEDBACK else text[:_FEEDBACK] + " ...")


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


def show_story(screen: Screen, path: Path, told: Story, mattered: Sequence[Factor]) -> None:
    """The steps of a run with gain, idea and cost; what mattered; what was tried in vain."""
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
    for factor in mattered:
        screen.print_rule(f"what mattered: {factor.title}")
        screen.print_line(factor.sentence)
        screen.print_table(factors.COLUMNS, map(factors.level_row, factor.levels), factors.FLUSH)
    if mattered:
        screen.print_line()
        screen.print_line(factors.NOTE, style="dim")
    if told.vain:
        screen.print_rule("tried in vain")
        screen.print_definitions(
            (_shorten_name(group.name), group.sentence, story.vain_text(group))
            for group in told.vain
        )
    if told.steps:
        largest = max(told.steps, key=lambda step: step.share)
        change = f"culmen diff {run_name(path)} {largest.base[:8]} {largest.end[:8]}"
        screen.print_next_steps((change, f"what step {largest.number} changed"))


def _shorten_name(name: str) -> str:
    return name if len(name) <= _NAME else name[: _NAME - 1] + "…"
