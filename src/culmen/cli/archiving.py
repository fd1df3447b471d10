"""Verbs about the space that runs take: archive, vacuum."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from culmen.cli.screen import Answer, Screen
from culmen.cli.verbs import Run, verb
from culmen.core.errors import UserError

PANEL = "Keep a run"


def add_to(app: typer.Typer) -> None:
    """Declare the verbs of this group."""
    for function in (archive, vacuum):
        verb(app, PANEL)(function)


def archive(
    screen: Screen,
    run: Annotated[
        list[str], typer.Argument(metavar="RUN...", help="Finished runs; with --restore, files made by this verb.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="PLACE", help="A file for one run, a folder for several; to restore: where."
        ),
    ] = None,
    restore: Annotated[bool, typer.Option("--restore", help="Make runs of archives again, under ./runs.")] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Delete each run once its archive was compared.")] = False,
    unfinished: Annotated[bool, typer.Option("--unfinished", help="Also runs that could still be resumed.")] = False,
) -> Answer:
    """Pack finished runs into one compressed file each, or with --restore unpack them. Hashes are compared.

    A run that somebody writes is never packed.
    """
    from culmen.store.archive import Archived

    if restore and (remove or unfinished):
        raise UserError("--restore takes no other word", where="culmen archive", fix="leave --remove and --unfinished")
    made: list[Archived] = []
    for name in run:
        made.append(_restored(name, out, len(run) > 1) if restore else _packed(name, out, run, remove, unfinished))

    def show(screen: Screen) -> None:
        for one in made:
            gone = "; the run was deleted" if one.removed else ""
            screen.line(f"{one.file}: {one.events:,} events, {size(one.before)} -> {size(one.after)}{gone}")

    return Answer({"archives": made}, show)


def _packed(name: str, out: Path | None, names: list[str], remove: bool, unfinished: bool) -> Any:
    from culmen.cli import runs
    from culmen.store import archive as archives
    from culmen.store.address import pointer

    path = runs.find(name)
    several = len(names) > 1 or (out is not None and out.is_dir())
    if several and out is not None:
        out.mkdir(parents=True, exist_ok=True)
    away = pointer(path) is not None  # its folder is no place to look for files
    file = out / f"{path.name}{archives.SUFFIX}" if out is not None and several else out
    if file is None and away:
        file = Path(f"{path.name}{archives.SUFFIX}")
    return archives.archive(path, file, remove=remove, unfinished=unfinished)


def _restored(name: str, out: Path | None, several: bool) -> Any:
    from culmen.cli import runs
    from culmen.store import archive as archives

    file = Path(name)
    stem = file.name.removesuffix(archives.SUFFIX)
    target = runs.FOLDER / stem if out is None else out / stem if several or out.is_dir() else out
    return archives.restore(file, target)


def vacuum(screen: Screen, run: Run = None) -> Answer:
    """Give the space back that a run's store no longer uses. Refused while somebody writes it."""
    from culmen.cli import runs
    from culmen.store.upkeep import vacuum as tidy

    path = runs.find(run)
    before, after = tidy(path)
    data = {"run": path.name, "before": before, "after": after}
    return Answer(data, lambda screen: screen.line(f"{path.name}: {size(before)} -> {size(after)}"))


def size(number: int) -> str:
    """Bytes as a person reads them."""
    value, unit = float(number), "bytes"
    for unit in ("bytes", "kB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            break
        value /= 1000
    return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"
