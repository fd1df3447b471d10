"""Verbs about runs in databases: db list, db copy, db migrate, db drop."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from culmen.cli.screen import Answer, Screen
from culmen.cli.verbs import verb

PANEL = "Keep a run"

Url = Annotated[
    str, typer.Argument(metavar="URL", help="postgresql+psycopg://user@host/database, or db: for CULMEN_DB's.")
]


def add_to(app: typer.Typer) -> None:
    """Declare the verbs of this group, below `culmen db`."""
    group = typer.Typer(help="Runs in PostgreSQL. One of them is addressed as URL#NAME, or db:NAME with CULMEN_DB set.")
    for function in (runs, copy, migrate, drop):
        verb(group, PANEL, "list" if function is runs else None)(function)
    app.add_typer(group, name="db", rich_help_panel=PANEL, no_args_is_help=True)


def runs(screen: Screen, url: Url) -> Answer:
    """One line for each run of a database."""
    import msgspec

    from culmen.cli import pages
    from culmen.store import views
    from culmen.store.address import anchor, parse

    lines = views.runs(anchor(parse(url.partition("#")[0])))

    def show(screen: Screen) -> None:
        if lines:
            pages.runs(screen, lines)
        else:
            screen.line("no runs there")
            screen.next_steps((f"culmen run TASK --db '{parse(url).url}'", "make one"))

    return Answer({"runs": msgspec.to_builtins(lines)}, show)


def copy(
    screen: Screen,
    source: Annotated[
        str, typer.Argument(metavar="SRC", help="A run, a folder of runs, URL#NAME, or a URL: all runs.")
    ],
    target: Annotated[str, typer.Argument(metavar="DST", help="A folder, URL#NAME, or a URL: under the same names.")],
) -> Answer:
    """Copy runs between folders and databases, and compare every table by counts and hashes.

    The source may be running: what is copied is one moment of it.
    """
    import msgspec

    from culmen.cli.runs import find
    from culmen.observe.figures import count
    from culmen.store import transfer

    chosen = transfer.sources(source, find)
    places = [transfer.target(target, run.name, len(chosen) > 1) for run in chosen]
    made = [transfer.copy(run, to) for run, to in zip(chosen, places)]
    data = {"copied": [{"from": one.source, "to": one.target, "tables": one.tables} for one in made]}

    def show(screen: Screen) -> None:
        for one in made:
            rows = sum(table.rows for table in one.tables.values())
            events = count(one.tables["event"].rows, "event")
            screen.line(f"{one.source} -> {one.target}: {events}, {count(rows, 'row')}; counts and hashes are the same")
        if not made:
            screen.line("no runs there")

    return Answer(msgspec.to_builtins(data), show)


def migrate(screen: Screen, url: Url) -> Answer:
    """Bring the tables of all runs of a database up to this version of culmen. Skips runs that are being written."""
    from culmen.core.errors import RunLocked
    from culmen.store.address import anchor, parse
    from culmen.store.database import run_folders
    from culmen.store.journal import SqlJournal

    states: dict[str, Any] = {}
    for folder in run_folders(anchor(parse(url.partition("#")[0]))):
        try:
            SqlJournal.open(folder, write=True).close()
            states[folder.name] = "up to date"
        except RunLocked as error:
            states[folder.name] = error.what

    def show(screen: Screen) -> None:
        for name, state in states.items():
            screen.line(f"{name}: {state}")
        if not states:
            screen.line("no runs there")

    return Answer({"runs": states}, show)


def drop(
    screen: Screen,
    run: Annotated[str, typer.Argument(metavar="URL#NAME", help="A run in a database, by its full name.")],
    yes: Annotated[bool, typer.Option("--yes", help="Yes, delete it; without it nothing happens.")] = False,
) -> Answer:
    """Delete a run of a database, with everything in it. Refused while somebody writes it."""
    from culmen.core.errors import UserError
    from culmen.store.address import parse
    from culmen.store.upkeep import drop as delete

    address = parse(run)
    if not address.name:
        raise UserError("which run of this database?", where=run, fix=f"culmen db list '{address.url}'")
    if not yes:
        raise UserError(f"this would delete '{address.name}' for ever", where=str(address), fix="say so: --yes")
    delete(address)
    return Answer({"dropped": str(address)}, lambda screen: screen.line(f"deleted {address}"))
