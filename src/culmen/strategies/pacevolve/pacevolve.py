"""PACEvolve: islands that keep ideas, remember failures, and learn from one another.

An island goes back to an old version when its momentum is lost.

One island of PACEvolve: population, versions of its ideas, momentum, and interventions.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Annotated, Protocol

import msgspec

from culmen.core.evaluation import Rollout
from culmen.core.ports import Lab
from culmen.strategies.pacevolve.advisor import (
    Advising,
    Decision,
    ModelVoice,
    Planning,
    Upkeep,
    Voice,
    score_line,
)
from culmen.strategies.pacevolve.implementing import (
    ExperimentOutcome,
    Implementing,
    ProgramWriter,
    ProposingWriter,
)
from culmen.strategies.pacevolve.memory import Failure, FailureMemory, Idea, IdeaRepository, Ranked
from culmen.strategies.settings import About, Cases, check


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


@dataclass(frozen=True)
class Pacevolve:
    """Search in which an advisor decides on experiments and an implementer writes them.

    Every island has a population and a repository of ideas with the results of each; hypotheses are
    made for one decision, put under an idea, and forgotten. An island whose momentum is lost goes
    back to an old version of its ideas, or takes over those of a more advanced island.

    Roles: `advisor` (may be a small model) and `implementer` (a strong one). One request to the
    advisor plans several experiments; `advising=advising` with `upkeep=upkeep(tries=3)` takes a
    request for every step, as the paper does. Without a model the advisor draws from a menu of
    kinds of edit, and the offline proposer makes them. For expensive evaluations and long searches.
    """

    paper = "PACEvolve (arXiv 2601.10657), the scaffold of PACEvolve++ (arXiv 2605.07039)"

    islands: Annotated[
        int, About("islands side by side, one experiment in flight on each", least=1)
    ] = 8
    top: Annotated[int, About("best programs among which parents are drawn", least=1)] = 4
    tournament: Annotated[int, About("programs in a tournament", least=1)] = 2
    size: Annotated[int, About("programs an island keeps", least=1)] = 100
    target: Annotated[
        float | None,
        About("score that counts as full progress; none: the task's target or best known"),
    ] = None
    advising: Annotated[
        Planning | Advising,
        About("how decisions are made: several in one request, or each in three steps"),
    ] = field(default=Planning())
    implementing: Annotated[Implementing, About("how an experiment becomes a candidate")] = field(
        default=Implementing()
    )
    upkeep: Annotated[Upkeep, About("how the ideas are kept few and short")] = field(
        default=Upkeep()
    )
    beta: Annotated[float, About("weight of the past in the momentum", least=0, most=1)] = 0.85
    threshold: Annotated[float, About("momentum below which an island is stalled", least=0)] = 0.001
    freeze: Annotated[
        int, About("scored candidates after an intervention before the next", least=0)
    ] = 15
    backtrack_length: Annotated[int, About("experiments on an old version", least=1)] = 5
    backtrack_every: Annotated[
        int | None,
        About(
            "experiments of an island after which it goes back in any case; none: momentum alone",
            least=1,
        ),
    ] = None
    versions: Annotated[
        Versions, About("rule for the old version to return to", choices=(Early, Recent))
    ] = field(default=Early())
    remembered: Annotated[int, About("failures remembered, by all islands together", least=1)] = 200
    batch: Cases = None

    def __post_init__(self) -> None:
        check(self)

    @property
    def asides(self) -> str:
        """Requests to models besides those for programs, in words."""
        cost = self.advising.cost
        return f"{cost}, and for each result and each idea given up" if self.upkeep.tries else cost

    async def search(self, lab: Lab) -> None:
        """Run until the budget ends it."""
        await Research(self, lab, ModelVoice()).run()


class Research:
    """One search in progress: the islands and their shared state.

    It is also the scaffold of `pacevolve_plus_plus`.
    """

    def __init__(
        self, rules: Pacevolve, lab: Lab, voice: Voice, writer: ProgramWriter | None = None
    ) -> None:
        self.rules, self.lab, self.voice = rules, lab, voice
        self.writer = writer or ProposingWriter()
        self.failures = FailureMemory(rules.remembered)
        self.islands = [self._new_island() for _ in range(rules.islands)]
        self.start = float("-inf")
        self.seeds: list[tuple[Rollout, float]] = []

    async def run(self) -> None:
        """Settle the initial programs, then run all islands side by side."""
        await self.insert_initial_programs()
        await self.lab.gather(*(self._evolve_island(i) for i in range(self.rules.islands)))

    async def insert_initial_programs(self) -> None:
        """Begin every island with the initial programs."""
        cases = None if self.rules.batch is None else self.lab.minibatch(self.rules.batch)
        seeds = await self.lab.gather(*(self.lab.evaluate(seed, cases) for seed in self.lab.seeds))
        self.seeds = [
            (rollout, reward) for rollout in seeds if (reward := rollout.reward) is not None
        ]
        self.start = max((reward for _, reward in self.seeds), default=float("-inf"))
        for island in self.islands:
            for rollout, _ in self.seeds:
                island.add_rollout(rollout, self.goal_reward())
            island.keep_version()

    async def _evolve_island(self, i: int) -> None:
        for turn in count(1):
            parent, decision = await self.decide_experiment(i)
            outcome = await self.implement_experiment(i, parent, decision)
            await self.learn_from_outcome(i, turn, parent, decision, outcome)

    async def decide_experiment(
        self, i: int, start: Rollout | None = None
    ) -> tuple[Rollout | None, Decision]:
        """A decision on an experiment, with its parent unless that is given."""
        island = self.islands[i]
        await self._take_up(island)
        if start is None and (ready := self._next_planned(island)):
            return ready
        parent = start or island.next_parent(self.rules.top, self.rules.tournament, self.lab.rng)
        decision = await self.rules.advising.decide(
            self.lab, self.voice, parent, island.ideas, self.failures
        )
        island.ideas = decision.ideas  # ideas of a failed decision are kept, too
        island.plan = [(parent, idea, experiment) for idea, experiment in decision.planned]
        return parent, decision

    def _next_planned(self, island: Island) -> tuple[Rollout | None, Decision] | None:
        """The next experiment of the island's plan that did not fail elsewhere meanwhile."""
        while island.plan:
            parent, idea, experiment = island.plan.pop(0)
            if not self.failures.blocks_experiment(experiment):
                return parent, Decision(island.ideas, idea, experiment)
        return None

    async def _take_up(self, island: Island) -> None:
        """Take in a person's candidate like a model's.

        The first island to run gets it, the others by crossover.
        """
        batch = self.rules.batch
        for candidate in self.lab.handed():
            rollout = await self.lab.evaluate(
                candidate, None if batch is None else self.lab.minibatch(batch)
            )
            if rollout.reward is not None:
                island.add_rollout(rollout, self.goal_reward())

    async def implement_experiment(
        self, i: int, parent: Rollout | None, decision: Decision
    ) -> ExperimentOutcome:
        """The experiment's candidate, evaluated.

        A decision without a candidate is a failure like any other.
        """
        if not decision.experiment:
            return ExperimentOutcome(
                fault=decision.fault, reason=_NO_DECISION.get(decision.fault, "")
            )
        rules = self.rules
        return await rules.implementing.carry_out(
            self.lab, self.writer, parent, decision.experiment, i, rules.batch, self.failures
        )

    async def learn_from_outcome(
        self,
        i: int,
        turn: int,
        parent: Rollout | None,
        decision: Decision,
        outcome: ExperimentOutcome,
    ) -> None:
        """Update population, ideas, failures and momentum; intervene if the island has stalled."""
        island, before = self.islands[i], parent.reward if parent else None
        better = outcome.scored_rollout is not None and island.add_rollout(
            outcome.scored_rollout[0], self.goal_reward()
        )
        self._set_progress_start(outcome)
        if decision.experiment:
            line = await self.rules.upkeep.result_line(
                self.lab, self.voice, decision.experiment, outcome, before
            )
            island.ideas = island.ideas.with_result(decision.idea, line)
        island.count_turn()
        island.ideas, dropped = await self.rules.upkeep.tidy_ideas(
            self.lab,
            self.voice,
            island.ideas,
            decision.idea,
            self.failures,
            {idea for _, idea, _ in island.plan},
        )
        if outcome.scored_rollout is None:
            self._remember_failure(decision, outcome)
        island.keep_version()
        self._note_experiment(i, turn, parent, decision, outcome, better, dropped)
        if island.branch is None and outcome.scored_rollout and island.momentum.is_stalled:
            self.intervene_on_island(i)
        elif (
            island.branch is None
            and self.rules.backtrack_every
            and turn % self.rules.backtrack_every == 0
        ):
            self._go_back(i)

    def intervene_on_island(self, i: int) -> None:
        """Backtrack or cross over, by absolute progress.

        In the paper: momentum-based backtracking and collaborative evolution.
        """
        island = self.islands[i]
        progress = [
            absolute_progress(one.best, self.start, self.goal_reward()) for one in self.islands
        ]
        weights = intervention_weights(progress, i)
        chosen = draw_index(weights, self.lab.rng)
        if chosen == i:
            self._go_back(i, progress=progress, weights=weights)
        else:
            partner = self.islands[chosen]
            island.take_over(partner.best_version().ideas, partner.population.best)
            self.lab.note("crossover", island=i, partner=chosen, progress=progress, weights=weights)

    def _go_back(self, i: int, **why: object) -> None:
        rules, island = self.rules, self.islands[i]
        version = island.backtrack(rules.versions, rules.backtrack_length, self.lab.rng)
        self.lab.note("backtrack", island=i, version=version, of=len(island.versions), **why)

    def goal_reward(self) -> float:
        """The reward of full progress.

        It is the first one given of the setting `target`, the task's target and its best known
        value, else twice the gain so far.
        """
        objective = self.lab.task.objective
        for level in (self.rules.target, objective.target, objective.known):
            if level is not None:
                return objective.reward(level)
        best = max(island.best for island in self.islands)
        return 2 * best - self.start if best > self.start > float("-inf") else best + 1.0

    def _set_progress_start(self, outcome: ExperimentOutcome) -> None:
        """Measure progress from the first program that scored, if no initial program did."""
        if outcome.scored_rollout and self.start == float("-inf"):
            self.start = outcome.scored_rollout[1]

    def _remember_failure(self, decision: Decision, outcome: ExperimentOutcome) -> None:
        idea = decision.ideas.find_idea(decision.idea)
        name, digest = (
            idea.description if idea else "",
            outcome.rollout.candidate.digest if outcome.rollout else "",
        )
        if outcome.fault != "lost":
            self.failures.add(
                Failure(name, decision.experiment, outcome.fault, outcome.reason), digest
            )

    def _note_experiment(
        self,
        i: int,
        turn: int,
        parent: Rollout | None,
        decision: Decision,
        outcome: ExperimentOutcome,
        better: bool,
        dropped: Sequence[int],
    ) -> None:
        island, rollout = self.islands[i], outcome.rollout
        self.lab.note(
            "experiment",
            island=i,
            turn=turn,
            idea=decision.idea,
            experiment=decision.experiment,
            parent=parent.candidate.id if parent else None,
            candidate=rollout.candidate.id if rollout else None,
            outcome=score_line(self.lab, outcome, parent.reward if parent else None),
            better=better,
            momentum=island.momentum.value,
            branch=island.branch is not None,
            ideas=[
                {"number": x.number, "description": x.description, "tries": x.tries}
                for x in island.ideas.ideas
            ],
            dropped=list(dropped),
            failures=self.failures.counts_by_kind(),
        )

    def _new_island(self) -> Island:
        rules = self.rules
        momentum = Momentum(rules.beta, rules.threshold, rules.freeze)
        return Island(
            Population(rules.size), momentum, IdeaRepository(sentences=rules.upkeep.sentences)
        )


_NO_DECISION = {
    "advisor_format": "no decision that could be read",
    "repeat": "only experiments that had failed before, word by word",
}
