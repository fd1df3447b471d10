"""Knowledge gradient, and waits for records."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from culmen.memory.gain import gain, largest, of_best
from culmen.memory.records import Lineages, Records


@pytest.mark.parametrize("k", [1, 2, 4, 8])
@pytest.mark.parametrize(("gap", "deviation"), [(0.0, 1.0), (0.5, 0.3), (-0.4, 0.2), (2.0, 1.0)])
def test_gains_are_expectations(k: int, gap: float, deviation: float) -> None:
    draws = np.random.default_rng(k).normal(-gap, deviation, (400_000, k)).max(axis=1)
    expected = np.maximum(draws, 0.0)
    found = of_best(np.array([gap]), np.array([deviation]), k)[0]
    assert found == pytest.approx(expected.mean(), abs=5 * expected.std() / 632 + 2e-4 * deviation)


def test_a_sure_belief_gains_only_what_it_lies_above() -> None:
    found = gain(np.array([0.3, -0.3, np.inf]), np.array([0.0, 0.0, 1.0]))
    assert found == pytest.approx([0.0, 0.3, 0.0], abs=1e-12)


@pytest.mark.parametrize("k", [1, 4])
def test_the_best_of_k_sure_beliefs_gains_what_they_lie_above(k: int) -> None:
    assert of_best(np.array([0.3, -0.3]), np.zeros(2), k).tolist() == [0.0, 0.3]


@pytest.mark.parametrize(("gap", "gained"), [(-6.0, 6.0 + 1.02937537), (20.0, 0.0)])
def test_beyond_the_table_the_best_of_four_gains_the_whole_gap_or_nothing(gap: float, gained: float) -> None:
    assert of_best(np.array([gap]), np.array([1.0]), 4) == pytest.approx([gained], abs=1e-4)


def test_largest_prefers_the_first_of_equals() -> None:
    assert largest(np.array([1.0, 3.0, 2.0, 3.0, 0.0]), 3) == [1, 3, 2]
    assert largest(np.array([1.0]), 3) == [0]


def test_a_wait_is_the_less_probable_the_more_regular_records_were() -> None:
    often, once = Records(), Records()
    for now in range(0, 110, 10):
        assert often.see(now / 100, now, 0.0)
    assert once.see(0.5, 0, 0.0) and once.see(1.0, 100, 0.0) and not once.see(1.0, 120, 0.0)
    assert (often.count, once.count) == (10, 1)
    assert often.chance(160) < 0.02 < once.chance(160)
    assert Records().chance(50) == 1.0


def test_a_margin_is_needed_for_a_record() -> None:
    records = Records()
    assert records.see(0.5, 1, 0.1) and not records.see(0.55, 2, 0.1) and records.see(0.65, 3, 0.1)


def test_a_record_by_luck_is_forgotten_and_the_wait_goes_on() -> None:
    records = Records()
    for now, level in ((1, 0.1), (20, 0.5)):
        assert records.see(level, now, 0.05)
    assert not records.see(0.31, 100, 0.05) and records.level == 0.5  # less by four margins or fewer: it stands
    assert not records.see(0.25, 110, 0.05) and (records.level, records.at, records.count) == (0.25, 20, 1)
    assert not records.see(0.29, 120, 0.05) and records.see(0.31, 130, 0.05) and records.at == 130


def test_a_lineage_counts_its_own_records_and_is_given_up_in_the_end() -> None:
    whole, lineages = Records(), Lineages(longest=30)
    for now in range(5, 55, 5):
        whole.see(now, now, 0.0)
    lineages.begin([3, 4], [0.1, 0.2], Random(1))
    assert lineages.number == 1 and lineages.members[0] in (3, 4)
    for node in range(10, 13):
        lineages.grow(node)
        lineages.see(float(node), 0.0)
    assert not lineages.over(whole, 0.01)
    for node in range(13, 50):
        lineages.grow(node)
    assert lineages.over(whole, 0.01)


def test_a_record_of_its_own_gives_a_lineage_more_time() -> None:
    whole, lineages = Records(), Lineages(longest=30)
    lineages.begin([3], [0.1], Random(1))
    for node in range(50):
        lineages.grow(node)
        if node == 24:
            lineages.see(9.0, 0.0)
    assert not lineages.over(whole, 0.0)
    for node in range(6):
        lineages.grow(node)
    assert lineages.over(whole, 0.0)


def test_far_below_the_level_the_best_of_k_gains_the_whole_gap_and_the_best_draw() -> None:
    of_four = 1.02937537  # the mean of the largest of four standard normals
    assert of_best(np.array([-40.0]), np.array([2.0]), 4) == pytest.approx([40.0 + 2.0 * of_four], rel=1e-3)
