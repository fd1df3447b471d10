"""The plain loops: where each request starts from, and how many it shows.

Also a search from nothing.
"""

from __future__ import annotations

import msgspec
import pytest

from culmen.core.brief import Brief, Proposal
from culmen.core.candidate import Candidate
from culmen.core.errors import UserError
from culmen.core.evaluation import Case
from culmen.core.event import Entry
from culmen.core.usage import Budget
from culmen.extensions.baselines.map_elites import MapElites
from culmen.extensions.baselines.openevolve import Cascade, OpenEvolve
from culmen.extensions.baselines.puct import PuctSearch
from culmen.strategies.ask_tell import AskTell
from culmen.strategies.best_of_n import BestOfN
from culmen.strategies.polca import Sequential
from culmen.testing.landscape import Faults, Landscape, landscape_program, task, written_reward
from culmen.testing.virtual import simulate

from .helpers import Witness
from .test_strategies_pacevolve_scaffold import notes


def parents(strategy, seeds, evaluations=30, world=None, **options):
    """The parents of all requests, in order, and the run with its witness."""
    witness = Witness(world or Landscape(blur=1.0))
    run = simulate(
        strategy, task(seeds=seeds), witness, Budget(evaluations=evaluations, final=0.0), **options
    )
    return [brief.parent and brief.parent.id for brief in witness.briefs], run, witness


def test_best_of_n_starts_from_the_seeds_in_turn_or_from_nothing():
    ids = [candidate.id for candidate in task(seeds=(0.1, 0.2)).initial_candidates()]
    found, _, witness = parents(BestOfN(), (0.1, 0.2))
    assert found == [ids[n % 2] for n in range(len(found))] and len(found) > 9
    assert all(brief.observations and brief.reward is not None for brief in witness.briefs)
    found, _, _ = parents(BestOfN(), ())
    assert len(found) > 9 and set(found) == {None}


def test_puct_from_nothing_goes_on_from_what_was_written_first():
    found, run, _ = parents(PuctSearch(proposals=1), ())
    assert found[0] is None and None not in found[1:]
    assert [note["parent"] for note in notes(run, "puct")][:1] == found[1:2]


def test_puct_starts_from_the_better_seed_from_a_persons_candidate_or_where_none_was_scored_from_the_first():
    ids = [candidate.id for candidate in task(seeds=(0.1, 0.2)).initial_candidates()]
    own = Candidate.of(landscape_program(0.97))
    body = {"tell": "candidate", "id": "1"}
    entry = Entry("tell", effect="candidates", body=body, result=Proposal(candidates=(own,)))
    found, _, _ = parents(PuctSearch(proposals=1), (0.1, 0.2), evaluations=60, told=[(9, entry)])
    assert found[0] == ids[1] and own.id in found
    world = Landscape(faults=Faults(error=1.0))
    found, _, _ = parents(
        PuctSearch(proposals=1), (0.1, 0.2), world=world, evaluations=12, trial=False
    )
    assert len(found) > 4 and set(found) == {ids[0]}


def test_sequential_search_improves_the_newest_program_and_no_other():
    found, _, witness = parents(Sequential(), (0.1,))
    seen = list(dict.fromkeys(request.candidate.id for request in witness.evaluations))
    assert found == seen[: len(found)] and len(found) > 4


@pytest.mark.parametrize("count", [0, 1, 3])
def test_map_elites_shows_so_many_others(count):
    _, run, witness = parents(MapElites(inspirations=count), (0.0,), evaluations=60)
    told = notes(run, "grid")
    assert max(note["cells"] for note in told) > 5
    assert len(witness.briefs[-1].inspirations) == count


def test_map_elites_tells_how_many_entered_the_grid():
    _, run, _ = parents(MapElites(proposals=2), (0.0,), evaluations=60)
    told = notes(run, "grid")
    outcomes = [[each["outcome"] for each in note["placed"]] for note in told]
    assert [note["entered"] for note in told] == [
        len(each) - each.count("refused") for each in outcomes
    ]
    assert {note["entered"] for note in told} >= {0, 1}


def test_openevolve_keeps_no_more_programs_than_it_may():
    def known(**sizes):
        _, _, witness = parents(OpenEvolve(islands=1, bins=50, **sizes), (0.0,), evaluations=60)
        return {brief.parent.id for brief in witness.briefs[30:]}

    assert len(known(population=2, archive=1)) < len(known())


def test_openevolve_puts_initial_programs_on_their_islands():
    strategy = OpenEvolve(islands=3, starts=("0", "2"))
    _, run, _ = parents(strategy, (0.1, 0.2))
    ids = [candidate.id for candidate in task(seeds=(0.1, 0.2)).initial_candidates()]
    placed = [[seed["id"] for seed in note["seeds"]] for note in notes(run, "seeded")]
    assert placed == [[ids[0]], [], [ids[1]]]
    with pytest.raises(UserError, match="cannot start on island '3'"):
        OpenEvolve(islands=3, starts=("0", "3"))


def test_a_cascade_evaluates_the_other_cases_of_good_candidates_only():
    cases = tuple(Case(str(number), number) for number in range(5))
    about = msgspec.structs.replace(task(deterministic=True, seeds=(0.0, 0.6)), cases=cases)
    witness = Witness(Landscape(blur=1.0))
    strategy = OpenEvolve(islands=1, cascade=Cascade(first=2, threshold=0.3))
    simulate(strategy, about, witness, Budget(evaluations=200, final=0.0), trial=False)
    seen: dict[str, list[str]] = {}
    for request in witness.evaluations:
        seen.setdefault(request.candidate.id, []).append(request.case.id if request.case else "")
    good = {r.candidate.id for r in witness.evaluations if written_reward(r.candidate) >= 0.3}
    assert len(good) > 3 and len(seen) - len(good) > 3
    assert all(set(each) <= {"0", "1"} for id, each in seen.items() if id not in good)
    assert (
        sum(len(set(each)) == 5 for id, each in seen.items() if id in good) >= len(good) - 1
    )  # the budget ends one


class Asking:
    """Asks for a program and a proposal, then a proposal alone, then for nothing."""

    def __init__(self, about, seeds, rng):
        self.steps = [
            [Candidate.of(landscape_program(0.7)), Brief(seeds[0], k=2)],
            Brief(seeds[0]),
            [],
        ]
        Asking.told = []

    def ask(self):
        return self.steps[len(Asking.told)]

    def tell(self, rollouts):
        Asking.told.append(rollouts)


@pytest.mark.parametrize("batch", [None, 2])
def test_an_optimiser_is_told_of_each_candidate_in_the_order_asked(batch):
    run = simulate(
        AskTell(Asking, batch=batch), task(), Landscape(), Budget(evaluations=40, final=0.0)
    )
    assert run.search.reason == "strategy_done"
    assert [len(rollouts) for rollouts in Asking.told] == [3, 1]
    assert Asking.told[0][0].reward == 0.7
    assert all(
        len(rollout.rewards) == (batch or 1) for rollouts in Asking.told for rollout in rollouts
    )
