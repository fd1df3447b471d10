"""A frontier's facts on one candidate, and its leaders that may be merged."""

from __future__ import annotations

import math
from random import Random

import pytest

from culmen.core.candidate import Candidate
from culmen.extensions.baselines.pareto import Family, Frontier, Merge


def text(parts: str) -> Candidate:
    """A candidate of the parts a, b and c, a letter each."""
    return Candidate.of(dict(zip("abc", parts, strict=True)))


def merged(
    old: str, one: str, two: str, level: float | None = None, chain: bool = False
) -> Merge | None:
    """The merge of two leaders of means 1.0 and 0.5 with a common ancestor.

    `level` is the ancestor's mean (None: never scored); in a chain, the second leader descends from
    the first.
    """
    family, frontier = Family(), Frontier()
    family.add(text(old))
    family.add(text(one), text(old).id)
    family.add(text(two), text(one if chain else old).id)
    if level is not None:
        frontier.add(text(old).id, {"x": level, "y": level})
    frontier.add(text(one).id, {"x": 2.0, "y": 0.0})
    frontier.add(text(two).id, {"x": 0.0, "y": 1.0})
    return family.draw_merge(frontier, Random(0))


def test_a_frontier_knows_whom_it_has_met_and_their_means() -> None:
    frontier = Frontier()
    frontier.add("fine", {"x": 1.0, "y": 2.0, "z": 6.0})
    frontier.add("broken", {"x": 1.0, "y": None})
    frontier.add("unseen", {})
    assert "fine" in frontier and "other" not in frontier and len(frontier) == 3
    assert [frontier.mean_reward(key) for key in ("fine", "broken", "unseen")] == [
        3.0,
        -math.inf,
        -math.inf,
    ]


@pytest.mark.parametrize(
    ("one", "two", "parts"),
    [
        ("100", "010", "110"),
        ("108", "019", "118"),  # c: both changed it, so the one of the higher mean gives it
        ("108", "009", None),  # the second changed nothing that the first left alone
        ("008", "019", None),
        ("008", "009", None),
        ("108", "109", None),
    ],
)
def test_each_of_two_that_are_merged_has_a_part_that_it_alone_changed(
    one: str, two: str, parts: str | None
) -> None:
    found = merged("000", one, two)
    assert (found and "".join(found.child.parts.values())) == parts


@pytest.mark.parametrize(("level", "worth"), [(None, True), (0.4, True), (0.5, True), (0.6, False)])
def test_neither_of_two_that_are_merged_is_worse_than_their_ancestor(
    level: float | None, worth: bool
) -> None:
    assert (merged("000", "100", "010", level) is not None) == worth


def test_a_candidate_is_not_merged_with_its_own_ancestor() -> None:
    assert merged("000", "100", "010", chain=True) is None
