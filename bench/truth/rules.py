"""Plain rules of about ten lines each, to compare strategies with."""

from __future__ import annotations

import math
from dataclasses import dataclass

from culmen.core.brief import Brief
from culmen.core.candidate import Candidate
from culmen.core.ports import Lab


@dataclass(frozen=True)
class PlainRule:
    """Search for one child at a time of the candidate with the highest `index`.

    The child is evaluated once; with `again`, the parent is evaluated once more, too. `lanes` run
    side by side.
    """

    again: bool = False

    async def search(self, lab: Lab) -> None:
        """Run until the budget ends it."""
        seen: dict[str, list[float]] = {}
        known: dict[str, Candidate] = {}
        for candidate in lab.seeds:
            await self.evaluate_once(lab, candidate, seen, known)
        await lab.gather(*(self.run_lane(lab, seen, known) for _ in range(lab.workers)))

    async def run_lane(
        self, lab: Lab, seen: dict[str, list[float]], known: dict[str, Candidate]
    ) -> None:
        """One child after another."""
        while True:
            total = sum(len(scores) for scores in seen.values())
            parent = (
                known[max(seen, key=lambda name: self.candidate_index(seen[name], total))]
                if seen
                else lab.seeds[0]
            )
            answer = await lab.propose(Brief(parent))
            for candidate in (*answer.candidates, *((parent,) if self.again else ())):
                await self.evaluate_once(lab, candidate, seen, known)

    async def evaluate_once(
        self,
        lab: Lab,
        candidate: Candidate,
        seen: dict[str, list[float]],
        known: dict[str, Candidate],
    ) -> None:
        """Evaluate once, on a case drawn at random if there are cases."""
        rollout = await lab.evaluate(candidate, lab.minibatch(1))
        known[candidate.id] = candidate
        scores = [reward for reward in rollout.rewards if reward is not None]
        if scores:
            seen.setdefault(candidate.id, []).extend(scores)

    def candidate_index(self, scores: list[float], total: int) -> float:
        """The index of a candidate, by its scores and the number of all scores."""
        return sum(scores) / len(scores)


@dataclass(frozen=True)
class Greedy(PlainRule):
    """The parent is the candidate with the highest score ever seen."""

    def candidate_index(self, scores: list[float], total: int) -> float:
        return max(scores)


@dataclass(frozen=True)
class FollowMean(PlainRule):
    """The parent is the candidate with the highest mean; it is evaluated after every child."""

    again: bool = True


@dataclass(frozen=True)
class UpperBound(PlainRule):
    """The parent has the highest mean plus 0.1 sqrt(log n / T).

    It is evaluated again after every child.
    """

    again: bool = True
    width: float = 0.1

    def candidate_index(self, scores: list[float], total: int) -> float:
        return super().candidate_index(scores, total) + self.width * math.sqrt(
            math.log(max(total, 2)) / len(scores)
        )


@dataclass(frozen=True)
class Halving:
    """Successive halving over generations of the leader's eight children.

    The worse half is dropped after each round of evaluations; the last one left leads.
    """

    brood: int = 8

    async def search(self, lab: Lab) -> None:
        """Run until the budget ends it."""
        leader = lab.seeds[0]
        while True:
            answers = await lab.gather(*(lab.propose(Brief(leader)) for _ in range(self.brood)))
            field = [leader, *(child for answer in answers for child in answer.candidates)]
            scores: dict[str, list[float]] = {candidate.id: [] for candidate in field}
            while len(field) > 1:
                rollouts = await lab.gather(
                    *(lab.evaluate(candidate, lab.minibatch(1)) for candidate in field)
                )
                for rollout in rollouts:
                    scores[rollout.candidate.id] += [
                        reward for reward in rollout.rewards if reward is not None
                    ]
                means = {
                    name: sum(seen) / len(seen) if seen else -math.inf
                    for name, seen in scores.items()
                }
                field = sorted(field, key=lambda candidate: -means[candidate.id])[
                    : (len(field) + 1) // 2
                ]
            leader = field[0]
