"""Verbs that read a run: status, best, story, show, diff, lineage, log."""

from __future__ import annotations

import difflib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from culmen.cli.screen import Answer, Screen
from culmen.cli.verbs import Candidate, RequiredRun, Run, find_candidate, find_run
from culmen.core.errors import UserError
from culmen.core.json import JsonObject
from culmen.observe.figures import (
    RUNS,
    clock_text,
    count_text,
    escape_controls,
    run_name,
    score_with_margin,
)

if TYPE_CHECKING:
    from culmen.core.event import Entry, Event
    from culmen.store.views import CandidateDetail


def status(
    screen: Screen,
    run: Run = None,
    all_runs: Annotated[
        bool, typer.Option("--all", help="One line for each run under ./runs.")
    ] = False,
) -> Answer:
    """Show the state of a run: best candidate, budget used, isolation in force."""
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
    from culmen.observe.summary import summarize_run
    from culmen.store import views

    path = find_run(run)
    result = views.best_result(path)
    if result is None:
        raise UserError(
            "nothing has scored yet", where=str(path), fix=f"culmen log {run_name(path)}"
        )
    front = views.pareto_front(path)
    chosen = (
        result.id
        if front is None or not front.members
        else front.choose(_parse_weights(weights), limit or ()).id
    )
    if front is None and (weights or limit):
        raise UserError(
            "this task has one score",
            where="--weights, --limit",
            fix=f"culmen best {run_name(path)}",
        )
    candidate = views.candidate_detail(path, chosen).candidate
    files = [] if out is None else _write_parts(candidate.parts, out)
    data = {
        "run": path.name,
        "summary": summarize_run(path),
        "best": result,
        "parts": candidate.parts,
        "files": [str(file) for file in files],
    }
    data |= {} if front is None else {"front": front, "chosen": chosen}
    asked = ", ".join(filter(None, [weights and f"weights {weights}", *(limit or ())]))
    return Answer(
        data, lambda screen: pages.show_best(screen, path, result, candidate, files, front, asked)
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
                where=str(root),
                fix="culmen export",
            )
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode("utf-8", "surrogatepass"))
        except OSError as error:
            raise UserError(
                f"cannot write {path.name}: {error.strerror}",
                where=str(root),
                fix="name another folder",
            ) from None
        written.append(path)
    return written


def story(screen: Screen, run: Run = None) -> Answer:
    """Show the few steps that made the gain, what mattered, and what was tried in vain.

    Each step has its gain with the 95 % interval, its idea or change, and what it cost. What
    mattered is the gain per operator, model, island, changed part, idea and dollar.
    """
    import msgspec

    from culmen.cli import pages
    from culmen.observe.factors import run_factors
    from culmen.observe.story import run_story
    from culmen.store import views

    path = find_run(run)
    spent_at = views.spending_by_event(path)
    told, mattered = run_story(path), run_factors(path, spent_at)
    plain = msgspec.to_builtins(told) | {"factors": msgspec.to_builtins(mattered)}
    return Answer(
        {"run": path.name, **plain}, lambda screen: pages.show_story(screen, path, told, mattered)
    )


def show(
    screen: Screen,
    run: RequiredRun,
    candidate: Candidate = "best",
    prompt: Annotated[
        bool, typer.Option("--prompt", help="Show the exact prompt and reply it came from, too.")
    ] = False,
) -> Answer:
    """Show one candidate with its texts, parents, model and every evaluation.

    Each evaluation has its feedback; the operator is named beside the model.
    """
    from culmen.cli import pages
    from culmen.store import views

    path = find_run(run)
    detail = views.candidate_detail(path, find_candidate(path, candidate))
    return Answer(detail, lambda screen: pages.show_candidate(screen, detail, prompt))


def diff(
    screen: Screen, run: RequiredRun, first: Candidate = "seed", second: Candidate = "best"
) -> Answer:
    """Show what changed from one candidate to another, as a unified diff."""
    from culmen.store import views

    path = find_run(run)
    earlier, later = (
        views.candidate_detail(path, find_candidate(path, name)) for name in (first, second)
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
    screen: Screen,
    first: CandidateDetail,
    second: CandidateDetail,
    lines: Sequence[str],
    max_lines: int = 0,
) -> None:
    """Print a diff in colour, at most `max_lines` lines of it (0: all)."""
    if screen.out.is_terminal:
        scores = " -> ".join(
            f"{score_with_margin(each.row.mean, each.row.margin)} (n {each.row.count})"
            for each in (first, second)
        )
        screen.print_heading(f"{first.candidate.id} -> {second.candidate.id}", f"score {scores}")
    if not lines:
        screen.print_line("no difference: the same texts")
    for text in lines[: max_lines or len(lines)]:
        style = "dim" if text.startswith(("+++", "---")) else _DIFF_STYLES.get(text[:1], "")
        screen.print_code_line(escape_controls(text), style)
    if max_lines and len(lines) > max_lines:
        screen.print_line(f"... and {count_text(len(lines) - max_lines, 'more line')}", style="dim")


def lineage(screen: Screen, run: RequiredRun, candidate: Candidate = "best") -> Answer:
    """Show the ancestors of a candidate, with score and operator of each step."""
    from culmen.cli import pages
    from culmen.store import views

    path = find_run(run)
    steps = views.lineage_steps(path, find_candidate(path, candidate))
    return Answer(
        {"run": path.name, "steps": steps}, lambda screen: pages.show_lineage(screen, steps)
    )


_PAGE = 500  # events read at once
_POLL = 0.5  # seconds between two looks at a run that goes on
_LOGGED = ("done", "note", "torn", "stop", "state", "tell")
_OVER = ("finished", "failed", "paused", "interrupted")


def log(
    screen: Screen,
    run: Run = None,
    last: Annotated[
        int, typer.Option("--last", "-n", min=1, help="Number of events, counted from the end.")
    ] = 50,
    every: Annotated[bool, typer.Option("--all", help="All events from the beginning.")] = False,
    starts: Annotated[
        bool, typer.Option("--starts", help="Show when each effect was started, too.")
    ] = False,
    follow: Annotated[
        bool,
        typer.Option("--follow", "-f", help="Show new events until the run ends. Not with --json."),
    ] = False,
) -> Answer:
    """Show what happened in a run, event by event."""
    from culmen.store import views

    path, kinds = find_run(run), (*_LOGGED, "started") if starts else _LOGGED
    if follow and screen.as_json:
        raise UserError(
            "--follow does not end, so it cannot print one JSON document",
            where="--json",
            fix="leave one out",
        )
    events = _last_events(path, kinds, None if every else last)
    if screen.as_json:
        return Answer({"run": path.name, "events": [_event_data(event) for event in events]})

    def show(screen: Screen) -> None:
        earlier = (
            0 if every or len(events) < last else views.event_count(path, kinds, events[0].seq)
        )
        if earlier:
            screen.print_note(
                f"the last {last} of {count_text(last + earlier, 'event')}; "
                "all of them: culmen log --all"
            )
        for event in events:
            _show_event(screen, event)
        if follow:
            _follow_events(screen, path, kinds, events[-1].seq if events else 0)

    return Answer(None, show)


def _last_events(run: Path, kinds: Sequence[str], last: int | None) -> list[Event]:
    """The last `last` events of these kinds, all of them for None."""
    from culmen.store import views

    # at most every other event starts an effect, so the last N others are among the
    # last 3 N
    seq = 0 if last is None else max(0, views.run_status(run).events - 3 * last)
    events: list[Event] = []
    while page := views.log_events(run, seq, _PAGE, kinds):
        events += page
        seq = page[-1].seq
    return events if last is None else events[-last:]


def _follow_events(screen: Screen, run: Path, kinds: Sequence[str], seq: int) -> None:
    """Print events beyond `seq` as they come, until the run ends."""
    from culmen.store import views

    while True:
        state = views.run_status(
            run
        ).state  # read first, so that events before the end are still shown
        page = views.log_events(run, seq, _PAGE, kinds)
        for event in page:
            _show_event(screen, event)
            seq = event.seq
        if state in _OVER and not page:
            return
        if len(page) < _PAGE:
            time.sleep(_POLL)


def _event_data(event: Event) -> JsonObject:
    import msgspec

    from culmen.observe.words import describe_entry

    plain = msgspec.to_builtins(event)
    return {
        "seq": plain["seq"],
        "time": plain["time"],
        "words": describe_entry(event.entry),
        **plain["entry"],
    }


def _show_event(screen: Screen, event: Event) -> None:
    from culmen.observe.words import describe_entry

    entry = event.entry
    columns = f"{event.seq:>6}  {clock_text(entry.elapsed):>7}  {_effect_number(entry):>5}"
    screen.print_line(f"{columns}  {describe_entry(entry)}")


def _effect_number(entry: Entry) -> str:
    return f"#{entry.key}" if entry.kind in ("started", "done", "torn") and entry.key else ""
