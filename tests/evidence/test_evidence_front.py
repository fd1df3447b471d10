"""Pareto fronts: domination, hypervolume, and beliefs about noisy candidates."""

from __future__ import annotations

import math
from random import Random

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from culmen.core.candidate import Candidate
from culmen.core.errors import UserError
from culmen.core.evaluation import BARRED, Observation, Status
from culmen.core.task import combined_score, parse_constraint, parse_metric_goals
from culmen.evidence.front import (
    FrontModel,
    FrontPoint,
    chebyshev_distances,
    column_spans,
    dispersed_rows,
    hypervolume,
    nearest_to_ideal,
    nondominated_rows,
    reference_point,
    reward_rows,
)
from tests.evidence.facts import enter

NUMBERS = st.floats(-50, 50).map(lambda value: round(value, 2))


def clouds(columns: int) -> st.SearchStrategy[np.ndarray]:
    return st.lists(
        st.lists(NUMBERS, min_size=columns, max_size=columns), min_size=1, max_size=25
    ).map(np.array)


def dominates(one: np.ndarray, other: np.ndarray) -> bool:
    return bool((one >= other).all() and (one > other).any())


@given(st.one_of(clouds(2), clouds(3)))
def test_the_front_is_what_nothing_dominates_and_each_other_point_is_covered_by_it(
    points: np.ndarray,
) -> None:
    front = nondominated_rows(points)
    for row, point in enumerate(points):
        covered = any((points[member] >= point).all() for member in front)
        assert covered
        if row in front:
            assert not any(dominates(other, point) for other in points)
    assert len({tuple(points[row]) for row in front}) == len(front)


@given(
    clouds(2),
    st.sampled_from([math.atan, lambda x: x**3, lambda x: 1e-6 * x, lambda x: math.exp(x / 10)]),
)
def test_a_monotone_change_of_one_metric_changes_no_front(
    points: np.ndarray, change: object
) -> None:
    assert callable(change)
    bent = points.copy()
    bent[:, 1] = [change(value) for value in bent[:, 1]]
    assert nondominated_rows(points) == nondominated_rows(bent)


@given(st.one_of(clouds(2), clouds(3)), st.randoms())
def test_the_default_choice_does_not_depend_on_the_order_of_the_members(
    points: np.ndarray, rng: Random
) -> None:
    """Both of a front of two are equally near.

    The better one in the first objective is taken.
    """
    goals = parse_metric_goals(dict.fromkeys("xyz"[: points.shape[1]], "max"))
    members = [
        FrontPoint(str(row), dict(zip("xyz", points[row].tolist(), strict=False)))
        for row in nondominated_rows(points)
    ]
    chosen = nearest_to_ideal(members, goals, [1.0] * len(goals))
    assert chosen == nearest_to_ideal(rng.sample(members, len(members)), goals, [1.0] * len(goals))
    if len(members) == 2:
        assert points.shape[1] > 2 or chosen.metrics["x"] == max(
            member.metrics["x"] for member in members
        )


@given(st.one_of(clouds(2), clouds(3)))
def test_hypervolume_is_what_counting_cells_gives(points: np.ndarray) -> None:
    reference = np.array([-10.0, 3.0, -25.0])[: points.shape[1]]
    edges = [np.unique(np.append(points[:, k], low)) for k, low in enumerate(reference)]
    edges = [values[values >= low] for values, low in zip(edges, reference, strict=True)]
    volume = 0.0
    for cell in np.ndindex(*(max(0, len(values) - 1) for values in edges)):
        high = np.array([edges[k][i + 1] for k, i in enumerate(cell)])
        if (points >= high).all(axis=1).any():
            volume += math.prod(float(edges[k][i + 1] - edges[k][i]) for k, i in enumerate(cell))
    assert hypervolume(points, reference) == pytest.approx(volume, rel=1e-9, abs=1e-6)


@given(clouds(2), st.lists(NUMBERS, min_size=2, max_size=2))
def test_hypervolume_never_falls_by_a_further_point(points: np.ndarray, more: list[float]) -> None:
    reference = np.full(2, -60.0)
    assert (
        hypervolume(np.vstack([points, more]), reference) >= hypervolume(points, reference) - 1e-9
    )


def test_few_members_that_stand_for_a_front_keep_its_ends() -> None:
    angles = np.linspace(0, math.pi / 2, 50)
    kept = dispersed_rows(np.column_stack([np.cos(angles), 1e6 * np.sin(angles)]), 8)
    assert len(kept) == 8 and min(kept) < 8 and max(kept) > 41


def test_the_first_of_few_members_is_the_one_that_alone_dominates_most() -> None:
    """On equal scales and from a tenth below the worst.

    The product 0.5 * 0.5 is more than the 0.1 * 1.1 of either end.
    """
    assert dispersed_rows(np.array([[0.0, 10.0], [1.0, 0.0], [0.4, 4.0]]), 1) == [2]
    assert dispersed_rows(np.array([[0.0, 10.0], [1.0, 0.0], [0.01, 0.1]]), 1) == [0]


def test_the_distance_from_the_ideal_point_is_the_largest_gap_and_a_twentieth_of_their_sum() -> (
    None
):
    points, ideal, spans = (
        np.array([[1.0, 4.0], [3.0, 0.0], [2.0, 2.0]]),
        np.array([3.0, 4.0]),
        np.array([2.0, 4.0]),
    )
    found = chebyshev_distances(points, np.array([0.25, 0.75]), ideal, spans)
    assert found == pytest.approx([0.25 + 0.05 * 0.25, 0.75 + 0.05 * 0.75, 0.375 + 0.05 * 0.5])


def test_a_column_that_spans_nothing_counts_by_its_size() -> None:
    points = np.array([[10.0, -4.0, 0.5, 0.0], [10.5, -4.0, 0.5, 0.0]])
    assert column_spans(points).tolist() == [0.5, 4.0, 0.5, 1.0]


def test_hypervolume_is_measured_from_what_is_given_or_from_a_tenth_below_the_worst() -> None:
    points = np.array([[1.0, -30.0], [3.0, -10.0]])
    assert reference_point(points, GOALS).tolist() == pytest.approx([0.8, -32.0])
    given = parse_metric_goals({"accuracy": {"reference": 0.5}, "latency": "min"})
    assert reference_point(points, given).tolist() == pytest.approx([0.5, -32.0])
    assert reference_point(np.empty((0, 2)), GOALS).tolist() == [0.0, 0.0]
    both = parse_metric_goals(
        {"accuracy": {"reference": 0.5}, "latency": {"direction": "min", "reference": 40}}
    )
    assert reference_point(np.empty((0, 2)), both).tolist() == [0.5, -40.0]


def test_what_a_journal_leaves_out_of_a_member_is_nothing() -> None:
    read = msgspec.convert({"id": "a", "metrics": {"accuracy": 1.0, "latency": 2.0}}, FrontPoint)
    assert reward_rows([read], GOALS).tolist() == [[1.0, -2.0]]
    assert (read.margins, read.count, read.failures, read.feasible, read.confirmed) == (
        {},
        0,
        0,
        True,
        False,
    )


def named(text: str, parents: tuple[str, ...] = ()) -> Candidate:
    return Candidate.of({"p": text}, parents)


def seen(id: str, **metrics: float) -> Observation:
    return Observation(id, Status.OK, 0.0, metrics=metrics)


GOALS = parse_metric_goals({"accuracy": "max", "latency": "min"})


def test_lucky_single_evaluations_are_not_believed() -> None:
    """Forty children as good as their parent, each seen once: the best of them were lucky."""
    model, rng = FrontModel(GOALS), Random(0)
    parent = named("parent")
    raw: list[float] = []
    for candidate in [parent] * 12 + [named(f"child {place}", (parent.id,)) for place in range(40)]:
        accuracy, latency = rng.gauss(0.5, 0.1), rng.gauss(10, 1)
        raw.append(accuracy)
        enter(model, candidate, seen(candidate.id, accuracy=accuracy, latency=latency))
    members = [model.front_point(row) for row in model.front_rows()]
    claimed = max(member.metrics["accuracy"] for member in members) - 0.5
    assert max(raw) - 0.5 > 0.15 and claimed < (max(raw) - 0.5) / 3
    assert all(member.margins["accuracy"] > 0 for member in members)


def test_of_two_that_were_seen_alike_the_one_of_better_kin_is_believed_better() -> None:
    model, rng = FrontModel(GOALS), Random(0)
    kin = [
        (named(f"{line} {place}", (named(line).id,)), line)
        for place in range(6)
        for line in ("good", "bad")
    ]
    for candidate, line in [*((named(line), line) for line in ("good", "bad") * 6), *kin]:
        accuracy = (
            rng.gauss(5.0 * (line == "good"), 1.0) if not candidate.text.endswith("5") else 2.5
        )
        enter(model, candidate, seen(candidate.id, accuracy=accuracy, latency=rng.gauss(10, 1)))
    good, bad = (
        model.front_point(model.ids.index(named(f"{line} 5").id)) for line in ("good", "bad")
    )
    assert good.metrics["accuracy"] > bad.metrics["accuracy"] + 1.0


def test_equal_texts_are_one_candidate() -> None:
    model = FrontModel(GOALS)
    for _ in range(3):
        enter(model, named("the same"), seen(named("the same").id, accuracy=1.0, latency=2.0))
    assert len(model.ids) == 1 and model.front_point(0).count == 3


def test_what_holds_the_constraints_comes_first_and_else_the_least_violation() -> None:
    model = FrontModel(
        GOALS, (parse_constraint("latency <= 20"), parse_constraint("memory <= 5")), exact=True
    )
    values = {"wild": (0.9, 90.0, 1.0), "near": (0.5, 21.0, 1.0), "fat": (0.99, 1.0, 50.0)}
    for text, (accuracy, latency, memory) in values.items():
        enter(
            model,
            named(text),
            seen(named(text).id, accuracy=accuracy, latency=latency, memory=memory),
        )
    assert [model.ids[row] for row in model.front_rows()] == [named("near").id]
    assert not model.front_point(model.front_rows()[0]).feasible
    enter(model, named("tame"), seen(named("tame").id, accuracy=0.1, latency=3.0, memory=2.0))
    assert [model.ids[row] for row in model.front_rows()] == [named("tame").id]


def test_candidates_that_failed_or_were_barred_are_on_no_front() -> None:
    model = FrontModel(GOALS)
    enter(model, named("broken"), Observation(named("broken").id, Status.ERROR))
    assert model.front_rows() == []
    enter(model, named("fine"), seen(named("fine").id, accuracy=0.5, latency=5.0))
    enter(model, named("cheat"), seen(named("cheat").id, accuracy=1.0, latency=0.0))
    model.bar_candidate(named("cheat").id)
    assert [model.ids[row] for row in model.front_rows()] == [named("fine").id]


def test_a_candidate_that_is_rejected_for_its_integrity_is_on_no_front() -> None:
    model = FrontModel(GOALS)
    for text, accuracy in (("fine", 0.5), ("cheat", 1.0)):
        enter(model, named(text), seen(named(text).id, accuracy=accuracy, latency=5.0))
    assert [model.ids[row] for row in model.front_rows()] == [named("cheat").id]
    rejected = Observation(named("cheat").id, Status.REJECTED, reason=f"{BARRED}read")
    enter(model, named("cheat"), rejected)
    assert [model.ids[row] for row in model.front_rows()] == [named("fine").id]


def test_with_one_objective_the_front_is_the_best_candidate() -> None:
    model = FrontModel(parse_metric_goals({"accuracy": "max"}), exact=True)
    for text, accuracy in (("good", 0.5), ("better", 0.6), ("worse", 0.4), ("best", 0.7)):
        enter(model, named(text), seen(named(text).id, accuracy=accuracy))
        model.front_rows()
    assert [model.ids[row] for row in model.front_rows()] == [named("best").id]


WISHES = "accuracy >= 0.5, accuracy <= 0.9, latency <= 20, latency >= 4, memory <= 5, power >= 2"
LIMITS = tuple(map(parse_constraint, WISHES.split(",")))


def limited(*rows: tuple[float, float, float, float]) -> FrontModel:
    model = FrontModel(GOALS, LIMITS, exact=True)
    for place, row in enumerate(rows):
        values = dict(zip(("accuracy", "latency", "memory", "power"), row, strict=True))
        enter(model, named(str(place)), seen(named(str(place)).id, **values))
    return model


def test_a_violation_counts_in_deviations_of_the_candidates_or_plainly_where_they_are_alike() -> (
    None
):
    """Values are measured from those of the first candidate, turned so that higher is better."""
    model = limited((0.6, 10.0, 3.0, 4.0), (0.8, 30.0, 7.0, 4.0))
    assert [each.scaled_worths()[1] for each in model.models] == pytest.approx(
        [0.2, -20.0, -4.0, 0.0]
    )
    np.testing.assert_allclose(model.posterior_rewards()[0], [[0.6, -10.0], [0.8, -30.0]])
    held = [0.0, 0.0, 0.0, 0.0]
    values = [
        held,
        [-0.2, 0, 0, 0],
        [0.5, 0, 0, 0],
        [0, -30, 0, 0],
        [0, 8, 0, 0],
        [0, 0, -8, 0],
        [0, 0, 0, -5],
    ]
    deviations = np.array([0.0, 0.1 / 0.1, 0.2 / 0.1, 20 / 10, 2 / 10, 6 / 2, 3.0])
    assert model.constraint_excess(np.array(values)) == pytest.approx(deviations)
    assert model.constraint_excess(np.array([-0.2, -30.0, -8.0, -5.0])) == pytest.approx(
        1 + 2 + 3 + 3
    )


def test_violations_of_what_nobody_has_measured_yet_count_plainly() -> None:
    assert limited().constraint_excess(np.array([0.6, -10.0, -7.0, 1.0])) == pytest.approx(2 + 1)


def test_margins_are_those_of_95_percent_and_exact_metrics_or_unknown_ones_have_none() -> None:
    model, rng = FrontModel(GOALS), Random(1)
    for place in range(12):
        id = named(str(place % 3)).id
        enter(
            model,
            named(str(place % 3)),
            seen(id, accuracy=rng.gauss(place % 3, 1.0), latency=rng.gauss(5, 1)),
        )
    _, deviations = model.posterior_rewards()
    margins = [model.front_point(row).margins for row in range(3)]
    found = [[each["accuracy"], each["latency"]] for each in margins]
    np.testing.assert_allclose(found, 1.96 * deviations[:3], rtol=1e-3)
    broken = FrontModel(GOALS)
    enter(broken, named("broken"), Observation(named("broken").id, Status.ERROR))
    assert broken.front_point(0).margins == {}
    assert limited((0.6, 10.0, 3.0, 4.0), (0.8, 30.0, 7.0, 4.0)).front_point(0).margins == {}


def test_a_trade_off_is_chosen_by_weights_whatever_the_scales() -> None:
    members = [
        FrontPoint(str(place), {"accuracy": 0.01 * place, "latency": 1e6 * place**2})
        for place in range(11)
    ]
    picks = [
        int(nearest_to_ideal(members, GOALS, (share, 1 - share)).id)
        for share in (0.0, 0.2, 0.5, 0.8, 1.0)
    ]
    assert picks == sorted(picks) and picks[0] == 0 and picks[-1] == 10


@given(NUMBERS, NUMBERS, st.floats(0.01, 10))
def test_the_combined_score_rises_with_every_objective(
    accuracy: float, latency: float, gain: float
) -> None:
    limits = (parse_constraint("latency <= 20"),)
    before = combined_score({"accuracy": accuracy, "latency": latency}, GOALS, limits)
    assert combined_score({"accuracy": accuracy + gain, "latency": latency}, GOALS, limits) > before
    assert combined_score({"accuracy": accuracy, "latency": latency - gain}, GOALS, limits) > before


@pytest.mark.parametrize(
    "text", ["latency", "latency <= soon", "<= 3", "latency == 3", "latency <= nan", 7]
)
def test_what_is_no_constraint_is_refused(text: object) -> None:
    with pytest.raises(UserError, match="not a constraint"):
        parse_constraint(text)


@pytest.mark.parametrize(
    "given",
    [
        {"a": "up"},
        {"a": {"direction": "min", "best": 1}},
        {"a": {"unit": 0}},
        {"a": {"reference": "low"}},
    ],
)
def test_objectives_that_cannot_be_meant_are_refused(given: dict[str, object]) -> None:
    with pytest.raises(UserError):
        parse_metric_goals(given)
