"""Picks that other rules would have made of a run, and their worth."""

from __future__ import annotations

import csv
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from random import Random

import pytest
from bench import bench_picks

import culmen
from culmen.core.event import Entry
from culmen.extensions.bench import picks
from culmen.extensions.bench.records import find_runs
from culmen.store import views
from tests.cli.conftest import Place
from tests.store.runs import new_run, observed, program, proposed

np = pytest.importorskip("numpy")
pytestmark = pytest.mark.skipif(
    find_spec("sklearn") is None, reason="the extra 'pools' is not installed"
)

CASES = [culmen.Case(f"c{n}", n, split="train" if n < 5 else "test") for n in range(9)]


def test_regressors_tell_what_embeddings_tell():
    """Labels are shares, not classes: 0.6 and 0.9 are different."""
    vectors = np.array([[1.0, 0, 0], [0, 1.0, 0], [0, 0, 1.0], [0.0, 0.7, 0.7]])
    rows, rewards = [0, 1, 2] * 30, np.array([0.0, 0.6, 0.9] * 30)
    found = picks.regression_predictions(vectors, rows, rewards, Random(1))
    assert (
        found.shape == (5, 4) and len({tuple(each) for each in found}) == 5
    )  # each has drawn its own
    assert ((found > 0) & (found < 1)).all()
    mean = found.mean(axis=0)
    assert mean[0] < mean[1] < mean[2] and mean[0] < mean[3]  # the last was never observed
    assert mean[2] - mean[1] > 0.1
    again = picks.regression_predictions(vectors, rows, rewards, Random(1))
    assert (again == found).all()
    assert (
        picks.regression_predictions(vectors, [0, 1], np.array([0.5, 0.5]), Random(1)) < 1
    ).all()  # nothing to tell apart


def test_a_rule_is_told_its_share_of_the_observations(tmp_path: Path):
    programs = [program(n) for n in range(40)]
    with new_run(tmp_path) as journal:
        journal.append([proposed(n, each) for n, each in enumerate(programs)])
        journal.append([observed(100 + n, each, float(n)) for n, each in enumerate(programs)])
    candidates, chosen = picks.picked_candidates(journal.run_dir, seed=3)
    assert list(candidates) == [each.id for each in programs]
    for share, told in ((0.25, 10), (0.5, 20)):
        sample = Random(f"3 {share}").sample(range(40), told)
        assert chosen["empirical mean", share] == programs[max(sample)].id
    assert chosen["empirical mean", 1.0] == programs[39].id
    assert not any(rule.startswith("frontier") for rule, _ in chosen)


def test_the_frontiers_picks_are_of_its_last_state(tmp_path: Path):
    programs, drawn = [program(n) for n in range(3)], Counter[str]()
    with new_run(tmp_path) as journal:
        journal.append([proposed(n, each) for n, each in enumerate(programs)])
        journal.append([observed(9, programs[0], 1.0)])
        for leads in ({programs[2].id: 9}, {programs[0].id: 1, programs[1].id: 3}):
            journal.append([Entry("note", body={"note": "pareto", "leads": leads})])
    _, chosen = picks.picked_candidates(journal.run_dir, 0)
    assert {"frontier, most frequent", "frontier, drawn"} < {
        rule for rule, share in chosen if share == 1.0
    }
    for seed in range(200):
        found = picks.frontier_picks(journal.run_dir, Random(seed))
        assert found["frontier, most frequent"] == programs[1].id
        drawn[found["frontier, drawn"]] += 1
    assert set(drawn) == {programs[0].id, programs[1].id} and 120 < drawn[programs[1].id] < 180


class Numbers:
    """Proposes other numbers."""

    async def propose(self, lab: culmen.Lab, brief: culmen.Brief) -> culmen.Proposal:
        return culmen.Proposal((culmen.Candidate.of({"text": str(lab.rng.randrange(10))}),))


def near(text: str, case: culmen.Case) -> float:
    """Another number is right for each case of the search, and 2 for those of the final choice."""
    return 1.0 - abs(float(text) - (case.input if case.split == "train" else 2)) / 10


def test_picks_are_evaluated_afresh_on_the_cases_of_the_final_choice_and_once(tmp_path: Path):
    settings = {"evaluator": near, "proposer": Numbers()}
    made = culmen.optimize(
        "9",
        cases=CASES,
        strategy="gepa",
        budget=90,
        run_dir=tmp_path / "seed-0",
        progress=False,
        **settings,
    )
    seen = list(views.stream_observations(made.path, phase="search"))
    assert {each.case for each in seen} == {f"c{n}" for n in range(5)}
    assert any(each.case == "c7" for each in views.stream_observations(made.path))
    found = picks.evaluate_picks(made.path, "gepa", 0, 2, **settings)
    assert {each.rule for each in found if each.share < 1} == {
        "empirical mean",
        "value model",
        "regression, highest",
        "regression, mean",
        "regression, lowest",
    }
    assert {"frontier, most frequent", "frontier, drawn"} < {each.rule for each in found}
    for each in found:
        text = views.candidate_detail(made.path, each.candidate).candidate.text
        assert each.count == 2 * 4 and each.score == pytest.approx(near(text, CASES[7]))
    beside = tmp_path / ".picks-2-seed-0"
    events = views.run_status(beside).events
    assert (
        picks.evaluate_picks(made.path, "gepa", 0, 2, **settings) == found
        and views.run_status(beside).events == events
    )


def test_the_table_pairs_runs_of_the_same_seed():
    def of(seed: int, rule: str, score: float) -> picks.Pick:
        return picks.Pick("t", "polca", seed, rule, 0.5, "c", score, 4)

    plain, other = "empirical mean", "value model"
    rows = picks.pick_rows(
        [
            of(0, plain, 1.0),
            of(0, other, 1.5),
            of(1, plain, 3.0),
            of(1, other, 3.5),
            of(2, other, 9.0),
        ]
    )
    assert [row["mean"] for row in rows] == [2.0, pytest.approx(14 / 3)]
    assert rows[1]["difference"] == 0.5 and rows[1]["difference_se"] == 0.0 and rows[1]["runs"] == 3


@pytest.mark.jail
def test_picks_of_a_bench(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    place = Place(tmp_path)
    place.task("peak")
    command = (
        "compare",
        "--suite",
        "polca",
        "--tasks",
        "peak",
        "--strategies",
        "polca",
        "--seeds",
        "2",
    )
    done = place.here(*command, "--budget", "evaluations=12", "--out", "out", "--json")
    assert done.code == 0, done.err + done.out
    monkeypatch.setattr("sys.argv", ["bench_picks.py", str(place.root / "out")])
    capsys.readouterr()
    bench_picks.main()
    printed = capsys.readouterr().out
    assert printed.startswith("| task |") and printed.count("| empirical mean |") == 3
    assert (
        len(find_runs(place.root / "out")) == 2
    )  # the evaluations of picks are no runs to compare
    rows = list(csv.DictReader((place.root / "out/picks.csv").open()))
    assert {float(row["share"]) for row in rows} == {0.25, 0.5, 1.0} and all(
        row["runs"] == "2" for row in rows
    )
