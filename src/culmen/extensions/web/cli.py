"""The verbs ui and report."""

from __future__ import annotations

import sys
import threading
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from culmen.cli.screen import Answer, Screen
from culmen.cli.verbs import RUNS, Run, VerbTable, find_run
from culmen.core.errors import UserError
from culmen.core.json import JsonObject
from culmen.report.figures import count_text

PORT = 8640  # of the dashboard


def ui(
    screen: Screen,
    place: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN_OR_FOLDER",
            help=(
                "A run, its name under ./runs, a folder of runs, or a database by its URL. "
                "Default: ./runs."
            ),
        ),
    ] = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0 takes a free one.")
    ] = PORT,
    browser: Annotated[bool, typer.Option("--open/--no-open", help="Open a browser.")] = False,
) -> Answer:
    """Show runs in a browser, live.

    Scores, candidates, lineage, memory, calls, trust. Serves on 127.0.0.1 until Ctrl-C. The
    printed address contains the token needed to stop a run or to send it messages.
    """
    from culmen.extensions.web.server import Dashboard, bind_port, serve_dashboard
    from culmen.run.explain import explain_for_dashboard
    from culmen.strategies.catalog import names_by_path

    shown = _runs_to_show(place)
    dashboard = Dashboard(shown, names=names_by_path(), explain=explain_for_dashboard)
    listening = bind_port(port)
    address = f"http://127.0.0.1:{listening.getsockname()[1]}/"
    document = {
        "url": f"{address}#token={dashboard.token}",
        "address": address,
        "folder": str(shown.resolve()),
    }

    def ready() -> None:
        if screen.as_json:
            screen.print_document(document)
        else:
            screen.print_line(f"{shown}: {document['url']}")
            screen.err.print(
                "Ctrl-C ends the dashboard; runs go on without it.", style="dim", markup=False
            )
        sys.stdout.flush()
        if browser:
            threading.Thread(target=webbrowser.open, args=(document["url"],), daemon=True).start()

    serve_dashboard(dashboard, listening, ready)
    if screen.as_json:
        raise typer.Exit  # the one document was printed when the server was ready
    return Answer(None)


def _runs_to_show(text: str | None) -> Path:
    """A run, a folder of runs, a run's name, or all runs of a database."""
    from culmen.store.address import FILE, is_address, local_folder, parse_address

    if text is None:
        if not RUNS.is_dir():
            raise UserError(
                "there are no runs yet", where=str(RUNS), fix="culmen demo, or culmen run TASK"
            )
        return RUNS
    if is_address(text) and not parse_address(text).name:
        return local_folder(parse_address(text))
    path = Path(text)
    if path.is_dir():
        return path
    if path.name == FILE and path.is_file():
        return path.parent
    return find_run(text)


def report(
    screen: Screen,
    run: Run = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FILE", help="File to write. Default: RUN-report.html."
        ),
    ] = None,
    pdf: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a PDF, too, with this machine's Chromium."),
    ] = None,
    full: Annotated[
        str,
        typer.Option(
            "--full",
            metavar="N",
            help="Number of best candidates to include with their texts, or all.",
        ),
    ] = "60",
) -> Answer:
    """Write the dashboard's pages as one HTML file.

    It needs no server and no network. It holds the run's texts, prompts and replies: check it
    before you share it.
    """
    from culmen.extensions.web import report as paper
    from culmen.extensions.web.runs import Digest
    from culmen.strategies.catalog import names_by_path, stored_settings

    path = find_run(run).resolve()
    file = out or Path(f"{path.name}-report.html")
    _check_report_files(file, pdf)
    if not full.isdecimal() and full != "all":
        raise UserError(
            f"'{full}' is not a number of candidates",
            where="--full",
            fix="--full 60, or --full all",
        )
    many = None if full == "all" else int(full)
    digest = Digest(path, names_by_path(), settings=stored_settings)
    gathered = paper.gather_report(digest, many)
    data: JsonObject = {
        "run": path.name,
        "path": str(file),
        "bytes": paper.write_report(gathered, file),
        "candidates": gathered.candidates,
        "rows": gathered.rows,
        "full": gathered.full,
        "left_out": gathered.left_out,
        "pdf": pdf and {"path": str(pdf), "bytes": paper.print_pdf(gathered, pdf)},
    }
    return Answer(data, lambda screen: _show_report(screen, data))


def _check_report_files(file: Path, pdf: Path | None) -> None:
    """Raise `UserError`, before any work, for a file that cannot be made."""
    from culmen.extensions.web import report as paper

    if file.is_dir():
        raise UserError(f"{file} is a folder", where="--out", fix=f"--out {file / 'report.html'}")
    if pdf is not None:
        paper.find_browser()


def _show_report(screen: Screen, data: JsonObject) -> None:
    size = f"{data['bytes'] / 1e6:.1f} MB, {count_text(data['candidates'], 'candidate')}"
    screen.print_line(f"{data['path']}: {size}")
    if data["pdf"]:
        screen.print_line(f"{data['pdf']['path']}: {data['pdf']['bytes'] / 1e6:.1f} MB")
    for each in data["left_out"]:
        screen.print_line(f"Not in it: {each}")


REPORT = VerbTable("Look at a run", (report,))
UI = VerbTable("Look at a run", (ui,))
