"""One island of PACEvolve: a population, an idea repository with its versions, momentum, and a branch now and then."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Annotated, Protocol

import msgspec

from culmen.core.evaluation import Rollout
from culmen.memory.ideas import Idea, Ranked, Repository
from culmen.memory.momentum import Momentum, draw, version_weights
from culmen.memory.ranked import Population
from culmen.strategies.parts.settings import About, check


class Versions(Protocol):
    """Which old version an island goes back to: weights, the oldest first."""

    def weights(self, count: int) -> list[float]: ...


@dataclass(frozen=True)
class Early:
    """Early versions are preferred: back to where the way was still open (the authors' code)."""

    power: Annotated[float, About("how strongly", least=0)] = 1.5

    def __post_init__(self) -> None:
        check(self)

    def weights(self, count: int) -> list[float]:
        return version_weights(count, self.power)


@dataclass(frozen=True)
class Recent:
    """Recent versions are preferred: a small step back."""

    power: Annotated[float, About("how strongly", least=0)] = 1.5

    def __post_init__(self) -> None:
        check(self)

    def weights(self, count: int) -> list[float]:
        return version_weights(count, self.power)[::-1]


@dataclass
class Branch:
    """A way back to an old version: followed for `left` more experiments, starting from its best program; what was
    known before it is kept aside."""

    left: int
    kept: Repository
    parent: Rollout | None


@dataclass
class Island:
    """What one coroutine of the search works on. `rollouts` finds a program by its candidate's id."""

    population: Population
    momentum: Momentum
    ideas: Repository = field(default_factory=Repository)
    versions: list[Repository] = field(default_factory=list[Repository])
    branch: Branch | None = None
    forced: Rollout | None = None
    rollouts: dict[str, Rollout] = field(default_factory=dict[str, Rollout])

    @property
    def best(self) -> float:
        """Its best reward; -inf before it has one."""
        return self.momentum.best

    def parent(self, top: int, size: int, rng: Random) -> Rollout | None:
        """What to improve next: a program taken over (once), the branch's, else the winner of a tournament."""
        forced, self.forced = self.forced, None
        if forced is not None:
            return forced
        if self.branch is not None and self.branch.parent is not None:
            return self.branch.parent
        return self.population.tournament(top, size, rng)

    def take(self, rollout: Rollout, target: float) -> bool:
        """Take in a scored program; True if it is the island's best so far."""
        reward = rollout.reward
        assert reward is not None
        better = reward > self.best
        self.momentum.record(reward, target)
        self.population.add(rollout)
        self.rollouts[rollout.candidate.id] = rollout
        self.ideas = self.ideas.bettered(Ranked(rollout.candidate, reward))
        if self.branch is not None and _above(rollout, self.branch.parent):
            self.branch.parent = rollout
        return better

    def count_turn(self) -> None:
        """One more experiment; a branch that has had all of its own ends, and what was known before it comes back."""
        if self.branch is None:
            return
        self.branch.left -= 1
        if self.branch.left <= 0:
            kept, self.branch = self.branch.kept, None
            self.ideas = merged(self.ideas, kept)

    def keep_version(self) -> None:
        """Keep the repository as it is now, to go back to."""
        self.versions.append(self.ideas)

    def backtrack(self, rule: Versions, length: int, rng: Random) -> int:
        """Go back to an old version for `length` experiments; returns its index."""
        chosen = draw(rule.weights(len(self.versions)), rng) if self.versions else 0
        version = self.versions[chosen] if self.versions else self.ideas
        start = self.rollouts.get(version.best.candidate.id) if version.best else None
        self.branch = Branch(length, self.ideas, start)
        self.ideas = msgspec.structs.replace(version, next=max(version.next, self.ideas.next))
        self.momentum.intervene()
        return chosen

    def take_over(self, ideas: tuple[Idea, ...], program: Rollout | None) -> None:
        """Crossover: another island's ideas beside one's own, and its best program as the next parent, once."""
        self.ideas, self.forced = self.ideas.joined(ideas), program
        if program is not None:
            self.rollouts[program.candidate.id] = program
        self.momentum.intervene()

    def best_version(self) -> Repository:
        """The latest version that has the island's best program."""
        scored = [version for version in (*self.versions, self.ideas) if version.best]
        return max(reversed(scored), key=lambda v: v.best.reward if v.best else 0.0) if scored else self.ideas


def merged(branch: Repository, kept: Repository) -> Repository:
    """A branch's repository with what was known before it: an idea of the same number keeps the longer history."""
    known = {idea.number: idea for idea in kept.ideas}
    for idea in branch.ideas:
        other = known.get(idea.number)
        if other is None or idea.tries >= other.tries:
            known[idea.number] = idea
    ideas = tuple(known[number] for number in sorted(known))
    repository = msgspec.structs.replace(branch, ideas=ideas, next=max(branch.next, kept.next))
    return repository.bettered(kept.best) if kept.best else repository


def _above(rollout: Rollout, other: Rollout | None) -> bool:
    reward = rollout.reward
    return reward is not None and (other is None or other.reward is None or reward > other.reward)
