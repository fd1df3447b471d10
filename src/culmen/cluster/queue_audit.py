"""Comparison of two workers' evaluations of the same item: who differs, and how often.

Pure: the carrier feeds it answers and acts on its verdicts. Where two answers differ, a third
decides, or the answer of a trusted worker. A worker is marked if it lost `STRIKES` such decisions,
on different candidates, and loses them much more often than the others; or, where scores are noisy,
if its scores are shifted against those of the others beyond chance. `vet_answer` refuses answers
that no honest worker gives.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterable
from typing import Generic, NamedTuple, TypeVar

import msgspec

from culmen.cluster import messages
from culmen.cluster.messages import EvaluationJob, NodeReply, NodeTerms
from culmen.core.evaluation import (
    EVALUATOR_LOG,
    LEVELS,
    Observation,
    Scoring,
    Status,
    trust_rank,
)
from culmen.core.task import Task
from culmen.core.usage import Usage
from culmen.evaluate.jail import probes

T = TypeVar("T")

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
KEPT_RESULTS = 2000
"""Unchecked results of a worker that are made again if it is marked, the latest."""
MOST_PAIRS = 500
"""Latest pairs that count for noise."""
CHANCE = 1e-6
"""Probability of a worker's shift by chance below which it is marked."""


def vet_answer(
    reply: bytes, job: EvaluationJob, digest: str, scoring: Scoring
) -> Observation | None:
    """The observation of a worker's answer; None if it does not answer this job.

    Costs and signs that a worker claims are dropped, and its trust is no stronger than the run's.
    """
    try:
        seen = messages.load_struct(reply, NodeReply).observation
    except (ValueError, RecursionError, msgspec.ValidationError):
        return None
    if seen is None or seen.status is Status.LOST:
        return None
    asked = (job.id, job.case or "", job.seed, digest)
    finite = all(map(math.isfinite, (seen.score or 0.0, seen.certified or 0.0, seen.seconds)))
    if (seen.candidate, seen.case, seen.seed, seen.evaluator) != asked or not finite:
        return None
    if seen.ok != (seen.score is not None) or seen.trust not in ("", *LEVELS):
        return None
    vouched = seen.certified is not None and job.certify
    if trust_rank(seen.trust) < trust_rank(scoring.trust) and not vouched:
        return None
    seconds = max(0.0, seen.seconds)
    return msgspec.structs.replace(seen, seconds=seconds, usage=Usage(), asked=(), signs=())


def vet_greeting(reply: bytes, terms: NodeTerms) -> NodeReply | None:
    """A worker's greeting; None if no honest worker gives it, or it lacks the level required."""
    try:
        greeting = messages.load_struct(reply, NodeReply)
    except (ValueError, RecursionError, msgspec.ValidationError):
        return None
    known = greeting.level in probes.LEVELS and greeting.scoring.trust in ("", *LEVELS)
    if not known or greeting.error is not None or greeting.lost:
        return None
    weaker = terms.require and probes.level_rank(greeting.level) > probes.level_rank(terms.require)
    return None if weaker else greeting


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
        self._differences: deque[tuple[str, str, float]] = deque(maxlen=MOST_PAIRS)
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
        kept = (each for each in self._differences if not self.marked & {each[0], each[1]})
        self._differences = deque(kept, MOST_PAIRS)
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
        return usual == 0.0 or abs(_score(one) - _score(other)) > FAR * usual

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


def name_voters(votes: list[Vote], stands: Vote, auditor: Auditor) -> Observation:
    """The vote's observation; if others differ, the evaluator's log names them."""
    seen = stands.observation
    against = [v.worker for v in votes if not auditor.is_alike(v.observation, seen)]
    if not against:
        return seen
    line = f"culmen: evaluated by {stands.worker}; {', '.join(against)} came to other results"
    log = "\n".join(filter(None, (seen.artifacts.get(EVALUATOR_LOG, ""), line)))
    return msgspec.structs.replace(seen, artifacts={**seen.artifacts, EVALUATOR_LOG: log})


class Rechecks(Generic[T]):
    """Unchecked results by worker, which are made again once the worker is marked.

    Each has its item `T` with it; of one worker the latest `KEPT_RESULTS` are remembered.
    """

    def __init__(self) -> None:
        self._unchecked: defaultdict[str, dict[bytes, tuple[T, Observation]]] = defaultdict(dict)
        self._pending: dict[bytes, tuple[str, T, Observation]] = {}
        self._seen: defaultdict[str, list[tuple[str, bool]]] = defaultdict(list)

    def keep(self, worker: str, key: bytes, item: T, seen: Observation) -> None:
        """Remember a result that only this worker made."""
        kept = self._unchecked[worker]
        kept[key] = (item, seen)
        if len(kept) > KEPT_RESULTS:
            del kept[next(iter(kept))]

    def begin(self, worker: str) -> list[T]:
        """The items of a worker that is marked."""
        unchecked = self._unchecked.pop(worker, {})
        self._pending |= {key: (worker, *each) for key, each in unchecked.items()}
        return [item for item, _ in unchecked.values()]

    def waiting(self) -> list[T]:
        """All items that wait for another worker's result."""
        return [item for _, item, _ in self._pending.values()]

    def pending(self, key: bytes) -> T | None:
        """The item that waits for another worker's result; None if there is none."""
        return self._pending[key][1] if key in self._pending else None

    def compare(self, key: bytes, again: Observation | None, auditor: Auditor) -> tuple[str, str]:
        """Take another worker's result (None: lost); after the last one, its worker and a sentence.

        Before that the sentence is "".
        """
        worker, _, seen = self._pending.pop(key)
        if again is not None:
            self._seen[worker].append((seen.candidate, not auditor.is_alike(seen, again)))
        if any(name == worker for name, _, _ in self._pending.values()):
            return worker, ""
        return worker, _describe_recheck(worker, self._seen.pop(worker, []))


def _describe_recheck(worker: str, results: list[tuple[str, bool]]) -> str:
    """A sentence on the results that were made again: candidate, and True if it differs."""
    wrong = [candidate for candidate, differs in results if differs]
    names = sorted({candidate[:12] for candidate in wrong})
    text = (
        f"{len(results)} results of worker {worker} that the search has used were evaluated again "
        f"by others: {len(wrong)} differ"
    )
    return text + (f", of candidates {', '.join(names[:20])}" if names else "")


def _score(observation: Observation) -> float:
    return -math.inf if observation.score is None else observation.score
