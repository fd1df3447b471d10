"""The verb `reproduce`: a table or a figure of a paper, made again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from culmen.cli.screen import Answer, Screen
from culmen.cli.verbs import INTERRUPTED, VerbTable
from culmen.core.errors import UserError
from culmen.extensions.bench.cli import Models, RunWorkers, print_progress

if TYPE_CHECKING:
    from culmen.extensions.bench.reproduce.making import Outcome
    from culmen.extensions.bench.reproduce.places import Paper, PaperPlace
    from culmen.extensions.bench.reproduce.running import Conditions


def reproduce(
    screen: Screen,
    place: Annotated[
        str,
        typer.Argument(
            metavar="[PAPER[/PLACE]]",
            help="A place, a paper, or 'all'. Without one: the list of places.",
            show_default=False,
        ),
    ] = "",
    toy: Annotated[
        bool, typer.Option("--toy", help="A rehearsal of seconds, with scripted models.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Make the runs; without it, pilots and a forecast.")
    ] = False,
    model: Annotated[
        list[str] | None,
        typer.Option(metavar="[ROLE=]MODEL", help="Model, also for one role. Repeatable."),
    ] = None,
    models: Models = None,
    embedder: Annotated[
        str | None, typer.Option(metavar="NAME", help="Embedder.", show_default="hashing")
    ] = None,
    task: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=DIR", help="Your copy of a built-in task. Repeatable."),
    ] = None,
    advisor: Annotated[
        str, typer.Option(metavar="MODEL", help="Advisor that PACEvolve++ trains.")
    ] = "tiny",
    agent: Annotated[str, typer.Option(metavar="NAME", help="Agent of CATO.")] = "builtin",
    pool: Annotated[
        str, typer.Option(metavar="FILE", help="Pool of TurboEvolve's warm start.")
    ] = "uncertainty_ineq",
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Runs of each contender.", show_default="the paper's")
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(metavar="NAME=N,...", help="Budget of each run.", show_default="the record's"),
    ] = None,
    workers: RunWorkers = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of runs.", show_default="runs/reproduce"),
    ] = None,
) -> Answer:
    """Make tables and figures of four papers again: beside the printed figures, with a plot.

    With models, pilot runs come first and a forecast of the whole cost; --yes makes the
    runs. After an interruption the same command goes on. `--toy` needs no model.
    """
    from culmen.extensions.bench.reproduce.places import find_places
    from culmen.extensions.bench.reproduce.running import Conditions

    if not place:
        return _list_places()
    wanted = find_places(place)
    if not toy and not model and models is None:
        fix = "add --model NAME (or --models FILE), or --toy for a rehearsal without models"
        raise UserError("no model is named", where=f"culmen paper reproduce {place}", fix=fix)
    folder = out or Path("runs") / ("reproduce-toy" if toy else "reproduce")
    conditions = Conditions(
        folder,
        toy,
        _model_text(model, models),
        None if models is None else str(models.resolve()),
        embedder or "hashing",
        _named_folders(task or ()),
        seeds,
        budget,
        workers,
        advisor,
        agent,
        pool,
    )
    if not toy and not yes:
        return _forecast_places(screen, wanted, conditions, place)
    return _make_places(screen, wanted, conditions)


def _model_text(model: Sequence[str] | None, models: Path | None) -> str:
    from culmen.run.options import models_from_file

    if model:
        return ",".join(model)
    return "" if models is None else models_from_file(str(models.resolve()))


def _named_folders(given: Sequence[str]) -> dict[str, str]:
    """Task folders by the built-in task that each replaces; UserError for another form."""
    pairs = [text.partition("=") for text in given]
    for name, sign, folder in pairs:
        if not sign or not Path(folder).is_dir():
            fix = "write --task NAME=DIR, as eplb=my_eplb"
            raise UserError(f"no folder is named for the task '{name}'", where="--task", fix=fix)
    return {name: str(Path(folder).resolve()) for name, _, folder in pairs}


def _with_folder(conditions: Conditions, paper: Paper) -> Conditions:
    import msgspec

    return msgspec.structs.replace(conditions, out=conditions.out / paper.name)


def _list_places() -> Answer:
    """All places, by paper."""
    from culmen.extensions.bench.reproduce.places import known_papers

    papers = known_papers()
    data = {
        name: {"title": paper.title, "places": {each.name: each.title for each in paper.places}}
        for name, paper in papers.items()
    }

    def show(screen: Screen) -> None:
        for name, paper in papers.items():
            screen.print_heading(name, paper.title)
            rows = [[f"{name}/{each.name}", each.title] for each in paper.places]
            screen.print_table(["place", "what it shows"], rows)
        screen.print_next_steps(
            ("culmen paper reproduce polca/table1 --toy", "a rehearsal of seconds")
        )

    return Answer(data, show)


def _forecast_places(
    screen: Screen, wanted: Sequence[tuple[Paper, PaperPlace]], conditions: Conditions, words: str
) -> Answer:
    """Pilots, and the forecast of each place."""
    from culmen.extensions.bench.reproduce.making import cost_text, forecast_of

    found = {
        f"{paper.name}/{place.name}": forecast_of(
            paper, place, _with_folder(conditions, paper), lambda line: print_progress(screen, line)
        )
        for paper, place in wanted
    }

    def show(screen: Screen) -> None:
        for name, costs in found.items():
            screen.print_line(f"{name}: likely {cost_text(costs['both'])}.")
            screen.print_line(f"  its runs: {cost_text(costs['runs'])}")
            screen.print_line(f"  its final measurement: {cost_text(costs['final'])}")
        if len(found) > 1:
            screen.print_note("Places that share runs share their cost.")
        screen.print_next_steps((f"culmen paper reproduce {words} ... --yes", "make the runs"))

    return Answer({"forecast": found}, show)


def _make_places(
    screen: Screen, wanted: Sequence[tuple[Paper, PaperPlace]], conditions: Conditions
) -> Answer:
    """The places one after another, each shown when it is done."""
    from culmen.extensions.bench.reproduce.making import make_place

    made: list[Outcome] = []
    try:
        for paper, place in wanted:
            own = _with_folder(conditions, paper)
            made.append(make_place(paper, place, own, lambda line: print_progress(screen, line)))
    except KeyboardInterrupt:  # finished places are shown all the same
        pass
    done = len(made) == len(wanted) and all(each.complete for each in made)
    data = {
        each.name: {
            "heads": each.shown.heads,
            "rows": each.shown.rows,
            "spent": each.spent,
            "complete": each.complete,
            "remarks": each.remarks,
            "files": [str(file) for file in each.files],
        }
        for each in made
    }

    def show(screen: Screen) -> None:
        for each in made:
            _show_place(screen, each)
        if not done:
            screen.print_line("Interrupted: run the same command again to continue.")

    return Answer(data, show, 0 if done else INTERRUPTED)


def _show_place(screen: Screen, made: Outcome) -> None:
    from culmen.extensions.bench.reproduce.making import cost_text, plot_remark

    screen.print_line()
    screen.print_heading(made.name, made.place.title)
    screen.print_table(list(made.shown.heads), [list(row) for row in made.shown.rows])
    screen.print_line(f"Runs: {cost_text(made.spent)}.")
    for remark in (*made.remarks, *made.paper.differs):
        screen.print_note(remark)
    if plot_remark(made):
        screen.print_note(plot_remark(made))
    plots = [str(file) for file in made.files if file.suffix == ".png"]
    screen.print_line(f"Wrote {', '.join(plots or [str(made.files[0])])}.")


VERBS = VerbTable(
    "Papers",
    groups={"paper": ("Tables and figures of papers, made again.", {"reproduce": reproduce})},
)
