"""The notebooks of the documentation run from top to bottom in a real kernel.

They show the progress and the study that they should show.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import ROOT, cut_budgets

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

NOTEBOOKS = sorted((ROOT / "docs/notebooks").glob("*.ipynb"))


def test_there_are_two_without_outputs():
    assert len(NOTEBOOKS) == 2
    for path in NOTEBOOKS:
        cells = nbformat.read(path, as_version=4).cells
        assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells), path


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_progress_and_a_study(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    bare = tmp_path / "bare"  # a plain installation has no pandas
    bare.mkdir()
    (bare / "pandas.py").write_text("raise ImportError('pandas is not installed')\n")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    places = [str(bare), str(ROOT / "src"), os.environ.get("PYTHONPATH")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, places)))
    book = nbformat.read(path, as_version=4)
    for cell in book.cells:
        cell.source = cut_budgets(cell.source)
    nbclient.NotebookClient(
        book, timeout=110, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    outputs = [output for cell in book.cells if cell.cell_type == "code" for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error"]
    drawn = [output for output in outputs if output.output_type == "display_data"]
    assert any(
        "evaluations" in html(output) and "runs/" in html(output) for output in drawn
    )  # progress, drawn anew
    shown = [html(output) for output in outputs if output.output_type == "execute_result"]
    assert any("Study(" in text and "initial" in text and "<svg" in text for text in shown)


def html(output: Any) -> str:
    """The HTML of an output."""
    return str(output.data.get("text/html", ""))
