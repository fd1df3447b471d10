"""A place from its record to its files: runs, table beside the printed one, plot, remarks."""

from __future__ import annotations

import csv
import importlib.util
import json
from pathlib import Path

import msgspec

from culmen.extensions.bench.analyze import NO_PLOTS
from culmen.extensions.bench.markup import markdown_table
from culmen.extensions.bench.reproduce.forecast import forecast_place, spent_on
from culmen.extensions.bench.reproduce.places import Paper, PaperPlace
from culmen.extensions.bench.reproduce.results import ANALYSES, PlaceEvidence, PlaceResult
from culmen.extensions.bench.reproduce.running import (
    Conditions,
    Experimenter,
    Report,
    check_contenders,
)
from culmen.report.figures import dollars_text
from culmen.report.forecast import Cost


class Outcome(msgspec.Struct, frozen=True):
    """A place made again: what it shows, its cost, and the files written.

    `complete` is false if a run was interrupted, `rehearsed` true for runs of toy size; `scale` is
    said below the title of its pictures.
    """

    paper: Paper
    place: PaperPlace
    shown: PlaceResult
    spent: Cost
    complete: bool
    files: tuple[Path, ...]
    remarks: tuple[str, ...]
    rehearsed: bool = False
    scale: str = ""

    @property
    def name(self) -> str:
        """`PAPER/PLACE`."""
        return f"{self.paper.name}/{self.place.name}"


def experimenters_of(
    paper: Paper, place: PaperPlace, conditions: Conditions
) -> dict[str, Experimenter]:
    """The makers of a place's runs; UserError for impossible runs."""
    makers = {name: Experimenter(paper, name, conditions) for name in place.experiments}
    for maker in makers.values():
        check_contenders(maker)
    return makers


def forecast_of(
    paper: Paper, place: PaperPlace, conditions: Conditions, report: Report
) -> dict[str, Cost]:
    """Forecasts of a place's `runs`, `final` measurement and `both`, from pilots made first."""
    makers = experimenters_of(paper, place, conditions)
    pairs = [forecast_place(each, place, report) for each in makers.values()]
    runs, final = (sum(column, Cost()) for column in zip(*pairs))
    return {"runs": runs, "final": final, "both": runs + final}


def make_place(paper: Paper, place: PaperPlace, conditions: Conditions, report: Report) -> Outcome:
    """Make the missing runs of a place, analyse them, and write its files into `places/`."""
    makers = experimenters_of(paper, place, conditions)
    runs = {name: list(maker.make_runs(report)) for name, maker in makers.items()}
    wanted = sum(_cell_count(maker) for maker in makers.values())
    complete = sum(map(len, runs.values())) == wanted
    evidence = PlaceEvidence(place, makers, runs, report)
    shown = ANALYSES[place.show](evidence) if evidence.every_run() else PlaceResult(("method",), ())
    everything = [run for group in runs.values() for run in group]
    remarks = _remarks(place, makers, shown)
    parts = paper, place, shown, spent_on(everything), complete, (), remarks
    made = Outcome(*parts, rehearsed=conditions.toy, scale=evidence.scale)
    return msgspec.structs.replace(made, files=tuple(_write_files(made, conditions.out)))


def _cell_count(maker: Experimenter) -> int:
    from culmen.extensions.bench.suite import suite_cells

    return sum(len(suite_cells(suite, maker.folder)) for suite in maker.suites())


def _remarks(
    place: PaperPlace, makers: dict[str, Experimenter], shown: PlaceResult
) -> tuple[str, ...]:
    """Notes of the analysis and of the record, with the place's own differences."""
    found = [*shown.notes, *((place.note,) if place.note else ())]
    for maker in makers.values():
        toy = maker.conditions.toy
        models = maker.plan.models + (f"; {maker.plan.embedder}" if maker.plan.embedder else "")
        used = "scripted models" if toy else maker.conditions.model
        own = f"{used}, embedder {maker.conditions.embedder}"
        found.append(f"{maker.name}: the paper has {models}; here {own}.")
        if maker.substitution:
            found.append(f"{maker.name}: {maker.substitution}.")
    return tuple(dict.fromkeys([*found, *place.differs]))


def _write_files(made: Outcome, out: Path) -> list[Path]:
    """Write table and plot of a place; return the files."""
    stem = out / "places" / made.place.name
    stem.parent.mkdir(parents=True, exist_ok=True)
    files = [stem.with_suffix(suffix) for suffix in (".md", ".csv", ".json")]
    files[0].write_text(place_markdown(made), encoding="utf-8")
    with files[1].open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerows([made.shown.heads, *made.shown.rows])
    document = {"place": made.name, **msgspec.to_builtins(made.shown), "spent": made.spent}
    files[2].write_text(
        json.dumps(msgspec.to_builtins(document), indent=1) + "\n", encoding="utf-8"
    )
    if importlib.util.find_spec("matplotlib") is None:
        return files
    from culmen.extensions.bench.reproduce.drawing import draw_place, method_colours

    plans = made.paper.experiments.values()
    colours = method_colours(label for plan in plans for label in plan.contenders)
    path = stem.with_suffix(".png")
    return files + draw_place(made.shown, made.place.title, made.scale, path, colours)


def plot_remark(made: Outcome) -> str:
    """The reason why there is no plot; "" if there is one."""
    if any(file.suffix == ".png" for file in made.files):
        return ""
    return NO_PLOTS if importlib.util.find_spec("matplotlib") is None else "nothing to draw"


def cost_text(cost: Cost) -> str:
    """`1,200 evaluations, 706 calls, 1.2 M tokens, $0.31`."""
    price = dollars_text(cost.dollars) + (" and calls without a price" if cost.unpriced else "")
    return (
        f"{cost.evaluations:,.0f} evaluations, {cost.calls:,.0f} calls, "
        f"{cost.tokens / 1e6:,.2f} M tokens, {price}"
    )


def place_markdown(made: Outcome) -> str:
    """A place as a section of a page: table, cost, and what differs."""
    right = [head for head in made.shown.heads[1:]]
    table = markdown_table(made.shown.heads, made.shown.rows, right) if made.shown.rows else ""
    remarks = "\n".join(f"- {remark}" for remark in made.remarks)
    return (
        "\n\n".join(
            piece
            for piece in (
                f"### {made.name}",
                made.place.title,
                table,
                f"Runs: {cost_text(made.spent)}.",
                remarks,
            )
            if piece
        )
        + "\n"
    )
