"""POLCA line by line: what it asks for, in which order, on which cases."""

from __future__ import annotations

import math
from dataclasses import dataclass

import msgspec
import pytest

from culmen.core.errors import UserError
from culmen.core.evaluation import Case
from culmen.core.usage import Budget
from culmen.engine.lab import pack_vectors
from culmen.strategies.memory.priorities import Newest, Quantile, ThisRound
from culmen.strategies.polca import ByEmbedder, FreshBatch, Polca
from culmen.strategies.summarizer import Summarizer
from culmen.testing.landscape import Faults, Landscape, task, written_reward
from culmen.testing.virtual import simulate

from .helpers import Witness

CASES = msgspec.structs.replace(task(), cases=tuple(Case(str(n), input=n) for n in range(10)))


def run(strategy, on=CASES, world=None, order="request", **budget):
    witness = Witness(world or Landscape(sigma=0.1))
    result = simulate(
        strategy, on, witness, Budget(final=0.0, **(budget or {"evaluations": 60})), order=order
    )
    return witness, result


def test_one_iteration_is_embed_evaluate_summarize_propose_embed_evaluate():
    paper = Polca(summarizer=Summarizer(every=0))  # a summary in every iteration
    witness, _ = run(paper, world=Landscape(sigma=0.1, delta0=1.0), evaluations=4)
    assert witness.kinds == [
        "embed",
        "evaluate",
        "evaluate",
        "write",
        "propose",
        "embed",
        "evaluate",
        "evaluate",
    ]
    seed, child = witness.evaluations[0].candidate, witness.evaluations[2].candidate
    assert child.parents == (seed.id,)
    first, second, third, fourth = (request.case.id for request in witness.evaluations)
    assert (first, second) == (third, fourth)  # the same minibatch for parents and children
    brief = witness.briefs[0]
    assert brief.parent == seed and brief.context == "climb" and len(brief.observations) == 2
    assert brief.reward == pytest.approx(sum(o.score for o in brief.observations) / 2)


class NumberedSummaries(Landscape):
    """Every summary has the number of programs that it was written from."""

    def write(self, request):
        shown = len(request.slots["pairs"])
        return msgspec.structs.replace(super().write(request), text=f"<summary>{shown}</summary>")


def test_every_explored_program_is_proposed_with_the_summary_of_the_same_iteration():
    """Algorithm 3: c_history is written (line 3) before the loop over all programs (line 4)."""
    paper = Polca(explore=3, epsilon=None, summarizer=Summarizer(every=0, programs=1000))
    witness, _ = run(paper, world=NumberedSummaries(sigma=0.1), evaluations=90)
    told, rounds = "", list[tuple[str, list[str]]]()
    for effect in witness.effects:
        if effect.kind == "write":
            told = str(len(effect.request.slots["pairs"]))
            rounds.append((told, []))
        elif effect.kind == "propose":
            rounds[-1][1].append(effect.request.brief.context)
    whole = [contexts for _, contexts in rounds if len(contexts) == 3]
    assert len(whole) >= 3 and len({contexts[0] for contexts in whole}) >= 3
    assert all(contexts == [told] * len(contexts) for told, contexts in rounds)


def test_fresh_batch_draws_cases_of_its_own():
    witness, _ = run(Polca(validation=FreshBatch(), batch=4), evaluations=8)
    cases = [request.case.id for request in witness.evaluations]
    assert cases[:4] != cases[4:]


def test_the_best_are_explored_and_explored_again():
    witness, result = run(Polca(explore=2, epsilon=None, summarizer=None), evaluations=120)
    tallies = list(result.search.evidence.account.tallies())
    often = max(tallies, key=lambda t: t.count)
    assert often.count >= 8
    assert often.mean >= sorted(t.mean for t in tallies)[len(tallies) // 2]
    assert len({id(b) for b in witness.briefs}) == len(witness.briefs)


def test_without_summarizer_and_net_nothing_is_written_or_embedded():
    witness, _ = run(Polca(summarizer=None, epsilon=None))
    assert dict.fromkeys(witness.kinds) == {"evaluate": None, "propose": None}
    assert all(brief.context == "" for brief in witness.briefs)


def test_refused_proposals_are_not_evaluated():
    """Failures fall back to 0, where the seed is: the net knows that place already."""
    world = Landscape(sigma=0.1, delta0=0.3)
    witness, result = run(Polca(epsilon=0.1), world=world)
    seen = list(dict.fromkeys(request.candidate.id for request in witness.evaluations))
    places = [written_reward(result.search.lab.find(key)) for key in seen]
    gaps = [abs(a - b) for i, a in enumerate(places) for b in places[:i]]
    assert all(2 * math.sin(math.pi / 4 * gap / world.bound) >= 0.1 - 1e-6 for gap in gaps)
    assert len(witness.briefs) > len(seen)


def test_newest_first_follows_the_last_proposal():
    witness, _ = run(Polca(1, 1, epsilon=None, priority=Newest(), summarizer=None))
    for brief, following in zip(witness.briefs, witness.briefs[1:]):
        assert following.parent.parents == (brief.parent.id,)


def test_beam_improves_the_best_of_the_last_generation_only():
    world = Landscape(delta0=0.5)
    witness, _ = run(
        Polca(2, 1, None, priority=ThisRound(), summarizer=None, proposals=3),
        world=world,
        order="time",
    )
    generations = [0]
    born = {witness.briefs[0].parent.id: 0}
    children = {}
    for request in witness.evaluations:
        candidate = request.candidate
        if candidate.parents and candidate.id not in born:
            born[candidate.id] = born[candidate.parents[0]] + 1
            children.setdefault(born[candidate.id], {})[candidate.id] = candidate
    for brief in witness.briefs[1:]:
        generation = born[brief.parent.id]
        assert generation >= generations[-1]
        generations.append(generation)
        better = [
            c
            for c in children[generation].values()
            if written_reward(c) > written_reward(brief.parent) + 0.5
        ]
        assert len(better) < 2
    assert generations[-1] >= 3


def test_a_search_from_scratch_asks_for_first_programs_and_goes_on_from_them():
    witness, result = run(Polca(explore=3, epsilon=None), on=task(seeds=()))
    assert [brief.parent for brief in witness.briefs[:3]] == [None] * 3
    assert all(brief.parent is not None for brief in witness.briefs[3:])
    assert result.search.reason == "evaluations"


def test_all_seeds_are_seen_before_the_first_choice_when_there_are_more_than_are_explored():
    seeds = [n / 20 for n in range(8)]
    witness, _ = run(Polca(explore=2, batch=1), on=task(seeds=seeds), world=Landscape())
    assert [written_reward(r.candidate) for r in witness.evaluations[:8]] == seeds
    assert [written_reward(brief.parent) for brief in witness.briefs[:2]] == [seeds[7], seeds[6]]


def test_as_many_seeds_as_are_explored_are_not_seen_before_that():
    witness, _ = run(
        Polca(explore=2, batch=1, epsilon=None), on=task(seeds=[0.1, 0.2]), world=Landscape()
    )
    assert witness.kinds[:4] == ["evaluate", "evaluate", "propose", "propose"]


def test_notes_number_the_iterations_from_one_and_tell_what_was_explored():
    witness, result = run(Polca(explore=1, batch=1, summarizer=None), on=task(seeds=[0.3]))
    notes = [e.entry.body for e in result.journal.read() if e.entry.kind == "note"]
    explored = [body for body in notes if body["note"] == "priority"]
    assert explored and [body["round"] for body in explored] == list(range(1, len(explored) + 1))
    parents = [brief.parent.id for brief in witness.briefs]
    assert [parent["id"] for body in explored for parent in body["parents"]] == parents[
        : len(explored)
    ]
    assert next(body["round"] for body in notes if body["note"] == "memory") == 1


def test_settings_out_of_range_are_refused():
    with pytest.raises(UserError, match="distance"):
        ByEmbedder(distance=-1.0)
    with pytest.raises(UserError, match="explore"):
        Polca(explore=0)


def test_lanes_do_not_wait_for_one_another_and_spread_over_programs():
    def seconds(lanes, explore):
        world = Landscape(sigma=0.1, propose_seconds=10.0, evaluate_seconds=0.1)
        strategy = Polca(explore, 1, None, summarizer=None, lanes=lanes)
        return simulate(
            strategy, task(), world, Budget(evaluations=400, final=0.0), workers=8
        ).seconds

    assert seconds(8, 1) < 0.75 * seconds(1, 8)


def test_a_lost_seed_is_tried_again():
    witness, result = run(
        Polca(), world=Landscape(faults=Faults(lost=0.5, empty=0.5)), evaluations=40
    )
    assert result.verdict is not None
    assert len(witness.summaries) <= len(witness.briefs)


def test_deterministic_tasks_pay_once_for_a_program():
    witness, _ = run(Polca(), on=task(deterministic=True), world=Landscape(), calls=100)
    asked = [request.candidate.id for request in witness.evaluations][
        :-2
    ]  # the last two are the final choice's
    assert len(asked) == len(dict.fromkeys(asked))
    assert len(witness.briefs) > len(asked) / 2


def test_the_summary_shows_contrasting_pairs_within_its_size():
    witness, _ = run(Polca(summarizer=Summarizer(programs=3, chars=2000, every=0)))
    for request in witness.summaries:
        assert request.role == "summarizer" and request.slots["goal"] == "climb"
        assert 1 <= len(request.slots["pairs"]) <= 3
        for pair in request.slots["pairs"]:
            assert pair["success"] is None or pair["success"]["score"] > request.slots["level"]
            assert pair["failure"] is None or pair["failure"]["score"] <= request.slots["level"]
            assert pair["success"] or pair["failure"]
        assert len(msgspec.json.encode(request.slots["pairs"])) < 6000


def test_notes_tell_the_size_of_the_memory_and_the_distances():
    _, result = run(Polca(epsilon=0.1))
    notes = [event.entry.body for event in result.journal.read() if event.entry.kind == "note"]
    last = [body for body in notes if body["note"] == "memory"][-1]
    assert (
        last["size"] > 1
        and last["epsilon"] == 0.1
        and last["quantiles"]["q0.5"] >= last["quantiles"]["q0.1"]
    )
    assert all(len(body["parents"]) <= 5 for body in notes if body["note"] == "priority")


def test_the_distance_of_the_paper_counts_for_its_embedders_only():
    rule = ByEmbedder()
    assert (
        rule.rule_for("gemini/text-embedding-004") == rule.rule_for("gemini-embedding-001") == 0.1
    )
    assert (
        rule.rule_for("hashing-256-v1")
        == rule.rule_for("openai/text-embedding-3-small")
        == Quantile(0.05)
    )


@dataclass(frozen=True)
class Close(Landscape):
    """Every candidate is nearly the same to the embedder.

    So are small edits of a program to a hashing one.
    """

    def embed(self, candidates):
        rows = [(1.0, 0.001 * (int(c.digest[:6], 16) % 1000) / 1000) for c in candidates]
        return pack_vectors(rows, "hashing-256-v1")


@pytest.mark.parametrize("epsilon", [0.1, Quantile(0.9)], ids=str)
def test_a_filter_that_refuses_most_of_what_was_paid_for_says_so_once(epsilon):
    _, result = run(Polca(epsilon=epsilon), world=Close(), calls=300)
    notes = [event.entry.body for event in result.journal.read() if event.entry.kind == "note"]
    crowded = [body for body in notes if body["note"] == "filter_crowded"]
    assert crowded and ["told" in body for body in crowded] == [True] + [False] * (len(crowded) - 1)
    assert "refused most" in crowded[0]["told"] and "epsilon" in crowded[0]["told"]
    widened = crowded[0]["epsilon"][1] < crowded[0]["epsilon"][0]
    assert widened == isinstance(epsilon, Quantile)  # a distance that a person chose stays as it is
    assert ("from now on" in crowded[0]["told"], "--set epsilon=q0.05" in crowded[0]["told"]) == (
        widened,
        not widened,
    )


def test_by_default_such_a_filter_widens_until_the_refused_are_a_minority():
    witness, result = run(Polca(epsilon=ByEmbedder(share=0.9)), world=Close(), calls=300)
    last = [e.entry.body for e in result.journal.read() if e.entry.body.get("note") == "memory"][-1]
    seen = {request.candidate.id for request in witness.evaluations}
    assert last["refused"] < len(witness.briefs) / 2 < len(seen)
