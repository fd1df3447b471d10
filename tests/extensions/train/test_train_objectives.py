"""The formulas against brute force, hand-made cases, and the identities of the paper."""

import math
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from culmen.core.errors import UserError
from culmen.extensions.train import OBJECTIVES
from culmen.extensions.train import objectives as f
from culmen.extensions.train.objectives import AdvantageRule
from tests.extensions.train.equation6 import clipped_loss

groups = st.lists(st.integers(-20, 20).map(lambda n: n / 4), min_size=1, max_size=10)


def brute_max_at_k(g, k):
    n, k = len(g), min(k, len(g))
    subsets = [s for s in combinations(range(n), k)]
    return [sum(max(g[j] for j in s) for s in subsets if i in s) / len(subsets) for i in range(n)]


def brute_sloo(g, k):
    n, k = len(g), min(k, len(g))
    if k < 2:
        return [0.0] * n
    subsets = [s for s in combinations(range(n), k)]

    def gain(s, i):
        return max(g[j] for j in s) - max(g[j] for j in s if j != i)

    return [sum(gain(s, i) for s in subsets if i in s) / len(subsets) for i in range(n)]


@given(groups, st.integers(1, 12))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_closed_forms_equal_the_sums_over_subsets(g, k):
    assert f.max_at_k(g, k) == pytest.approx(brute_max_at_k(g, k), abs=1e-12, rel=1e-12)
    assert f.sloo_weights(g, k) == pytest.approx(brute_sloo(g, k), abs=1e-12, rel=1e-12)


@given(groups, st.integers(2, 12))
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_frontier_credit_is_bounded_exact_at_the_bottom_and_sums_to_the_mean_gap(g, k):
    w, k = f.sloo_weights(g, k), min(k, len(g))
    assert (w >= 0).all()
    if k < 2:
        return
    assert all(w[i] == 0.0 for i in np.argsort(g, kind="stable")[: k - 1])
    gaps = [
        sorted(g[j] for j in s)[-1] - sorted(g[j] for j in s)[-2]
        for s in combinations(range(len(g)), k)
    ]
    assert w.sum() == pytest.approx(sum(gaps) / len(gaps), abs=1e-12)


@given(groups, st.integers(2, 6), st.floats(-1e3, 1e3), st.floats(0.01, 100))
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_frontier_credit_follows_the_scale_and_ignores_the_shift(g, k, shift, scale):
    moved = [shift + scale * x for x in g]
    assert f.sloo_weights(moved, k) == pytest.approx(
        scale * f.sloo_weights(g, k), abs=1e-8 * scale + 1e-9
    )


def test_both_estimators_are_unbiased_by_full_enumeration():
    """Three answers with probabilities p: the gradient of E[max of k] (equation 1).

    The mean is over all groups of n.
    """
    reward, logits, n, k = np.array([0.0, 1.0, 3.0]), np.array([0.3, -0.2, 0.1]), 4, 2
    p = np.exp(logits) / np.exp(logits).sum()

    def score(a):  # d log p(a) / d logits
        return np.eye(3)[a] - p

    exact = sum(
        math.prod(p[a] for a in draw) * reward[list(draw)].max() * sum(score(a) for a in draw)
        for draw in product(range(3), repeat=k)
    )
    for weights in (f.max_at_k, f.sloo_weights):
        estimate = sum(
            math.prod(p[a] for a in draw)
            * sum(w * score(a) for w, a in zip(weights(reward[list(draw)], k), draw, strict=True))
            for draw in product(range(3), repeat=n)
        )
        assert estimate == pytest.approx(exact, abs=1e-9)


def test_advantages_of_dr_grpo_are_distances_to_the_mean():
    assert f.centred_advantages([1.0, 2.0, 6.0]).tolist() == [-2.0, -1.0, 3.0]


def test_frontier_credit_of_large_rewards_keeps_small_differences():
    low = [0.0, 1.0, 3.0, 3.5, 4.0, 6.0, 7.5]
    assert f.sloo_weights([1e9 + each for each in low], 3) == pytest.approx(
        brute_sloo(low, 3), abs=1e-12
    )


def test_large_groups_stay_finite_and_exact():
    g = np.random.default_rng(1).normal(size=512)
    w = f.sloo_weights(g, 64)
    assert np.isfinite(w).all() and (np.sort(w)[: 512 - 449] == 0).all()
    assert np.isfinite(
        f.sloo_weights(np.arange(4096.0), 16)
    ).all()  # enumerating C(4096, 16) subsets would never end


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=16), st.floats(1e-6, 1e3))
@example(
    [2.0, 2.0, 2.0], 42.04
)  # their mean is off by a rounding, which the small divisor makes visible
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_theorem_1_bound_and_compression(r, delta):
    g = [2.0 + delta * x for x in r]
    for branch in (f.centred_advantages(g), f.sloo_weights(g, 4)):
        assert (f.standardised_values(branch) ** 2).sum() <= len(r) + 1e-9
    centre, spread = np.mean(g), np.std(g)
    rounding = 4 * np.spacing(np.abs(g).max()) / (spread + 1e-8)
    expected = pytest.approx((np.array(g) - centre) / (spread + 1e-8), abs=1e-6 + rounding)
    assert f.standardised_values(f.centred_advantages(g)) == expected


@given(
    st.lists(st.integers(0, 50), min_size=2, max_size=12, unique=True),
    st.floats(-100, 100),
    st.floats(0.001, 1000),
)
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_entropic_reaches_its_divergence_and_is_free_of_shift_and_scale(r, shift, scale):
    a = f.entropic_advantages(r)
    assert np.isfinite(a).all() and np.abs(a).max() <= 1e3
    assert f.entropic_advantages([shift + scale * x for x in r]) == pytest.approx(
        a, abs=1e-6, rel=1e-6
    )
    g = np.array(r, float)
    below = (g - g.max()) / np.ptp(g)
    beta = f._inverse_temperature(below, math.log(2))
    goal = min(math.log(2), 0.9 * math.log(len(r)))
    assert f._tilted_divergence(below, beta) == pytest.approx(goal, abs=1e-8)


@pytest.mark.parametrize("r", [[0, 1], [1, 1, 0, 0], [0, 0, 0, 1e-9], [1e6, 0, 3], [2.0, 2.0, 1.0]])
def test_entropic_stays_finite_where_the_divergence_cannot_be_reached(r):
    a = f.entropic_advantages(r)
    assert np.isfinite(a).all() and np.abs(a).max() < 1e3 and a[np.argmax(r)] > 0


@pytest.mark.parametrize(
    ("r", "gamma"), [([0, 1, 5], math.log(2)), ([0, 1, 5], 0.01), ([3, 3, 1, 0], math.log(2))]
)
def test_the_tilted_distribution_is_gamma_from_uniform_or_nine_tenths_of_what_ties_allow(r, gamma):
    below = (np.array(r, float) - max(r)) / np.ptp(r)
    tilted = np.exp(f._inverse_temperature(below, gamma) * below)
    entropy = pytest.importorskip("scipy.stats", reason="scipy is not installed").entropy
    away = entropy(tilted / tilted.sum(), np.full(len(r), 1 / len(r)))
    assert away == pytest.approx(min(gamma, 0.9 * math.log(len(r) / r.count(max(r)))), abs=1e-8)


def test_a_given_tilt_is_in_units_of_the_rewards_and_its_advantage_never_beyond_10_to_the_12():
    assert f.entropic_advantages([1, 3], beta=0.5) == pytest.approx(
        [math.exp(-1) - 1, math.exp(1) - 1], rel=1e-9
    )
    assert f.entropic_advantages([0, 1], beta=100.0)[1] == pytest.approx(1e12)


def test_rewards_that_differ_by_no_more_than_rounding_are_nearly_a_tie():
    _, second, first = f.entropic_advantages([0.0, 1.0 - 1e-14, 1.0])
    assert second == pytest.approx(first, rel=0.1)


def test_entropic_of_nothing_to_tell_apart_is_zero():
    assert f.entropic_advantages([3, 3, 3]).tolist() == [0, 0, 0] and f.entropic_advantages(
        [7]
    ).tolist() == [0]
    assert f.entropic_advantages([0, 1], beta=2.0) == pytest.approx(
        [math.exp(-2) - 1, math.exp(2) - 1], rel=1e-9
    )


@pytest.mark.parametrize(
    ("score", "reward"),
    [
        (0.0, 0.0),
        (1.0, 5.0),
        (0.5, 2.5),
        (7.0, 5.0),
        (-3.0, 0.0),
        (1, 5.0),
        (None, -1.0),
        ("0.5", -1.0),
        (math.nan, -1.0),
        (math.inf, -1.0),
        (-math.inf, -1.0),
        (True, -1.0),
        ([], -1.0),
    ],
)
def test_shaping(score, reward):
    assert f.progress_reward(score, 0, 1) == reward


def test_shaping_of_minimised_scores_powers_and_bad_bounds():
    assert f.progress_reward(2.0, 1.0, 5.0, maximise=False) == 5.0 * 0.75
    assert f.progress_reward(0.5, 0, 1, scale=3.0, power=2.0) == 0.75
    assert f.progress_reward(4.0, 2.0, 10.0, scale=0.5) == 0.125
    for low, high, scale, power in [
        (1, 1, 5, 1),
        (2, 1, 5, 1),
        (0, 1, 0, 1),
        (0, 1, 5, 0),
        (0, math.inf, 5, 1),
        (-1e308, 1e308, 5, 1),
    ]:
        with pytest.raises(ValueError, match="low < high"):
            f.progress_reward(0.5, low, high, scale=scale, power=power)


def test_mix_at_its_ends_and_its_spread():
    r = [0.1, 2.0, 2.1, 4.9, 0.0, 3.0]
    group, frontier = f.centred_advantages(r), f.sloo_weights(r, 3)
    assert f.mixed_advantages(group, frontier, 0.0) == pytest.approx(f.standardised_values(group))
    assert f.mixed_advantages(group, frontier, 1.0) == pytest.approx(
        f.standardised_values(frontier)
    )
    half = f.mixed_advantages(group, frontier, 0.5)
    assert half.mean() == pytest.approx(0, abs=1e-12) and 0.5 < half.std() <= 1.0
    with pytest.raises(ValueError, match="alpha"):
        f.mixed_advantages(group, frontier, 1.5)


def test_phase_is_linear_and_clamped():
    assert [f.mixing_weight(t, 5) for t in range(6)] == [0, 0.25, 0.5, 0.75, 1, 1]
    assert [f.mixing_weight(t, 2) for t in range(2)] == [0, 1]
    assert f.mixing_weight(0, 1) == f.mixing_weight(3, 0) == 0.0


def test_asymmetric_clip_by_hand_on_both_sides():
    old = np.zeros((1, 4))
    new = np.log([[1.5, 0.5, 1.5, 0.5]])
    mask = np.ones((1, 4))
    up = clipped_loss(new, old, [2.0], mask)
    assert up == pytest.approx(-np.mean([1.28 * 2, 0.5 * 2, 1.28 * 2, 0.5 * 2]))
    down = clipped_loss(new, old, [-2.0], mask)
    assert down == pytest.approx(-np.mean([1.5 * -2, 0.8 * -2, 1.5 * -2, 0.8 * -2]))


def test_the_ratio_is_that_of_the_new_policy_to_the_old_one():
    new, old = np.log([[0.33, 0.09]]), np.log([[0.3, 0.1]])
    assert clipped_loss(new, old, [1.0], np.ones((1, 2))) == pytest.approx(-(1.1 + 0.9) / 2)


def test_a_response_without_a_token_does_not_count():
    new = old = np.zeros((2, 2))
    mask = np.array([[1, 1], [0, 0]])
    assert clipped_loss(new, old, [2.0, -7.0], mask, aggregate="seq_mean") == pytest.approx(-2.0)
    assert clipped_loss(new, old, [2.0, -7.0], mask * 0, aggregate="seq_mean") == 0.0


def test_masked_tokens_do_no_harm_whatever_they_hold():
    new = np.array([[0.1, np.nan], [0.2, np.inf]])
    old = np.array([[0.0, 1.0], [0.0, np.nan]])
    mask = np.array([[1, 0], [1, 0]])
    clean = clipped_loss(new[:, :1], old[:, :1], [1.0, -1.0], mask[:, :1])
    assert clipped_loss(new, old, [1.0, -1.0], mask) == pytest.approx(clean)
    assert clipped_loss(new, old, [1.0, -1.0], mask * 0) == 0.0


def test_aggregations_differ_as_stated():
    new = old = np.zeros((2, 3))
    mask = np.array([[1, 1, 1], [1, 0, 0]])
    assert clipped_loss(new, old, [1.0, -1.0], mask) == pytest.approx(-0.5)
    assert clipped_loss(new, old, [1.0, -1.0], mask, aggregate="seq_mean") == pytest.approx(0.0)
    with pytest.raises(ValueError, match="aggregate"):
        clipped_loss(new, old, [1.0, -1.0], mask, aggregate="sum")


@pytest.mark.parametrize("bad", [[], [[1.0, 2.0]], [1.0, math.nan], [math.inf]])
def test_what_is_no_group_is_refused(bad):
    with pytest.raises(ValueError, match="group"):
        f.centred_advantages(bad)


@pytest.mark.parametrize("objective", [o for o in OBJECTIVES if o != "none"])
def test_every_objective_prefers_the_better_and_skips_a_constant_group(objective):
    signal = AdvantageRule(objective, k=2).training_signal([0.0, 1.0, 2.0, 5.0], 0.5)
    assert not signal.skip and signal.advantages[3] == max(signal.advantages) > 0
    assert (
        AdvantageRule(objective).training_signal([2.0, 2.0, 2.0], 0.5).skip.endswith("_collapsed")
    )


def test_skips_are_named():
    credit = AdvantageRule("phase_adaptive", k=4)
    assert AdvantageRule("none").training_signal([1, 2], 0).skip == "not_training"
    assert credit.training_signal([1.0], 0).skip == "group_too_small"
    assert credit.training_signal([1.0, math.nan], 0).skip == "rewards_not_finite"
    assert credit.training_signal([1.0, 1.0 + 1e-9], 0.0).skip == "group_collapsed"
    assert credit.training_signal([5.0, 5.0, 5.0, 5.0, 1.0], 1.0).skip == "frontier_collapsed"
    assert (
        credit.training_signal([5.0, 5.0, 5.0, 5.0, 1.0], 0.0).skip == ""
    )  # that branch is not active yet
    assert (
        AdvantageRule("grpo", noise=0.5).training_signal([1.0, 1.2, 1.1], 0).skip
        == "rewards_collapsed"
    )
    with pytest.raises(UserError, match="no objective"):
        AdvantageRule("ppo")


def test_a_signal_tells_its_weight_and_the_spreads_of_the_branches_that_are_active():
    rewards = [0.0, 1.0, 2.0, 5.0, 7.0]
    told = {}
    for objective, alpha in [
        ("phase_adaptive", 0.0),
        ("phase_adaptive", 0.5),
        ("phase_adaptive", 1.0),
        ("pkpo", 0.5),
        ("max_at_k", 0.5),
        ("grpo", 0.5),
    ]:
        signal = AdvantageRule(objective).training_signal(rewards, alpha)
        told[objective, alpha] = signal.alpha, [name for name, _ in signal.spreads]
    group, frontier = ["rewards", "group"], ["rewards", "frontier"]
    assert told == {
        ("phase_adaptive", 0.0): (0.0, group),
        ("phase_adaptive", 0.5): (0.5, [*group, "frontier"]),
        ("phase_adaptive", 1.0): (1.0, frontier),
        ("pkpo", 0.5): (1.0, frontier),
        ("max_at_k", 0.5): (1.0, frontier),
        ("grpo", 0.5): (0.0, group),
    }
    assert AdvantageRule("none").training_signal(rewards, 0.5).alpha == 0.0


def test_a_spread_at_the_floor_is_not_below_it():
    assert not f.is_collapsed([0.0, 2.0], floor=1.0) and f.is_collapsed([0.0, 2.0], floor=1.001)


def test_the_numbers_of_the_papers_are_the_defaults():
    rewards = [0.0, 1.0, 2.0, 5.0, 7.0, 7.5]
    assert AdvantageRule("pkpo").training_signal(rewards, 1.0).advantages == pytest.approx(
        f.sloo_weights(rewards, 4)
    )
    ln_2 = f.entropic_advantages(rewards, math.log(2))
    assert f.entropic_advantages(rewards) == pytest.approx(ln_2)
    assert AdvantageRule("entropic").training_signal(rewards, 0.0).advantages == pytest.approx(ln_2)
    assert f.is_collapsed([0.0, 1.9e-6]) and not f.is_collapsed([0.0, 2.1e-6])
