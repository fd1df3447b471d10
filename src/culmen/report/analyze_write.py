"""Tables as CSV files and plots as PNG files."""

from __future__ import annotations

import csv
import importlib.util
from collections.abc import Sequence
from pathlib import Path

from culmen.report.analyze import Group
from culmen.report.analyze_table import Rows

NO_PLOTS = "no plots were drawn: they need matplotlib (pip install 'culmen[plots]')"


def write(groups: Sequence[Group], out: Path) -> tuple[list[Path], str]:
    """Write every table that has rows, and the plots of them where matplotlib is installed.

    One folder per group. Returns the files, and "" or why there are no plots.
    """
    out.mkdir(parents=True, exist_ok=True)
    files: list[Path] = []
    for group, folder in zip(groups, folders(groups, out)):
        for table in group.tables:
            if table.rows:
                files.append(_csv(folder / f"{table.name}.csv", table.rows))
    if importlib.util.find_spec("matplotlib") is None:
        return files, NO_PLOTS
    from culmen.report.analyze_plots import draw

    return files + draw(groups, folders(groups, out), out), ""


def folders(groups: Sequence[Group], out: Path) -> list[Path]:
    """A folder for each group, named after it; numbered where names would be the same."""
    named: list[str] = []
    for group in groups:
        name = "-".join("".join(c if c.isalnum() or c in "_." else " " for c in group.label).split())[:80]
        same = sum(other == name or other.startswith(f"{name}~") for other in named)
        named.append(f"{name}~{same + 1}" if same else name)
    return [out / name for name in named]


def _csv(path: Path, rows: Rows) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path
