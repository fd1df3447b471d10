"""Makes docs/reproduce.md: every place of the papers at toy size, by scripted models.

    python bench/make_reproduce.py [--out FOLDER]      # writes the page; goes on where it was cut off

The text before the first heading of a paper is kept.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path

from culmen.extensions.bench.markup import markdown_table
from culmen.extensions.bench.reproduce.making import Outcome, make_place, place_markdown
from culmen.extensions.bench.reproduce.places import find_places
from culmen.extensions.bench.reproduce.running import Conditions

PAGE = Path(__file__).parents[1] / "docs" / "reproduce.md"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("runs/reproduce-toy"), help="of the runs")
    out = parser.parse_args().out
    made = [
        make_place(paper, place, Conditions(out / paper.name, toy=True), print)
        for paper, place in find_places("all")
    ]
    write_page(made, PAGE, PAGE.read_text(encoding="utf-8").partition("\n## ")[0])


def write_page(outcomes: Sequence[Outcome], page: Path, intro: str) -> list[Path]:
    """Write a page with all places, their plots beside it in `img/reproduce`; the files.

    Places that were only rehearsed are rows of a table, without figures.
    """
    pictures = page.parent / "img" / "reproduce"
    pieces, files = [intro.strip()], [page]
    papers = {made.paper.name: made.paper for made in outcomes}
    for paper in papers.values():
        remarks = "\n".join(f"- {remark}" for remark in paper.differs)
        pieces.append(f"## {paper.title}\n\nWhat differs everywhere:\n\n{remarks}")
        places = [made for made in outcomes if made.paper is paper]
        rehearsed = [_rehearsal_row(made) for made in places if made.rehearsed]
        if rehearsed:
            pieces.append(markdown_table(REHEARSAL_HEADS, _with_dittos(rehearsed), ()).strip())
        for made in (made for made in places if not made.rehearsed):
            section = place_markdown(made)
            for drawn in (file for file in made.files if file.suffix == ".png"):
                target = pictures / f"{paper.name}-{drawn.name}"
                pictures.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(drawn, target)
                files.append(target)
                section += f"\n![{made.place.title}](img/reproduce/{target.name})\n"
            pieces.append(section.strip())
    page.write_text("\n\n".join(pieces) + "\n", encoding="utf-8")
    return files


REHEARSAL_HEADS = ("place", "shows", "the paper's models", "what differs")
"""Columns of a page's table of rehearsed places."""


def _rehearsal_row(made: Outcome) -> tuple[str, ...]:
    plans = [made.paper.experiments[name] for name in made.place.experiments]
    models = "; ".join(dict.fromkeys(plan.models for plan in plans))
    notes = [made.place.note] if made.place.note else []
    return f"`{made.name}`", made.place.title, models, " ".join([*notes, *made.place.differs])


def _with_dittos(rows: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Rows whose cells are `"` where they repeat the row above."""
    above = [("",) * len(REHEARSAL_HEADS), *rows]
    return [
        tuple(
            '"' if cell and cell == before else cell for cell, before in zip(row, last, strict=True)
        )
        for row, last in zip(rows, above, strict=False)
    ]


if __name__ == "__main__":
    main()
