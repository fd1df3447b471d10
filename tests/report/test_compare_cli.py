"""The verb culmen compare: over runs that exist, and over runs that it makes."""

from __future__ import annotations

from pathlib import Path

import pytest

from culmen.store import views
from culmen.store.journal import SqlJournal
from tests.cli.conftest import Place
from tests.report.worlds import Noting, run

MAKING = ("compare", "--tasks", "peak", "--strategies", "best_of_n,map_elites", "--seeds", "2", "--out", "out")
MAKING += ("--budget", "evaluations=6", "--workers", "2")


@pytest.mark.jail
def test_runs_are_made_once_and_compared_again_as_they_are(tmp_path: Path):
    place = Place(tmp_path)
    place.task("peak")
    made = place.here(*MAKING, "--json")
    assert made.code == 0, made.err + made.out
    answer = made.document
    (part,) = answer["tasks"]
    assert answer["complete"] and len(answer["runs"]) == 4 and answer["overall"] is None
    assert [(row["strategy"], row["runs"]) for row in part["rows"]] == [("best_of_n", 2), ("map_elites", 2)]
    for row in part["rows"]:
        scores = [views.best(place.root / each).score for each in answer["runs"] if row["strategy"] in each]  # pyright: ignore
        assert row["best"] == max(scores) and row["mean"]["value"] == pytest.approx(sum(scores) / 2)
    assert part["pairs"][0]["pairs"] == 2 and not part["pairs"][0]["apart"]
    before = [views.status(place.root / each).events for each in answer["runs"]]
    assert place.here(*MAKING, "--json").document == answer
    assert [views.status(place.root / each).events for each in answer["runs"]] == before  # nothing was run again
    again = place.here("compare", "out", "--json").document
    assert (again["tasks"], sorted(again["runs"])) == (answer["tasks"], sorted(answer["runs"]))
    page = place.here("compare", "out")
    assert "cannot tell" in page.out and "at least 6" in page.out and "best of 2" in page.out


def test_what_cannot_be_compared_is_said(tmp_path: Path):
    place = Place(tmp_path)
    run(tmp_path / "runs", Noting((1.0,)), name="cut")
    for words, what in (
        (("compare",), "nothing to compare"),
        (("compare", "--tasks", "peak"), "nothing to compare"),
        (("compare", "nothing"), "there is no run"),
        (("compare", "cut"), "none of these runs has finished"),
        (("compare", "cut", "--seeds", "2"), "runs are given"),
    ):
        done = place.here(*words, "--json")
        assert done.code == 2 and what in done.document["error"]["what"], words
    with SqlJournal.open(tmp_path / "runs/cut") as journal:
        assert journal is not None  # asking changed nothing: it can still be gone on with
