"""Verbs for a run that another process makes: watch, stop, tell."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from culmen.cli.screen import Answer, Screen
from culmen.cli.verbs import RequiredRun, Run, find_run
from culmen.core.errors import UserError

if TYPE_CHECKING:
    from culmen.store.inbox import Sent


def watch(screen: Screen, run: Run = None) -> Answer:
    """Follow a run of another process, as in its own terminal.

    Ends with the run. Ctrl-C ends the display; the run goes on.
    """
    from culmen.cli import pages
    from culmen.cli.search import make_display
    from culmen.report.watch import INTERVAL, Watch
    from culmen.store import views

    path = find_run(run)
    following = Watch(make_display(screen, quiet=False))
    with following.for_run(path), _interrupts() as interrupted:
        while not interrupted.is_set() and views.run_status(path).state == "running":
            following.see(())
            interrupted.wait(INTERVAL)
    now = views.run_status(path)
    return Answer(
        pages.status_document(now, path), lambda screen: pages.show_end(screen, now, path)
    )


@contextmanager
def _interrupts() -> Iterator[threading.Event]:
    """Set the event on Ctrl-C.

    As an exception it would be lost if it came inside a callback of the interpreter.
    """
    interrupted = threading.Event()
    before = signal.signal(signal.SIGINT, lambda *_: interrupted.set())
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)


def stop(
    screen: Screen,
    run: Run = None,
    pause: Annotated[
        bool,
        typer.Option("--pause", help="End the process as Ctrl-C does; the run can be resumed."),
    ] = False,
) -> Answer:
    """End a running search now and make the final choice from its candidates."""
    from culmen.store import inbox

    path = find_run(run)
    sent = inbox.send_stop(path, pause=pause)
    what = (
        "The process ends within seconds; culmen resume goes on."
        if pause
        else "The final choice is made now."
    )
    return _report_sent(path, sent, what)


def tell(
    screen: Screen,
    run: RequiredRun,
    hint: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Advice for the models that propose candidates."),
    ] = None,
    candidate: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE", help="Evaluate this text. Repeatable, for candidates of several parts."
        ),
    ] = None,
) -> Answer:
    """Send a running search a hint, or a candidate of your own."""
    from culmen.store import inbox

    path = find_run(run)
    if (hint is None) == (not candidate):
        raise UserError(
            "give either a hint or a candidate",
            where="culmen runs tell",
            fix="--hint TEXT or --candidate FILE",
        )
    if hint is not None:
        return _report_sent(
            path,
            inbox.send_hint(path, hint),
            "Every later request for candidates carries the hint.",
        )
    sent = inbox.send_candidate(path, _read_parts(candidate or []))
    return _report_sent(
        path, sent, "It is evaluated at once, and counts in the final choice like any other."
    )


def _read_parts(files: Sequence[Path]) -> dict[str, str]:
    """Texts of files by name; UserError for a file that cannot be read or has no text."""
    parts: dict[str, str] = {}
    for file in files:
        try:
            parts[file.name] = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(
                f"cannot read {file}: {error}", where="--candidate", fix="name a text file"
            ) from None
    return parts


def _report_sent(path: Path, sent: Sent, effect: str) -> Answer:
    data = {"run": path.name, "id": sent.message.id, "kind": sent.message.kind, "taken": sent.live}
    words = (
        effect
        if sent.live
        else "No process runs it now: the message is read when the run is resumed."
    )
    return Answer(data, lambda screen: screen.print_line(f"Sent. {words}"))
