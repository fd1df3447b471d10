"""Knowledge gradient."""

from __future__ import annotations

import numpy as np
import pytest

from culmen.strategies.memory.gain import (
    expected_gain,
    expected_gains_of_best,
    largest_gains,
    largest_indices,
)


@pytest.mark.parametrize("k", [1, 2, 4, 8])
@pytest.mark.parametrize(("gap", "deviation"), [(0.0, 1.0), (0.5, 0.3), (-0.4, 0.2), (2.0, 1.0)])
def test_gains_are_expectations(k: int, gap: float, deviation: float) -> None:
    draws = np.random.default_rng(k).normal(-gap, deviation, (400_000, k)).max(axis=1)
    expected = np.maximum(draws, 0.0)
    found = expected_gains_of_best(np.array([gap]), np.array([deviation]), k)[-1][0]
    assert found == pytest.approx(expected.mean(), abs=5 * expected.std() / 632 + 2e-4 * deviation)


def test_a_sure_belief_gains_only_what_it_lies_above() -> None:
    found = expected_gain(np.array([0.3, -0.3, np.inf]), np.array([0.0, 0.0, 1.0]))
    assert found == pytest.approx([0.0, 0.3, 0.0], abs=1e-12)


@pytest.mark.parametrize("k", [1, 4])
def test_the_best_of_k_sure_beliefs_gains_what_they_lie_above(k: int) -> None:
    assert expected_gains_of_best(np.array([0.3, -0.3]), np.zeros(2), k)[-1].tolist() == [0.0, 0.3]


@pytest.mark.parametrize(("gap", "gained"), [(-6.0, 6.0 + 1.02937537), (20.0, 0.0)])
def test_beyond_the_table_the_best_of_four_gains_the_whole_gap_or_nothing(
    gap: float, gained: float
) -> None:
    assert expected_gains_of_best(np.array([gap]), np.array([1.0]), 4)[-1] == pytest.approx(
        [gained], abs=1e-4
    )


def test_largest_prefers_the_first_of_equals() -> None:
    assert largest_indices(np.array([1.0, 3.0, 2.0, 3.0, 0.0]), 3) == [1, 3, 2]
    assert largest_indices(np.array([1.0]), 3) == [0]


@pytest.mark.parametrize("size", [3, 1000, 4000])
@pytest.mark.parametrize("seed", range(6))
def test_a_bound_rules_out_none_of_the_largest_gains(size: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    gap = rng.exponential(1.0, size) - (0.5 if seed % 2 else 0.0)
    deviation = rng.exponential(0.2, size) * (rng.random(size) > 0.1 * (seed % 3))
    gap[rng.random(size) < 0.2] = np.inf
    if seed > 3:  # many equal ones
        gap, deviation = gap.round(1), deviation.round(1)
    weights = rng.random(size)
    for weigh in (None, weights):
        every = expected_gain(gap, deviation) * (1.0 if weigh is None else weigh)
        top, gains = largest_gains(gap, deviation, 25, weigh)
        assert top == largest_indices(every, 25)
        assert gains.tolist() == every[top].tolist(), "to the digit"


def test_far_below_the_level_the_best_of_k_gains_the_whole_gap_and_the_best_draw() -> None:
    of_four = 1.02937537  # the mean of the largest of four standard normals
    assert expected_gains_of_best(np.array([-40.0]), np.array([2.0]), 4)[-1] == pytest.approx(
        [40.0 + 2.0 * of_four], rel=1e-3
    )
