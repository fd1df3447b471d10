"""The last improvement in a sentence, as the live view shows it."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from culmen.core.usage import Budget
from culmen.report.displays import TerminalDisplay
from culmen.report.story import candidate_sentence
from culmen.store import views
from culmen.strategies import catalog
from tests.gallery import Gallery, record, task


@pytest.mark.extension("baselines")
def test_the_live_view_shows_the_idea_clipped_to_the_terminal(tmp_path: Path) -> None:
    about, world = task(deterministic=True), Gallery(sigma=0.0)
    run = tmp_path / "run"
    record(
        run,
        catalog.make_strategy("map_elites", {}),
        budget=Budget(evaluations=60),
        about=about,
        world=world,
        seed=1,
    )
    now = views.run_status(run)
    assert now.best is not None
    idea = candidate_sentence(run, now.best.id)[0]
    assert idea and views.candidate_detail(run, now.best.id).row.parents
    for width, height, shown in ((100, 40, True), (60, 40, True), (100, 10, False)):
        out = io.StringIO()
        terminal = TerminalDisplay(
            Console(file=out, force_terminal=True, width=width, height=height, color_system=None)
        )
        terminal.start(now)
        terminal.on_improvement(now, now.best, None)
        terminal.draw(now)
        texts = [line.plain for line in terminal.status_lines(now, 1.0, None, width)]
        terminal.close()
        assert all(len(text) <= width for text in texts)
        assert len(texts) == (3 if shown else 2)
        assert (f"last improvement: {idea}"[:50] in out.getvalue()) is shown
