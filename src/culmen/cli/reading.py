"""Verbs that look at a run: status, best, show, diff, lineage, log, report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from culmen.cli.screen import Answer, Screen
from culmen.cli.verbs import Candidate, Run, verb

PANEL = "Look at a run"

RunFirst = Annotated[str, typer.Argument(metavar="RUN", help="A run folder, or its name under ./runs.")]


def add_to(app: typer.Typer) -> None:
    """Declare the verbs of this group."""
    for function in (status, best, show, diff, lineage, log, report):
        verb(app, PANEL)(function)


def status(
    screen: Screen,
    run: Run = None,
    all_runs: Annotated[bool, typer.Option("--all", help="One line for each run under ./runs.")] = False,
) -> Answer:
    """How a run stands: state, best, budget used, isolation in force."""
    import msgspec

    from culmen.cli import pages, runs, session
    from culmen.store import views

    if all_runs:
        lines = views.runs(runs.FOLDER)
        return Answer({"runs": msgspec.to_builtins(lines)}, lambda screen: pages.runs(screen, lines))
    path = runs.find(run)
    now = views.status(path)
    return Answer(session.document(now, path), lambda screen: pages.status(screen, now, path))


def best(
    screen: Screen,
    run: Run = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Write its files into this folder.")] = None,
) -> Answer:
    """Print the best candidate; what is known of it goes to standard error, so that > FILE gets the text alone."""
    from culmen.cli import pages, runs
    from culmen.core.errors import UserError
    from culmen.store import views

    path = runs.find(run)
    found = views.best(path)
    if found is None:
        raise UserError("nothing has scored yet", where=str(path), fix=f"culmen log {runs.shown(path)}")
    candidate = views.candidate(path, found.id).candidate
    files = [] if out is None else pages.write_parts(candidate.parts, out)
    data = {"run": path.name, "best": found, "parts": candidate.parts, "files": [str(file) for file in files]}
    return Answer(data, lambda screen: pages.best(screen, found, candidate, files))


def show(
    screen: Screen,
    run: RunFirst,
    candidate: Candidate = "best",
    prompt: Annotated[bool, typer.Option("--prompt", help="Also the exact prompt and reply it came from.")] = False,
) -> Answer:
    """One candidate in full: texts, parents, how it came about, every evaluation with its feedback."""
    from culmen.cli import pages, runs
    from culmen.store import views

    path = runs.find(run)
    detail = views.candidate(path, runs.pick(path, candidate))
    return Answer(detail, lambda screen: pages.candidate(screen, detail, prompt))


def diff(screen: Screen, run: RunFirst, first: Candidate = "seed", second: Candidate = "best") -> Answer:
    """What changed from one candidate to another, as a unified diff."""
    from culmen.cli import differences, runs
    from culmen.store import views

    path = runs.find(run)
    one, two = (views.candidate(path, runs.pick(path, name)) for name in (first, second))
    return differences.answer(one, two)


def lineage(screen: Screen, run: RunFirst, candidate: Candidate = "best") -> Answer:
    """The chain of ancestors from the seed to a candidate, with scores and what was done at each step."""
    from culmen.cli import pages, runs
    from culmen.store import views

    path = runs.find(run)
    steps = views.lineage(path, runs.pick(path, candidate))
    return Answer({"run": path.name, "steps": steps}, lambda screen: pages.lineage(screen, steps))


def log(
    screen: Screen,
    run: Run = None,
    last: Annotated[int, typer.Option("--last", "-n", min=1, help="How many events, counted from the end.")] = 50,
    every: Annotated[bool, typer.Option("--all", help="All events from the beginning.")] = False,
    starts: Annotated[bool, typer.Option("--starts", help="Also when each effect was started.")] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as the run goes on; not with --json.")] = False,
) -> Answer:
    """What happened, event by event, in plain words."""
    from culmen.cli import events, runs

    path = runs.find(run)
    return events.answer(screen, events.Log(path, starts), None if every else last, follow)


def report(
    screen: Screen,
    run: Run = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Default: RUN-report.html here.")
    ] = None,
    pdf: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also print it to a PDF, with this machine's Chromium.")
    ] = None,
    full: Annotated[
        int, typer.Option("--full", metavar="N", min=0, help="How many of the best candidates with their texts.")
    ] = 60,
) -> Answer:
    """Write the dashboard's pages as one HTML file that needs no server and no network.

    It holds the run's texts, prompts and replies: look before you pass it on.
    """
    from culmen.cli import reports

    return reports.answer(run, out, pdf, full)
