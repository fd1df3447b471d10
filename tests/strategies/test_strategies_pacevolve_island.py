"""An island's memory, its loss of momentum, and its ways back.

Small cases worked out by hand.
"""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from culmen.core.brief import Proposal
from culmen.core.candidate import Candidate
from culmen.core.evaluation import Case, Rollout
from culmen.core.event import Entry
from culmen.core.usage import Budget
from culmen.strategies.pacevolve.advisor import Planning
from culmen.strategies.pacevolve.implementing import Implementing
from culmen.strategies.pacevolve.island import Early, Island, Momentum, Population, Recent
from culmen.strategies.pacevolve.memory import (
    Failure,
    FailureMemory,
    IdeaRepository,
    Ranked,
    first_sentences,
)
from culmen.strategies.pacevolve.pacevolve import Pacevolve
from culmen.testing.landscape import Landscape, landscape_program, task
from culmen.testing.virtual import simulate

from .helpers import Witness
from .test_strategies_pacevolve_advisor import Coder
from .test_strategies_pacevolve_scaffold import island, notes, paper, rollout


def test_a_text_is_kept_to_its_sentences_and_600_characters():
    assert first_sentences("One.  Two!\nThree? Four.", 3) == "One. Two! Three?"
    assert (
        first_sentences("a" * 600, 1) == "a" * 600
        and first_sentences("a" * 601, 1) == "a" * 599 + "…"
    )
    assert IdeaRepository().with_idea("One. Two. Three.").ideas[0].description == "One. Two."


def test_a_history_without_a_summary_stays_as_it_is():
    ideas = IdeaRepository().with_idea("steps").with_result(1, "score 1").with_result(1, "score 2")
    kept = ideas.with_condensed_history(1, "small steps", " ").ideas[0]
    assert (kept.description, kept.results, kept.tries) == (
        "small steps",
        ("score 1", "score 2"),
        2,
    )


def test_ideas_taken_over_are_numbered_on_from_ones_own():
    theirs = IdeaRepository().with_idea("one").with_idea("two").with_idea("three").ideas
    joined = IdeaRepository().with_idea("own").with_foreign_ideas(theirs)
    assert [(idea.number, idea.description) for idea in joined.ideas] == [
        (1, "own"),
        (2, "one"),
        (3, "two"),
        (4, "three"),
    ]
    assert joined.with_idea("next").ideas[-1].number == 5


def test_of_equal_programs_the_first_stays_the_best():
    first, second = Candidate.of({"p": "1"}), Candidate.of({"p": "2"})
    assert (
        IdeaRepository()
        .with_better_program(Ranked(first, 1.0))
        .with_better_program(Ranked(second, 1.0))
        .best.candidate
        == first
    )
    one = island()
    assert [one.add_rollout(rollout(n), 9.0) for n in (1.0, 1.0, 2.0)] == [True, False, True]


def test_the_latest_failures_come_first_and_ten_times_as_many_experiments_stay_blocked():
    memory = FailureMemory(2)
    for n in range(20):
        memory.add(Failure("idea", f"step {n}", "error"), f"digest {n}")
    assert [failure.experiment for failure in memory.latest_failures(9)] == ["step 19", "step 18"]
    assert all(
        memory.blocks_experiment(f"step {n}") and memory.knows_code(f"digest {n}")
        for n in range(20)
    )
    memory.add(
        Failure("idea", "step 0", "repeat"), "digest 0"
    )  # failed again: not the oldest any more
    memory.add(Failure("idea", "another", "error"), "another")
    gone = [
        n
        for n in range(20)
        if not memory.blocks_experiment(f"step {n}") and not memory.knows_code(f"digest {n}")
    ]
    assert gone == [1] and memory.blocks_experiment("another")


def test_momentum_follows_the_share_of_the_way_that_a_gain_closes():
    momentum = Momentum(beta=0.75, threshold=0.06, freeze=1)
    assert [momentum.record_reward(reward, 9.0) for reward in (1.0, 3.0, 3.0, 2.0, 6.0)] == [
        0.0,
        0.25,
        0.0,
        0.0,
        0.5,
    ]
    assert momentum.best == 6.0
    assert momentum.value == pytest.approx(0.75**3 * 0.25 * 0.25 + 0.25 * 0.5)
    momentum.record_reward(9.0, 9.0)
    assert (
        momentum.record_reward(10.0, 9.0) == 0.0 and momentum.best == 10.0
    )  # beyond the target there is no way to go


def test_an_island_stalls_below_the_threshold_once_the_freeze_is_over():
    momentum = Momentum(beta=0.5, threshold=0.25, freeze=1)
    momentum.record_reward(0.0, 1.0)
    momentum.record_reward(0.5, 1.0)
    assert momentum.value == 0.25 and not momentum.is_stalled  # not below it
    momentum.record_reward(0.5, 1.0)
    assert momentum.is_stalled
    momentum.begin_freeze()
    momentum.record_reward(0.5, 1.0)
    assert not momentum.is_stalled
    momentum.record_reward(0.5, 1.0)
    assert momentum.is_stalled


def test_a_branch_ends_with_the_longer_history_of_every_idea():
    one = island()
    one.ideas = IdeaRepository().with_idea("kept").with_idea("gone on with")
    one.add_rollout(rollout(3.0), 9.0)
    one.keep_version()
    one.ideas = one.ideas.with_result(1, "before").with_result(2, "before").with_idea("later")
    one.backtrack(Only(0), 1, Random(0))
    one.ideas = one.ideas.with_result(2, "on the branch").without_ideas([3]).with_idea("new")
    one.count_turn()
    assert [(idea.number, idea.description, idea.results) for idea in one.ideas.ideas] == [
        (1, "kept", ("before",)),
        (2, "gone on with", ("on the branch",)),  # as long as the other: what came of it is nearer
        (3, "later", ()),
        (4, "new", ()),
    ]
    assert one.ideas.with_idea("next").ideas[-1].number == 5


def test_an_island_intervenes_once_then_waits():
    one = Island(Population(9), Momentum(beta=0.5, threshold=0.25, freeze=0))
    one.add_rollout(rollout(1.0), 9.0)
    assert not one.momentum.is_stalled  # no verdict on a single candidate
    one.keep_version()
    one.add_rollout(rollout(1.5), 9.0)
    assert one.momentum.is_stalled
    one.backtrack(Early(), 3, Random(0))
    assert not one.momentum.is_stalled
    one.add_rollout(rollout(0.5), 9.0)
    assert one.momentum.is_stalled
    one.take_over((), None)
    assert not one.momentum.is_stalled


def test_a_branch_goes_on_from_the_first_of_its_best_programs():
    one = island()
    one.keep_version()  # with no program yet
    one.add_rollout(rollout(3.0), 9.0)
    one.keep_version()
    one.backtrack(Only(0), 9, Random(0))
    same = Rollout(Candidate.of({"p": "another"}), (), (1.0,))
    followed = []
    for made in (rollout(0.5), rollout(1.0), same, rollout(0.25)):
        one.add_rollout(made, 9.0)
        followed.append(one.next_parent(4, 2, Random(0)))
    assert followed == [rollout(0.5), *[rollout(1.0)] * 3]


def test_others_take_over_the_version_with_the_best_program_also_from_an_island_on_a_branch():
    one = island()
    assert one.best_version() == one.ideas  # no program, no versions
    for n, reward in enumerate((-3.0, -2.0)):
        one.ideas = one.ideas.with_idea(f"idea {n}")
        one.add_rollout(rollout(reward), 9.0)
        one.keep_version()
    one.backtrack(Only(0), 3, Random(0))
    assert (
        [idea.description for idea in one.best_version().ideas]
        == ["idea 0", "idea 1"]
        != one.ideas.ideas
    )


def test_recent_versions_are_preferred_as_early_ones_are():
    assert (
        Recent().weights(4)
        == Early().weights(4)[::-1]
        == pytest.approx([4**-1.5, 3**-1.5, 2**-1.5, 1.0])
    )


class Only:
    """Always this version."""

    def __init__(self, place):
        self.place = place

    def weights(self, count):
        return [float(n == self.place) for n in range(count)]


def test_a_branch_is_followed_for_its_experiments_and_the_seeds_are_its_oldest_version():
    rules = paper(islands=1, backtrack_every=6, threshold=0.0)
    run = simulate(rules, task(), Landscape(), Budget(evaluations=40))
    made = notes(run, "experiment")[:13]
    assert [note["turn"] for note in made] == list(range(1, 14))
    assert [note["branch"] for note in made] == [False] * 6 + [True] * 4 + [False] * 2 + [True]
    assert [note["of"] for note in notes(run, "backtrack")][:2] == [
        7,
        13,
    ]  # those of six experiments, and the seeds'


def test_without_a_target_full_progress_is_as_much_again_as_was_gained():
    rules = Pacevolve(
        islands=1, advising=Planning(experiments=1), implementing=Implementing(repairs=0)
    )
    world = Coder(0.25, 0.5, 0.75, 0.5)
    run = simulate(rules, task(seeds=(0.25,)), world, Budget(evaluations=5, calls=20, final=0.0))
    gains = [0.25, 0.25 / 0.25]  # to a target of 0.25 + 1, then of 2 * 0.5 - 0.25
    values = [0.15 * gains[0]]
    values += [0.85 * values[0] + 0.15 * gains[1]]
    assert [
        note["momentum"] for note in notes(run, "experiment") if note["better"]
    ] == pytest.approx(values)


@pytest.mark.parametrize("batch", [None, 2])
def test_a_persons_candidate_is_seen_on_as_many_cases_as_any_other(batch):
    own = Candidate.of(landscape_program(0.97, 1))
    body = {"tell": "candidate", "id": "1"}
    entry = Entry("tell", effect="candidates", body=body, result=Proposal(candidates=(own,)))
    about = msgspec.structs.replace(task(), cases=tuple(Case(f"{n}") for n in range(3)))
    witness, rules = (
        Witness(Landscape(delta0=0.0)),
        Pacevolve(islands=1, advising=Planning(experiments=1), batch=batch),
    )
    run = simulate(rules, about, witness, Budget(evaluations=80, final=0.0), told=[(9, entry)])
    seen = sum(request.candidate.id == own.id for request in witness.evaluations)
    assert seen == (batch or 3) + 3  # and as the best of the run once more on all
    assert any(note["parent"] == own.id for note in notes(run, "experiment"))
