"""`culmen import`: task folders made of other ecosystems' benchmarks."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeVar

import msgspec
import typer

from culmen.cli.screen import Answer, Screen
from culmen.cli.verbs import VerbTable
from culmen.core.errors import UserError
from culmen.report.figures import count_text

if TYPE_CHECKING:
    from culmen.extensions.importers.algotune import ImportedSpeedup
    from culmen.extensions.importers.importing import ImportedTask
    from culmen.extensions.importers.llm4ad import ImportedDesign

Names = Annotated[
    list[str] | None, typer.Argument(metavar="TASK", help="Tasks to import. Default: all.")
]
Out = Annotated[
    Path, typer.Option("--out", metavar="FOLDER", help="Folder that gets a task folder each.")
]
Replace = Annotated[bool, typer.Option("--replace", help="Replace folders there.")]
T = TypeVar("T", bound="ImportedTask")


class _Layout(NamedTuple):
    """The table of one benchmark's imported tasks, and the commands that follow."""

    heads: tuple[str, ...]
    row: Callable[..., tuple[str, ...]]
    next_steps: Mapping[str, str]  # verbs for a folder, each with a comment


def algotune(
    screen: Screen,
    checkout: Annotated[
        Path, typer.Argument(metavar="DIR", help="A checkout of AlgoTune's repository.")
    ],
    names: Names = None,
    out: Out = Path("algotune"),
    milliseconds: Annotated[
        float,
        typer.Option(
            metavar="MS", min=1.0, help="Time that the reference shall take for one problem."
        ),
    ] = 100.0,
    replace: Replace = False,
) -> Answer:
    """Make task folders of AlgoTune: faster programs than its references.

    Each task is tried: its reference must pass its own check, results without work must not.
    """
    from culmen.extensions.importers.algotune import import_task, task_files

    def import_one(file: Path, target: Path) -> ImportedSpeedup:
        return import_task(file, target, milliseconds)

    files = task_files(checkout.expanduser(), names or [])
    return _import_each(screen, files, import_one, _SPEEDUPS, out, replace)


def llm4ad(
    screen: Screen,
    checkout: Annotated[
        Path, typer.Argument(metavar="DIR", help="A checkout of LLM4AD's repository.")
    ],
    names: Names = None,
    out: Out = Path("llm4ad"),
    replace: Replace = False,
) -> Answer:
    """Make task folders of LLM4AD's evaluators: functions of heuristics.

    Each task is tried with its template's function.
    """
    from culmen.extensions.importers.llm4ad import import_design, task_folders

    checkout = checkout.expanduser().resolve()

    def import_one(folder: Path, target: Path) -> ImportedDesign:
        return import_design(folder, target, checkout)

    folders = task_folders(checkout, names or [])
    return _import_each(screen, folders, import_one, _DESIGNS, out, replace)


# -- the tables that they print ---------------------------------------------------------------


def _design_row(task: ImportedDesign) -> tuple[str, ...]:
    scores = task.score.values() if isinstance(task.score, dict) else (task.score,)
    score = ", ".join("none" if each is None else f"{each:.6g}" for each in scores)
    return task.name, task.entry, f"{task.calls:,}", score


_SPEEDUPS = _Layout(
    ("task", "size", "reference"),
    lambda task: (task.name, f"{task.size:,}", f"{task.milliseconds:.3g} ms"),
    {
        "check": "the reference against itself: about 1",
        "audit": "what could be gamed",
        "run": "search",
    },
)
_DESIGNS = _Layout(
    ("task", "function", "calls", "initial fitness"),
    _design_row,
    {"check": "the initial fitness", "run": "search"},
)


def _import_each(
    screen: Screen,
    places: Mapping[str, Path],
    import_one: Callable[[Path, Path], T],
    layout: _Layout,
    out: Path,
    replace: bool,
) -> Answer:
    """Import each place into a folder of its name; status 1 if one could not be."""
    taken = [name for name in places if (out / name).exists()]
    if taken and not replace:
        raise UserError(
            f"{count_text(len(taken), 'folder')} of these tasks are there: {taken[0]}, ...",
            where=str(out),
            fix="name another folder with --out, or replace them with --replace",
        )
    done: list[T] = []
    for number, (name, place) in enumerate(places.items(), 1):
        done.append(import_one(place, out / name))
        if not screen.as_json:
            outcome = done[-1].error.partition("\n")[0] or "imported"
            line = f"{number} of {len(places)}  {name}: {outcome}"
            screen.err.print(line, highlight=False, markup=False, soft_wrap=True)
    failed = any(each.error for each in done)
    data = msgspec.to_builtins(done)
    return Answer(data, lambda screen: _print_outcome(screen, done, layout, out), int(failed))


def _print_outcome(
    screen: Screen, done: Sequence[ImportedTask], layout: _Layout, out: Path
) -> None:
    """Print the table of imported tasks and of refused ones, with notes and weaknesses."""
    imported = [each for each in done if each.folder]
    if imported:
        screen.print_table(layout.heads, [layout.row(each) for each in imported])
        screen.print_line()
    for each in done:
        if each.error:
            screen.print_finding("error", f"{each.name}: {each.error}", each.fix, "red")
        for note in each.notes:
            screen.print_finding("note", f"{each.name}: {note}", "", "yellow")
        if each.weak:
            what = f"{each.name}: is_solution accepts {', '.join(each.weak)}"
            fix = f"change check() in {Path(each.folder, 'evaluator.py')}: refuse such results"
            screen.print_finding("weak", what, fix, "yellow")
    counted = count_text(len(imported), layout.heads[0])
    screen.print_line(f"{counted} of {len(done)} imported into {out}")
    if imported:
        folder = shlex.quote(imported[0].folder)
        steps = layout.next_steps.items()
        screen.print_next_steps(*((f"culmen {verb} {folder}", why) for verb, why in steps))


VERBS = VerbTable(
    "Start",
    groups={
        "import": (
            "Make tasks of other benchmarks.",
            {"algotune": algotune, "llm4ad": llm4ad},
        )
    },
    after="new",
)
