"""PACEvolve: islands that keep ideas, remember failures, and learn from one another.

An island goes back to an old version when its momentum is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Annotated

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
from culmen.strategies.pacevolve.island import (
    Early,
    Island,
    Momentum,
    Population,
    Recent,
    Versions,
    absolute_progress,
    draw_index,
    intervention_weights,
)
from culmen.strategies.pacevolve.memory import Failure, FailureMemory, IdeaRepository
from culmen.strategies.settings import About, Cases, check


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
