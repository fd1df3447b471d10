"""Verbs that take a run elsewhere or test it: export, replay, recover."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from culmen.cli.screen import Answer, Screen
from culmen.cli.verbs import Run, verb

PANEL = "Keep a run"

_UNITS = {"jsonl": "event", "csv": "evaluation", "files": "candidate"}


def add_to(app: typer.Typer) -> None:
    """Declare the verbs of this group."""
    for function in (export, replay, recover):
        verb(app, PANEL)(function)


def export(
    screen: Screen,
    run: Run = None,
    form: Annotated[str, typer.Option("--format", metavar="FORMAT", help="jsonl, csv or files.")] = "jsonl",
    out: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Default: standard output; RUN-best for files.")
    ] = None,
    best: Annotated[int, typer.Option("--best", min=1, help="How many candidates, for files.")] = 10,
) -> Answer:
    """Copy a run for other programs: all events (jsonl), all evaluations (csv), the best candidates (files)."""
    from culmen.cli import runs
    from culmen.core.errors import UserError
    from culmen.observe.figures import count
    from culmen.store.export import export as write

    path = runs.find(run)
    if form not in _UNITS:
        raise UserError(f"there is no format '{form}'", where="--format", fix="use jsonl, csv or files")
    target = Path(f"{path.name}-best") if form == "files" and out is None else out
    if target is None and screen.as_json:
        raise UserError("standard output is taken by --json", where="--out", fix="name a file with --out")
    if form == "files" and target is not None and target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UserError("there is something already", where=str(target), fix="name a new folder with --out")
    try:
        written = write(path, form, "-" if target is None else target, count=best)  # pyright: ignore[reportArgumentType]
    except OSError as error:
        if target is None:
            raise
        raise UserError(f"cannot write: {error.strerror}", where=str(target), fix="name another place") from None
    data = {"run": path.name, "format": form, "out": str(target), "written": written}
    said = "" if target is None else f"wrote {count(written, _UNITS[form])} to {target}"
    return Answer(data, lambda screen: screen.line(said) if said else None)


def replay(
    screen: Screen,
    run: Run = None,
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Fail with exit code 4 where anything differs.")
    ] = True,
) -> Answer:
    """Derive the whole run again from its journal and say whether everything matches. Performs nothing."""
    from culmen.cli import replaying, runs

    return replaying.answer(runs.find(run), verify)


def recover(
    screen: Screen,
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The damaged run's folder.")],
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Default: RUN-recovered.")] = None,
) -> Answer:
    """Copy what can be read of a damaged run into a new one, which can be resumed."""
    from culmen.cli import runs
    from culmen.observe.figures import count
    from culmen.store.recover import recover as copy

    source = run if (run / "journal.db").is_file() else runs.FOLDER / run
    saved = copy(source, out)

    def show(screen: Screen) -> None:
        screen.line(f"saved {count(saved.events, 'event')} into {saved.path}")
        screen.next_steps((f"culmen resume {runs.shown(saved.path)}", "go on"))

    return Answer(saved, show)
