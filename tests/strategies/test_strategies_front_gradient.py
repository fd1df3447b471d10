"""The next step of a search for a front: how far points reach, and its gains.

The reach by hand, the gains against sums over all draws.
"""

from __future__ import annotations

import math
from random import Random

import msgspec
import numpy as np
import pytest

from culmen.core.candidate import Candidate
from culmen.core.evaluation import Observation, Status
from culmen.core.task import parse_constraint, parse_metric_goals
from culmen.evidence.front import FrontModel
from culmen.strategies.costs import Costs
from culmen.strategies.front_gradient import FrontGradient, _draw_directions, _Sight  # pyright: ignore[reportPrivateUsage]
from tests.evidence.facts import enter

from .test_strategies_pedigree import Left

GOALS = parse_metric_goals({"accuracy": "max", "latency": "min"})


def named(text: str, *parents: str) -> Candidate:
    return Candidate.of({"p": text}, tuple(named(parent).id for parent in parents))


def seen(text: str, accuracy: float, latency: float) -> Observation:
    return Observation(
        named(text).id, Status.OK, 0.0, metrics={"accuracy": accuracy, "latency": latency}
    )


def gradient(
    exact: bool | None = True, left: dict[str, float] | None = None, limit: str = "", cases: int = 1
) -> FrontGradient:
    costs = Costs(Left(**({"evaluations": 100.0} if left is None else left)))  # type: ignore[arg-type]
    held = (parse_constraint(limit),) if limit else ()
    return FrontGradient(FrontModel(GOALS, held, exact), costs, cases, 8, Random(1))


def run(one: FrontGradient, noise: float = 0.1, seed: int = 3, broken: int = 0) -> FrontGradient:
    """Thirty candidates of which the first was seen twelve times, and some that are broken."""
    rng = Random(seed)
    for i in range(30):
        parents = (str(rng.randrange(max(i - 4, 0), i)),) if i else ()
        for _ in range(1 if i else 12):
            accuracy, latency = 0.03 * i + rng.gauss(0, 0.2), 5.0 + 0.03 * i + rng.gauss(0, 0.2)
            enter(
                one.front,
                named(str(i), *parents),
                seen(str(i), accuracy + rng.gauss(0, noise), latency + rng.gauss(0, noise)),
            )
    for i in range(broken):
        text = f"broken {i}"
        enter(one.front, named(text, str(i % 30)), Observation(named(text).id, Status.ERROR))
    return one


def reach(one: FrontGradient, sight: _Sight, point: np.ndarray) -> np.ndarray:
    """The least share of a direction that a point passes the origin by, for each direction."""
    held = point[: len(sight.origin)] - sight.origin
    return np.array([min(each / unit for each, unit in zip(held, units)) for units in sight.units])


def children(one: FrontGradient, sight: _Sight) -> list[tuple[float, str, int]]:
    """Gains per share expected of one to four children of each, over the draws of a look."""
    rates = list[tuple[float, str, int]]()
    best, models = sight.reached.max(axis=0), one.front.models
    for place, node in enumerate(sight.rows):
        wide = [
            sight.variances[place, m] + model.noise_step_variances[1]
            for m, model in enumerate(models)
        ]
        after = [
            each / math.sqrt(each + model.noise_step_variances[0])
            for each, model in zip(wide, models)
        ]
        middle = sight.means[place] + [model.drift[node] for model in models]
        drawn = np.array([reach(one, sight, middle + after * normals) for normals in sight.normals])
        weight = one.model.child_success_chances()[node] / (
            1 + 0.3 * one.flying.children.get(node, 0)
        )
        for k in range(1, 5):  # of up to eight: the draws are shared out among four
            groups = [drawn[i : i + k].max(axis=0) for i in range(0, len(drawn), k)]
            gain = float(np.mean([np.maximum(group - best, 0) for group in groups])) * weight
            rates.append((gain / one.costs.request_share(k), one.front.ids[node], k))
    return rates


def repeats(one: FrontGradient, sight: _Sight) -> list[tuple[float, str]]:
    """Half of the gain per share that another evaluation of each is expected to add."""
    rates = list[tuple[float, str]]()
    noise = np.array([model.noise_step_variances[0] for model in one.front.models])
    for place, node in enumerate(sight.rows):
        variance = 1 / (1 / sight.variances[place] + one.flying.repeats.get(node, 0) / noise)
        after = variance / np.sqrt(variance + noise)
        others = np.delete(sight.reached, place, axis=0).max(axis=0)
        now = sight.reached.max(axis=0)
        drawn = [
            reach(one, sight, sight.means[place] + after * normals) for normals in sight.normals
        ]
        gain = float(np.mean([np.maximum(each, others) - now for each in drawn]))
        rates.append((0.5 * gain / (one.costs.evaluation_share() or 1.0), one.front.ids[node]))
    return rates


@pytest.mark.slow
@pytest.mark.parametrize(
    "left", [{"evaluations": 50.0}, {"evaluations": 500.0, "calls": 5.0}, {"calls": 5.0}, {}]
)
@pytest.mark.parametrize(("seed", "broken"), [(3, 0), (4, 0), (4, 300)])
def test_a_decision_is_the_largest_gain_of_the_draws_per_share(
    left: dict[str, float], seed: int, broken: int
) -> None:
    one = run(gradient(False, left), 0.1, seed, broken)
    for _ in range(6):
        state = one.rng.getstate()
        sight = one.sampler.draw_samples(one.front.front_rows())
        one.rng.setstate(state)
        again, more = max(repeats(one, sight)), max(children(one, sight), key=lambda each: each[0])
        assert one._weigh_front_repeats(sight).best_option()[0] == pytest.approx(again[0])
        move = one.decide().move
        if again[0] > more[0]:
            assert (move.gain, move.again) == (pytest.approx(again[0]), again[1])
        else:
            assert (move.gain, move.parent, move.k) == (pytest.approx(more[0]), *more[1:])
        one.begin_move(move)


def test_a_look_sees_the_front_and_others_that_reach_far_on_the_models_scale() -> None:
    one = run(gradient(False))
    front = one.front.front_rows()
    sight = one.sampler.draw_samples(front)
    means = np.column_stack([model.scaled_worths() for model in one.front.models])
    edge = means[front]
    assert sight.rows[: len(front)] == front and len(set(sight.rows)) == len(sight.rows) == 30
    assert sight.means.tolist() == means[sight.rows].tolist()
    assert sight.origin == pytest.approx(edge.min(axis=0) - 0.1 * np.ptp(edge, axis=0))
    assert sight.reached == pytest.approx(
        np.array([reach(one, sight, point) for point in sight.means])
    )
    assert sight.normals.shape == (24, 2) and sight.normals[::2] == pytest.approx(
        -sight.normals[1::2]
    )
    sizes = np.linalg.norm(sight.units / np.ptp(edge, axis=0), axis=1)
    assert sizes == pytest.approx(np.ones(24), abs=1e-3)
    draws = np.concatenate([one.sampler.draw_samples(front).normals for _ in range(40)])
    assert (draws**2).mean(axis=0) == pytest.approx([1.0, 1.0], abs=0.2)


def test_of_many_candidates_forty_and_the_front_are_looked_at() -> None:
    one = gradient()
    for i in range(60):
        enter(one.front, named(str(i)), seen(str(i), float(i), 5.0))
    assert len(one.sampler.draw_samples(one.front.front_rows()).rows) == 40
    assert one.sampler.draw_samples(one.front.front_rows()).rows == list(range(59, 19, -1))


def test_two_objectives_are_weighed_in_directions_spread_evenly_and_three_anyhow() -> None:
    angles = [math.atan2(y, x) / (math.pi / 2) * 24 for x, y in _draw_directions(2, Random(1))]
    assert [int(angle) for angle in angles[1:-1]] == list(range(1, 23)) and len(
        {a % 1 for a in angles}
    ) > 20
    three = _draw_directions(3, Random(1))
    assert three.shape == (24, 3) and three.min() >= 0.02
    assert np.linalg.norm(three, axis=1) == pytest.approx(np.ones(24), abs=1e-3)
    assert min(_draw_directions(2, Random(seed)).min() for seed in range(40)) == 0.02


def test_directions_of_three_objectives_are_uniform_on_the_sphere() -> None:
    """A coordinate is then uniform between 0 and 1 (Archimedes)."""
    rng = Random(1)
    many = np.concatenate([_draw_directions(3, rng) for _ in range(400)])
    for level in (0.25, 0.5, 0.75):
        assert float((many < level).mean()) == pytest.approx(level, abs=0.015)


def test_what_violates_a_constraint_reaches_below_all_that_does_not() -> None:
    one = gradient(limit="latency <= 20")
    for text, accuracy, latency in (
        ("a", 0.2, 10.0),
        ("b", 0.6, 15.0),
        ("wild", 0.9, 30.0),
        ("wilder", 0.9, 40.0),
    ):
        enter(one.front, named(text), seen(text, accuracy, latency))
    worth = np.column_stack([model.scaled_worths() for model in one.front.models])
    origin, units = np.array([worth[0, 0], worth[1, 1]]), np.array([[1.0, 1.0], [0.01, 1.0]])
    reached, excess = (
        one.sampler.direction_reach(worth, origin, units),
        one.front.constraint_excess(worth),
    )
    assert reached[1] == pytest.approx([0.0, 0.0], abs=1e-6)
    assert one.sampler.direction_reach(worth[:1] - [9.0, 0.0], origin, units).tolist() == [
        [-3.0, -3.0]
    ]  # no farther down
    for row in (2, 3):
        assert excess[row] > 0 and reached[row] == pytest.approx([-3.0 - excess[row]] * 2)


@pytest.mark.parametrize("slope", [-1.0, 0.5])
def test_what_steps_gain_in_one_and_lose_in_another_is_drawn_so_as_many_steps_tell(
    slope: float,
) -> None:
    """Nineteen steps whose metrics go together wholly, and eight that count for none."""
    one, rng = gradient(), Random(1)
    for i in range(20):
        gain = rng.gauss(0, 1)
        enter(one.front, named(str(i), *(["0"] if i else [])), seen(str(i), gain, -slope * gain))
    means = np.column_stack([model.scaled_worths() for model in one.front.models])
    factor = one.sampler._correlation_factor(means)
    known = math.copysign(19 / (19 + 8), slope)
    assert factor @ factor.T == pytest.approx(np.array([[1.0, known], [known, 1.0]]), abs=1e-6)
    means[:, 1] = 5.0  # what never changes goes with nothing
    assert one.sampler._correlation_factor(means) == pytest.approx(np.eye(2))


def test_a_request_is_told_what_is_wanted_and_at_most_four_of_the_front() -> None:
    one = gradient()
    for i in range(9):
        enter(one.front, named(str(i)), seen(str(i), 1.0 + i, 10.0 + 2 * i))
    front = one.front.front_rows()
    said = one._focus_text(np.array([4.0, 24.0]), front)
    assert said == (
        "This request weighs the objectives so: accuracy 25%, latency 75%. Best trade-offs known (means): "
        "accuracy 1, latency 10; accuracy 4, latency 16; accuracy 7, latency 22."
    )


def test_leaders_are_of_the_front_alone() -> None:
    one = gradient()
    assert one.decide().move.parent == ""
    for i, (accuracy, latency) in enumerate([(0.1, 10.0), (0.9, 20.0), (0.05, 30.0)]):
        enter(one.front, named(str(i)), seen(str(i), accuracy, latency))
    front = [named("0").id, named("1").id]
    assert sorted(one.leader_ids(5)) == sorted(front) and len(one.leader_ids(1)) == 1
    assert {tuple(one.leader_ids(2)) for _ in range(20)} == {
        (a, b) for a in front for b in front if a != b
    }
    assert one.decide().move.parent in one.leader_ids(5)


def test_while_nothing_was_scored_children_are_asked_of_the_first() -> None:
    one = gradient()
    enter(one.front, named("broken"), Observation(named("broken").id, Status.ERROR))
    assert one.decide().move.parent == named("broken").id


def test_members_of_the_front_are_looked_at_again_while_exactness_is_a_hypothesis() -> None:
    one = gradient(None)
    enter(one.front, named("a"), seen("a", 0.5, 5.0))
    assert one.decide().move.again == named("a").id
    enter(one.front, named("a"), seen("a", 0.5, 5.0))
    assert one.decide().move.parent == named("a").id


def test_what_was_seen_exactly_on_every_case_is_not_looked_at_again() -> None:
    one = gradient(True, {"evaluations": 1e6, "calls": 1.0}, cases=2)
    for text, accuracy in (("a", 0.5), ("b", 0.6)):
        for case in ("x", "y"):
            found = seen(text, accuracy + 0.2 * (case == "y") * (text == "a"), 5.0 + accuracy)
            enter(one.front, named(text), msgspec.structs.replace(found, case=case))
    assert one.decide().move.parent
