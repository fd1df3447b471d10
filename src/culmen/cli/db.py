"""Verbs about runs in databases: db list, db copy, db migrate, db drop."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from culmen.cli.screen import Answer, Screen
from culmen.cli.verbs import find_run

Url = Annotated[
    str, typer.Argument(metavar="URL", help="postgresql+psycopg://user@host/database, or db: for CULMEN_DB's.")
]


def list_runs(screen: Screen, url: Url) -> Answer:
    """List the runs of a database."""
    import msgspec

    from culmen.cli import pages
    from culmen.store import views
    from culmen.store.address import anchor, parse

    lines = views.runs(anchor(parse(url.partition("#")[0])))

    def show(screen: Screen) -> None:
        if lines:
            pages.run_list(screen, lines)
        else:
            screen.line("no runs there")
            screen.next_steps((f"culmen run TASK --db '{parse(url).url}'", "make one"))

    return Answer({"runs": msgspec.to_builtins(lines)}, show)


def copy(
    screen: Screen,
    source: Annotated[
        str, typer.Argument(metavar="SRC", help="A run, a folder of runs, URL#NAME, or a URL: all runs.")
    ],
    target: Annotated[str, typer.Argument(metavar="DST", help="A folder, URL#NAME, or a URL: runs keep their names.")],
) -> Answer:
    """Copy runs between folders and databases, and compare every table by counts and hashes.

    The source may be running: its state at one moment is copied.
    """
    import msgspec

    from culmen.observe.figures import count
    from culmen.store import transfer

    chosen = transfer.runs_to_copy(source, find_run)
    places = [transfer.copy_target(target, run.name, len(chosen) > 1) for run in chosen]
    made = [transfer.copy_run(run, to) for run, to in zip(chosen, places)]
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
    """Bring the tables of all runs of a database up to this version of culmen. Skips runs that a process is writing."""
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
    yes: Annotated[bool, typer.Option("--yes", help="Delete it; without this option nothing happens.")] = False,
) -> Answer:
    """Delete a run of a database, with everything in it. Refused while a process is writing it."""
    from culmen.core.errors import UserError
    from culmen.store.address import parse
    from culmen.store.archive import drop as delete

    address = parse(run)
    if not address.name:
        raise UserError("the address names no run", where=run, fix=f"culmen db list '{address.url}'")
    if not yes:
        raise UserError(f"this deletes '{address.name}' for ever", where=str(address), fix="confirm with --yes")
    delete(address)
    return Answer({"dropped": str(address)}, lambda screen: screen.line(f"deleted {address}"))
