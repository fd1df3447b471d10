"""The verb culmen compare: over runs that exist, and over runs that it makes."""

from __future__ import annotations

from pathlib import Path

import pytest

from culmen.core.event import Entry
from culmen.extensions.bench.markup import latex_text, markdown_table
from culmen.store import views
from culmen.store.journal import SqlJournal
from tests.cli.conftest import Place
from tests.extensions.bench.worlds import Noting, run

MAKING = (
    "compare",
    "--tasks",
    "peak",
    "--strategies",
    "best_of_n,map_elites",
    "--seeds",
    "2",
    "--out",
    "out",
)
MAKING += ("--budget", "evaluations=6", "--workers", "2")


@pytest.mark.slow
@pytest.mark.jail
def test_runs_are_made_once_and_compared_again_as_they_are(tmp_path: Path):
    place = Place(tmp_path)
    place.task("peak")
    made = place.here(*MAKING, "--json")
    assert made.code == 0, made.err + made.out
    answer = made.document
    (part,) = answer["tasks"]
    assert answer["complete"] and len(answer["runs"]) == 4 and answer["overall"] is None
    assert [(row["strategy"], row["runs"]) for row in part["rows"]] == [
        ("best_of_n", 2),
        ("map_elites", 2),
    ]
    for row in part["rows"]:
        scores = [
            views.best_result(place.root / each).score
            for each in answer["runs"]
            if row["strategy"] in each
        ]  # pyright: ignore
        assert row["best"] == max(scores) and row["mean"]["value"] == pytest.approx(sum(scores) / 2)
    assert part["pairs"][0]["pairs"] == 2 and not part["pairs"][0]["apart"]
    before = [views.run_status(place.root / each).events for each in answer["runs"]]
    assert place.here(*MAKING, "--json").document == answer
    assert [
        views.run_status(place.root / each).events for each in answer["runs"]
    ] == before  # nothing was run again
    again = place.here("compare", "out", "--json").document
    assert (again["tasks"], sorted(again["runs"])) == (answer["tasks"], sorted(answer["runs"]))
    page = place.here("compare", "out")
    assert "cannot tell" in page.out and "at least 6" in page.out and "best of 2" in page.out
    latex, markdown = (
        place.here("compare", "out", notation).out for notation in ("--latex", "--markdown")
    )
    assert (
        r"best\_of\_n & 2 &" in latex
        and latex.count(r"\begin{tabular}") == latex.count(r"\bottomrule") > 1
    )
    assert "| best_of_n | 2 |" in markdown and "culmen compare" not in latex + markdown
    assert place.here("compare", "out", "--latex", "--markdown").code == 2
    course = place.here("compare", "analyze", *answer["runs"], "--latex").out
    assert "Not finished" not in course
    assert course.count(r"\begin{tabular}") == course.count(r"\end{tabular}") > 1


def test_texts_of_a_latex_table_are_escaped():
    assert latex_text("a_b 5% -1.5 ± 0.1 & ~") == r"a\_b 5\% $-$1.5 $\pm$ 0.1 \& \textasciitilde{}"
    assert markdown_table(["a", "b"], [["x|y", "1"]], ["b"]).splitlines()[1:] == [
        "| --- | ---: |",
        r"| x\|y | 1 |",
    ]


@pytest.mark.jail
def test_strategies_have_settings_and_pools_of_their_own(tmp_path: Path):
    place = Place(tmp_path)
    place.task("peak")
    words = ("--seeds", "1", "--budget", "evaluations=6", "--workers", "2", "--json")
    first = place.here(
        "compare", "--tasks", "peak", "--strategies", "best_of_n,map_elites", "--out", "one", *words
    )
    assert first.code == 0, first.err + first.out
    place.here("runs", "pool", "build", *first.document["runs"], "--out", "pool.json")
    asked = "map_elites, map_elites(bins=3, features=complexity), map_elites(pool=pool.json, pool_share=0.5)"
    made = place.here("compare", "--tasks", "peak", "--strategies", asked, "--out", "two", *words)
    assert made.code == 0, made.err + made.out
    runs = [place.root / each for each in made.document["runs"]]
    assert len({str(each.parent) for each in runs}) == 3
    plain, coarse, warm = (views.run_meta(each) for each in runs)
    assert coarse.strategy["config"]["bins"] == 3 != plain.strategy["config"]["bins"]
    assert warm.pool.startswith("pool.json ") and not plain.pool
    assert len(warm.task.carried) == 3 and not plain.task.carried  # half of six evaluations
    (part,) = made.document["tasks"]
    names = [row["strategy"] for row in part["rows"]]
    assert len(names) == 3 and sum("pool=pool.json" in name for name in names) == 1
    assert place.here(
        "compare", "--tasks", "peak", "--strategies", asked, "--out", "two", *words
    ).document["complete"]
    place.here("runs", "pool", "merge", "pool.json", "--without-best", "0.5", "--out", "pool.json")
    other = place.here("compare", "--tasks", "peak", "--strategies", asked, "--out", "two", *words)
    assert other.code == 2 and "another pool" in other.document["error"]["what"]


@pytest.mark.parametrize(
    ("strategies", "what"),
    [
        ("polca(epsilon=off", "cannot read"),
        ("polca(off)", "cannot read"),
        ("polca(epsilonn=off)", "no setting 'epsilonn'"),
        ("polca(pool=nowhere.json)", "cannot read the pool"),
        ("polca(pool_share=much)", "pool_share cannot be 'much'"),
        ("polka(epsilon=off)", "no strategy 'polka'"),
    ],
)
def test_what_is_wrong_with_a_strategys_settings_is_said_before_any_run(
    tmp_path: Path, strategies: str, what: str
):
    place = Place(tmp_path)
    place.task("peak")
    done = place.here(
        "compare", "--tasks", "peak", "--strategies", f"best_of_n,{strategies}", "--json"
    )
    assert done.code == 2 and what in done.document["error"]["what"]
    assert not (tmp_path / "runs").exists()


def test_what_cannot_be_compared_is_said(tmp_path: Path):
    place = Place(tmp_path)
    place.task("peak")
    run(tmp_path / "runs", Noting((1.0,)), name="cut")
    for words, what in (
        (("compare",), "nothing to compare"),
        (("compare", "--tasks", "peak"), "nothing to compare"),
        (("compare", "nothing"), "there is no run"),
        (("compare", "cut"), "none of these runs has finished"),
        (("compare", "cut", "--seeds", "2"), "runs are given"),
        (("compare", "cut", "--untimed"), "runs are given"),
        (("compare", "cut", "--axis", "steps"), "there is no axis 'steps'"),
        (
            ("compare", "--tasks", "peak", "--strategies", "polca", "--budget", "dollars=2"),
            "nothing ends this run",
        ),
    ):
        done = place.here(*words, "--json")
        assert done.code == 2 and what in done.document["error"]["what"], words
    with SqlJournal.open(tmp_path / "runs/cut") as journal:
        assert journal is not None  # asking changed nothing: it can still be gone on with


def finished(folder: Path, name: str, score: float, seed: int) -> None:
    """A run of a single score that has ended."""
    path = run(folder, Noting((1.0, score)), name=name)
    with SqlJournal.open(path, write=True) as journal:
        journal.append([Entry("state", body={"state": "finished", "reason": "budget"})])
        journal.set_meta(seed=seed, strategy={"path": f"x:{name[0].upper()}", "config": {}})


def test_runs_that_cannot_be_read_are_left_out_and_named(tmp_path: Path):
    place = Place(tmp_path)
    for seed in range(3):
        finished(tmp_path / "mine", f"a{seed}", 2.0 + seed, seed)
        finished(tmp_path / "mine", f"b{seed}", 1.0 + seed, seed)
    whole = place.here("compare", "mine", "--json").document
    assert whole["left_out"] == [] and len(whole["tasks"][0]["rows"]) == 2
    for name, damage in (("cut", slice(0, 9000)), ("holed", None)):
        finished(tmp_path / "mine", name, 9.0, 9)
        file = tmp_path / "mine" / name / "journal.db"
        raw = file.read_bytes()
        file.write_bytes(raw[damage] if damage else raw[:4096] + b"\xff" * (len(raw) - 4096))
    done = place.here("compare", "mine", "--json")
    assert done.code == 0, done.err
    assert [Path(each["run"]).name for each in done.document["left_out"]] == ["cut", "holed"]
    assert all("damaged" in each["why"] for each in done.document["left_out"])
    assert (
        done.document["tasks"] == whole["tasks"]
        and len(done.document["remarks"]) == len(whole["remarks"]) + 2
    )
    page = place.here("compare", "mine")
    assert page.code == 0 and "cannot be read: mine/cut" in page.out + page.err
    alone = place.here("compare", "mine/cut", "--json")
    assert alone.code == 4 and "damaged" in alone.document["error"]["what"]


def test_a_profile_is_told_step_by_step(tmp_path: Path):
    place = Place(tmp_path)
    for seed in range(3):
        finished(tmp_path / "mine", f"a{seed}", 2.0 + seed, seed)
        finished(tmp_path / "mine", f"b{seed}", 1.0, seed)
    done = place.here("compare", "mine", "--json")
    rows = {row["strategy"]: row for row in done.document["tasks"][0]["rows"]}
    assert rows["A"]["steps"] == [[0.0, 1.0], [1 / 3, 2 / 3], [2 / 3, 1 / 3], [1.0, 0.0]]
    assert rows["B"]["steps"] == [[0.0, 1.0], [0.0, 0.0]]
