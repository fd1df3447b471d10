"""Waits for records, and lineages that a stalled search tries."""

from __future__ import annotations

from random import Random

import pytest

from culmen.strategies.knowledge_gradient import Lineages, Records


def test_a_wait_is_the_less_probable_the_more_regular_records_were() -> None:
    often, once = Records(), Records()
    for now in range(0, 110, 10):
        assert often.record_best(now / 100, now, 0.0)
    assert (
        once.record_best(0.5, 0, 0.0)
        and once.record_best(1.0, 100, 0.0)
        and not once.record_best(1.0, 120, 0.0)
    )
    assert (often.count, once.count) == (10, 1)
    assert often.wait_chance(160) < 0.02 < once.wait_chance(160)
    assert Records().wait_chance(50) == 1.0


def test_a_margin_is_needed_for_a_record() -> None:
    records = Records()
    assert (
        records.record_best(0.5, 1, 0.1)
        and not records.record_best(0.55, 2, 0.1)
        and records.record_best(0.65, 3, 0.1)
    )


def test_a_record_by_luck_is_forgotten_and_the_wait_goes_on() -> None:
    records = Records()
    for now, level in ((1, 0.1), (20, 0.5)):
        assert records.record_best(level, now, 0.05)
    assert (
        not records.record_best(0.31, 100, 0.05) and records.level == 0.5
    )  # less by four margins or fewer: it stands
    assert not records.record_best(0.25, 110, 0.05) and (
        records.level,
        records.at,
        records.count,
    ) == (0.25, 20, 1)
    assert (
        not records.record_best(0.29, 120, 0.05)
        and records.record_best(0.31, 130, 0.05)
        and records.at == 130
    )


def test_a_lineage_counts_its_own_records_and_is_given_up_in_the_end() -> None:
    whole, lineages = Records(), Lineages(longest=30)
    for now in range(5, 55, 5):
        whole.record_best(now, now, 0.0)
    lineages.begin_lineage([3, 4], [0.1, 0.2], Random(1))
    assert lineages.number == 1 and lineages.members[0] in (3, 4)
    for node in range(10, 13):
        lineages.add_child(node)
        lineages.record_best(float(node), 0.0)
    assert not lineages.should_give_up(whole, 0.01)
    for node in range(13, 50):
        lineages.add_child(node)
    assert lineages.should_give_up(whole, 0.01)


def test_a_record_of_its_own_gives_a_lineage_more_time() -> None:
    whole, lineages = Records(), Lineages(longest=30)
    lineages.begin_lineage([3], [0.1], Random(1))
    for node in range(50):
        lineages.add_child(node)
        if node == 24:
            lineages.record_best(9.0, 0.0)
    assert not lineages.should_give_up(whole, 0.0)
    for node in range(6):
        lineages.add_child(node)
    assert lineages.should_give_up(whole, 0.0)


def waiting(*records: int) -> Records:
    """Records set after these numbers of evaluations; the first of them is the first value."""
    made = Records()
    for level, now in enumerate(records):
        assert made.record_best(float(level), now, 0.0)
    return made


def test_the_chance_of_a_wait_is_that_of_as_many_evaluations_without_one_of_the_records() -> None:
    """(1 + S/W)^-k: k records in W evaluations, S more without one."""
    records = waiting(0, 4, 10)
    assert [records.wait_chance(now) for now in (10, 15, 30)] == pytest.approx(
        [1.0, (3 / 2) ** -2, 3.0**-2]
    )
    assert records.wait_chance(15, 10, 1) == pytest.approx((5 / 4) ** -3)
    assert waiting(0, 1).wait_chance(3) == pytest.approx(1 / 3)
    assert waiting(0).wait_chance(3, 0, 2) == pytest.approx(1 / 16)


def test_exactly_four_margins_less_is_no_luck_yet() -> None:
    records = Records()
    assert (
        records.record_best(8.0, 1, 1.0)
        and not records.record_best(4.0, 2, 1.0)
        and records.level == 8.0
    )
    assert not records.record_best(3.5, 3, 1.0) and records.level == 3.5


def grown(lineages: Lineages, children: int, record: float | None = None) -> None:
    """Add `children` children to the lineage, the last of them with a record."""
    for node in range(children):
        lineages.add_child(node)
    if record is not None:
        lineages.record_best(record, 0.0)


def test_a_lineage_waits_at_the_rate_of_the_whole_search_and_of_those_given_up() -> None:
    whole, lineages = waiting(0, 10, 20), Lineages(longest=100)

    def chance_is(expected: float) -> bool:
        return lineages.should_give_up(whole, expected + 1e-9) and not lineages.should_give_up(
            whole, expected - 1e-9
        )

    lineages.begin_lineage([3], [0.1], Random(1))
    assert not lineages.should_give_up(whole, 1.0)
    grown(lineages, 5)
    assert chance_is((1 + 5 / 20) ** -2)
    grown(lineages, 3, record=5.0)
    assert lineages.members == [3, 0, 1, 2, 3, 4, 0, 1, 2] and not lineages.should_give_up(
        whole, 1.0
    )
    grown(lineages, 7)
    assert chance_is((1 + 7 / (20 + 8)) ** -3)
    lineages.begin_lineage([4], [0.1], Random(1))
    grown(lineages, 5, record=5.0)
    assert lineages.members == [4, 0, 1, 2, 3, 4] and lineages.number == 2
    lineages.begin_lineage([5], [0.1], Random(1))
    grown(lineages, 10)
    assert chance_is((1 + 10 / (20 + 15 + 5)) ** -4)


def test_after_more_than_sixty_without_a_record_a_lineage_is_given_up() -> None:
    lineages = Lineages()
    lineages.begin_lineage([3], [0.1], Random(1))
    grown(lineages, 60)
    assert not lineages.should_give_up(Records(), 0.0)
    grown(lineages, 1)
    assert lineages.should_give_up(Records(), 0.0)
