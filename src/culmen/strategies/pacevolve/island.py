"""One island of PACEvolve: population, versions of its ideas, momentum, and interventions."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Annotated, Protocol

import msgspec

from culmen.core.evaluation import Rollout
from culmen.strategies.pacevolve.memory import Idea, IdeaRepository, Ranked
from culmen.strategies.settings import About, check


class Versions(Protocol):
    """Rule for the old version to which an island goes back: weights, the oldest first."""

    def weights(self, count: int) -> list[float]: ...


@dataclass(frozen=True)
class Early:
    """Preference for early versions, from which more is still possible (the authors' code)."""

    power: Annotated[float, About("how strongly", least=0)] = 1.5

    def __post_init__(self) -> None:
        check(self)

    def weights(self, count: int) -> list[float]:
        return version_weights(count, self.power)


@dataclass(frozen=True)
class Recent:
    """Preference for recent versions: a small step back."""

    power: Annotated[float, About("how strongly", least=0)] = 1.5

    def __post_init__(self) -> None:
        check(self)

    def weights(self, count: int) -> list[float]:
        return version_weights(count, self.power)[::-1]


@dataclass
class Branch:
    """A search from an old version, followed for `left` more experiments.

    It starts from the version's best program; the repository before the branch is kept in `kept`.
    """

    left: int
    kept: IdeaRepository
    parent: Rollout | None


@dataclass
class Island:
    """The state of one island, used by one coroutine.

    `rollouts` finds a program by its candidate's id. `plan` has the experiments decided already,
    with parent and idea; it ends with the ideas it was made for.
    """

    population: Population
    momentum: Momentum
    ideas: IdeaRepository = field(default_factory=IdeaRepository)
    versions: list[IdeaRepository] = field(default_factory=list[IdeaRepository])
    branch: Branch | None = None
    forced: Rollout | None = None
    rollouts: dict[str, Rollout] = field(default_factory=dict[str, Rollout])
    plan: list[tuple[Rollout | None, int, str]] = field(
        default_factory=list[tuple[Rollout | None, int, str]]
    )

    @property
    def best(self) -> float:
        """Its best reward; -inf before it has one."""
        return self.momentum.best

    def next_parent(self, top: int, size: int, rng: Random) -> Rollout | None:
        """The next program to improve.

        It is a program taken over (once), else the branch's, else the winner of a tournament.
        """
        forced, self.forced = self.forced, None
        if forced is not None:
            return forced
        if self.branch is not None and self.branch.parent is not None:
            return self.branch.parent
        return self.population.tournament_winner(top, size, rng)

    def add_rollout(self, rollout: Rollout, target: float) -> bool:
        """Take in a scored program; True if it is the island's best so far."""
        reward = rollout.reward
        assert reward is not None
        better = reward > self.best
        self.momentum.record_reward(reward, target)
        self.population.add(rollout)
        self.rollouts[rollout.candidate.id] = rollout
        self.ideas = self.ideas.with_better_program(Ranked(rollout.candidate, reward))
        if self.branch is not None and _is_better(reward, self.branch.parent):
            self.branch.parent = rollout
        return better

    def count_turn(self) -> None:
        """Count one more experiment, and end a branch that has had all of its own.

        The repository from before the branch is merged back at its end.
        """
        if self.branch is None:
            return
        self.branch.left -= 1
        if self.branch.left <= 0:
            kept, self.branch, self.plan = self.branch.kept, None, []
            self.ideas = merged_repository(self.ideas, kept)

    def keep_version(self) -> None:
        """Append the present repository to the versions."""
        self.versions.append(self.ideas)

    def backtrack(self, rule: Versions, length: int, rng: Random) -> int:
        """Go back to an old version for `length` experiments; returns its index."""
        chosen = draw_index(rule.weights(len(self.versions)), rng)
        version = self.versions[chosen]
        start = self.rollouts.get(version.best.candidate.id) if version.best else None
        self.branch, self.plan = Branch(length, self.ideas, start), []
        self.ideas = msgspec.structs.replace(version, next=max(version.next, self.ideas.next))
        self.momentum.begin_freeze()
        return chosen

    def take_over(self, ideas: tuple[Idea, ...], program: Rollout | None) -> None:
        """Crossover: add another island's ideas to this island's.

        The other's best program is the next parent, once.
        """
        self.ideas, self.forced, self.plan = self.ideas.with_foreign_ideas(ideas), program, []
        self.momentum.begin_freeze()

    def best_version(self) -> IdeaRepository:
        """The latest version that has the island's best program."""
        scored = [
            (version.best.reward, version)
            for version in (*self.versions, self.ideas)
            if version.best
        ]
        return max(reversed(scored), key=lambda pair: pair[0])[1] if scored else self.ideas


def merged_repository(branch: IdeaRepository, kept: IdeaRepository) -> IdeaRepository:
    """A branch's repository, joined with the repository from before the branch.

    Of two ideas with one number, the one with the longer history is kept.
    """
    known = {idea.number: idea for idea in kept.ideas}
    for idea in branch.ideas:
        other = known.get(idea.number)
        if other is None or idea.tries >= other.tries:
            known[idea.number] = idea
    ideas = tuple(known[number] for number in sorted(known))
    repository = msgspec.structs.replace(branch, ideas=ideas, next=max(branch.next, kept.next))
    return repository.with_better_program(kept.best) if kept.best else repository


def _is_better(reward: float, other: Rollout | None) -> bool:
    return other is None or other.reward is None or reward > other.reward


_TINY = 1e-9


class Momentum:
    """Exponentially weighted gain of one island, which stalls if that falls below a threshold.

    The gain of a scored candidate is the share it closes of the way from the best so far to the
    `target`, 0 if it is no better; the first one has no way to close. m <- beta m + (1 - beta)
    gain, from 0. There is no verdict before the second candidate, nor within `freeze` candidates of
    the last intervention.
    """

    def __init__(self, beta: float, threshold: float, freeze: int) -> None:
        self.value, self.best = 0.0, float("-inf")
        self._beta, self._threshold, self._freeze = beta, threshold, freeze
        self._count, self._since = 0, 0

    def record_reward(self, reward: float, target: float) -> float:
        """Take in one scored candidate; returns its gain."""
        gain, distance = 0.0, target - self.best
        if reward > self.best:
            gain = (reward - self.best) / distance if self._count and distance > _TINY else 0.0
            self.best = reward
        self.value = self._beta * self.value + (1 - self._beta) * gain
        self._count += 1
        self._since += 1
        return gain

    @property
    def is_stalled(self) -> bool:
        """True if an intervention is due."""
        return self._count > 1 and self._since > self._freeze and self.value < self._threshold

    def begin_freeze(self) -> None:
        """Begin the freeze; keep the value of the momentum."""
        self._since = 0


def absolute_progress(best: float, start: float, target: float) -> float:
    """Position of `best` on the way from `start` to `target`, clamped to 0..1."""
    distance = target - start
    if distance <= _TINY:
        return 1.0 if best >= target else 0.0
    return min(1.0, max(0.0, (best - start) / distance))


def intervention_weights(progress: Sequence[float], i: int) -> list[float]:
    """Weights of interventions on a stalled island i: entry i to backtrack, j for crossover.

    Crossover takes over the ideas of island j. With b the most advanced of the others and S = 1 -
    |A_i - A_b| (at least 0): backtracking weighs max(0, A_i - A_b) + S (1 - A_i)(1 - A_b),
    crossover with j max(0, A_j - A_i), plus S A_i A_b for j = b. An island that is alone
    backtracks.
    """
    others = [j for j in range(len(progress)) if j != i]
    if not others:
        return [1.0]
    mine, b = progress[i], max(others, key=lambda j: progress[j])
    likeness = max(0.0, 1.0 - abs(mine - progress[b]))
    weights = [max(0.0, one - mine) for one in progress]
    weights[i] = max(0.0, mine - progress[b]) + likeness * (1 - mine) * (1 - progress[b])
    weights[b] += likeness * mine * progress[b]
    return weights


def version_weights(count: int, power: float = 1.5) -> list[float]:
    """Weights of the versions to go back to, the oldest first: (j + 1)^-power."""
    return [(j + 1) ** -power for j in range(count)]


def draw_index(weights: Sequence[float], rng: Random) -> int:
    """An index with probability proportional to its weight."""
    return rng.choices(range(len(weights)), weights)[0]


class Population:
    """At most `size` rollouts by reward (higher first; the earlier first among equals)."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._members: list[tuple[float, Rollout]] = []
        self._ids: set[str] = set()

    def add(self, rollout: Rollout) -> bool:
        """Take in a scored rollout; False if it has no score, is known, or is not good enough."""
        reward, name = rollout.reward, rollout.candidate.id
        if reward is None or name in self._ids:
            return False
        bisect.insort(self._members, (-reward, rollout), key=lambda member: member[0])
        self._ids.add(name)
        if len(self._members) > self._size:
            self._ids.discard(self._members.pop()[1].candidate.id)
        return name in self._ids

    @property
    def best(self) -> Rollout | None:
        """The first of the list."""
        return self._members[0][1] if self._members else None

    def tournament_winner(self, top: int, size: int, rng: Random) -> Rollout | None:
        """The best of `size` drawn without replacement from the first `top`; None if empty."""
        among = min(top, len(self._members))
        if not among:
            return None
        return self._members[min(rng.sample(range(among), min(size, among)))][1]
