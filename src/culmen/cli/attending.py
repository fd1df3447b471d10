"""Verbs for a run that goes on: watch, ui, stop, tell."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from culmen.cli.screen import Answer, Screen
from culmen.cli.verbs import Run, verb

if TYPE_CHECKING:
    from culmen.store.sending import Sent

PANEL = "Attend to a run"
PORT = 8640

Place = Annotated[
    str | None,
    typer.Argument(
        metavar="RUN_OR_FOLDER",
        help="A run, its name under ./runs, a folder of runs, or a database by its URL. Default: ./runs.",
    ),
]
RunFirst = Annotated[str, typer.Argument(metavar="RUN", help="A run folder, or its name under ./runs.")]


def add_to(app: typer.Typer) -> None:
    """Declare the verbs of this group."""
    for function in (watch, ui, stop, tell):
        verb(app, PANEL)(function)


def watch(screen: Screen, run: Run = None) -> Answer:
    """Follow a run that another process makes, as its own terminal shows it.

    Ends with the run; Ctrl-C ends the watching and leaves the run alone.
    """
    from culmen.cli import runs, watching

    return watching.answer(screen, runs.find(run))


def ui(
    screen: Screen,
    place: Place = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="On 127.0.0.1; 0 takes any that is free.")] = PORT,
    browser: Annotated[bool, typer.Option("--open/--no-open", help="Open a browser.")] = False,
) -> Answer:
    """Show runs in a browser, live: scores, candidates, lineage, memory, calls, trust.

    Serves on 127.0.0.1 until Ctrl-C. The address it prints carries the token with which a run may be stopped or told.
    """
    from culmen.cli import dashboard

    return dashboard.answer(screen, place, port, browser)


def stop(
    screen: Screen,
    run: Run = None,
    pause: Annotated[bool, typer.Option("--pause", help="End its process as Ctrl-C does, to be resumed.")] = False,
) -> Answer:
    """End a running search now and make the final choice from what was found."""
    from culmen.cli import runs
    from culmen.store import sending

    path = runs.find(run)
    sent = sending.stop(path, pause=pause)
    what = "The process ends within seconds; culmen resume goes on." if pause else "The final choice is made now."
    return _sent(path, sent, what)


def tell(
    screen: Screen,
    run: RunFirst,
    hint: Annotated[str | None, typer.Option(metavar="TEXT", help="For the models that propose.")] = None,
    candidate: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="Evaluate this text; repeat it for several parts.")
    ] = None,
) -> Answer:
    """Give a running search a hint, or a candidate of your own."""
    from culmen.cli import dashboard, runs
    from culmen.core.errors import UserError
    from culmen.store import sending

    path = runs.find(run)
    if (hint is None) == (not candidate):
        raise UserError("say what to tell", where="culmen tell", fix="either --hint TEXT or --candidate FILE")
    if hint is not None:
        return _sent(path, sending.hint(path, hint), "Every later request for candidates carries the hint.")
    sent = sending.candidate(path, dashboard.texts(candidate or []))
    return _sent(path, sent, "It is evaluated at once, and counts in the final choice like any other.")


def _sent(path: Path, sent: Sent, meaning: str) -> Answer:
    data = {"run": path.name, "id": sent.message.id, "kind": sent.message.kind, "taken": sent.live}
    words = meaning if sent.live else "Nobody runs it just now: it is taken in when the run is resumed."
    return Answer(data, lambda screen: screen.line(f"Sent. {words}"))
