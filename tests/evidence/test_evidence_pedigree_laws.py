"""The value model: its numbers by hand, in any unit, and what they do not follow from."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest

from culmen.evidence.pedigree import StepLaw, ValueModel
from culmen.evidence.pedigree.learning import Learner

from .test_evidence_pedigree import dense, marginals, tree

Filled = Callable[[float], ValueModel]


def family(seed: int, scale: float = 1.0, looks: int = 1) -> ValueModel:
    """A parent and 40 children, of which every second one falls far."""
    rng, model = Random(seed), ValueModel()
    for _ in range(10):
        model.observe("parent", scale * (0.4 + rng.gauss(0, 0.05)))
    for i in range(40):
        model.add_candidate(f"{i}", ("parent",))
        for _ in range(looks):
            model.observe(f"{i}", scale * ((-0.4 if i % 2 else 0.4) + rng.gauss(0, 0.05)))
    return model


def few_repeats(scale: float) -> ValueModel:
    """Thirty candidates in a row, the first seen twice."""
    rng, model = Random(2), ValueModel()
    for i in (0, *range(30)):
        model.add_candidate(str(i), (str(i - 1),))
        model.observe(str(i), scale * (0.05 * i + rng.gauss(0, 0.1)))
    return model


def of_cases(scale: float, effect: float = 0.5, noise: float = 0.1, seed: int = 3) -> ValueModel:
    """Forty candidates, each on 4 of 8 cases."""
    rng, model = Random(seed), ValueModel()
    hard = [rng.gauss(0, effect) for _ in range(8)]
    for i in range(40):
        for k in rng.sample(range(8), 4):
            model.observe(str(i), scale * (i / 100 + hard[k] + rng.gauss(0, noise)), str(k))
    return model


def decades(scale: float) -> ValueModel:
    """Losses that fall by a tenth, or rise by a twentieth, at every step."""
    rng, model, loss = Random(5), ValueModel(), 1000.0
    for i in range(60):
        model.add_candidate(str(i), (str(i - 1),))
        model.observe(str(i), -scale * loss)
        loss *= 0.85 if rng.random() < 0.8 else 1.05
    return model


@pytest.mark.parametrize("filled", [family, few_repeats, of_cases, decades])
@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_in_any_unit_the_same_is_believed(filled: Any, scale: float) -> None:
    args = (1,) if filled is family else ()
    plain, scaled = filled(*args, 1.0), filled(*args, scale)
    for id in plain.ids:
        assert scaled.value_of(id).mean / scale == pytest.approx(plain.value_of(id).mean, rel=1e-4)
        assert scaled.value_of(id).sd / scale == pytest.approx(plain.value_of(id).sd, rel=1e-4)


def test_a_ruined_child_that_was_seen_often_is_ruined_too() -> None:
    model = family(4, looks=3)
    assert math.sqrt(model.noise_step_variances[1]) < 0.15 and model.child_success_chances()[
        0
    ] == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize("chain", [False, True])
def test_the_sweep_is_exact_where_some_were_never_scored(chain: bool) -> None:
    rng, model = Random(7), ValueModel()
    for i in range(60):
        model.add_candidate(
            str(i), (str(i - 1 if chain else rng.randrange(max(i - 5, 0), max(i, 1))),)
        )
        if i % 3 == 0:
            model.observe(str(i), 0.01 * i + rng.gauss(0, 0.1))
    for _ in range(3):
        model.observe("0", rng.gauss(0, 0.1))
    mean, variance = dense(model)
    rows = model._observations.rows
    seen = rows >= 0  # the others take no part
    assert np.allclose(model.mean[seen], mean[rows[seen]], rtol=1e-6, atol=1e-9)
    assert np.allclose(model.variance[seen], variance[rows[seen]], rtol=1e-6)
    _, step = model.noise_step_variances
    for node in np.flatnonzero(~seen):  # they are what their parents let expect
        parent = model.parents[node]
        assert model.mean[node] == pytest.approx(model.mean[parent] + model.drift[parent])
        assert model.variance[node] == pytest.approx(model.variance[parent] + step)


@pytest.mark.parametrize("filled", [few_repeats, decades])
def test_what_is_expected_of_all_is_what_is_told_of_each(filled: Filled) -> None:
    model = filled(1.0)
    model.add_candidate("unseen", ("3",))
    means, deviations = model.expected_rewards()
    for id, mean, sd in zip(model.ids[:-1], means, deviations):
        assert (mean, sd) == pytest.approx(
            (model.value_of(id).mean, model.value_of(id).sd), rel=1e-9
        )
    assert math.isnan(means[-1]) and math.isnan(deviations[-1])


ASKED: list[Callable[[ValueModel], Any]] = [
    lambda m: m.scored_counts,
    lambda m: m.failed_counts,
    lambda m: m.value_of("2"),
    lambda m: m.scaled_worths(),
    lambda m: m.expected_rewards(),
    lambda m: m.noise,
    lambda m: m.noise_step_variances,
    lambda m: m.step_law,
    lambda m: m.drift,
    lambda m: m.child_success_chances(),
    lambda m: m.noise_degrees(),
]


@pytest.mark.parametrize("asked", ASKED)
def test_whatever_is_asked_first_is_up_to_date(asked: Callable[[ValueModel], Any]) -> None:
    fresh, settled = few_repeats(1.0), few_repeats(1.0)
    settled.scaled_worths()
    np.testing.assert_array_equal(
        np.asarray(asked(fresh), object), np.asarray(asked(settled), object)
    )


def test_the_chance_of_a_sound_child_is_by_hand_that_of_the_children_and_two_of_all() -> None:
    model = ValueModel(0.0)
    for name, parent, seen in [
        ("a", "", 1.0),
        ("b", "", 1.0),
        ("c", "a", 1.1),
        ("d", "a", None),
        ("e", "a", 0.9),
        ("f", "b", None),
        ("g", "b", None),
    ]:
        model.add_candidate(name, (parent,))
        model.observe(name, seen)
    model.add_candidate("h", ("b",))  # not evaluated yet: no trial
    share = (2 + 1) / (5 + 1)
    assert model.child_success_chances()[:3] == pytest.approx(
        [(2 + 2 * share) / 5, 2 * share / 4, share]
    )
    model.count_barren_request("b")
    model.count_barren_request("b")
    assert model.child_success_chances()[1] == pytest.approx(2 * share / 6)
    assert model.children_of("a") == ["c", "d", "e"] and model.children_of("h") == []


def test_an_uncertain_chance_to_fail_widens_a_value_down_to_the_floor() -> None:
    model = ValueModel(-1.0)
    for n, score in enumerate((0.8, 0.7, 0.9, 0.8, 0.6)):
        model.observe(str(n), score)
        model.observe(str(n), score + 0.1)
    model.observe("0", None)
    value, share = model.value_of("0"), float(model._inference.value_beliefs().failing[0])
    mean, sd = float(model.mean[0]), math.sqrt(model.variance[0])
    flaw = math.sqrt(share * (1 - share) / (3 + 3)) * (mean + 1.0)
    assert 0 < share < 0.5 and value.mean == pytest.approx(mean - share * (mean + 1.0))
    assert value.sd == pytest.approx(math.hypot((1 - share) * sd, flaw))


def test_an_absurd_score_is_a_trial_that_failed() -> None:
    model = ValueModel()
    for n in range(8):
        model.observe(str(n % 4), 0.5 + 0.01 * n)
    model.observe("0", -1e12)
    for n in range(8):
        model.observe(str(n % 4), 0.5 + 0.01 * n)
    assert (model.failed_counts[0], model.scored_counts[0]) == (1.0, 4.0)
    chances = model._inference.value_beliefs()
    share = float(chances.failing[0])
    assert chances.failing_sd[0] == pytest.approx(math.sqrt(share * (1 - share) / (5 + 3)))


def test_while_nothing_was_scored_the_floor_is_zero() -> None:
    assert ValueModel().floor == 0.0 and ValueModel(-3.0).floor == -3.0


def test_logarithms_are_told_by_the_pairs_where_both_were_scored() -> None:
    model = decades(1.0)
    model.add_candidate("failed", ("0",))
    model.observe("failed", None)
    model.add_candidate("of a failed one", ("failed",))
    model.observe("of a failed one", -3.0)
    for _ in range(30):  # the scale is looked at again as observations come
        model.observe("59", -1.0)
    assert model.step_law is not None and model.step_law.sign == -1


def test_growth_by_shares_is_told_from_growth_by_amounts() -> None:
    rng, shares, amounts = Random(1), ValueModel(), ValueModel()
    score = 1.0
    for i in range(60):
        for model, value in ((shares, score), (amounts, 10.0 + i + rng.gauss(0, 0.1))):
            model.add_candidate(str(i), (str(i - 1),))
            model.observe(str(i), value)
        score *= 1.1
    assert shares.step_law is not None and shares.step_law.sign == 1
    assert amounts.step_law is not None and amounts.step_law.sign == 0


def test_an_exact_evaluator_stays_exact_whatever_noise_an_earlier_run_had() -> None:
    model = ValueModel(exact=True, prior=StepLaw(0.3, 0.02, -0.01))
    model.observe("a", 0.1)
    model.add_candidate("b", ("a",))
    model.observe("b", 0.9)
    assert model.value_of("b").mean == pytest.approx(0.9, abs=1e-6) and model.noise.sd == 0.0


def test_candidates_without_parents_are_shrunk_to_their_mean_as_their_spread_tells() -> None:
    rng, model, seen = Random(11), ValueModel(), list[float]()
    for i in range(200):
        truth = 1.0 + rng.gauss(0, 0.2)
        scores = [truth + rng.gauss(0, 0.2) for _ in range(3)]
        seen.append(sum(scores) / 3)
        for score in scores:
            model.observe(str(i), score)
    assert math.sqrt(marginals(model).parameters.root_variance) == pytest.approx(0.2, rel=0.15)
    assert math.sqrt(model.noise_step_variances[0]) == pytest.approx(0.2, rel=0.1)
    kept = 0.2**2 / (0.2**2 + 0.2**2 / 3)
    centre = sum(seen) / 200
    for i in (0, 50, 199):
        assert model.value_of(str(i)).mean == pytest.approx(
            centre + kept * (seen[i] - centre), abs=0.04
        )


def test_one_huge_step_tells_little_of_the_others() -> None:
    def step(huge: float) -> float:
        rng, model = Random(13), ValueModel(exact=True)
        model.observe("0", 0.0)
        for i in range(1, 60):
            model.add_candidate(str(i), ("0",))
            model.observe(str(i), huge if i == 30 else rng.gauss(0, 0.1))
        return math.sqrt(model.noise_step_variances[1])

    assert 0.06 < step(0.1) < 0.14 and step(2.0) < 1.3 * step(0.1)


def test_where_most_children_are_like_their_parents_the_others_tell_what_a_step_is() -> None:
    model = ValueModel(exact=True)
    model.observe("0", 1.0)
    for i in range(1, 101):
        model.add_candidate(str(i), ("0",))
        model.observe(str(i), 1.5 if i % 20 == 0 else 0.5 if i % 20 == 10 else 1.0)
    assert math.sqrt(model.noise_step_variances[1]) == pytest.approx(0.5 * math.sqrt(0.1), rel=0.3)


def test_cases_that_do_not_differ_are_given_hardly_any_effects() -> None:
    effects = list[float]()
    for seed in range(12):
        model = of_cases(1.0, effect=0.0, noise=0.3, seed=seed)
        effects += marginals(model).parameters.effects.tolist()
    by_chance = 0.3 / math.sqrt(20)  # of the mean of twenty observations on a case
    assert math.sqrt(sum(each * each for each in effects) / len(effects)) < 0.6 * by_chance


def test_trees_of_the_size_of_a_run_are_believed_like_small_ones() -> None:
    """Arrays grow as candidates come: nothing that was known is lost."""
    model, truths = tree(300, 21)
    assert len(model) == 300 and model.evaluations == 308
    errors = [model.value_of(str(i)).mean - truth for i, truth in enumerate(truths)]
    assert float(np.std(errors)) < 0.1


def test_the_step_expected_of_a_child_is_that_of_its_siblings_and_six_of_all() -> None:
    model, _ = tree(60, 23, noise=0.02)
    found = marginals(model)
    fitted = Learner()._fit_parameters(found.parameters, found.posterior, found.scores)
    steps: dict[int, list[float]] = {}
    for node, parent in enumerate(model.parents):
        if parent >= 0 and not found.parameters.ruined[node]:
            steps.setdefault(int(parent), []).append(float(model.mean[node] - model.mean[parent]))
    every = [step for found in steps.values() for step in found]
    mean = 0.85 * sum(every) / (len(every) + 2)
    for node in range(60):
        own = steps.get(node, [])
        assert fitted.drifts[node] == pytest.approx((sum(own) + 6 * mean) / (len(own) + 6))


def test_before_anything_is_learnt_the_law_is_that_of_the_earlier_run() -> None:
    model = ValueModel(exact=False, prior=StepLaw(0.3, 0.02, -0.01))
    model.observe("a", 0.1)
    law = model.step_law
    assert law is not None and (law.step, law.drift) == pytest.approx((0.02, -0.01))
    assert law.noise == pytest.approx(0.3, rel=0.05)
