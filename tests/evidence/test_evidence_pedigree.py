"""The value model: exact inference, estimates of its numbers, failures, odd scores."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest

from culmen.evidence.pedigree import FailureChances, FailureShare, ValueModel
from culmen.evidence.pedigree import tree as trees
from culmen.evidence.pedigree.inference import Marginals
from culmen.evidence.pedigree.learning import Parameters, scatter_within
from culmen.evidence.pedigree.scale import ScaledScores


def tree(
    size: int, seed: int, noise: float = 0.1, scale: float = 1.0, chain: bool = False
) -> tuple[ValueModel, list[float]]:
    """A model of `size` candidates with known truths; the first was evaluated nine times."""
    rng = Random(seed)
    model, truths = ValueModel(), [0.1 * scale]
    for _ in range(9):
        model.observe("0", truths[0] + scale * rng.gauss(0, noise))
    for i in range(1, size):
        parent = i - 1 if chain else max(rng.sample(range(i), min(i, 4)), key=lambda j: truths[j])
        truths.append(truths[parent] + scale * rng.gauss(-0.02, 0.06))
        model.add_candidate(str(i), (str(parent),))
        model.observe(str(i), truths[-1] + scale * rng.gauss(0, noise))
    return model, truths


def marginals(model: ValueModel) -> Marginals:
    """The model's inferences, by row; rows are numbers here, as all are observed in order."""
    found = model._inference.marginals()
    assert found is not None
    return found


def solved(scores: ScaledScores, known: Parameters) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of all rows, with these parameters.

    By solving the whole Gaussian at once.
    """
    precision, pull = np.zeros((scores.size, scores.size)), np.zeros(scores.size)
    s2, t2, drift = known.noise, known.step, known.drifts
    y = scores.values - known.effects[scores.cases]
    far, middle = 1 / (1e4 * (t2 + np.ptp(scores.values) ** 2)), sorted(scores.values)[len(y) // 2]
    if (
        known.root_variance > 0
    ):  # of candidates without parents that tell what to expect of one another
        far, middle = 1 / known.root_variance, known.root_mean
    weights = scatter_within(scores, known).weights
    for node, value, weight in zip(scores.rows, y, np.ones(len(y)) if weights is None else weights):
        precision[node, node] += weight / s2
        pull[node] += weight * value / s2
    for node, parent in enumerate(scores.parents):
        if parent < 0 or known.ruined[node]:
            precision[node, node] += far
            pull[node] += far * middle
            continue
        precision[node, node] += 1.0 / t2
        precision[parent, parent] += 1.0 / t2
        precision[node, parent] -= 1.0 / t2
        precision[parent, node] -= 1.0 / t2
        pull[node] += drift[parent] / t2
        pull[parent] -= drift[parent] / t2
    covariance = np.linalg.inv(precision)
    return covariance @ pull, covariance


def dense(model: ValueModel) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of every row by the same, with the model's parameters."""
    found = marginals(model)
    mean, covariance = solved(found.scores, found.parameters)
    return mean, np.diag(covariance)


@pytest.mark.parametrize(("size", "chain"), [(2, False), (40, False), (400, False), (60, True)])
def test_the_sweep_is_exact_inference(size: int, chain: bool) -> None:
    model, _ = tree(size, 1, chain=chain)
    mean, variance = dense(model)
    assert np.allclose(model.mean, mean, rtol=1e-6, atol=1e-9)
    assert np.allclose(model.variance, variance, rtol=1e-6)


def test_means_are_better_than_single_evaluations_and_deviations_are_true() -> None:
    errors, alone, inside, total = 0.0, 0.0, 0, 0
    for seed in range(20):
        model, truths = tree(150, seed)
        for i, truth in enumerate(truths):
            value = model.value_of(str(i))
            errors += (value.mean - truth) ** 2
            alone += (marginals(model).scores.values[i + 8 if i else 0] - truth) ** 2
            inside += abs(value.mean - truth) < 1.96 * value.sd
            total += 1
    assert errors < 0.6 * alone
    assert 0.90 < inside / total < 0.98


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_the_unit_of_the_score_does_not_matter(scale: float) -> None:
    (model, _), (plain, _) = tree(80, 3, scale=scale), tree(80, 3)
    for i in (0, 10, 79):
        assert model.value_of(str(i)).mean / scale == pytest.approx(
            plain.value_of(str(i)).mean, rel=1e-5
        )
        assert model.value_of(str(i)).sd / scale == pytest.approx(
            plain.value_of(str(i)).sd, rel=1e-5
        )


def test_exact_scores_are_what_was_measured() -> None:
    model, truths = tree(60, 5, noise=0.0)
    assert model.is_exact and model.noise.exact and model.noise.sd == 0.0
    for i, truth in enumerate(truths):
        assert model.value_of(str(i)).mean == pytest.approx(truth, abs=1e-6)


def test_equal_values_count_for_exactness_only_if_no_other_candidate_has_them() -> None:
    model = ValueModel()
    for name in ("a", "b", "a"):
        model.observe(name, 0.0)
    assert model.is_exact and model.confirmed_repeats == 0
    model.observe("c", 0.3)
    model.observe("c", 0.3)
    assert model.confirmed_repeats == 1
    model.observe("c", 0.31)
    assert not model.is_exact


def test_different_scores_on_different_cases_are_no_noise_of_the_evaluator() -> None:
    model = ValueModel()
    model.observe("a", 0.0, "one")
    model.observe("a", 1.0, "two")
    assert model.is_exact and not model.is_noiseless


def test_the_users_word_on_exactness_wins() -> None:
    model = ValueModel(exact=True)
    model.observe("a", 0.1)
    model.observe("a", 0.2)
    assert model.is_exact


def test_a_program_that_fails_half_of_the_time_is_worth_half() -> None:
    model = ValueModel(floor=0.0)
    for i in range(40):
        model.observe("steady", 0.8)
        model.observe("flaky", 1.0 if i % 2 else None)
    steady, flaky = model.value_of("steady"), model.value_of("flaky")
    assert flaky.mean == pytest.approx(0.5, abs=0.05) and flaky.failures == 20
    assert steady.mean == pytest.approx(0.8, abs=0.03)


def test_broken_children_do_not_lower_what_is_known_of_their_parent() -> None:
    model, _ = tree(40, 7)
    before = model.value_of("0")
    for i in range(60):
        model.add_candidate(f"x{i}", ("0",))
        model.observe(f"x{i}", None)
    after = model.value_of("0")
    assert after.mean == pytest.approx(before.mean, abs=0.02)
    assert model.child_success_chances()[0] < 0.2 and math.isnan(model.value_of("x3").mean) is False


def test_ruined_children_do_not_widen_what_the_others_are_expected_to_gain() -> None:
    """Half of the children fall to a fifth.

    A lucky score of another is still judged by the usual steps up.
    """
    for seed in range(5):
        rng, model = Random(seed), ValueModel()
        for _ in range(10):
            model.observe("parent", 1.0 + rng.gauss(0, 0.05))
        for i in range(40):
            model.add_candidate(f"{i}", ("parent",))
            model.observe(f"{i}", (0.2 if i % 2 else 1.0) + rng.gauss(0, 0.05))
        model.add_candidate("lucky", ("parent",))
        model.observe("lucky", 1.2)
        assert (
            math.sqrt(model.noise_step_variances[1]) < 0.15 and model.value_of("lucky").mean < 1.18
        )
        assert model.value_of("1").mean < 0.3 and model.value_of("parent").mean == pytest.approx(
            1.0, abs=0.05
        )
        assert model.child_success_chances()[0] == pytest.approx(
            0.5, abs=0.1
        )  # chance of a child that is sound


def test_absurdly_low_scores_are_failures() -> None:
    model, _ = tree(40, 9)
    model.add_candidate("broken", ("0",))
    before = model.value_of("5").mean
    model.observe("broken", -1e9)
    for i in range(20):  # the scale is looked at again as observations come
        model.observe("0", 0.1 + 0.01 * (i % 7))
    assert model.value_of("broken").failures == 1
    assert model.value_of("5").mean == pytest.approx(before, abs=0.1)


def test_losses_over_decades_are_told_apart_at_the_small_end() -> None:
    model = ValueModel()
    for i, loss in enumerate([1e3, 5e2, 1e2, 20, 3, 1, 0.1, 1e-2, 1e-3, 1e-4]):
        model.add_candidate(str(i), (str(i - 1),))
        model.observe(str(i), -loss)
    assert model.value_of("9").mean == pytest.approx(-1e-4, rel=0.01)
    worth = model.scaled_worths()
    assert list(np.argsort(worth)) == list(range(10))
    assert worth[9] - worth[8] > 0.2 * (worth[1] - worth[0])


def test_a_smaller_loss_than_any_before_is_better_at_once() -> None:
    model, loss = ValueModel(), 1000.0
    for i in range(40):
        model.add_candidate(str(i), (str(i - 1),))
        model.observe(str(i), -loss)
        worth = model.scaled_worths()
        assert i < 10 or worth[i] > worth[i - 1] + 0.1  # on the scale of logarithms
        loss *= 0.8


def test_effects_of_cases_are_taken_out() -> None:
    rng = Random(3)
    hard = {f"case{k}": rng.gauss(0, 0.5) for k in range(10)}
    model = ValueModel()
    for i in range(60):  # candidate i is worth i / 100; each is seen on two cases only
        for k in rng.sample(range(10), 2):
            model.observe(str(i), i / 100 + hard[f"case{k}"] + rng.gauss(0, 0.02), f"case{k}")
    means = [model.value_of(str(i)).mean for i in range(60)]
    assert np.corrcoef(means, range(60))[0, 1] > 0.9


def test_heavy_tails_do_not_move_a_mean_far() -> None:
    rng = Random(5)
    model, _ = tree(30, 11, noise=0.02)
    for _ in range(12):
        model.observe("0", 0.1 + rng.gauss(0, 0.02))
    before = model.value_of("0").mean
    model.observe("0", 3.0)
    assert abs(model.value_of("0").mean - before) < 0.05


def test_an_unknown_candidate_and_one_without_scores() -> None:
    model = ValueModel()
    with pytest.raises(KeyError):
        model.value_of("a")
    model.observe("a", None)
    assert math.isnan(model.value_of("a").mean) and model.scaled_worths()[0] == -math.inf


def test_candidates_without_parents_tell_what_to_expect_of_one_another() -> None:
    rng = Random(17)
    model, truths = ValueModel(), [rng.gauss(0, 0.05) for _ in range(60)]
    for i, truth in enumerate(truths):
        for _ in range(3 if i < 8 else 1):
            model.observe(str(i), truth + rng.gauss(0, 0.2))
    worth = model.scaled_worths()
    best = int(worth.argmax())
    assert worth[best] < 0.15  # the highest single evaluation is about 0.5
    errors = [(worth[i] - truth) ** 2 for i, truth in enumerate(truths)]
    assert sum(errors) < 60 * 0.1**2  # a single evaluation errs by 0.2


def test_children_of_unknown_parents_are_roots() -> None:
    model = ValueModel()
    model.add_candidate("a", ("never seen",))
    model.observe("a", 1.0)
    assert list(model.parents) == [-1] and model.value_of("a").mean == pytest.approx(1.0, abs=1e-3)


def test_nodes_of_great_height_are_handled_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    means = []
    for group in (1, 10_000):
        monkeypatch.setattr(trees, "GROUP", group)
        model, _ = tree(200, 13)
        means.append(model.mean)
    assert np.allclose(means[0], means[1], rtol=1e-9)


def test_the_chance_to_fail_is_as_uncertain_as_its_trials_leave_it() -> None:
    """The deviation of a Beta distribution whose mean is the share.

    It has as many trials and two more.
    """
    from scipy.stats import beta

    model = ValueModel(0.0)
    for n in range(4):
        for _ in range(3):
            model.observe(str(n), 1.0)
    for _ in range(2):
        model.observe("0", None)
    assert model.value_of("0").mean < 1.0
    scored, failed = model.scored_counts, model.failed_counts
    chances = FailureShare().chances_to_fail(scored, failed, model.mean, model.parents)
    share, sd = float(chances.mean[0]), float(chances.sd[0])
    assert 0.05 < share < 0.5
    assert sd == pytest.approx(beta(share * 7, (1 - share) * 7).std())


def test_without_a_declared_floor_one_outlier_is_not_what_failures_count_as() -> None:
    rng, model = Random(3), ValueModel()
    for i in range(60):
        model.observe(f"{i}", rng.gauss(-1.5, 0.2))
    seen = sorted(model._observations.sample_of_first(60).rewards)
    model.observe("odd", -9.0)
    assert model.failed_counts.sum() == 0.0  # it is no absurd score
    assert model.floor in seen and -2.2 < model.floor < -1.6


@pytest.mark.parametrize(("first", "floor"), [("initial", 1.2), ("other", 3.0)])
def test_a_failure_counts_as_no_more_than_the_first_initial_program(
    first: str, floor: float
) -> None:
    model = ValueModel()
    model.add_candidate("other")
    model.add_candidate(
        "child", ("initial",)
    )  # its parent is not known yet: a third candidate without one
    model.observe(first, None)  # the first with a score is meant
    scores = [("initial", 1.0), ("initial", 5.0), ("initial", 1.2), ("other", 4.0)]
    for name, score in scores if first == "initial" else reversed(scores):
        model.observe(name, score)
    for i in range(99):
        model.observe("child", 3.0 + 0.01 * (i // 10))
    assert model.floor == floor
    assert ValueModel(0.5).floor == 0.5


class Halves:
    """A model of failures in which every evaluated candidate fails half of the time.

    Give or take a tenth. `excused` failures of each candidate count against none.
    """

    def __init__(self, excused: float = 0.0) -> None:
        self.excused = excused
        self.asked: list[tuple[list[float], list[float], list[int]]] = []

    def chances_to_fail(
        self, scored: np.ndarray, failed: np.ndarray, means: np.ndarray, parents: np.ndarray
    ) -> FailureChances:
        assert len(means) == len(scored)
        self.asked.append((scored.tolist(), failed.tolist(), parents.tolist()))
        tried = scored + failed > 0
        return FailureChances(*(np.where(tried, each, 0.0) for each in (0.5, 0.1, 0.05)))

    def counted_failures(self, failed: np.ndarray) -> np.ndarray:
        return np.maximum(failed - self.excused, 0.0)


def test_another_model_of_failures_is_asked_in_the_order_of_first_observations() -> None:
    halves = Halves()
    model = ValueModel(-1.0, failing=halves)
    for name in ("late", "never", "early"):
        model.add_candidate(name, () if name == "late" else ("late",))
    model.add_candidate("of early", ("early",))
    for name, seen in (
        ("of early", 2.0),
        ("of early", 1.9),
        ("never", None),
        ("late", 1.0),
        ("never", 1.5),
    ):
        model.observe(name, seen)
    model.add_candidate("unseen", ("never",))
    worth, mean = model.scaled_worths(), model.mean
    assert halves.asked[-1] == ([1, 0, 2, 1, 0], [0, 0, 0, 1, 0], [-1, 0, 1, 0, 3])
    for name in ("late", "never", "of early"):
        node, value = model.index[name], model.value_of(name)
        assert worth[node] == pytest.approx(mean[node] - 0.5 * (mean[node] + 1.0)) == value.mean
        wanted = math.hypot(0.5 * math.sqrt(model.variance[node]), 0.1 * (mean[node] + 1.0))
        assert value.sd == pytest.approx(wanted) == model.expected_rewards()[1][node]
    assert worth[model.index["unseen"]] == worth[model.index["early"]] == -math.inf
    assert model.failing_chances.step.tolist() == [
        0.05 if name in ("late", "never", "of early") else 0.0 for name in model.ids
    ]


def test_failures_that_count_against_no_candidate_are_left_out_of_its_chances_and_counts() -> None:
    halves = Halves(excused=1.0)
    model = ValueModel(-1.0, failing=halves)
    model.add_candidate("one")
    for seen in (1.0, None, None, 2.0):
        model.observe("one", seen)
    value = model.value_of("one")
    assert (value.count, value.failures) == (2, 1)
    assert halves.asked[-1][1] == [1.0]
