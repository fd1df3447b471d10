"""Starting the dashboard, and reading files that are handed in."""

from __future__ import annotations

import sys
import threading
import webbrowser
from collections.abc import Sequence
from pathlib import Path

import typer

from culmen.cli import runs
from culmen.cli.screen import Answer, Screen
from culmen.core.errors import UserError
from culmen.store.address import FILE, anchor, is_address, parse


def answer(screen: Screen, place: str | None, port: int, browser: bool) -> Answer:
    """Serve until Ctrl-C."""
    from culmen.strategies.catalog import CATALOG
    from culmen.web.server import Dashboard, bind, serve

    shown = _find(place)
    dashboard = Dashboard(shown, names={path: name for name, path in CATALOG.items()})
    listening = bind(port)
    address = f"http://127.0.0.1:{listening.getsockname()[1]}/"
    document = {"url": f"{address}#token={dashboard.token}", "address": address, "folder": str(shown.resolve())}

    def ready() -> None:
        if screen.as_json:
            screen.document(document)
        else:
            screen.line(f"{shown}: {address}#token={dashboard.token}")
            screen.err.print("Ctrl-C ends it; runs go on without it.", style="dim", markup=False)
        sys.stdout.flush()
        if browser:
            threading.Thread(target=webbrowser.open, args=(document["url"],), daemon=True).start()

    serve(dashboard, listening, ready)
    if screen.as_json:
        raise typer.Exit  # the one document was printed when the server was ready
    return Answer(None)


def _find(given: str | None) -> Path:
    """A run, a folder of runs, a run's name, or all runs of a database."""
    if given is None:
        if not runs.FOLDER.is_dir():
            raise UserError("there are no runs yet", where=str(runs.FOLDER), fix="culmen demo, or culmen run TASK")
        return runs.FOLDER
    if is_address(given) and not parse(given).name:
        return anchor(parse(given))
    place = Path(given)
    if place.is_dir():
        return place
    if place.name == FILE and place.is_file():
        return place.parent
    return runs.find(given)


def texts(files: Sequence[Path]) -> dict[str, str]:
    """Files by name. Raises `UserError` for one that is not there or is no text."""
    found: dict[str, str] = {}
    for file in files:
        try:
            found[file.name] = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"cannot read {file}: {error}", where="--candidate", fix="name a text file") from None
    return found
