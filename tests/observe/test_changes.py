"""The last improvement in a few lines, as the live view shows it."""

from __future__ import annotations

import io
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from culmen.core.usage import Budget
from culmen.observe.displays import TerminalDisplay, candidate_change, changed_lines, select_lines
from culmen.store import views
from culmen.strategies import catalog
from tests.gallery import Gallery, record, task


def test_what_went_and_what_came_is_told_part_by_part() -> None:
    before = {"a": "one\ntwo\nthree\n", "b": "same\n"}
    assert changed_lines(before, {"a": "one\n2\nthree\nfour\n\n", "b": "same\n"}) == ["a", "-two", "+2", "+four"]
    assert changed_lines({"a": "one"}, {"a": "one\ntwo"}) == ["+two"]
    assert changed_lines(before, before) == []


def test_a_difference_far_into_a_line_is_seen() -> None:
    start = "    return refine(lambda value: fit_radii(value), np.clip(centers, 0.01, 0.99), "
    minus, plus = changed_lines({"a": start + "seconds=1)"}, {"a": start + "seconds=2)"})
    assert minus.endswith("seconds=1)") and plus.endswith("seconds=2)") and len(plus) < 45
    assert minus[1] == plus[1] == "…"


def test_texts_cannot_command_the_terminal() -> None:
    (line,) = changed_lines({"a": ""}, {"a": "\x1b]0;owned\x07"})
    assert line == "+\\x1b]0;owned\\x07"


@given(st.lists(st.sampled_from(["-x", "+y", "part"]), max_size=30), st.integers(2, 8))
def test_a_few_lines_are_lines_in_their_order_with_what_came(lines: list[str], most: int) -> None:
    numbered = [f"{line}{place}" for place, line in enumerate(lines)]
    some = select_lines(numbered, most)
    assert len(some) == min(most, len(lines))
    assert [line for line in numbered if line in some] == some
    kept = sum(not line.startswith("-") for line in some)
    assert kept >= min(most - most // 2, sum(not line.startswith("-") for line in numbered))


def test_the_live_view_shows_the_change_clipped_to_the_terminal(tmp_path: Path) -> None:
    about, world = task(deterministic=True), Gallery(sigma=0.0)
    run = tmp_path / "run"
    record(
        run, catalog.make_strategy("map_elites", {}), budget=Budget(evaluations=60), about=about, world=world, seed=1
    )
    now = views.run_status(run)
    assert now.best is not None
    told = candidate_change(run, now.best.id)
    assert told is not None and told.lines and told.since == views.candidate_detail(run, now.best.id).row.parents[0]
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
        assert len(texts) == (3 + len(told.lines) if shown else 2)
        assert (f"since {told.since[:8]}" in out.getvalue()) is shown
        assert all(line.strip()[:40] in out.getvalue() for line in told.lines) or not shown


def test_a_seed_has_no_change(tmp_path: Path) -> None:
    run = tmp_path / "run"
    record(
        run, catalog.make_strategy("best_of_n", {}), budget=Budget(evaluations=4), about=task(), world=Gallery(), seed=1
    )
    (seed,) = views.candidate_rows(run, "old", operator="seed")
    assert candidate_change(run, seed.id) is None
