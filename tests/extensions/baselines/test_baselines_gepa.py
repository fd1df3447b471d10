"""GEPA on a task of several cases and parts.

One part at a time, leaders survive, lineages merge.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

import msgspec
import pytest

from culmen.core.brief import Brief, Proposal
from culmen.core.candidate import Candidate, Origin
from culmen.core.evaluation import Case, Observation, Status
from culmen.core.event import Effect, EvaluateRequest, ProposeRequest, Result
from culmen.core.task import Surface, Task
from culmen.core.usage import Budget, Usage
from culmen.extensions.baselines.gepa import Gepa
from culmen.extensions.baselines.pareto import Family, Frontier
from culmen.testing.virtual import Simulation, simulate
from tests.strategies.helpers import Witness

CASES = tuple(
    Case(f"{part}{i}", part, split=split)
    for split in ("train", "val")
    for part in "ab"
    for i in range(3)
)
TASK = Task(
    "two",
    seeds=({"a": "0", "b": "0", "c": "0"},),
    cases=CASES,
    surface=Surface(frozen=("c",)),
    deterministic=True,
)


@dataclass
class Sum:
    """A case of `a` is worth the number in part a.

    A proposal changes every part it can, by -1..2.
    """

    def perform(self, effect: Effect, rng: Random) -> tuple[float, Result]:
        request = effect.request
        if isinstance(request, EvaluateRequest):
            assert request.case is not None
            score = float(request.candidate.parts[request.case.input])
            return 1.0, Observation(request.candidate.id, Status.OK, score, case=request.case.id)
        assert isinstance(request, ProposeRequest)
        return 2.0, self.propose(request.brief, Random(request.seed))

    def propose(self, brief: Brief, rng: Random) -> Proposal:
        assert brief.parent is not None
        parts = {
            n: str(int(t) + rng.randint(-1, 2)) for n, t in brief.parent.parts.items() if n != "c"
        }
        child = Candidate.of({**brief.parent.parts, **parts}, (brief.parent.id,))
        return Proposal((child,), usage=Usage(calls=1))


def climb(
    strategy: Gepa, evaluations: int = 600, world: Any = None, workers: int = 4
) -> Simulation:
    budget = Budget(evaluations=evaluations, calls=400)
    return simulate(strategy, TASK, world or Sum(), budget, seed=1, workers=workers)


def notes(done: Simulation, kind: str) -> list[dict[str, Any]]:
    return [e.entry.body for e in done.journal.read() if e.entry.body.get("note") == kind]


def test_one_part_changes_at_a_time_in_turn_and_frozen_ones_never() -> None:
    done = climb(Gepa(merges=0))
    told = notes(done, "pareto")
    parts = [n["part"] for n in told]
    assert set(parts) == {"a", "b"} and any(n["accepted"] for n in told)
    by_parent: dict[str, list[str]] = {}
    for note in told:
        by_parent.setdefault(note["parent"], []).append(note["part"])
    assert all(
        turns == ["a", "b"] * (len(turns) // 2) + ["a"] * (len(turns) % 2)
        for turns in by_parent.values()
    )
    seed = TASK.initial_candidates()[0]
    judged = [
        done.search.lab.find(tally.id).parts for tally in done.search.evidence.account.tallies()
    ]
    for parts in judged:
        near = [p for p in judged if sum(p[name] != parts[name] for name in p) == 1]
        assert parts["c"] == "0" and (near or parts == seed.parts)


def test_lineages_are_merged_and_the_merged_one_is_as_good_as_both() -> None:
    done = climb(Gepa(batch=2, lanes=4))
    merges = notes(done, "merge")
    assert 0 < len(merges) <= 5 and any(m["accepted"] for m in merges)
    assert done.verdict is not None and done.verdict.score > 1.0


def test_a_merge_takes_from_each_what_it_alone_changed() -> None:
    def text(a: str, b: str, c: str) -> Candidate:
        return Candidate.of({"a": a, "b": b, "c": c})

    old, one, two = text("0", "0", "0"), text("1", "0", "8"), text("0", "1", "9")
    family, frontier = Family(), Frontier()
    family.add(old)
    family.add(one, old.id)
    family.add(two, old.id)
    frontier.add(old.id, {"x": 0.0, "y": 0.0})
    frontier.add(one.id, {"x": 2.0, "y": 0.0})
    frontier.add(two.id, {"x": 0.0, "y": 1.0})
    merged = family.draw_merge(frontier, Random(0))
    assert merged is not None and merged.child.parts == {
        "a": "1",
        "b": "1",
        "c": "8",
    }  # c: both, so the better one's
    assert set(merged.child.parents) == {one.id, two.id}
    assert family.draw_merge(frontier, Random(0)) is None  # once only


@pytest.mark.parametrize("most", [1, 2])
def test_merges_are_tried_so_often_and_only_after_a_child_was_accepted(most: int) -> None:
    done = climb(Gepa(merges=most, batch=2, lanes=4))
    told = [
        e.entry.body for e in done.journal.read() if e.entry.body.get("note") in ("pareto", "merge")
    ]
    after = [told[place + 1] for place, note in enumerate(told[:-1]) if note["note"] == "merge"]
    assert len(after) == most and all(
        note["note"] == "pareto" and note["accepted"] for note in after
    )


class Clashing(Sum):
    """Parts that are both above zero do not go together."""

    def perform(self, effect: Effect, rng: Random) -> tuple[float, Result]:
        seconds, result = super().perform(effect, rng)
        if isinstance(effect.request, EvaluateRequest):
            parts = effect.request.candidate.parts
            if int(parts["a"]) > 0 and int(parts["b"]) > 0 and isinstance(result, Observation):
                result = msgspec.structs.replace(result, score=-9.0)
        return seconds, result


@pytest.mark.parametrize(("world", "accepted"), [(Sum(), True), (Clashing(), False)])
def test_a_merged_candidate_joins_where_it_is_no_worse_than_both_on_the_cases_drawn(
    world: Sum, accepted: bool
) -> None:
    """On a single case it has the score of the better of the two.

    It is no better, and joins all the same.
    """
    witness = Witness(world)  # type: ignore[arg-type]
    merges = notes(climb(Gepa(batch=2, subsample=1, lanes=4), world=witness), "merge")
    assert merges and all(merge["accepted"] == accepted for merge in merges)
    for merge in merges:
        seen = {each.case.id for each in witness.evaluations if each.candidate.id == merge["child"]}
        assert (seen >= {case.id for case in TASK.split("val")}) == accepted and len(seen) >= 1


class Alike(Sum):
    """A proposal is worth just as much as its parent."""

    def propose(self, brief: Brief, rng: Random) -> Proposal:
        assert brief.parent is not None
        parts = {**brief.parent.parts, "a": f"{brief.parent.parts['a']}.0"}
        return Proposal((Candidate.of(parts, (brief.parent.id,)),), usage=Usage(calls=1))


def test_a_child_that_is_just_as_good_is_not_accepted() -> None:
    told = notes(climb(Gepa(), evaluations=60, world=Alike()), "pareto")
    assert told and not any(note["accepted"] for note in told)


class Told(Sum):
    """Changes the part that the request names, or all of them; and gives a reason."""

    def __init__(self, every: bool) -> None:
        self.every = every

    def propose(self, brief: Brief, rng: Random) -> Proposal:
        assert brief.parent is not None
        named = brief.context.partition("`")[2].partition("`")[0]
        parts = {
            n: str(int(t) + rng.randint(1, 3))
            for n, t in brief.parent.parts.items()
            if self.every or n == named
        }
        origin = Origin("model", note="why")
        return Proposal(
            (Candidate.of({**brief.parent.parts, **parts}, (brief.parent.id,), origin),)
        )


@pytest.mark.parametrize("every", [False, True])
def test_what_was_said_of_a_change_stays_with_it_unless_some_of_it_was_dropped(every: bool) -> None:
    witness = Witness(Told(every))  # type: ignore[arg-type]
    climb(Gepa(merges=0), evaluations=100, world=witness)
    made = [each.candidate for each in witness.evaluations if each.candidate.parents]
    assert made and {child.origin.note for child in made} == {"" if every else "why"}
    assert all(child.parts["c"] == "0" and child.origin.operator == "model" for child in made)


def test_a_candidate_of_one_part_is_not_asked_to_change_one_part_only() -> None:
    alone = Task(
        "one", seeds=({"a": "0"},), cases=tuple(case for case in CASES if case.input == "a")
    )
    witness = Witness(Sum())  # type: ignore[arg-type]
    simulate(Gepa(), alone, witness, Budget(evaluations=40), seed=1)
    assert witness.briefs and not any(brief.context for brief in witness.briefs)
    both = msgspec.structs.replace(TASK, seeds=({"a": "0", "b": "0"},), surface=Surface())
    witness = Witness(Sum())  # type: ignore[arg-type]
    simulate(Gepa(), both, witness, Budget(evaluations=40), seed=1)
    assert witness.briefs and all(
        "change only the part" in brief.context for brief in witness.briefs
    )
