"""`culmen runs db ...`: the runs of a database."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from culmen.cli.screen import Answer, Screen
from culmen.cli.verbs import VerbGroup, VerbTable, find_run
from culmen.core.errors import UserError
from culmen.report.figures import count_text

if TYPE_CHECKING:
    from culmen.store.address import Address

Url = Annotated[
    str,
    typer.Argument(
        metavar="URL", help="postgresql+psycopg://user@host/database, or db: for CULMEN_DB's."
    ),
]


def db_list(screen: Screen, url: Url) -> Answer:
    """List the runs of a database."""
    from culmen.cli import pages
    from culmen.store import views
    from culmen.store.address import local_folder, parse_address

    lines = views.list_runs(local_folder(parse_address(url.partition("#")[0])))

    def show(screen: Screen) -> None:
        if lines:
            pages.show_run_list(screen, lines)
        else:
            screen.print_line("no runs there")
            screen.print_next_steps(
                (f"culmen run TASK --db '{parse_address(url).url}'", "make one")
            )

    return Answer({"runs": msgspec.to_builtins(lines)}, show)


def db_copy(
    screen: Screen,
    source: Annotated[
        str,
        typer.Argument(
            metavar="SRC", help="A run, a folder of runs, URL#NAME, or a URL: all runs."
        ),
    ],
    target: Annotated[
        str,
        typer.Argument(metavar="DST", help="A folder, URL#NAME, or a URL: runs keep their names."),
    ],
) -> Answer:
    """Copy runs between folders and databases, and compare every table by counts and hashes.

    The source may be running: its state at one moment is copied.
    """
    from culmen.store import transfer

    chosen = _runs_to_copy(source)
    targets = [_copy_target(target, run.name, len(chosen) > 1) for run in chosen]
    copies = [transfer.copy_run(run, to) for run, to in zip(chosen, targets)]
    data = {
        "copied": [
            {"from": copy.source, "to": copy.target, "tables": copy.tables} for copy in copies
        ]
    }

    def show(screen: Screen) -> None:
        for copy in copies:
            rows = sum(table.rows for table in copy.tables.values())
            events = count_text(copy.tables["event"].rows, "event")
            screen.print_line(
                f"{copy.source} -> {copy.target}: {events}, {count_text(rows, 'row')}; counts and "
                "hashes are the same"
            )
        if not copies:
            screen.print_line("no runs there")

    return Answer(msgspec.to_builtins(data), show)


def db_drop(
    screen: Screen,
    run: Annotated[
        str, typer.Argument(metavar="URL#NAME", help="A run in a database, by its full name.")
    ],
    yes: Annotated[
        bool, typer.Option("--yes", help="Delete it; without this option nothing happens.")
    ] = False,
) -> Answer:
    """Delete a run of a database, with everything in it.

    Refused while a process is writing it.
    """
    from culmen.store.address import parse_address
    from culmen.store.database import run_database

    address = parse_address(run)
    if not address.name:
        raise UserError(
            "the address does not name a run", where=run, fix=f"culmen runs db list '{address.url}'"
        )
    if not yes:
        raise UserError(
            f"this deletes '{address.name}' for ever", where=str(address), fix="confirm with --yes"
        )
    run_database(address).drop_run()
    return Answer({"dropped": str(address)}, lambda screen: screen.print_line(f"deleted {address}"))


def _runs_to_copy(text: str) -> list[Path]:
    """The run that a user names, or all runs of a folder or a database."""
    from culmen.store.address import has_run, is_address, local_folder, parse_address
    from culmen.store.database import run_folders

    if is_address(text) and not parse_address(text).name:
        return run_folders(local_folder(parse_address(text)))
    if not is_address(text) and Path(text).is_dir() and not has_run(Path(text)):
        return run_folders(Path(text))
    return [find_run(text)]


def _copy_target(text: str, name: str, several: bool) -> Path | Address:
    """Target of a copy of the run `name`, from a user's text.

    A folder, or the address of a run in a database.
    """
    from culmen.store.address import has_run, is_address, parse_address

    if is_address(text):
        address = parse_address(text)
        if several and address.name:
            raise UserError(
                "several runs cannot have one name",
                where=text,
                fix="give the database alone, as a URL",
            )
        return address if address.name else parse_address(text, name)
    return (
        Path(text) / name
        if several or (Path(text).is_dir() and not has_run(Path(text)))
        else Path(text)
    )


DB: VerbGroup = (
    "Runs in PostgreSQL. One of them is addressed as URL#NAME, or db:NAME with CULMEN_DB set.",
    {"list": db_list, "copy": db_copy, "drop": db_drop},
)
VERBS = VerbTable("Keep a run", groups={"runs": ("", {"db": DB})}, after="vacuum")
