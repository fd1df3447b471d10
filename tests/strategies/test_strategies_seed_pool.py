"""The sharing out of a pool: when it is clustered, and how often that is tried.

Also the sharing out without clusters.
"""

from __future__ import annotations

import asyncio

import pytest

from culmen.core.errors import UserError
from culmen.core.event import EditRequest, Edits
from culmen.core.usage import Budget
from culmen.strategies.seed_pool import First, Kmeans
from culmen.strategies.turboevolve import TurboEvolve
from culmen.testing.landscape import Landscape, task
from culmen.testing.virtual import simulate

from .helpers import Witness


class Failing(Landscape):
    """Clusterings that fail with these faults, then one that does not."""

    def __init__(self, *faults):
        super().__init__()
        object.__setattr__(self, "faults_left", list(faults))

    def cluster(self, request):
        return (
            Edits(fault=self.faults_left.pop(0)) if self.faults_left else super().cluster(request)
        )


def shared_out(seeds, world=None, islands=3):
    """The ids of the initial programs of each island, and how often a clustering was asked for."""
    witness = Witness(world or Landscape())
    about = task(seeds=tuple(n / 24 for n in range(seeds)))
    rules = TurboEvolve(islands=islands, allocation=Kmeans(), bins=50)
    run = simulate(rules, about, witness, Budget(evaluations=seeds + 9), trial=False)
    entries = [e.entry.body for e in run.journal.read() if e.entry.body.get("note") == "seeded"]
    ids = [candidate.id for candidate in about.initial_candidates()]
    return [[ids.index(seed["id"]) for seed in note["seeds"]] for note in entries], len(
        witness.of(EditRequest)
    )


def test_as_many_programs_as_islands_need_no_clustering():
    assert shared_out(3) == ([[0], [1], [2]], 0)
    given, asked = shared_out(6)
    assert [len(each) for each in given] == [2, 2, 2] and asked == 1


def test_a_clustering_is_tried_three_times_then_the_run_ends_with_the_reason():
    given, asked = shared_out(6, Failing("timeout", "killed"))
    assert [len(each) for each in given] == [2, 2, 2] and asked == 3
    world = Failing(*["killed"] * 9)
    with pytest.raises(UserError, match="could not be clustered: killed"):
        shared_out(6, world)
    assert len(world.faults_left) == 6


def test_what_is_not_installed_is_not_tried_again():
    world = Failing(*["no_sklearn"] * 9)
    with pytest.raises(UserError, match="needs scikit-learn"):
        shared_out(6, world)
    assert len(world.faults_left) == 8


def test_the_first_island_may_have_all_programs_and_the_others_none():
    assert asyncio.run(
        First().allocate(None, task(seeds=(0.1, 0.2)).initial_candidates(), [0.1, 0.2], 3)
    ) == [
        [0, 1],
        [],
        [],
    ]
