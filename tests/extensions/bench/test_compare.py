"""Comparisons of runs: values, scales, pairs, targets, sentences.

On entries made by hand and on journals.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from culmen.core.errors import UserError
from culmen.core.task import Objective
from culmen.core.usage import Budget
from culmen.extensions.bench import compare as comparing
from culmen.extensions.bench.records import ComparedRun, Moment, find_runs, read_compared
from tests.extensions.bench.worlds import Asking, Noting, Told, run

OBJECTIVE = Objective("max", start=0.0, target=8.0, known=10.0)


def one(
    strategy: str, seed: int, score: float | None, task: str = "hill", **more: Any
) -> ComparedRun:
    """A finished run of ten evaluations, which found its best at the fifth, for a dollar each."""
    moments = (
        tuple(Moment(n, float(n), float(n), 0.0 if n < 5 else score) for n in range(1, 11))
        if score is not None
        else ()
    )
    given: dict[str, Any] = {
        "run": f"{task}-{strategy}-{seed}",
        "task": task,
        "digest": task,
        "objective": OBJECTIVE,
        "strategy": f"m:{strategy}",
        "config": {},
        "model": "told",
        "seed": seed,
        "state": "finished",
        "score": score,
        "certified": None,
        "strict": None,
        "trust": "verified",
        "evaluations": 10,
        "dollars": 10.0,
        "unpriced": 0,
        "seconds": 10.0,
        "budget": Budget(evaluations=10),
        "moments": moments,
    }
    return ComparedRun(**{**given, **more})


def runs(scores: dict[str, list[float | None]], **more: Any) -> list[ComparedRun]:
    return [
        one(name, seed, score, **more)
        for name, each in scores.items()
        for seed, score in enumerate(each)
    ]


def rows(part: Any) -> dict[str, Any]:
    return {row.strategy: row for row in part.rows}


def test_a_task_in_its_own_scores_by_hand():
    made = comparing.compare_runs(runs({"a": [2.0, 4.0, 9.0, 5.0], "b": [1.0, 1.0, 1.0, 1.0]}))
    (part,) = made.tasks
    a, b = rows(part)["a"], rows(part)["b"]
    assert (a.best, a.mean.value, a.median.value, a.iqm.value) == (9.0, 5.0, 4.5, 4.5)
    assert a.normalised.value == pytest.approx(0.45) and b.normalised.value == pytest.approx(0.1)
    assert a.best_of[0] == pytest.approx(0.5) and a.best_of[-1] == pytest.approx(0.9)
    assert [share for _, share in a.steps] == [1.0, 0.75, 0.5, 0.25, 0.0]
    assert (a.reach.reached, a.reach.evaluations, a.reach.expected_evaluations) == (1, None, 35.0)
    assert (a.reach.dollars, a.reach.expected_dollars) == (None, 35.0)
    assert b.reach.reached == 0 and b.reach.expected_evaluations is None
    assert (part.scale.start, part.scale.reference, part.target.score, made.overall) == (
        0.0,
        10.0,
        8.0,
        None,
    )
    (pair,) = part.pairs
    assert (pair.first, pair.second, pair.probability.value, pair.pairs) == ("a", "b", 1.0, 4)


def test_reaching_a_target_is_counted_along_any_axis():
    """Step n of these runs comes with evaluation 2n - 1.

    The first reaches the target at the fifth evaluation.
    """
    moments = tuple(
        Moment(n, float(n), 0.0, 0.0 if n < 5 else 9.0, (n + 1) // 2, n // 5, 3 * n)
        for n in range(1, 11)
    )
    late = tuple(msgspec.structs.replace(moment, best=0.0) for moment in moments)
    given = [one("a", 0, 9.0, moments=moments), one("a", 1, 0.0, moments=late)]
    for axis, until, end in (
        ("evaluation_steps", 3, 5),
        ("proposal_steps", 1, 2),
        ("proposals", 15, 30),
        ("seconds", 5, 10),
    ):
        made = comparing.compare_runs(given, axis=axis)
        found = rows(made.tasks[0])["a"].reach
        assert made.axis == axis and found.steps is None and found.expected_steps == until + end
        assert comparing.compare_runs(given[:1], axis=axis).tasks[0].rows[0].reach.steps == until
    assert rows(comparing.compare_runs(given).tasks[0])["a"].reach.expected_steps is None
    blank = [one("a", 0, 9.0)]  # nothing of steps was told
    assert (
        rows(comparing.compare_runs(blank, axis="proposals").tasks[0])["a"].reach.expected_steps
        is None
    )


def test_minimising_turns_everything_round():
    objective = Objective("min", start=10.0, known=0.0)
    made = comparing.compare_runs(
        runs({"a": [2.0, 4.0, 6.0], "b": [8.0, 12.0, 9.0]}, objective=objective)
    )
    a, b = rows(made.tasks[0])["a"], rows(made.tasks[0])["b"]
    assert (a.best, a.mean.value, b.best) == (2.0, 4.0, 8.0)
    assert a.mean.low <= 4.0 <= a.mean.high
    assert a.normalised.value == pytest.approx(0.6) and b.normalised.value == pytest.approx(
        0.1
    )  # 0.2, 0, 0.1
    assert made.tasks[0].pairs[0].first == "a"


@pytest.mark.parametrize(
    ("objective", "start", "reference", "origin"),
    [
        (Objective("max", start=1.0, target=3.0), 1.0, 3.0, "target"),
        (Objective("max", known=6.0), 0.0, 6.0, "best known value"),
        (Objective("max"), 0.0, 4.0, "best of these runs"),
        (Objective("max", start=5.0, known=4.0), 5.0, 5.0, "nothing"),
    ],
)
def test_a_scale_says_where_its_ends_come_from(
    objective: Objective, start: float, reference: float, origin: str
):
    made = comparing.compare_runs(runs({"a": [2.0, 4.0]}, objective=objective))
    scale = made.tasks[0].scale
    assert (scale.start, scale.reference) == (start, reference) and scale.reference_from.startswith(
        origin
    )


def test_raw_scores_of_tasks_never_mix():
    small = runs({"a": [2.0, 4.0], "b": [1.0, 3.0]})
    large = runs(
        {"a": [200.0, 400.0], "b": [100.0, 300.0]},
        task="peak",
        objective=Objective("max", start=0.0, known=1000.0),
    )
    made = comparing.compare_runs(small + large)
    assert made.overall is not None and made.overall.tasks == ("hill", "peak")
    assert rows(made.overall)["a"].mean.value == pytest.approx(0.3)
    assert rows(made.overall)["a"].best == pytest.approx(0.4)
    assert made.overall.pairs[0].pairs == 4


def test_tasks_without_runs_of_all_are_left_out_of_what_is_said_over_tasks():
    whole = runs({"a": [2.0, 4.0], "b": [1.0, 3.0]})
    whole += runs({"a": [2.0, 4.0], "b": [1.0, 3.0]}, task="peak")
    made = comparing.compare_runs(whole + runs({"a": [9.0, 9.0]}, task="lone"))
    assert made.overall is not None and made.overall.tasks == ("hill", "peak")
    assert any("lone" in remark for remark in made.remarks)
    none = comparing.compare_runs(runs({"a": [1.0]}) + runs({"b": [1.0]}, task="peak"))
    assert none.overall is None and any(
        "There is no comparison over tasks" in remark for remark in none.remarks
    )


def test_the_same_name_with_another_digest_is_another_task():
    made = comparing.compare_runs(
        runs({"a": [1.0]}, digest="1" * 64) + runs({"a": [1.0]}, digest="2" * 64)
    )
    assert [part.task for part in made.tasks] == ["hill (11111111)", "hill (22222222)"]


def test_certified_values_stand_where_there_are_any_and_others_lose():
    proven = [one("a", seed, 9.0, strict=True, certified=3.0) for seed in range(2)]
    claimed = [one("b", seed, 9.5, strict=False) for seed in range(2)]
    made = comparing.compare_runs(proven + claimed)
    (part,) = made.tasks
    assert (part.basis, rows(part)["a"].mean.value, rows(part)["b"].mean.value) == (
        "certified values",
        3.0,
        None,
    )
    assert (part.pairs[0].first, part.pairs[0].probability.value) == ("a", 1.0)
    assert any("2 of 4 runs on hill have no certified value" in remark for remark in made.remarks)


def test_few_seeds_cannot_tell_apart_and_the_sentence_says_how_many_would():
    def pair(seeds: int, **more: Any) -> Any:
        return (
            comparing.compare_runs(runs({"a": [5.0] * seeds, "b": [1.0] * seeds}, **more))
            .tasks[0]
            .pairs[0]
        )

    assert not pair(1).apart and "a single run" in pair(1).sentence and pair(1).p is None
    assert (
        not pair(5).apart
        and "cannot tell a and b apart" in pair(5).sentence
        and "at least 6" in pair(5).sentence
    )
    assert (
        pair(6).apart
        and pair(6).sentence.startswith("a is better than b")
        and pair(6).p == pytest.approx(2**-5)
    )


def test_more_strategies_ask_for_more_evidence():
    made = comparing.compare_runs(runs({"a": [5.0] * 6, "b": [1.0] * 6, "c": [1.0] * 6}))
    assert [pair.p for pair in made.tasks[0].pairs] == pytest.approx([3 / 32, 3 / 32, 1.0])
    assert not any(pair.apart for pair in made.tasks[0].pairs)


def test_ties_are_no_difference():
    (pair,) = comparing.compare_runs(runs({"a": [1.0] * 8, "b": [1.0] * 8})).tasks[0].pairs
    assert (pair.probability.value, pair.p, pair.apart) == (0.5, 1.0, False)


def test_seeds_pair_where_each_occurs_once():
    missing = runs({"a": [1.0, 5.0, 5.0], "b": [4.0, 2.0, 2.0]})[:-1]  # b has no seed 2
    made = comparing.compare_runs(missing)
    assert made.tasks[0].pairs[0].pairs == 2 and any(
        "different seeds" in remark for remark in made.remarks
    )
    twice = [*missing, one("b", 0, 4.0, run="again")]
    assert comparing.compare_runs(twice).tasks[0].pairs[0].pairs == 0
    apart = [one("a", 0, 1.0), one("a", 1, 2.0), one("b", 2, 1.0), one("b", 3, 2.0)]
    assert comparing.compare_runs(apart).tasks[0].pairs[0].pairs == 0


def test_runs_without_a_score_lose_and_runs_that_did_not_finish_are_left_out():
    made = comparing.compare_runs(
        [*runs({"a": [None, None], "b": [1.0, None]}), one("a", 9, 9.0, state="interrupted")]
    )
    (part,) = made.tasks
    assert (rows(part)["a"].runs, rows(part)["a"].valued, rows(part)["a"].mean.value) == (
        2,
        0,
        None,
    )
    assert rows(part)["a"].normalised.value == 0.0
    assert part.pairs[0].probability.value == 0.75 and part.pairs[0].first == "b"
    (half,) = made.unfinished
    assert (half.run, half.strategy, half.seed, half.state) == ("hill-a-9", "a", 9, "interrupted")
    assert half.came.endswith("evaluations")
    with pytest.raises(UserError, match="none of these runs has finished"):
        comparing.compare_runs([one("a", 0, 1.0, state="failed")])
    assert comparing.comparison_document([one("a", 0, 1.0, state="failed")]) is None


def test_budgets_that_differ_and_unknown_prices_are_said():
    made = comparing.compare_runs(
        [one("a", 0, 9.0, unpriced=2), one("b", 0, 9.0, budget=Budget(evaluations=20))]
    )
    assert any("Budgets of runs on hill differ" in remark for remark in made.remarks)
    reach = {row.strategy: row.reach for row in made.tasks[0].rows}
    assert (
        reach["a"].dollars is None and reach["a"].evaluations == 5.0 and reach["b"].dollars == 5.0
    )  # pyright: ignore


def test_settings_and_models_make_strategies_of_their_own():
    made = comparing.compare_runs(
        [one("a", 0, 1.0, config={"k": 2}), one("a", 0, 2.0, config={"k": 3}, run="other")]
    )
    assert [row.strategy for row in made.tasks[0].rows] == ["a (k=2)", "a (k=3)"]


SCORES = st.dictionaries(
    st.sampled_from("abc"),
    st.lists(st.none() | st.sampled_from([-1.0, 0.0, 3.0, 3.5, 12.0]), min_size=1, max_size=4),
    min_size=1,
)


@settings(max_examples=15, deadline=None)
@given(SCORES, SCORES, st.sampled_from(["max", "min"]), st.randoms())
def test_no_order_matters_and_nothing_is_nan(first: Any, second: Any, direction: Any, random: Any):
    objective = Objective(direction)
    made = runs(first, objective=objective) + runs(second, task="peak", objective=objective)
    found = comparing.comparison_document(made)
    assert comparing.comparison_document(random.sample(made, len(made))) == found
    json.dumps(found, allow_nan=False)
    for row in (row for part in comparing.compare_runs(made).tasks for row in part.rows):
        assert all(each >= 0 and math.isfinite(each) for each in row.best_of)
        shares = [share for _, share in row.steps]
        assert shares == sorted(shares, reverse=True)


def test_entries_come_from_journals(tmp_path: Path):
    paid = read_compared(run(tmp_path, Asking(2), Told([[1.0, 3.0, None], [2.0]]), name="paid"))
    assert (paid.task, paid.strategy, paid.state, paid.score) == (
        "told",
        "tests.extensions.bench.worlds:Asking",
        "interrupted",
        3.0,
    )
    assert (
        paid.moments[-1].best == 3.0
        and paid.dollars == 2.0
        and paid.evaluations == len(paid.moments)
    )
    failed = read_compared(run(tmp_path, Noting((None,)), name="failed"))
    assert failed.score is None
    made = comparing.compare_runs(
        [msgspec.structs.replace(each, state="finished") for each in (paid, failed)]
    )
    assert {row.strategy: row.valued for row in made.tasks[0].rows} == {"Asking": 1, "Noting": 0}


def test_runs_are_found_below_a_folder_but_not_inside_one_another(tmp_path: Path):
    outer = run(tmp_path / "x/y", Noting((1.0,)), name="outer")
    run(outer / "inside", Noting((1.0,)), name="inner")
    single = run(tmp_path / "x", Noting((1.0,)), name="alone")
    assert find_runs(tmp_path) == [single, outer] and find_runs(single) == [single]
    with pytest.raises(UserError, match="there is no run here"):
        find_runs(tmp_path / "nothing")
