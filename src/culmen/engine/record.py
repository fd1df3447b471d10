"""The engine's own account of every candidate: what the final choice and progress are made from.

A candidate's place is judged by a shrunken mean (empirical Bayes, normal-normal): a mean over few noisy observations is
pulled towards the mean of all candidates, so one lucky sample never wins.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from culmen.core.candidate import Candidate
from culmen.core.evaluation import Observation, Status
from culmen.core.task import Task
from culmen.core.trust import weakest


@dataclass(slots=True)
class Tally:
    """Rewards of one candidate: count, mean, sum of squared deviations (Welford), failures."""

    candidate: Candidate
    order: int
    count: int = 0
    mean: float = 0.0
    m2: float = 0.0
    failures: int = 0
    certified: float | None = None  # the worst reward that the verifier certified
    refused: bool = False  # the verifier was asked and did not accept an output
    barred: bool = False  # rejected for its integrity
    trust: str = ""  # of the weakest observation

    def add(self, reward: float) -> None:
        """One more scored observation."""
        self.count += 1
        delta = reward - self.mean
        self.mean += delta / self.count
        self.m2 += delta * (reward - self.mean)

    def vouch(self, certified: float | None) -> None:
        """What a verifier that was asked said; None: not accepted."""
        self.refused = self.refused or certified is None
        if certified is not None:
            self.certified = certified if self.certified is None else min(self.certified, certified)

    @property
    def variance(self) -> float | None:
        """Sample variance, None below two observations."""
        return self.m2 / (self.count - 1) if self.count > 1 else None


@dataclass(slots=True)
class Noise:
    """Variance within candidates (None: cannot tell), and mean and variance of the candidates' true rewards."""

    within: float | None
    centre: float
    between: float


@dataclass
class Record:
    """All tallies of a run, fed in journal order."""

    task: Task
    tallies: dict[str, Tally] = field(default_factory=dict[str, Tally])
    evaluations: int = 0
    slowest: float = 0.0  # seconds of the longest evaluation that gave a score

    def see(self, candidate: Candidate, observation: Observation) -> None:
        """Count one observation; lost ones count for nothing."""
        if observation.status is Status.LOST:
            return
        self.evaluations += 1
        tally = self.tallies.get(candidate.id)
        if tally is None:
            tally = self.tallies[candidate.id] = Tally(candidate, len(self.tallies))
        tally.barred = tally.barred or observation.barred
        reward = self.task.reward(observation)
        if reward is not None and observation.strict is not None:
            tally.vouch(None if observation.certified is None else self.task.worth(observation))
        if reward is None:
            tally.failures += 1
        else:
            self.slowest = max(self.slowest, observation.seconds)
            tally.add(reward)
            tally.trust = weakest((observation.trust, tally.trust or observation.trust))

    def noise(self) -> Noise:
        """Pooled within-candidate variance, and the spread between candidates that remains after it."""
        scored = [t for t in self.tallies.values() if t.count]
        degrees = sum(t.count - 1 for t in scored)
        within = sum(t.m2 for t in scored) / degrees if degrees else (0.0 if self.task.deterministic else None)
        if not scored:
            return Noise(within, 0.0, 0.0)
        centre = sum(t.mean for t in scored) / len(scored)
        spread = sum((t.mean - centre) ** 2 for t in scored) / max(1, len(scored) - 1)
        sampling = (within or 0.0) * sum(1 / t.count for t in scored) / len(scored)
        return Noise(within, centre, max(spread - sampling, spread * 0.05))

    def ranking(self) -> list[Tally]:
        """Candidates that ever scored, best first by certified value where there is one, else by shrunken mean.

        Those whose output a verifier did not accept come last; fewer failures, then age, break ties. None that was
        rejected for its integrity is among them.
        """
        noise = self.noise()
        scored = [t for t in self.tallies.values() if t.count and not t.barred]
        return sorted(scored, key=lambda t: (t.refused, -self._judged(t, noise), t.failures, t.order))

    def shrunken(self, tally: Tally) -> float:
        """The candidate's shrunken mean under the noise seen so far."""
        return self._judged(tally, self.noise())

    def _judged(self, tally: Tally, noise: Noise) -> float:
        value = tally.mean if tally.certified is None else tally.certified
        if tally.certified is None and noise.within and noise.between > 0:
            weight = noise.between / (noise.between + noise.within / tally.count)
            value = noise.centre + weight * (tally.mean - noise.centre)
        return self._with_failures(value, tally)

    def _with_failures(self, value: float, tally: Tally) -> float:
        """A failed observation counts as the lowest reward there is (declared, else seen)."""
        if not tally.failures:
            return value
        floor = self.task.objective.floor
        if floor is None:
            floor = min(t.mean for t in self.tallies.values() if t.count)
        share = tally.failures / (tally.failures + tally.count)
        return value + share * (min(floor, value) - value)


def standard_error(tally: Tally, noise: Noise) -> float | None:
    """Standard error of a tally's mean, from its own variance or the pooled one; None if neither is known."""
    variance = tally.variance if tally.count >= 5 else noise.within
    return math.sqrt(variance / tally.count) if variance is not None and tally.count else None
