"""The paper's statements about its formulas, to the last digits that float64 allows."""

from __future__ import annotations

import math
from itertools import combinations
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from culmen.extensions.train import objectives as f
from culmen.extensions.train.objectives import AdvantageRule
from tests.extensions.train.equation6 import clipped_loss

profiles = st.lists(st.integers(-50, 50), min_size=4, max_size=12, unique=True)


def subsets(g: list[float], k: int) -> tuple[list[float], list[float]]:
    """PKPO's and SLOO's weights by equations 2 and 3 as they are written."""
    n, held, added = len(g), [0.0] * len(g), [0.0] * len(g)
    for chosen in combinations(range(n), k):
        for i in chosen:
            rest = [g[b] for b in chosen if b != i]
            held[i] += max(g[j] for j in chosen)
            added[i] += max(g[j] for j in chosen) - max(rest) if rest else 0.0
    count = math.comb(n, k)
    return [w / count for w in held], [w / count for w in added]


@pytest.mark.parametrize("n", range(1, 13))
def test_closed_forms_equal_brute_force_for_every_k(n: int):
    chance = Random(n)
    for g in (
        [chance.uniform(-5, 5) for _ in range(n)],
        [float(chance.randrange(3)) for _ in range(n)],  # ties
        [4.999 + 1e-9 * chance.random() for _ in range(n)],  # nearly equal
    ):
        for k in range(1, n + 1):
            held, added = subsets(g, k)
            assert np.abs(f.max_at_k(g, k) - held).max() <= 1e-12
            assert np.abs(f.sloo_weights(g, k) - added).max() <= 1e-12


@given(profiles, st.integers(2, 4), st.floats(-10, 10), st.floats(1e-9, 1e3))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_theorem_1(r: list[int], k: int, c: float, delta: float):
    """Equations 7 to 10, the standardised forms of both branches, and the bound on their norms."""
    base, n = np.array(r, float), len(r)
    g, rounding = c + delta * base, 1e-13 * (abs(c) + delta * 50) * n
    centred, frontier, unit = f.centred_advantages(g), f.sloo_weights(g, k), f.sloo_weights(base, k)
    assert centred == pytest.approx(delta * (base - base.mean()), abs=rounding)  # 7
    assert (centred**2).sum() == pytest.approx(
        n * delta**2 * base.var(), rel=1e-6, abs=n * rounding**2 + 1e-30
    ) or (rounding > 1e-3 * delta * base.std())  # 8
    assert frontier == pytest.approx(delta * unit, abs=rounding)  # 9
    assert np.linalg.norm(frontier) == pytest.approx(
        delta * np.linalg.norm(unit), abs=n * rounding
    )  # 10
    for branch, spread, centre in (
        (centred, base.std(), base - base.mean()),
        (frontier, unit.std(), unit - unit.mean()),
    ):
        phi = f.standardised_values(branch)
        assert phi == pytest.approx(
            delta * centre / (delta * spread + f.EPS_NUM), abs=4 * rounding / f.EPS_NUM
        )
        assert (phi**2).sum() <= n * (1 + 1e-12)
        assert (
            (f.standardised_values(branch, eps=0.0) if branch.std() else phi) ** 2
        ).sum() <= n * (1 + 1e-9)


def test_theorem_1_in_both_regimes():
    """Far above eps_num the z-scores, far below it nothing; and the skip fires in between."""
    r = np.array([0.3, 2.0, 1.1, 4.2, 3.3, 0.9, 2.7, 1.9])
    for branch in (f.centred_advantages(r), f.sloo_weights(r, 4)):
        z = (branch - branch.mean()) / branch.std()
        assert f.standardised_values(branch) == pytest.approx(z, abs=1e-6)
        norms = [(f.standardised_values(branch * d) ** 2).sum() for d in (1.0, 1e-6, 1e-9, 1e-12)]
        assert (
            norms[0] == pytest.approx(8, abs=1e-6) and norms[0] > norms[1] > 6 > norms[2] > norms[3]
        )
        assert norms[3] < 1e-6 and [f.is_collapsed(branch * d) for d in (1.0, 1e-9)] == [
            False,
            True,
        ]


@given(profiles, st.integers(2, 4), st.floats(0.01, 100))
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_frontier_credit_keeps_the_order_and_gives_the_lowest_nothing(
    r: list[int], k: int, delta: float
):
    w = f.standardised_values(f.sloo_weights([7.0 + delta * x for x in r], k))[np.argsort(r)]
    assert (
        (np.diff(w) >= -1e-9).all()
        and w[: k - 1] == pytest.approx(w[0], abs=0)
        and w[-1] == w.max()
    )


@pytest.mark.parametrize("n", range(2, 17))
def test_entropic_is_finite_exact_and_free_of_scale(n: int):
    chance = Random(n)
    r = [chance.uniform(0, 5) for _ in range(n)]
    expected = f.entropic_advantages(r)
    for scale in (1e-9, 1e-3, 1.0, 1e6):
        assert np.abs(f.entropic_advantages([scale * x for x in r]) - expected).max() <= 1e-9
    assert np.abs(f.entropic_advantages([x + 3.0 for x in r]) - expected).max() <= 1e-9
    for group in (
        r,
        [0.0] * (n - 1) + [1e-9],
        [1e6] + [0.0] * (n - 1),
        [1.0] * (n // 2) + [0.0] * (n - n // 2),
    ):
        a = f.entropic_advantages(group)
        assert np.isfinite(a).all() and np.abs(a).max() <= 1e3
    if n > 2:  # ln 2 nats can be reached
        q = np.exp(
            f._inverse_temperature((np.array(r) - max(r)) / np.ptp(r), math.log(2))
            * (np.array(r) - max(r))
            / np.ptp(r)
        )
        q /= q.sum()
        assert float((q * np.log(q * n)).sum()) == pytest.approx(math.log(2), abs=1e-8)


def test_small_groups_and_large_k():
    assert f.sloo_weights([1.0, 2.0], 9) == pytest.approx(
        f.sloo_weights([1.0, 2.0], 2)
    ) and f.sloo_weights([1.0], 4).tolist() == [0.0]
    assert f.max_at_k([1.0, 4.0], 9).tolist() == [4.0, 4.0]
    credit = AdvantageRule("phase_adaptive", k=9)
    assert not credit.training_signal([1.0, 2.0, 5.0], 0.5).skip
    assert credit.training_signal([1.0, 2.0, math.inf], 0.5).skip == "rewards_not_finite"
    for alpha, name in ((0.0, "group"), (1.0, "frontier")):
        told = AdvantageRule("phase_adaptive", k=3).training_signal([0.5, 1.0, 4.0, 2.0], alpha)
        assert [spread for spread, _ in told.spreads] == ["rewards", name] and told.alpha == alpha


def test_aggregations_can_stand_for_one_another():
    """Engines that average by sequence or add tokens up give the token mean.

    They do if advantages are scaled for it.
    """
    chance = np.random.default_rng(3)
    new, old = chance.normal(-1, 0.3, (5, 7)), chance.normal(-1, 0.3, (5, 7))
    lengths = np.array([7, 3, 1, 5, 2])
    mask, a = np.arange(7) < lengths[:, None], chance.normal(size=5)
    wanted = clipped_loss(new, old, a, mask)
    by_sequence = clipped_loss(
        new, old, a * lengths * 5 / lengths.sum(), mask, aggregate="seq_mean"
    )
    token_sum = clipped_loss(new, old, a / lengths.sum(), mask) * lengths.sum()
    assert by_sequence == pytest.approx(wanted, abs=1e-12) and token_sum == pytest.approx(
        wanted, abs=1e-12
    )


def test_noise_raises_the_floor():
    """Rewards that differ by less than repeated evaluations do are nothing to learn from."""
    rewards = [4.95, 4.99, 4.97, 4.93]
    assert not AdvantageRule("grpo").training_signal(rewards, 0.0).skip
    assert (
        AdvantageRule("grpo", noise=0.05).training_signal(rewards, 0.0).skip == "rewards_collapsed"
    )
