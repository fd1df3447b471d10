"""`culmen import`: task folders made of other ecosystems' benchmarks."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol

import msgspec
import typer

from culmen.cli.screen import Answer, Screen
from culmen.cli.verbs import VerbTable
from culmen.core.errors import UserError
from culmen.observe.figures import count_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from culmen.compat.algotune import Imported
    from culmen.compat.alphaevolve.importing import ImportedNotebook
    from culmen.compat.frontier_cs import ImportedProblem
    from culmen.compat.llm4ad import ImportedDesign

_FAILED = 1


class _Outcome(Protocol):
    """The outcome of one import: `error` and `fix` are "" if it worked."""

    name: str
    error: str
    fix: str


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
    _refuse_taken(out, files, replace)
    done = [import_task(file, out / name, milliseconds) for name, file in _announced(screen, files)]
    failed = any(each.error for each in done)
    data = msgspec.to_builtins(done)
    return Answer(data, lambda screen: _print_imported(screen, done, out), _FAILED * failed)


def alphaevolve(
    screen: Screen,
    checkout: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="A checkout with AlphaEvolve's notebooks, or one."),
    ],
    notebooks: Annotated[
        list[str] | None,
        typer.Argument(metavar="NOTEBOOK", help="Notebooks to import. Default: all."),
    ] = None,
    out: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Folder that gets a task folder each.")
    ] = Path("alphaevolve"),
    direction: Annotated[
        str, typer.Option(metavar="max|min", help="Direction. Default: what the notebook says.")
    ] = "",
    score: Annotated[
        str,
        typer.Option(
            metavar="EXPRESSION",
            help="Number to improve, in names of the notebook. Default: the last one it prints.",
        ),
    ] = "",
    construction: Annotated[
        str,
        typer.Option(
            metavar="NAME,...",
            help="Data that a program returns. Default: the largest that the number rests on.",
        ),
    ] = "",
    replace: Annotated[bool, typer.Option("--replace", help="Replace folders there.")] = False,
) -> Answer:
    """Make task folders of AlphaEvolve's notebooks: constructions and their verification.

    Each cell that verifies data is run; results without work are tried on it.
    """
    from culmen.compat.alphaevolve import importing

    checkout = checkout.expanduser()
    files = importing.notebook_files(checkout, notebooks or [])
    options = importing.options_of(direction, score, construction)
    found = [
        each
        for name, file in _announced(screen, files)
        for each in importing.import_notebook(name, file, options)
    ]
    fine = [(task, facts) for task, facts in found if not task.error]
    _refuse_taken(out, [task.name for task, _ in fine], replace)
    for task, facts in fine:
        importing.write_task(task, facts, out / task.name, checkout)
    done = [task for task, _ in found]
    data = msgspec.to_builtins(done)
    failed = any(each.error for each in done)
    return Answer(data, lambda screen: _print_notebooks(screen, done, out), _FAILED * failed)


def frontier_cs(
    screen: Screen,
    checkout: Annotated[
        Path, typer.Argument(metavar="DIR", help="A checkout of Frontier-CS's repository.")
    ],
    problems: Annotated[
        list[str] | None,
        typer.Argument(metavar="PROBLEM", help="Problems to import. Default: all."),
    ] = None,
    out: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Folder that gets a task folder each.")
    ] = Path("frontier-cs"),
    testlib: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="testlib.h. Default: that of the checkout or system."),
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace folders there.")] = False,
) -> Answer:
    """Make task folders of the algorithmic problems of Frontier-CS: C++ programs.

    Checkers are compiled; interactive problems are left out.
    """
    from culmen.compat.frontier_cs import find_header, import_problem, problem_folders

    folders = problem_folders(checkout.expanduser(), problems or [])
    header = find_header(checkout.expanduser(), testlib)
    _refuse_taken(out, folders, replace)
    done = [
        import_problem(folder, out / name, header) for name, folder in _announced(screen, folders)
    ]
    data = msgspec.to_builtins(done)
    failed = any(each.error for each in done)
    return Answer(data, lambda screen: _print_problems(screen, done, out), _FAILED * failed)


def llm4ad(
    screen: Screen,
    checkout: Annotated[
        Path, typer.Argument(metavar="DIR", help="A checkout of LLM4AD's repository.")
    ],
    tasks: Annotated[
        list[str] | None, typer.Argument(metavar="TASK", help="Tasks to import. Default: all.")
    ] = None,
    out: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Folder that gets a task folder each.")
    ] = Path("llm4ad"),
    replace: Annotated[bool, typer.Option("--replace", help="Replace folders there.")] = False,
) -> Answer:
    """Make task folders of LLM4AD's evaluators: functions of heuristics.

    Each task is tried with its template's function.
    """
    from culmen.compat.llm4ad import import_design, task_folders

    checkout = checkout.expanduser().resolve()
    folders = task_folders(checkout, tasks or [])
    _refuse_taken(out, folders, replace)
    done = [
        import_design(folder, out / name, checkout) for name, folder in _announced(screen, folders)
    ]
    data = msgspec.to_builtins(done)
    failed = any(each.error for each in done)
    return Answer(data, lambda screen: _print_designs(screen, done, out), _FAILED * failed)


def _print_designs(screen: Screen, done: list[ImportedDesign], out: Path) -> None:
    rows = [
        (
            each.name,
            each.entry,
            f"{each.calls:,}",
            "none" if each.score is None else f"{each.score:.6g}",
        )
        for each in done
        if each.folder
    ]
    findings = [("note", f"{each.name}: {note}", "") for each in done for note in each.notes]
    heads = ("task", "function", "calls", "initial fitness")
    _print_outcome(screen, done, heads, rows, findings, out)
    if rows:
        first = shlex.quote(str(out / rows[0][0]))
        screen.print_next_steps(
            (f"culmen check {first}", "the initial fitness"), (f"culmen run {first}", "search")
        )


def _print_notebooks(screen: Screen, done: list[ImportedNotebook], out: Path) -> None:
    arrows = {"max": "larger", "min": "smaller"}
    rows = [
        (
            each.name,
            ", ".join(each.construction),
            each.expression,
            f"{each.value:.9g}",
            arrows[each.direction],
        )
        for each in done
        if each.folder
    ]
    findings = [
        (
            "weak",
            f"{each.name}: as good as the notebook's: {', '.join(each.weak)}",
            f"change verify() in {out / each.name / 'evaluator.py'}: refuse such results",
        )
        for each in done
        if each.weak
    ]
    heads = ("task", "construction", "score", "in the notebook", "better")
    _print_outcome(screen, done, heads, rows, findings, out)
    if rows:
        first = shlex.quote(str(out / rows[0][0]))
        screen.print_next_steps(
            (f"culmen check {first}", "the notebook's construction"),
            (f"culmen audit {first}", "what could be gamed"),
            (f"culmen run {first}", "search"),
        )


def _print_outcome(
    screen: Screen,
    done: Sequence[_Outcome],
    heads: tuple[str, ...],
    rows: Sequence[tuple[str, ...]],
    findings: Iterable[tuple[str, str, str]],
    out: Path,
) -> None:
    """Print the table of what was imported, what could not be, and further findings."""
    if rows:
        screen.print_table(heads, rows)
        screen.print_line()
    for each in done:
        if each.error:
            screen.print_finding("error", f"{each.name}: {each.error}", each.fix, "red")
    for level, what, fix in findings:
        screen.print_finding(level, what, fix, "yellow")
    screen.print_line(f"{count_text(len(rows), heads[0])} of {len(done)} imported into {out}")


def _refuse_taken(out: Path, names: Iterable[str], replace: bool) -> None:
    """Raise UserError if there are folders of these names that are not to be replaced."""
    taken = [name for name in names if (out / name).exists()]
    if taken and not replace:
        raise UserError(
            f"{count_text(len(taken), 'folder')} of these tasks are there: {taken[0]}, ...",
            where=str(out),
            fix="name another folder with --out, or replace them with --replace",
        )


def _announced(screen: Screen, places: Mapping[str, Path]) -> Iterator[tuple[str, Path]]:
    """Print the name of each task before it is imported; yield name and place."""
    for number, (name, place) in enumerate(places.items(), 1):
        if screen.is_live:
            screen.err.print(f"{number} of {len(places)}  {name}", highlight=False)
        yield name, place


def _print_problems(screen: Screen, done: list[ImportedProblem], out: Path) -> None:
    imported = [each for each in done if each.folder]
    rows = [
        (each.name, f"{each.cases}", f"{each.seconds:g} s", f"{each.programs or ''}")
        for each in imported
    ]
    findings = [("note", f"{each.name}: {note}", "") for each in done for note in each.notes]
    heads = ("problem", "tests", "time", "recorded programs")
    _print_outcome(screen, done, heads, rows, findings, out)
    if imported:
        first = shlex.quote(str(out / imported[0].name))
        bank = " --model bank:" + shlex.quote(str(out / imported[0].name / "bank"))
        screen.print_next_steps(
            (f"culmen check {first}", "the empty program: 0"),
            (f"culmen run {first}{bank if imported[0].programs else ' --model NAME'}", "search"),
        )


def _print_imported(screen: Screen, done: list[Imported], out: Path) -> None:
    rows = [
        (each.name, f"{each.size:,}", f"{each.milliseconds:.3g} ms") for each in done if each.folder
    ]
    findings = [
        (
            "weak",
            f"{each.name}: is_solution accepts {', '.join(each.weak)}",
            f"change check() in {out / each.name / 'evaluator.py'}: refuse such results",
        )
        for each in done
        if each.weak
    ]
    _print_outcome(screen, done, ("task", "size", "reference"), rows, findings, out)
    if rows:
        first = shlex.quote(str(out / rows[0][0]))
        screen.print_next_steps(
            (f"culmen check {first}", "the reference against itself: about 1"),
            (f"culmen audit {first}", "what could be gamed"),
            (f"culmen run {first}", "search"),
        )


VERBS = VerbTable(
    "Start",
    groups={
        "import": (
            "Make tasks of other benchmarks.",
            {
                "algotune": algotune,
                "alphaevolve": alphaevolve,
                "frontier-cs": frontier_cs,
                "llm4ad": llm4ad,
            },
        )
    },
    after="new",
)
