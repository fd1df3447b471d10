"""Verbs that read a run: status, best, story, show."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from culmen.cli.screen import Answer, Screen
from culmen.cli.verbs import Run, find_candidate, find_run
from culmen.core.errors import UserError
from culmen.core.json import JsonObject
from culmen.report.figures import (
    RUNS,
    clock_text,
    count_text,
    escape_controls,
    run_name,
    score_with_margin,
)

if TYPE_CHECKING:
    from culmen.core.event import Event
    from culmen.core.result import DecisionFacts, Explanation
    from culmen.store.views import CandidateDetail


def status(
    screen: Screen,
    run: Run = None,
    all_runs: Annotated[
        bool, typer.Option("--all", help="One line for each run under ./runs.")
    ] = False,
) -> Answer:
    """Show the state of a run: best, budget used, isolation."""
    import msgspec

    from culmen.cli import pages
    from culmen.store import views

    if all_runs:
        lines = views.list_runs(RUNS)
        return Answer(
            {"runs": msgspec.to_builtins(lines)}, lambda screen: pages.show_run_list(screen, lines)
        )
    path = find_run(run)
    now = views.run_status(path)
    return Answer(
        pages.status_document(now, path), lambda screen: pages.show_status(screen, now, path)
    )


def best(
    screen: Screen,
    run: Run = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write its files into this folder.")
    ] = None,
    weights: Annotated[
        str,
        typer.Option(
            metavar="NAME=W,...",
            help="With several objectives: their weights, e.g. accuracy=3,latency=1.",
        ),
    ] = "",
    limit: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LIMIT",
            help='With several objectives: a limit that the member must meet, e.g. "latency<=20".',
        ),
    ] = None,
) -> Answer:
    """Print the best candidate, or the front and one of its members.

    Scores go to standard error, so that > FILE receives the text alone.
    """
    from culmen.cli import pages
    from culmen.report.facts import result_document
    from culmen.report.summary import summarize_run
    from culmen.store import views
    from culmen.store.reader import JournalObservations

    path = find_run(run)
    result = views.best_result(path)
    if result is None:
        raise UserError(
            "nothing has scored yet", where=path, fix=f"culmen show {run_name(path)} --log"
        )
    front, chosen = views.pareto_front(path), result.id
    if front is None and (weights or limit):
        what, fix = "this task has one score", f"culmen best {run_name(path)}"
        raise UserError(what, where="--weights, --limit", fix=fix)
    if front is not None and front.members:
        chosen = front.choose(_parse_weights(weights), limit or ()).id
    candidate = JournalObservations(path).candidate(chosen)
    files = [] if out is None else _write_parts(candidate.parts, out)
    data = {
        "run": path.name,
        "summary": summarize_run(path),
        "best": result_document(result),
        "parts": candidate.parts,
        "files": [str(file) for file in files],
    }
    data |= {} if front is None else {"front": front, "chosen": chosen}
    asked = ", ".join(filter(None, [weights and f"weights {weights}", *(limit or ())]))
    return Answer(
        data, lambda screen: pages.show_best(screen, path, candidate, files, front, asked)
    )


def _parse_weights(text: str) -> dict[str, float] | None:
    """`accuracy=3,latency=1` as numbers by name; None without any."""
    weights_by_name: dict[str, float] = {}
    for piece in filter(None, (piece.strip() for piece in text.split(","))):
        name, _, value = piece.partition("=")
        try:
            weights_by_name[name.strip()] = float(value)
        except ValueError:
            fix = "write NAME=NUMBER, separated by commas"
            raise UserError(f"'{piece}' is no weight", where="--weights", fix=fix) from None
    return weights_by_name or None


def _write_parts(parts: dict[str, str], folder: Path) -> list[Path]:
    """Write a candidate's texts below a folder; UserError if that fails."""
    written: list[Path] = []
    root = folder.expanduser().resolve()
    for name, text in parts.items():
        path = (root / name).resolve()
        if root not in path.parents:
            raise UserError(
                f"the part '{name}' would lie outside the folder",
                where=root,
                fix="culmen runs export",
            )
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode("utf-8", "surrogatepass"))
        except OSError as error:
            raise UserError(
                f"cannot write {path.name}: {error.strerror}",
                where=root,
                fix="name another folder",
            ) from None
        written.append(path)
    return written


def story(screen: Screen, run: Run = None) -> Answer:
    """Show the few steps that made the gain, and the attempts in vain.

    Each step has its gain with the 95 % interval, its idea or change, and what it cost.
    """
    import msgspec

    from culmen.cli import pages
    from culmen.report.story import run_story

    path = find_run(run)
    told = run_story(path)
    data = {"run": path.name, **msgspec.to_builtins(told)}
    return Answer(data, lambda screen: pages.show_story(screen, path, told))


_VIEWS = ("--diff", "--lineage", "--explain", "--log")
_LAST = 50  # events that the log shows


@dataclasses.dataclass(frozen=True, kw_only=True)
class LogFlags:
    """Options of `show --log`."""

    last: Annotated[
        int | None,
        typer.Option(
            "--last",
            "-n",
            min=1,
            metavar="N",
            help="Number of events, counted from the end.",
            show_default=str(_LAST),
            rich_help_panel="With --log",
        ),
    ] = None
    every: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Every event from the first, the starts of effects among them.",
            rich_help_panel="With --log",
        ),
    ] = False


def show(
    screen: Screen,
    events: LogFlags,
    run: Run = None,
    candidate: Annotated[
        str | None,
        typer.Argument(
            metavar="CANDIDATE",
            help="Its id or first digits; 'best'; or 'seed', the initial program. With --explain "
            "also the number of an evaluation.",
            show_default="best",
        ),
    ] = None,
    prompt: Annotated[
        bool, typer.Option("--prompt", help="Also the exact prompt and reply it came from.")
    ] = False,
    diff: Annotated[
        str | None,
        typer.Option(
            metavar="OTHER", help="Changes from another candidate, as 'seed', to this one."
        ),
    ] = None,
    lineage: Annotated[
        bool, typer.Option("--lineage", help="Its ancestors, with the score of each step.")
    ] = False,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            help="Why it was evaluated: what was considered, gains and costs. Without a "
            "candidate: the latest evaluation.",
        ),
    ] = False,
    log: Annotated[bool, typer.Option("--log", help="The run's events, one by one.")] = False,
) -> Answer:
    """Show one candidate: texts, parents, model, every evaluation.

    Each evaluation has its feedback; the operator is named beside the model. One option chooses
    another view of it.
    """
    views = zip(_VIEWS, (diff is not None, lineage, explain, log))
    chosen = [view for view, is_chosen in views if is_chosen]
    if len(chosen) > 1 or (prompt and chosen):
        what = "one view at a time"
        raise UserError(what, where=", ".join(chosen), fix="leave all of them out but one")
    if not log and events != LogFlags():
        raise UserError(
            "this option is for the events of a run", where="--last, --all", fix="add --log"
        )
    path = _find_shown_run(run) if candidate is None else find_run(run)
    if log:
        return _show_log(screen, path, candidate, events)
    if explain:
        return explain_candidate(path, candidate or "")
    name = find_candidate(path, candidate or "best")
    if lineage:
        return _show_lineage(path, name)
    return _show_diff(path, diff, name) if diff is not None else _show_whole(path, name, prompt)


_CANDIDATE = re.compile(r"best|seed|[0-9a-f]{4,12}")


def _find_shown_run(run: str | None) -> Path:
    """The run; the `UserError` if there is none also says how a candidate is named."""
    try:
        return find_run(run)
    except UserError as error:
        if run is None or not _CANDIDATE.fullmatch(run):
            raise
        fix = f"a candidate comes after its run: culmen show RUN {run}; or {error.fix}"
        raise UserError(error.what, where=error.where, fix=fix) from None


def _show_whole(path: Path, name: str, prompt: bool) -> Answer:
    from culmen.cli import pages
    from culmen.store import views

    detail = views.candidate_detail(path, name)
    return Answer(detail, lambda screen: pages.show_candidate(screen, detail, prompt))


def _show_diff(path: Path, other: str, name: str) -> Answer:
    from culmen.store import views

    earlier, later = (
        views.candidate_detail(path, each) for each in (find_candidate(path, other), name)
    )
    lines = diff_lines(earlier, later)
    data = {
        "first": earlier.candidate.id,
        "second": later.candidate.id,
        "scores": [earlier.row.mean, later.row.mean],
        "counts": [earlier.row.count, later.row.count],
        "diff": "\n".join(lines),
    }
    return Answer(data, lambda screen: show_diff(screen, earlier, later, lines))


_DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan"}


def diff_lines(first: CandidateDetail, second: CandidateDetail) -> list[str]:
    """Lines of the unified diff over all parts of two candidates, without line ends."""
    lines: list[str] = []
    old, new = first.candidate, second.candidate
    for name in dict.fromkeys([*old.parts, *new.parts]):
        before, after = (c.parts.get(name, "").splitlines() for c in (old, new))
        lines += difflib.unified_diff(
            before, after, f"{name} ({old.id})", f"{name} ({new.id})", lineterm=""
        )
    return lines


def show_diff(
    screen: Screen, first: CandidateDetail, second: CandidateDetail, lines: Sequence[str]
) -> None:
    """Print a diff in colour."""
    if screen.out.is_terminal:
        scores = " -> ".join(
            f"{score_with_margin(each.row.mean, each.row.margin)} (n {each.row.count})"
            for each in (first, second)
        )
        screen.print_heading(f"{first.candidate.id} -> {second.candidate.id}", f"score {scores}")
    if not lines:
        screen.print_line("no difference: the same texts")
    for text in lines:
        style = "dim" if text.startswith(("+++", "---")) else _DIFF_STYLES.get(text[:1], "")
        screen.print_code_line(escape_controls(text), style)


def _show_lineage(path: Path, name: str) -> Answer:
    from culmen.cli import pages
    from culmen.store import views

    steps = views.lineage_steps(path, name)
    return Answer(
        {"run": path.name, "steps": steps}, lambda screen: pages.show_lineage(screen, steps)
    )


_PAGE = 500  # events read at once
_LOGGED = ("done", "note", "torn", "stop", "state", "tell")


def _show_log(screen: Screen, path: Path, candidate: str | None, wanted: LogFlags) -> Answer:
    """The events of a run."""
    from culmen.report.words import describe_entry
    from culmen.store import views

    kinds = (*_LOGGED, "started") if wanted.every else _LOGGED
    if candidate is not None:
        fix = f"culmen show {run_name(path)} --log"
        raise UserError("the events are those of the whole run", where="--log", fix=fix)
    last = None if wanted.every else wanted.last or _LAST
    # at most every other event starts an effect: the last N others are among the last 3 N
    seq = 0 if last is None else max(0, views.run_status(path).events - 3 * last)
    events: list[Event] = []
    while page := views.log_events(path, seq, _PAGE, kinds):
        events += page
        seq = page[-1].seq
    events = events if last is None else events[-last:]
    if screen.as_json:
        return Answer({"run": path.name, "events": [_event_data(event) for event in events]})

    def show(screen: Screen) -> None:
        is_cut = last is not None and len(events) >= last
        earlier = views.event_count(path, kinds, events[0].seq) if is_cut else 0
        if earlier:
            screen.print_note(
                f"the last {last} of {count_text(len(events) + earlier, 'event')}; "
                f"all of them: culmen show {run_name(path)} --log --all"
            )
        for event in events:
            entry = event.entry
            is_effect = entry.kind in ("started", "done", "torn") and entry.key
            number = f"#{entry.key}" if is_effect else ""
            columns = f"{event.seq:>6}  {clock_text(entry.elapsed):>7}  {number:>5}"
            screen.print_line(f"{columns}  {describe_entry(entry)}")

    return Answer(None, show)


def _event_data(event: Event) -> JsonObject:
    import msgspec

    from culmen.report.words import describe_entry

    words, plain = describe_entry(event.entry), msgspec.to_builtins(event.entry)
    return {"seq": event.seq, "time": event.time, "words": words, **plain}


# The view `show --explain`: one decision of a run in words and numbers.

_COLUMNS = {  # headings of the table of actions, and their fields
    "action": "action",
    "expected score": "expected",
    "gain": "gain",
    "per 1 %": "rate",
    "share": "share",
    "costs": "cost",
}


def explain_candidate(path: Path, wanted: str) -> Answer:
    """Explain a decision by its alternatives, with their gains and costs.

    `wanted` is the number of an evaluation, from 1; or a candidate: how it came to be evaluated; or
    "", the latest evaluation. A decision of the default strategy is derived again from the journal,
    so that it is shown as it was made; of other strategies their own notes are shown.
    """
    from culmen.run.explain import explain_evaluation

    explained = explain_evaluation(path, wanted)
    return Answer(explained, lambda screen: show_explanation(screen, explained))


def show_explanation(screen: Screen, explained: Explanation) -> None:
    """Print an explanation in words."""
    for number, line in enumerate(explained.lines, 1):
        screen.print_line(line)
        if number == explained.table_at and explained.finalists:
            _show_finalists(screen, explained)
        elif number == explained.table_at and explained.decision is not None:
            _show_options(screen, explained.decision)
    nearby = explained.evaluation - 1 or explained.evaluation + 1
    screen.print_next_steps(
        (f"culmen show {explained.run} {nearby} --explain", "the evaluation beside it"),
        (f"culmen show {explained.run} {explained.candidate}", "the candidate in full"),
    )


def _show_options(screen: Screen, decision: DecisionFacts) -> None:
    from culmen.report import reasons

    if not decision.options:
        return
    table = [reasons.action_row(each) for each in decision.options]
    shown = {name: field for name, field in _COLUMNS.items() if any(row[field] for row in table)}
    rows = [
        ["*" if row["chosen"] else "", *(row[each] for each in shown.values())] for row in table
    ]
    screen.print_line()
    screen.print_table(["", *shown], rows, right=["gain", "per 1 %", "share"])
    screen.print_line(reasons.options_note(decision), style="dim")
    screen.print_line()


def _show_finalists(screen: Screen, explained: Explanation) -> None:
    from culmen.report import reasons

    rows = [
        [
            "*" if each.id == explained.candidate else "",
            each.id[:8],
            reasons.believed_text(each),
            str(each.looks),
            str(each.failed),
            "initial program" if each.initial else "",
        ]
        for each in explained.finalists
    ]
    screen.print_line()
    columns = ["", "finalist", "believed score", "looks", "failed", "remark"]
    screen.print_table(columns, rows, right=["looks", "failed"])
    screen.print_line()
