"""Placing experts: metrics against slow arithmetic, and attacks on the scorer.

Also the file format and the generator.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from culmen.core.candidate import Candidate
from culmen.core.errors import TaskError
from culmen.core.evaluation import Observation, Status
from culmen.core.task import Task
from culmen.evaluate.local import LocalBackend
from culmen.tasks import example_path, load
from tests.tasks.folder import BASELINES, modules

loads, evaluator, baseline = modules("eplb", "loads", "evaluator", "baseline")
(programs,) = modules(BASELINES, "programs")
POLICIES = (
    baseline.in_order,
    baseline.greedy,
    baseline.snake,
    baseline.greedy_by_layer,
    baseline.hierarchical,
)
SHAPE = (evaluator.SLOTS, evaluator.GROUPS, evaluator.NODES, evaluator.DEVICES)


def made(layers: int = 3, seed: int = 0) -> Any:
    return loads.generate(seed, 2, "shifting", layers=layers)


def judge(program: str, task: Task | None = None) -> Observation:
    """A program on the first case, in the jail."""
    task = task or load(example_path("eplb"))

    async def one() -> Observation:
        backend = LocalBackend(task, 1)
        try:
            await backend.start()
            return await backend.evaluate(Candidate.of({"placement.py": program}), task.cases[0], 3)
        finally:
            await backend.close()

    return asyncio.run(one())


def slow_balancedness(placed: Any, load_: Any) -> tuple[Fraction, list[Fraction]]:
    """The definition, in exact fractions: (ratio of sums, ratio of each layer)."""
    means, mosts = [], []
    for row, amounts in zip(placed.tolist(), load_.tolist()):
        size = len(row) // evaluator.DEVICES
        sums = [Fraction(0)] * evaluator.DEVICES
        for slot, expert in enumerate(row):
            sums[slot // size] += Fraction(amounts[expert], row.count(expert))
        means.append(sum(sums) / len(sums))
        mosts.append(max(sums))
    return Fraction(sum(means), sum(mosts)), [a / b for a, b in zip(means, mosts)]


@given(st.integers(0, 10_000), st.sampled_from(POLICIES))
@settings(max_examples=12, deadline=None)
def test_balancedness_is_what_the_definition_says(seed: int, policy: Any) -> None:
    now, following = made(2, seed)
    placed = np.asarray(policy(now, *SHAPE))
    exact, layers = slow_balancedness(placed, following)
    value, worst = evaluator.balancedness(placed, following)
    assert value == pytest.approx(float(exact), rel=1e-12)
    assert float(layers[worst]) == pytest.approx(float(min(layers)), rel=1e-12)


def test_no_load_is_balanced_and_an_empty_layer_does_no_harm() -> None:
    placed = np.asarray(baseline.in_order(np.zeros((2, 256)), *SHAPE))
    assert evaluator.balancedness(placed, np.zeros((2, 256), dtype=np.int64)) == (1.0, 0)
    half = np.zeros((2, 256), dtype=np.int64)
    half[1, 0] = 5
    value, worst = evaluator.balancedness(placed, half)
    assert 0 < value < 1 and worst == 1


@pytest.mark.parametrize("policy", POLICIES)
@given(seed=st.integers(0, 10_000))
@settings(max_examples=8, deadline=None)
def test_baselines_place_every_expert(policy: Any, seed: int) -> None:
    now, _ = made(2, seed)
    placed = policy(now, *SHAPE)
    assert evaluator.invalid(placed, 2, 256) == ""
    counts = evaluator.replicas(np.asarray(placed), 256)
    assert counts.sum(axis=1).tolist() == [288, 288]


def test_greedy_is_the_same_by_layer_and_at_once() -> None:
    now, _ = made(4)
    fast, plain = (
        np.asarray(policy(now, *SHAPE)) for policy in (baseline.greedy, baseline.greedy_by_layer)
    )
    assert evaluator.replicas(fast, 256).tolist() == evaluator.replicas(plain, 256).tolist()
    assert evaluator.balancedness(fast, now)[0] == pytest.approx(
        evaluator.balancedness(plain, now)[0], abs=0.01
    )


def test_the_hierarchical_policy_keeps_groups_on_nodes() -> None:
    now, _ = made(3)
    placed = baseline.hierarchical(now, *SHAPE)
    for row in placed:
        for node in row.reshape(evaluator.NODES, -1):
            assert (
                len({expert // 32 for expert in node.tolist()})
                == evaluator.GROUPS // evaluator.NODES
            )


def test_replication_always_serves_the_busiest() -> None:
    """By brute force: each slot goes to the expert whose replicas bear most at that moment."""
    rng = np.random.default_rng(1)
    amounts = rng.integers(1, 100, (1, 6))
    chosen, each = baseline.replicated(amounts, 11)
    counts = [1] * 6
    for expert in chosen[0, 6:].tolist():
        shares = [amounts[0, e] / counts[e] for e in range(6)]
        assert shares[expert] == max(shares)
        counts[expert] += 1
    assert each[0].tolist() == [amounts[0, e] / counts[e] for e in chosen[0].tolist()]


def test_renumbering_keeps_groups_and_loads() -> None:
    rng, (now, _) = np.random.default_rng(0), made(5)
    order = evaluator.renumbering(rng, 5, 256)
    assert np.sort(order, axis=1).tolist() == [list(range(256))] * 5
    assert all(len(set(piece)) == 1 for row in order // 32 for piece in row.reshape(8, 32).tolist())
    assert sorted(np.take_along_axis(now, order, axis=1)[0]) == sorted(now[0])
    assert not np.array_equal(order[0], order[1])


@pytest.mark.parametrize(
    ("placed", "piece"),
    [
        (np.zeros((3, 288), dtype=int), "expert 1 is in no slot"),
        (np.zeros((3, 287), dtype=int), "shape (3, 288)"),
        (np.full((3, 288), 256), "there is a 256"),
        (np.full((3, 288), -1), "there is a -1"),
        (np.zeros((3, 288)), "whole numbers"),
        (np.zeros((3, 288), dtype=bool), "whole numbers"),
        ([[0] * 288, [0] * 3, [0]], "slots for every layer"),
        (None, "shape (3, 288)"),
        ("abc", "shape (3, 288)"),
    ],
)
def test_what_is_no_placement_is_told(placed: Any, piece: str) -> None:
    assert piece in evaluator.invalid(placed, 3, 256)


def test_score_is_the_mean_of_two_bounded_numbers() -> None:
    result = evaluator.judged([0.5, 0.7], [0.01, 0.04], [3, 1], 0.02)
    assert result["score"] == pytest.approx(((0.5 + 2 / 3) / 2 + (0.7 + 1 / 3) / 2) / 2)
    assert result["metrics"]["speed"] == pytest.approx(0.5) and "layer 3" in result["feedback"]
    assert evaluator.judged([1.0], [0.0], [0], 0.02)["score"] == 1.0


def test_speed_is_nowhere_flat() -> None:
    """A tenth less time is worth something at 0.1 ms as at 1 s.

    It is worth most around the time that placements really take.
    """
    gains = [
        evaluator.judged([0.5], [0.9 * t], [0], 0.02)["score"]
        - evaluator.judged([0.5], [t], [0], 0.02)["score"]
        for t in (1e-4, 3e-3, 2e-2, 1.0)
    ]
    assert min(gains) > 2e-4 and gains[1] > 0.005 and gains[2] > 0.01


# -- the file format
# -----------------------------------------------------------------------------------------------


def test_files_are_summed_over_intervals(tmp_path: Path) -> None:
    steps = loads.generate(4, 250, "steady", steps=1, layers=2, experts=16, groups=4, tokens=64)
    loads.write(tmp_path / "load.json", steps)
    first, second = loads.read(tmp_path / "load.json")  # the last half interval is left out
    assert (
        first.tolist() == sum(steps[:100]).tolist()
        and second.tolist() == sum(steps[100:200]).tolist()
    )
    loads.write(tmp_path / "small.json", [first, second], loads.INTERVAL)
    again = loads.read(tmp_path / "small.json")
    assert [each.tolist() for each in again] == [first.tolist(), second.tolist()]
    entry = json.loads((tmp_path / "load.json").read_text())["load_history"][0]
    assert list(entry) == ["logical_expert_load"] and len(entry["logical_expert_load"]) == 2


def test_the_commands_of_the_readme(tmp_path: Path) -> None:
    script = str(example_path("eplb") / "loads.py")

    def command(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, script, *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )

    loads.write(tmp_path / "load.json", loads.generate(0, 200, "shifting", 1, layers=1))
    assert command("shrink", "load.json", "small.json").returncode == 0
    long, short = (loads.read(tmp_path / name) for name in ("load.json", "small.json"))
    assert [each.tolist() for each in long] == [each.tolist() for each in short]
    wrong = command("shrink", "small.csv", "other.json")
    assert wrong.returncode == 1 and wrong.stderr.startswith("small.csv cannot be read")


GOOD = {"logical_expert_load": [[1, 2], [3, 4]]}


@pytest.mark.parametrize(
    ("content", "piece"),
    [
        ("{", "is not valid JSON"),
        ("[]", "no list 'load_history'"),
        (json.dumps({"load_history": []}), "no list 'load_history'"),
        (json.dumps({"load_history": [GOOD, {"load": 1}]}), "entry 1 has no 'logical_expert_load'"),
        (
            json.dumps({"load_history": [{"logical_expert_load": [[1], [1, 2]]}]}),
            "different numbers of experts",
        ),
        (json.dumps({"load_history": [{"logical_expert_load": [["a"]]}]}), "a list of numbers"),
        (json.dumps({"load_history": [{"logical_expert_load": [[1, -2]]}]}), "0 or more"),
        (json.dumps({"load_history": [{"logical_expert_load": [[1, 0.5]]}]}), "whole numbers"),
        ('{"load_history": [{"logical_expert_load": [[1, NaN]]}]}', "whole numbers"),
        (
            json.dumps({"load_history": [GOOD, {"logical_expert_load": [[1, 2]]}]}),
            "entry 1 has shape",
        ),
        (json.dumps({"load_history": [GOOD] * 150}), "two intervals"),
        (json.dumps({"load_history": [GOOD], "steps_per_entry": 7}), "divides 100"),
    ],
)
def test_malformed_files_are_told_in_a_sentence(tmp_path: Path, content: str, piece: str) -> None:
    (tmp_path / "load.json").write_text(content)
    with pytest.raises(loads.LoadError, match=piece):
        loads.read(tmp_path / "load.json")
    with pytest.raises(loads.LoadError, match="cannot be read"):
        loads.read(tmp_path / "none.json")


def test_the_generator_follows_its_seed_and_drifts() -> None:
    one, two, other = (
        np.array(loads.generate(seed, 4, "shifting", layers=2)) for seed in (5, 5, 6)
    )
    assert np.array_equal(one, two) and not np.array_equal(one, other)
    near = np.corrcoef(one[0, 0], one[1, 0])[0, 1]
    assert 0.5 < near < 0.9999  # alike, and yet not the same
    assert one.max() > 3 * one.mean()  # skewed


@pytest.mark.parametrize("trace", sorted(loads.TRACES))
def test_popularity_follows_a_zipf_law_of_its_own_in_every_layer(trace: str) -> None:
    low, high = loads.TRACES[trace]["exponent"]
    popular = loads._popularity(np.random.default_rng(3), (low, high), 58, 256, 8)
    assert popular.sum(axis=2) == pytest.approx(1.0)
    ranks = np.log(np.arange(1, 257) + loads.FLAT)
    slopes = [-np.polyfit(ranks, np.log(np.sort(row)[::-1]), 1)[0] for row in popular[0]]
    assert low <= min(slopes) < low + 0.1 and high - 0.1 < max(slopes) <= high
    other = [np.corrcoef(popular[0, layer], popular[1, layer])[0, 1] for layer in range(58)]
    assert 0.2 < np.mean(other) < 0.95  # domains share most of what is popular, not all


def neighbours(trace: str) -> Any:
    """Correlation of each interval's load with the next one's, shape (intervals - 1, layers)."""
    made = loads.generate(11, 30, trace, layers=12)
    return np.array([[np.corrcoef(a[i], b[i])[0, 1] for i in range(12)] for a, b in pairwise(made)])


def test_bursts_come_in_all_layers_at_once_and_only_where_they_are_asked_for() -> None:
    quiet, bursting = neighbours("steady"), neighbours("mixed")
    assert quiet.min() > 0.9
    worst = bursting[bursting.mean(axis=1).argmin()]
    assert (worst < np.median(bursting, axis=0) - 0.05).mean() > 0.9


# -- in the jail
# ---------------------------------------------------------------------------------------------------

SEED = (example_path("eplb") / "placement.py").read_text()
CACHING = (
    SEED
    + """
honest, kept = place, []
def place(load, *shape):
    if not kept:
        kept.append(honest(load, *shape))
    return kept[0]
"""
)
BOASTING = (
    SEED
    + """
honest = place
def place(load, *shape):
    placed = honest(load, *shape)
    return placed, np.zeros((1, 1)), np.full(load.shape, 99)
"""
)
RECOGNISING = (
    SEED
    + """
import time
honest, seen = place, set()
def place(load, *shape):
    key = np.sort(np.sort(load, axis=1), axis=0).tobytes()
    if key not in seen:
        time.sleep(0.04)
        seen.add(key)
    return honest(load, *shape)
"""
)
MIXING = (
    SEED
    + """
import time
honest, calls = place, []
def place(load, *shape):
    calls.append(1)
    if len(calls) % 3 == 1:
        return np.tile(np.arange(288) % 256, (len(load), 1))
    return honest(load, *shape)
"""
)


def test_remembering_an_answer_is_worth_less_than_giving_one() -> None:
    honest, cached = judge(SEED), judge(CACHING)
    assert (
        honest.status is Status.OK
        and cached.metrics["balancedness"] < honest.metrics["balancedness"] - 0.1
    )


def test_no_load_comes_twice() -> None:
    """A program that is slow with every load that it does not recognise is slow.

    It is so whatever the numbering.
    """
    assert judge(RECOGNISING).metrics["speed"] <= 0.5


def test_reported_replica_counts_are_not_looked_at() -> None:
    honest, boasting = judge(SEED), judge(BOASTING)
    assert boasting.metrics["balancedness"] == honest.metrics["balancedness"]


def test_bad_answers_cannot_be_mixed_with_good_ones() -> None:
    """A third of its answers is bad: of every load the worst one counts."""
    lazy = judge(
        "import numpy as np\ndef place(load, *s):\n    return np.tile(np.arange(288) % 256, (len(load), 1))\n"
    )
    mixed = judge(MIXING).metrics["balancedness"]
    assert (
        abs(mixed - lazy.metrics["balancedness"])
        < 0.03
        < judge(SEED).metrics["balancedness"] - mixed
    )


@pytest.mark.parametrize(
    ("program", "status", "piece"),
    [
        (
            "def place(load, *shape):\n    return [[0] * 288] * 58\n",
            Status.INVALID,
            "is in no slot",
        ),
        (
            "def place(load, *shape):\n    raise RuntimeError('not today')\n",
            Status.ERROR,
            "not today",
        ),
        ("def place(load, *shape):\n    return None\n", Status.INVALID, "must return an array"),
    ],
)
def test_what_fails_is_told(program: str, status: Status, piece: str) -> None:
    seen = judge(program)
    assert seen.status is status and seen.score is None and piece in seen.feedback


def test_a_recorded_file_takes_the_place_of_made_up_loads(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    shutil.copytree(example_path("eplb"), folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "data").mkdir()
    flat = [np.ones((2, 256), dtype=np.int64)] * 4
    loads.write(folder / "data" / "expert-load.json", flat, loads.INTERVAL)
    everywhere = "import numpy as np\ndef place(load, *s):\n    return np.tile(np.arange(288) % 256, (len(load), 1))\n"
    task = load(folder)
    seen = judge(everywhere, task)
    # 28 devices serve nine experts once or eight once and one half; the fullest bear 9 of 256 / 32
    # = 8
    assert seen.metrics["balancedness"] == pytest.approx(8 / 9)
    assert task.digest != load(example_path("eplb")).digest
    (folder / "data" / "expert-load.json").write_text('{"load_history": [1]}')
    with pytest.raises(TaskError, match="entry 0 has no 'logical_expert_load'"):
        judge(everywhere, load(folder))


def test_measuring_programs_makes_a_table() -> None:
    task = load(example_path("eplb"))
    good, bad = programs.measure_programs(
        task,
        {"seed": task.seeds[0], "broken": {"placement.py": "def place(*a):\n    return 1\n"}},
        1,
    )
    assert (
        good.failure == ""
        and set(good.scores) == {"train", "val", "test"}
        and good.metrics["speed"] > 0
    )
    assert "must return" in bad.failure and bad.scores == {}
    broken = programs.ProgramScores("broken", {}, {}, 0.1, "it failed")
    lines = programs.scores_table([good, broken]).splitlines()
    assert (
        lines[0].startswith("| program | train | val | test |")
        and lines[3] == "| `broken` | failed: it failed |"
    )
