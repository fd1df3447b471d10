"""`culmen import`: task folders made of other ecosystems' benchmarks."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from culmen.cli.screen import Answer, Screen
from culmen.cli.verbs import VerbTable
from culmen.core.errors import UserError
from culmen.observe.figures import count_text

if TYPE_CHECKING:
    from culmen.compat.algotune import Imported

_FAILED = 1


def algotune(
    screen: Screen,
    checkout: Annotated[
        Path, typer.Argument(metavar="DIR", help="A checkout of AlgoTune's repository.")
    ],
    tasks: Annotated[
        list[str] | None, typer.Argument(metavar="TASK", help="Tasks to import. Default: all.")
    ] = None,
    out: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Folder that gets a task folder each.")
    ] = Path("algotune"),
    milliseconds: Annotated[
        float,
        typer.Option(
            metavar="MS", min=1.0, help="Time that the reference shall take for one problem."
        ),
    ] = 100.0,
    replace: Annotated[bool, typer.Option("--replace", help="Replace folders there.")] = False,
) -> Answer:
    """Make task folders of AlgoTune: faster programs than its references.

    Each task is tried: its reference must pass its own check, results without work must not.
    """
    from culmen.compat.algotune import import_task, task_files

    files = task_files(checkout.expanduser(), tasks or [])
    taken = [name for name in files if (out / name).exists()]
    if taken and not replace:
        raise UserError(
            f"{count_text(len(taken), 'folder')} of these tasks are there: {taken[0]}, ...",
            where=str(out),
            fix="name another folder with --out, or replace them with --replace",
        )
    done = []
    for number, (name, file) in enumerate(files.items(), 1):
        if screen.is_live:
            screen.err.print(f"{number} of {len(files)}  {name}", highlight=False)
        done.append(import_task(file, out / name, milliseconds))
    failed = any(each.error for each in done)
    data = msgspec.to_builtins(done)
    return Answer(data, lambda screen: _print_imported(screen, done, out), _FAILED * failed)


def _print_imported(screen: Screen, done: list[Imported], out: Path) -> None:
    rows = [
        (each.name, f"{each.size:,}", f"{each.milliseconds:.3g} ms") for each in done if each.folder
    ]
    if rows:
        screen.print_table(("task", "size", "reference"), rows)
        screen.print_line()
    for each in done:
        if each.error:
            screen.print_finding("error", f"{each.name}: {each.error}", each.fix, "red")
        if each.weak:
            what = f"{each.name}: is_solution accepts {', '.join(each.weak)}"
            fix = f"change check() in {out / each.name / 'evaluator.py'}: refuse such results"
            screen.print_finding("weak", what, fix, "yellow")
    screen.print_line(f"{count_text(len(rows), 'task')} of {len(done)} imported into {out}")
    if rows:
        first = shlex.quote(str(out / rows[0][0]))
        screen.print_next_steps(
            (f"culmen check {first}", "the reference against itself: about 1"),
            (f"culmen audit {first}", "what could be gamed"),
            (f"culmen run {first}", "search"),
        )


VERBS = VerbTable(
    "Start",
    groups={"import": ("Make tasks of other benchmarks.", {"algotune": algotune})},
    after="new",
)
