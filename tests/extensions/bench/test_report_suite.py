"""Suites of tasks: presets and pools that differ from task to task.

Also suites that are refused before any run.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from culmen.core.usage import Budget
from culmen.extensions.bench import suite
from culmen.store import views
from tests.cli.conftest import TOML, Place

PRESET = (
    '[presets.paper]\nstrategy = "map_elites"\nsettings = { bins = 3, features = ["complexity"] }\n'
)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """An empty working folder."""
    return Place(tmp_path)


def suite_of(place: Place) -> None:
    """Three tasks in a folder that all call themselves peak."""
    (place.root / "kernels").mkdir()
    for name in ("one", "two", "three"):
        place.task(f"kernels/{name}", toml=TOML.replace("start = -16.0\n", "") + PRESET)


@pytest.mark.slow
@pytest.mark.jail
def test_a_bench_over_a_folder_of_tasks_names_them_by_their_folders(place: Place):
    suite_of(place)
    words = (
        "compare",
        "--tasks",
        "kernels",
        "--strategies",
        "map_elites(preset=paper),best_of_n",
    )
    words += ("--seeds", "1", "--budget", "evaluations=2", "--workers", "1", "--out", "out")
    made = place.here(*words, "--json")
    assert made.code == 0, made.err + made.out
    runs = made.document["runs"]
    assert {Path(each).parts[1] for each in runs} == {"one", "two", "three"} and len(runs) == 6
    configs = [views.run_meta(place.root / each).strategy["config"] for each in runs]
    bins = {Path(each).parts[2]: config.get("bins") for each, config in zip(runs, configs)}
    assert bins == {"map_elites-preset-paper": 3, "best_of_n": None}


@pytest.mark.slow
@pytest.mark.jail
def test_a_preset_or_a_pool_that_differs_from_task_to_task_is_one_contender_over_tasks(
    place: Place,
):
    suite_of(place)
    for name, bins in (("one", 4), ("three", 5)):
        toml = place.root / f"kernels/{name}/task.toml"
        toml.write_text(toml.read_text().replace("bins = 3", f"bins = {bins}"))
    words = ("--seeds", "1", "--budget", "evaluations=4", "--workers", "1", "--json")
    first = place.here(
        "compare", "--tasks", "kernels", "--strategies", "best_of_n", "--out", "one", *words
    )
    (place.root / "pools").mkdir()
    for run in first.document["runs"]:
        place.here("runs", "pool", "build", run, "--out", f"pools/{Path(run).parts[1]}.json")
    asked = ["map_elites(preset=paper)", "map_elites(pool=pools, pool_share=0.5)"]
    made = place.here(
        "compare", "--tasks", "kernels", "--strategies", ",".join(asked), "--out", "two", *words
    )
    assert made.code == 0, made.err + made.out
    metas = [views.run_meta(place.root / each) for each in made.document["runs"]]
    assert [each.strategy["config"]["bins"] for each in metas[::2]] == [4, 5, 3]
    assert [each.pool.split()[0] for each in metas[1::2]] == ["one.json", "three.json", "two.json"]
    overall = made.document["overall"]
    assert overall["tasks"] == ["one", "three", "two"] and len(overall["pairs"]) == 1
    assert [row["strategy"] for row in overall["rows"]] == sorted(asked)


def test_a_preset_or_a_pool_that_a_task_has_not_is_said_before_any_run(place: Place):
    suite_of(place)
    for strategies, what in (
        ("map_elites(preset=papers)", "has no preset 'papers' for map_elites"),
        ("best_of_n(preset=paper)", "has no preset 'paper' for best_of_n"),
        ("map_elites(pool=kernels)", "cannot read the pool"),
        ("pacevolve_plus_plus(preset=paper)", "there is no preset 'paper'"),
    ):
        done = place.here("compare", "--tasks", "kernels", "--strategies", strategies, "--json")
        assert done.code == 2 and what in done.document["error"]["what"], strategies
    assert not (place.root / "runs").exists()
    (place.root / "one").mkdir()
    place.task("one/one")
    twice = place.here("compare", "--tasks", "kernels,one", "--strategies", "best_of_n", "--json")
    assert twice.code == 2 and "two tasks are called 'one'" in twice.document["error"]["what"]


def test_a_pool_folder_holds_a_pool_for_each_task_and_given_settings_come_first(place: Place):
    suite_of(place)
    chosen = suite.Suite("own", (str(place.root / "kernels"),), ())
    task = suite.tasks_of(chosen)["two"]
    (place.root / "pools").mkdir()
    found = suite.Contender.from_text(
        f"map_elites(preset=paper, bins=5, pool={place.root / 'pools'})", task
    )
    assert found.pool == str(place.root / "pools/two.json")
    assert (found.strategy.bins, found.strategy.features) == (5, ("complexity",))  # pyright: ignore


@pytest.mark.jail
def test_a_bench_evaluates_as_many_at_once_as_the_task_says(place: Place):
    place.task("peak", toml=TOML + "\n[defaults]\nworkers = 1\n")
    words = (
        "compare",
        "--tasks",
        "peak",
        "--strategies",
        "best_of_n",
        "--seeds",
        "1",
    )
    for out, more, wanted in (("one", (), 1), ("two", ("--workers", "2"), 2)):
        made = place.here(*words, "--budget", "evaluations=2", "--out", out, *more, "--json")
        assert made.code == 0, made.err
        (run,) = made.document["runs"]
        assert views.run_meta(place.root / run).workers == wanted


def test_budgets_that_the_cases_take_up_are_told(place: Place):
    task = place.task("peak", toml=TOML)
    (task / "cases.jsonl").write_text(
        "".join(f'{{"id": "{i}", "input": {i}}}\n' for i in range(100))
    )
    (task / "task.toml").write_text('cases = "cases.jsonl"\n' + TOML)
    chosen = suite.Suite("own", (str(task),), (), budget=Budget(evaluations=150))
    count = len(suite.tasks_of(chosen)["peak"].split("train"))
    (note,) = suite.small_budget_notes(chosen)
    assert (
        f"{count} training cases and a run 150 evaluations" in note
        and f"evaluations={10 * count}" in note
    )
    enough = suite.Suite("own", (str(task),), (), budget=Budget(evaluations=10 * count))
    assert not suite.small_budget_notes(enough)


def test_agents_of_a_bench_are_those_of_its_strategies_that_have_one(place: Place):
    place.task("peak")
    task = suite.tasks_of(suite.Suite("own", (str(place.root / "peak"),), ()))["peak"]
    assert suite.Contender.from_text("cato(agents=2)", task).strategy.agent == "offline"  # pyright: ignore
    assert suite.Contender.from_text("best_of_n", task, "offline").strategy  # has none
