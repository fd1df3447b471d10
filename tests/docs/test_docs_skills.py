"""docs/skills.md, walked from an empty folder with an agent of one's own in the current one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from culmen.store import views
from tests.docs.pages import ROOT, blocks
from tests.extensions.agents.sandbox.grounds import need_confinement

FOLDER, EVALUATIONS = "afternoon", 40


def walked(place: Path) -> Iterator[tuple[str, str]]:
    """Blocks of the afternoon with their output, run in order in one folder."""
    binaries = str(Path(sys.executable).parent)
    path = f"{binaries}{os.pathsep}{os.environ['PATH']}"
    for block in blocks(ROOT / "docs/skills.md"):
        if block.file.startswith(FOLDER):
            (place / block.file).parent.mkdir(parents=True, exist_ok=True)
            (place / block.file).write_text(block.body, encoding="utf-8")
        elif block.mark and FOLDER in block.body:
            text = block.body.replace("evaluations=120", f"evaluations={EVALUATIONS}")
            done = subprocess.run(
                ["bash", "-euc", text],
                cwd=place,
                env={**os.environ, "PATH": path},
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
            yield block.body, done.stdout


@pytest.mark.slow
@pytest.mark.jail
def test_the_afternoon_works_from_an_empty_folder(tmp_path: Path) -> None:
    need_confinement()
    told = dict(walked(tmp_path))
    assert len(told) == 3, "tasks, the folder with task.toml, and the agent in the current folder"
    (last,) = (output for body, output in told.items() if "--agent" in body)
    assert "tried      1 evaluation\n" in last
    (run,) = (tmp_path / FOLDER / "runs").iterdir()
    for path in (tmp_path / "runs" / FOLDER, run):
        seen = list(views.stream_observations(path))
        assert len(seen) == EVALUATIONS
        assert all(each.ok and "the agent finished" in each.feedback for each in seen)
        best = views.best_result(path)
        assert best is not None and best.score == 1.0, best
