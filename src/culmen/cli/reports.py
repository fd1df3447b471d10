"""Writing a report of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from culmen.cli import runs
from culmen.cli.screen import Answer, Screen
from culmen.core.errors import UserError
from culmen.observe.figures import count


def answer(run: str | None, out: Path | None, pdf: Path | None, full: int) -> Answer:
    """Write the file or files; tell what they hold and what not."""
    from culmen.strategies.catalog import CATALOG
    from culmen.web import paper, report
    from culmen.web.digest import Digest
    from culmen.web.gathering import gather

    path = runs.find(run)
    place = out or Path(f"{path.resolve().name}-report.html")
    if place.is_dir():
        raise UserError(f"{place} is a folder", where="--out", fix=f"--out {place / 'report.html'}")
    if pdf is not None:
        paper.browser()  # before any work
    gathered = gather(Digest(path.resolve(), {path: name for name, path in CATALOG.items()}), full=full)
    data: dict[str, Any] = {
        "run": path.resolve().name,
        "path": str(place),
        "bytes": report.write(gathered, place),
        "candidates": gathered.candidates,
        "rows": gathered.rows,
        "full": gathered.full,
        "left_out": gathered.left_out,
        "pdf": None if pdf is None else {"path": str(pdf), "bytes": paper.print_pdf(gathered, pdf)},
    }
    return Answer(data, lambda screen: _show(screen, data))


def _show(screen: Screen, data: dict[str, Any]) -> None:
    screen.line(f"{data['path']}: {data['bytes'] / 1e6:.1f} MB, {count(data['candidates'], 'candidate')}")
    if data["pdf"]:
        screen.line(f"{data['pdf']['path']}: {data['pdf']['bytes'] / 1e6:.1f} MB")
    for each in data["left_out"]:
        screen.line(f"Not in it: {each}")
