"""Comparison of evaluations that two workers made of the same item: who differs, and how often.

Pure: the carrier feeds it answers and acts on its verdicts. Where two answers differ, a third
decides, or the answer of a trusted worker. A worker is marked if it lost `STRIKES` such decisions,
on different candidates, and loses them much more often than the others; or, where scores are noisy,
if its scores are shifted against those of the others beyond chance.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from culmen.core.evaluation import Observation
from culmen.core.task import Task

STRIKES = 3
"""Lost decisions after which a worker can be marked: one may be a fault of its machine."""
EXCESS = 3.0
"""A marked worker loses decisions this much more often than the others on average."""
TOLERANCE = 1e-6
"""Relative difference of numbers that machines may have."""
FAR = 12.0
"""Differences of noisy scores, in medians of all, beyond which a third decides."""
FEW_PAIRS = 20
"""Pairs before noise is judged; until then every difference is decided by a third."""
CHANCE = 1e-6
"""Probability of a worker's shift by chance below which it is marked."""


class Vote(NamedTuple):
    """One worker's answer to an item."""

    worker: str
    trusted: bool
    observation: Observation


class Auditor:
    """Verdicts on checked items of one run, and the workers that they speak against."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._strikes: defaultdict[str, set[str]] = defaultdict(set)
        self._checked: defaultdict[str, int] = defaultdict(int)
        self._differences: list[tuple[str, str, float]] = []
        self.marked: set[str] = set()

    def decide(self, votes: list[Vote]) -> Vote | None:
        """The vote that stands; None if another one is needed.

        Three votes that all differ come from a candidate that does not repeat itself: the vote with
        the median score stands, and nobody gets a strike.
        """
        trusted = [vote for vote in votes if vote.trusted]
        if len(votes) < 2 and not trusted:
            return None
        if trusted:
            return self._settle(trusted[0], votes)
        if len(votes) == 2:
            self._note_difference(votes[0], votes[1])
            if self._is_contested(votes[0].observation, votes[1].observation):
                return None
            return self._settle(votes[0], votes)
        for vote in votes:
            if sum(not self._is_contested(vote.observation, o.observation) for o in votes) >= 2:
                return self._settle(vote, votes)
        for vote in votes:
            self._checked[vote.worker] += 1
        return sorted(votes, key=lambda vote: _score(vote.observation))[len(votes) // 2]

    def _settle(self, right: Vote, votes: list[Vote]) -> Vote:
        for vote in votes:
            self._checked[vote.worker] += 1
            if self._is_contested(vote.observation, right.observation):
                self._strikes[vote.worker].add(right.observation.candidate)
        return right

    def suspects(self) -> dict[str, str]:
        """Workers that are newly marked, each with the reason; they stay marked."""
        found = {
            worker: f"{len(strikes)} of its {self._checked[worker]} checked results differ from "
            "those that two others, or a trusted one, agree on"
            for worker, strikes in self._strikes.items()
            if worker not in self.marked and self._loses_often(worker)
        }
        shifted = self._shifted_worker()
        if shifted and shifted not in found:
            found[shifted] = "its scores are shifted against those of the other workers"
        self.marked.update(found)
        self._differences = [
            each for each in self._differences if not self.marked & {each[0], each[1]}
        ]
        return found

    def is_alike(self, one: Observation, other: Observation) -> bool:
        """True if two observations of one item show nothing but noise."""
        return not self._is_contested(one, other)

    def _loses_often(self, worker: str) -> bool:
        others = [name for name in self._checked if name not in (*self.marked, worker)]
        lost = sum(len(self._strikes[name]) for name in others if name in self._strikes)
        checked = sum(self._checked[name] for name in others)
        own = len(self._strikes[worker])
        usual = lost / checked if checked else 0.0
        return own >= STRIKES and own / self._checked[worker] > EXCESS * usual

    def _note_difference(self, one: Vote, other: Vote) -> None:
        if one.observation.ok and other.observation.ok:
            difference = _score(one.observation) - _score(other.observation)
            self._differences.append((one.worker, other.worker, difference))

    def _is_contested(self, one: Observation, other: Observation) -> bool:
        """True if a third must decide: the difference is no noise of the evaluator."""
        if one.ok != other.ok:
            return True
        if not one.ok or all(
            math.isclose(a, b, rel_tol=TOLERANCE, abs_tol=TOLERANCE * TOLERANCE)
            for a, b in zip(self._values(one), self._values(other), strict=True)
        ):
            return False
        usual = self._usual_difference()
        return abs(_score(one) - _score(other)) > FAR * usual

    def _values(self, observation: Observation) -> list[float]:
        """The numbers that decide: score, certified value, metrics of the objective."""
        names = sorted(goal.name for goal in self._task.objective.metrics)
        found = [observation.score, observation.certified]
        found += [observation.metrics.get(name) for name in names]
        return [math.inf if value is None else value for value in found]

    def _usual_difference(self) -> float:
        """Median difference between two workers; 0 for exact evaluators, or if unknown."""
        if self._task.deterministic or len(self._differences) < FEW_PAIRS:
            return 0.0
        sizes = sorted(abs(difference) for _, _, difference in self._differences)
        return sizes[len(sizes) // 2]

    def _shifted_worker(self) -> str:
        """The worker whose scores lie above, or below, the others' beyond chance; "" if none.

        A sign test of each against all others. With two workers both look alike: then none.
        """
        signs: defaultdict[str, list[bool]] = defaultdict(list)
        for one, other, difference in self._differences:
            if difference:
                signs[one].append(difference > 0)
                signs[other].append(difference < 0)
        chances = sorted((sign_chance(seen), worker) for worker, seen in signs.items())
        if len(chances) < 3 or chances[0][0] > CHANCE or chances[0][0] > chances[1][0] * 1e-2:
            return ""
        return chances[0][1]


def sign_chance(signs: Iterable[bool]) -> float:
    """Two-sided probability of a split at least as uneven between equally likely signs."""
    seen = list(signs)
    count, above = len(seen), sum(seen)
    tail = sum(math.comb(count, k) for k in range(max(above, count - above), count + 1))
    return min(1.0, 2 * tail / 2**count)


def describe_recheck(worker: str, differing: Mapping[str, bool]) -> str:
    """A sentence on a marked worker's results, by candidate: True if another worker differs."""
    wrong = sorted(candidate for candidate, differs in differing.items() if differs)
    text = f"of {len(differing)} results of {worker} that the search had used, evaluated again by"
    named = ", ".join(id[:12] for id in wrong[:20]) + (", ..." if len(wrong) > 20 else "")
    return f"{text} others, {len(wrong)} differ" + (f": candidates {named}" if wrong else "")


def _score(observation: Observation) -> float:
    return -math.inf if observation.score is None else observation.score
