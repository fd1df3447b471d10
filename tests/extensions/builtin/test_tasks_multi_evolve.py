"""Predicting variants of high order: metrics, the file format, landscapes, attacks.

Metrics are held against scipy and brute force.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from culmen.core.candidate import Candidate
from culmen.core.errors import TaskError
from culmen.core.evaluation import Observation, Status
from culmen.core.task import Case, Task
from culmen.evaluate.local import LocalBackend
from culmen.tasks import example_path, load
from tests.tasks.folder import modules

variants, evaluator, baseline, predictor = modules(
    "multi_evolve", "variants", "evaluator", "baseline", "predictor"
)
numbers = st.floats(-1e6, 1e6, allow_nan=False, allow_subnormal=False)


def judge(program: str, task: Task | None = None) -> Observation:
    """A program on the first case, in the jail."""
    task = task or load(example_path("multi_evolve"))

    async def one() -> Observation:
        backend = LocalBackend(task, 1)
        try:
            await backend.start()
            return await backend.evaluate(Candidate.of({"predictor.py": program}), task.cases[0], 3)
        finally:
            await backend.close()

    return asyncio.run(one())


@given(st.lists(st.tuples(numbers, numbers), min_size=3, max_size=40))
@settings(max_examples=150, deadline=None)
def test_correlation_is_scipys(pairs: list[tuple[float, float]]) -> None:
    x, y = (np.array(column) for column in zip(*pairs))
    assume(all(np.ptp(each) > max(1e-100, 1e-3 * np.abs(each).max()) for each in (x, y)))
    theirs = pytest.importorskip("scipy.stats", reason="scipy is not installed")
    assert evaluator.pearson(x, y) == pytest.approx(theirs.pearsonr(x, y).statistic, abs=1e-8)


def test_correlation_of_what_does_not_vary_is_nothing() -> None:
    assert evaluator.pearson([1.0, 1.0, 1.0], [1.0, 2.0, 3.0]) == 0.0
    assert evaluator.pearson([0.0, 0.0], [0.0, 0.0]) == 0.0
    assert evaluator.pearson([1e100, -1e100, 0.0], [3.0, 1.0, 2.0]) == pytest.approx(
        1.0
    )  # nothing overflows
    assert evaluator.pearson([1e-200, 2e-200, 3e-200], [1.0, 2.0, 3.0]) == pytest.approx(1.0)


@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.integers(0, 100)),
        min_size=3,
        max_size=6,
        unique_by=lambda p: p[1],
    )
)
@settings(max_examples=100, deadline=None)
def test_precision_takes_ties_in_the_worst_order(pairs: list[tuple[int, int]]) -> None:
    """The smallest share by brute force.

    It is over all orders in which equal predictions could be taken.
    """
    predicted, measured = ([float(each) for each in column] for column in zip(*pairs))
    places = range(len(pairs))
    best = set(sorted(places, key=lambda p: -measured[p])[:3])
    orders = [
        o
        for o in itertools.permutations(places)
        if all(predicted[a] >= predicted[b] for a, b in itertools.pairwise(o))
    ]
    assert (
        evaluator.precision_at(predicted, measured, 3)
        == min(len(best & set(o[:3])) for o in orders) / 3
    )


MADE = Case("made", info={"landscape": {"seed": 101}})


@pytest.mark.parametrize(
    "case", [MADE, *load(example_path("multi_evolve")).cases], ids=lambda case: case.id
)
def test_the_score_of_a_data_set_is_weighted_as_published(case: Case) -> None:
    train, fitness, test, measured = evaluator.data_set(case.info)
    truth = dict(zip(test, measured))

    def perfect(known: Any, values: Any, asked: Any) -> list[float]:
        assert {tuple(v) for v in known} == set(train) and not truth.keys() & {
            tuple(v) for v in known
        }
        assert dict(zip(map(tuple, known), values)) == dict(zip(train, fitness))
        return [truth[tuple(variant)] for variant in asked]

    assert {len(v) for v in train} == {0, 1, 2} and min(len(v) for v in test) == 3
    assert evaluator.score(perfect, case)["score"] == pytest.approx(1.0)
    worst = evaluator.score(lambda *a: [-value for value in perfect(*a)], case)
    assert worst["score"] == pytest.approx(-0.7) and worst["metrics"]["precision_at_5"] == 0
    found = evaluator.score(predictor.predict, case)
    pieces = found["metrics"]
    assert found["score"] == pytest.approx(0.7 * pieces["pearson"] + 0.3 * pieces["precision_at_5"])


def test_baselines_rank_as_their_kind_should(monkeypatch: pytest.MonkeyPatch) -> None:
    """On landscapes without noise and without pairs a linear model is exact."""
    land = variants.FitnessLandscape(5, epistasis=0.0, curve="linear")
    train, fitness, test, measured = variants.split(land.sample(noise=0.0))
    for predict in (predictor.predict, baseline.ridge):
        assert evaluator.pearson(predict(train, fitness, test), measured) > 0.999
    land = variants.FitnessLandscape(
        6, epistasis=1.0, dense=1.0, sites=8, letters=1, curve="linear"
    )
    train, fitness, test, measured = variants.split(land.sample(doubles=28, noise=0.0))
    assert len(train) == 1 + 8 + 28
    pairwise, ridge = (
        evaluator.pearson(p(train, fitness, test), measured)
        for p in (baseline.pairwise, baseline.ridge)
    )
    assert pairwise > 0.95 and pairwise > ridge
    monkeypatch.setattr(
        predictor, "PAIRS", 1.0
    )  # the landscape is of second order, and every pair was measured
    assert evaluator.pearson(predictor.predict(train, fitness, test), measured) > 0.999
    for predict in (baseline.constant, baseline.through_a_curve, baseline.pairwise_through_a_curve):
        assert evaluator.plain(predict(train, fitness, test), len(test))[0] == ""


# -- the file format and the generator
# -----------------------------------------------------------------------------


def test_public_forms_are_read(tmp_path: Path) -> None:
    gym = "mutant,mutated_sequence,DMS_score,DMS_score_bin\nWT,MA,1.0,1\nA24G,MG,0.5,1\nT55K:A24G,KG,0.25,0\nT55K,K,,0\n"  # noqa: E501
    (tmp_path / "gym.csv").write_text(gym)
    (tmp_path / "own.csv").write_text(
        "mutation,property_value\r\nWT,1\r\nA24G,0.4\r\nA24G,0.6\r\nA24G/T55K:WT,0.25\r\n"
    )
    expected = {(): 1.0, ("A24G",): 0.5, ("A24G", "T55K"): 0.25}
    assert variants.read(tmp_path / "gym.csv") == expected == variants.read(tmp_path / "own.csv")
    (tmp_path / "nn.tsv").write_text(
        "variant\tnum_mutations\tscore\tscore_wt_norm\nA24G\t1\t0.5\t-1\nT55K,A24G\t2\t0.25\t-1\nA0*\t1\t-3\t-4\n"
    )
    del expected[()]
    assert variants.read(tmp_path / "nn.tsv") == {**expected, ("A0*",): -3.0}


def test_a_window_holds_what_is_changed_between_its_positions_only() -> None:
    low = {(f"A{p}G",): p + 0.123456 for p in range(6)}
    triples = {tuple(f"A{p}G" for p in some): 1.0 for some in itertools.combinations(range(5), 3)}
    outside = {("A5G", "A7G"): 1.0, ("A7G",): 1.0, ("A1*",): 1.0, ("A0G", "A1G", "A7G"): 1.0}
    found = variants.window(low | triples | outside, 0, 4, wild=2.0)
    assert (
        found
        == {(): 2.0} | {v: round(value, 4) for v, value in low.items() if v != ("A5G",)} | triples
    )
    assert () not in variants.window(low | triples, 0, 4)


@pytest.mark.parametrize("name", sorted(evaluator.FILES))
def test_shipped_data_sets_are_of_measured_substitutions_only(name: str) -> None:
    train, fitness, test, measured = evaluator.FILES[name]
    assert {tuple(v) for v in train if len(v) == 1} >= {
        (each,) for v in (*train, *test) for each in v
    }
    assert () in train and not any("*" in each for v in train for each in v)
    assert len(test) > 100 and np.std(fitness) > 0.3 and np.std(measured) > 0.3
    text = (example_path("multi_evolve") / "data" / "README.md").read_text()
    row = next(line for line in text.splitlines() if f"`{name}`" in line)
    assert [int(cell) for cell in row.split("|")[3:5]] == [len(train), len(test)]


@pytest.mark.parametrize(
    ("content", "piece"),
    [
        ("", "needs the columns .* not none"),
        ("mutant,score\nA1G,1\n", "not mutant, score"),
        ("mutant,DMS_score\nA1G,high\n", ":2: 'high' in DMS_score is not a number"),
        ("mutant,DMS_score\nA1G,1\nA1,1\n", ":3: 'A1' is no substitution"),
        ("mutant,DMS_score\nA1G:A1C,1\n", "changes one position twice"),
        ("mutant,DMS_score\nA1G,1\nC1D,1\n", "position 1 is A elsewhere and C here"),
        ("mutant,DMS_score\nA1G,\nA2G,nan\n", "no measured variant"),
    ],
)
def test_malformed_files_are_told_in_a_sentence(tmp_path: Path, content: str, piece: str) -> None:
    (tmp_path / "file.csv").write_text(content)
    with pytest.raises(variants.VariantError, match=piece):
        variants.read(tmp_path / "file.csv")
    with pytest.raises(variants.VariantError, match="cannot be read"):
        variants.read(tmp_path / "none.csv")
    (tmp_path / "file.csv").write_bytes(b"mutant,DMS_score\n\xff\xfe,1\n")
    with pytest.raises(variants.VariantError, match="no CSV file"):
        variants.read(tmp_path / "file.csv")


def test_only_variants_of_known_substitutions_are_used() -> None:
    measured = {(f"A{p}G",): float(p) for p in range(1, 6)} | {
        ("A1G", "A9G"): 1.0,
        ("A1G", "A2G", "A9G"): 1.0,
    }
    few = {tuple(f"A{p}G" for p in v): 0.1 for v in ((1, 2, 3), (1, 2, 4))}
    with pytest.raises(variants.VariantError, match=r"5 variants of up to 2 .* and 2 of 3 to 10"):
        variants.split(measured | few)
    long = tuple(f"A{p}G" for p in range(1, 12))
    many = (
        {(f"A{p}G",): 1.0 for p in range(1, 12)}
        | {long: 9.0, long[:10]: 8.0}
        | {long[i : i + 3]: 1.0 for i in range(9)}
    )
    train, _, test, values = variants.split(many)
    assert (
        len(train) == 11
        and long not in test
        and len(test) == 10
        and values[test.index(long[:10])] == 8.0
    )


def test_landscapes_follow_their_seed_and_survive_a_file(tmp_path: Path) -> None:
    one, two, other = (variants.FitnessLandscape(seed).sample() for seed in (3, 3, 4))
    assert one == two and one != other
    variants.write(tmp_path / "made.csv", one)
    assert variants.read(tmp_path / "made.csv") == one
    train, _, test, _ = variants.split(one)
    assert {len(v) for v in train} == {0, 1, 2} and {len(v) for v in test} == set(range(3, 9))


def test_the_commands_of_the_readme(tmp_path: Path) -> None:
    script = str(example_path("multi_evolve") / "variants.py")

    def command(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, script, *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )

    variants.write(tmp_path / "own.csv", variants.FitnessLandscape(3).sample())

    lines = command("cases", *["own.csv"] * 3).stdout.splitlines()
    assert [json.loads(line)["split"] for line in lines] == ["train", "train", "test"]
    wrong = command("cases", "none.csv")
    assert wrong.returncode == 1 and wrong.stderr.startswith("none.csv cannot be read")


# -- in the jail
# ---------------------------------------------------------------------------------------------------

BOUNDLESS = "def predict(train, fitness, test):\n    return {value}\n"


@pytest.mark.parametrize(
    ("value", "piece"),
    [
        ("[0.0]", "one for each variant"),
        ("[float('nan')] * len(test)", "finite"),
        ("[float('inf')] * len(test)", "finite"),
        ("[True] * len(test)", "finite real numbers"),
        ("[1j] * len(test)", "finite real numbers"),
        ("[10**400] * len(test)", "finite real numbers"),
        ("{'score': 1.0}", "one for each variant"),
        ("'1' * len(test)", "one for each variant"),
    ],
)
def test_what_is_no_prediction_is_told(value: str, piece: str) -> None:
    outcome = eval(value, {"test": [0] * 20})
    fault, _ = evaluator.plain(outcome, 20)
    assert piece in fault


def test_bad_answers_and_searching_for_labels_score_nothing() -> None:
    seen = judge(BOUNDLESS.format(value="[0.0]"))
    assert seen.status is Status.INVALID and "one for each variant" in seen.feedback
    looking = f"""
import gc, os
def predict(train, fitness, test):
    for folder in ({str(example_path("multi_evolve"))!r}, {str(Path(__file__).parent)!r}):
        for name in ("cases.jsonl", "made.jsonl", "evaluator.py", "variants.py", "task.toml", {Path(__file__).name!r}):
            try:
                open(os.path.join(folder, name)).close()
            except OSError:
                continue
            raise AssertionError(name)
    asked = tuple(test[0])
    assert not [o for o in gc.get_objects() if isinstance(o, dict) and asked in o]
    return [float(place) for place in range(len(test))]
"""
    seen = judge(looking)
    assert seen.status is Status.OK, seen.feedback
    assert abs(seen.metrics["pearson"]) < 0.3  # the order of the variants tells nothing


def test_own_files_take_the_place_of_those_that_are_shipped(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    shutil.copytree(
        example_path("multi_evolve"), folder, ignore=shutil.ignore_patterns("__pycache__")
    )
    variants.write(folder / "data" / "own.csv", variants.FitnessLandscape(8).sample())
    (folder / "cases.jsonl").write_text(
        json.dumps({"id": "own", "info": {"csv": "own.csv"}}) + "\n"
    )
    task = load(folder)
    seen = judge(task.seeds[0]["predictor.py"], task)
    assert seen.status is Status.OK and seen.metrics["pearson"] > 0.3
    (folder / "data" / "bad.csv").write_text("mutant,DMS_score\n?,1\n")
    with pytest.raises(TaskError, match="is no substitution"):
        judge(task.seeds[0]["predictor.py"], load(folder))
