"""GEPA on a task of several cases and parts: one part at a time, who leads survives, lineages merge."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from culmen.core.brief import Brief, Proposal
from culmen.core.candidate import Candidate
from culmen.core.evaluation import Case, Observation, Status
from culmen.core.event import Effect, EvaluateRequest, ProposeRequest, Result
from culmen.core.task import Surface, Task
from culmen.core.usage import Budget, Usage
from culmen.memory.pareto import Family, Frontier
from culmen.strategies.gepa import Gepa
from culmen.testing.virtual import simulate

CASES = tuple(Case(f"{part}{i}", part, split=split) for split in ("train", "val") for part in "ab" for i in range(3))
TASK = Task(
    "two", seeds=({"a": "0", "b": "0", "c": "0"},), cases=CASES, surface=Surface(frozen=("c",)), deterministic=True
)


@dataclass
class Sum:
    """A case of `a` is worth the number in part a; a proposal changes every part it can, by -1..2."""

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
        parts = {n: str(int(t) + rng.randint(-1, 2)) for n, t in brief.parent.parts.items() if n != "c"}
        child = Candidate.of({**brief.parent.parts, **parts}, (brief.parent.id,))
        return Proposal((child,), usage=Usage(calls=1))


def climb(strategy: Gepa, evaluations: int = 600):
    return simulate(strategy, TASK, Sum(), Budget(evaluations=evaluations, calls=400), seed=1, workers=4)


def test_one_part_changes_at_a_time_in_turn_and_frozen_ones_never() -> None:
    done = climb(Gepa(merges=0))
    notes = [e.entry.body for e in done.journal.read() if e.entry.body.get("note") == "pareto"]
    parts = [n["part"] for n in notes]
    assert set(parts) == {"a", "b"} and any(n["accepted"] for n in notes)
    by_parent: dict[str, list[str]] = {}
    for note in notes:
        by_parent.setdefault(note["parent"], []).append(note["part"])
    assert all(turns == ["a", "b"] * (len(turns) // 2) + ["a"] * (len(turns) % 2) for turns in by_parent.values())
    seed = TASK.candidates()[0]
    judged = [done.search.lab.find(tally.id).parts for tally in done.search.record.tallies()]
    for parts in judged:
        near = [p for p in judged if sum(p[name] != parts[name] for name in p) == 1]
        assert parts["c"] == "0" and (near or parts == seed.parts)


def test_lineages_are_merged_and_the_merged_one_is_as_good_as_both() -> None:
    done = climb(Gepa(batch=2, lanes=4))
    merges = [e.entry.body for e in done.journal.read() if e.entry.body.get("note") == "merge"]
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
    merged = family.merge(frontier, Random(0))
    assert merged is not None and merged.child.parts == {"a": "1", "b": "1", "c": "8"}  # c: both, so the better one's
    assert set(merged.child.parents) == {one.id, two.id}
    assert family.merge(frontier, Random(0)) is None  # once only
