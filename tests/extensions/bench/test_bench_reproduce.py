"""Every place of the papers at toy size: runs, table, printed figures, plot.

Also the forecast of its cost.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from bench.make_reproduce import write_page

from culmen.core.errors import UserError
from culmen.extensions.bench.reproduce import places, running
from culmen.extensions.bench.reproduce.forecast import forecast_place
from culmen.extensions.bench.reproduce.making import (
    Outcome,
    experimenters_of,
    make_place,
    place_markdown,
)
from culmen.extensions.bench.reproduce.results import PlaceResult
from culmen.report.forecast import Cost
from culmen.store import views
from tests.cli.conftest import Place

WITHOUT_TORCH = (
    importlib.util.find_spec("torch") is None
)  # of the extra train, which PACEvolve++ needs
PLACES = {
    f"{paper.name}/{place.name}": (paper, place)
    for paper, place in places.find_places("all")
    if not (WITHOUT_TORCH and paper.name == "pacevolve_plus_plus")
}
SMALL = {"toy": True, "seeds": 1, "budget": "evaluations=8"}


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all places: those of a paper share runs."""
    return tmp_path_factory.mktemp("reproduce")


@pytest.mark.slow
@pytest.mark.jail
@pytest.mark.parametrize("name", PLACES)
def test_a_place_is_made_with_its_table_and_plot(name: str, folder: Path):
    paper, place = PLACES[name]
    if place.name in ("fig3", "fig3d"):
        pytest.importorskip("sklearn", reason="the extra 'pools' is not installed")
    size = (
        SMALL if paper.name != "pacevolve_plus_plus" else SMALL | {"budget": None}
    )  # training takes barriers
    made = make_place(
        paper, place, running.Conditions(folder / paper.name, **size), lambda line: None
    )
    shown = made.shown
    assert made.complete and made.spent.evaluations
    assert made.scale.startswith("toy size, ") and " of each method" in made.scale
    assert all(len(row) == len(shown.heads) for row in shown.rows)
    assert shown.rows or any(table.skipped for table in shown.tables)
    page = place_markdown(made)
    beside = {figure for row in shown.rows for figure in row}
    for label, figures in place.printed.items():
        if any(
            label.split(" ")[-1] in row and (" " not in label or label.split(" ")[0] in row[0])
            for row in shown.rows
        ):
            assert set(figures) <= beside, label
    assert all(remark in page for remark in place.differs)
    if importlib.util.find_spec("matplotlib") and shown.rows and shown.rows[0]:
        drawn = [file for file in made.files if file.suffix == ".png"]
        assert drawn or not (shown.panels or shown.tables)


@pytest.mark.slow
@pytest.mark.jail
@pytest.mark.parametrize("name", ["turboevolve/table1", "cato/results", "polca/fig10_calls"])
def test_the_same_command_gives_the_same_table(name: str, tmp_path: Path):
    paper, place = PLACES[name]
    first, second = (
        make_place(paper, place, running.Conditions(tmp_path / each, **SMALL), lambda line: None)
        for each in ("first", "second")
    )
    assert first.shown == second.shown and first.shown.rows


def test_the_page_of_rehearsals_names_every_place_as_its_record_does(tmp_path: Path):
    """A rehearsal's figures mean nothing, so the page has records alone.

    It is today's without a run.
    """
    published = Path(__file__).parents[3] / "docs" / "reproduce.md"
    made = [
        Outcome(paper, place, PlaceResult(("method",), ()), Cost(), True, (), (), rehearsed=True)
        for paper, place in places.find_places("all")
    ]
    written = tmp_path / "page.md"
    assert write_page(
        made, written, published.read_text(encoding="utf-8").partition("\n## ")[0]
    ) == [written]
    assert written.read_text(encoding="utf-8") == published.read_text(encoding="utf-8")


def test_records_name_what_exists():
    for paper, place in PLACES.values():
        assert set(place.experiments) <= set(paper.experiments), place.name
        contenders = {
            label for name in place.experiments for label in paper.experiments[name].contenders
        }
        assert set(place.contenders) <= contenders, place.name
        assert all(len(each) == len(place.printed_heads) for each in place.printed.values()), (
            place.name
        )
    with pytest.raises(UserError, match="no place"):
        places.find_places("polca/table9")
    with pytest.raises(UserError, match="no paper"):
        places.find_places("nobody")


def test_real_runs_are_those_of_the_papers_appendix(tmp_path: Path):
    paper, place = PLACES["polca/fig2b"]
    (maker,) = experimenters_of(
        paper, place, running.Conditions(tmp_path, model="offline")
    ).values()
    suites = {strategy: suite for suite in maker.suites() for strategy in suite.strategies}
    (cascade,) = (strategy for strategy in suites if strategy.startswith("openevolve"))
    assert "cascade(first=20, threshold=0.5)" in cascade and "islands=3, interval=20" in cascade
    assert suites[maker.plan.contenders["GEPA"]].budget.evaluations == 2000
    assert all(suite.workers == 10 and len(suite.seeds) == 3 for suite in suites.values())


@pytest.mark.slow
@pytest.mark.jail
def test_a_forecast_holds_within_a_factor_of_two(tmp_path: Path):
    paper, place = PLACES["polca/fig2b"]
    conditions = running.Conditions(tmp_path, toy=True, seeds=1, budget="evaluations=30")
    (maker,) = experimenters_of(paper, place, conditions).values()
    runs, final = forecast_place(maker, place, lambda line: None)
    spent = make_place(paper, place, conditions, lambda line: None).spent
    seen = [views.run_status(run).usage for run in tmp_path.glob("hotpotqa/*/seed-0")]
    assert len(seen) == 3 and spent.calls == sum(usage.calls for usage in seen)
    assert spent.calls / 2 <= runs.calls <= 2 * spent.calls
    assert spent.dollars / 2 <= runs.dollars <= 2 * spent.dollars
    assert final.calls == pytest.approx(final.evaluations, rel=0.2)  # one question an evaluation


def test_without_a_model_the_command_says_what_to_add(tmp_path: Path):
    place = Place(tmp_path)
    done = place.here("paper", "reproduce", "polca/table1", "--json")
    assert done.code == 2 and "no model" in done.document["error"]["what"]
    listed = place.here("paper", "reproduce", "--json").document
    assert sum(len(paper["places"]) for paper in listed.values()) == len(places.find_places("all"))
