"""GEPA: reflective evolution of texts over a Pareto frontier of cases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from culmen.core.brief import Brief
from culmen.core.candidate import Candidate, Origin
from culmen.core.evaluation import Case, Rollout
from culmen.core.ports import Lab
from culmen.core.spread import sum_floats
from culmen.extensions.baselines.pareto import Family, Frontier
from culmen.strategies.settings import About, Batch, Lanes, Proposals, check


@dataclass(frozen=True)
class Gepa:
    """Reflective evolution of one part of a candidate at a time, by its results on few cases.

    A candidate is chosen with probability proportional to the number of cases on which it is among
    the best, so that specialists survive; a child that beats its parent on the minibatch is scored
    on all Pareto cases and joins. Candidates that improved different parts of a common ancestor are
    merged now and then.

    Pareto cases are the `val` split, or the training cases without one. For data sets, prompts and
    systems of several texts; with a single case it is hill climbing.
    """

    paper = (
        "GEPA: Reflective Prompt Evolution Can Outperform Reinforcement Learning (Agrawal et al., "
        "2025)"
    )

    batch: Batch = 3
    pareto: Annotated[int | None, About("Pareto cases at most; none: all", least=1)] = None
    proposals: Proposals = 1
    merges: Annotated[int, About("merges tried in all; 0: none", least=0)] = 5
    subsample: Annotated[
        int, About("Pareto cases of a merged candidate's first evaluation", least=1)
    ] = 5
    lanes: Lanes = 1

    def __post_init__(self) -> None:
        check(self)

    async def search(self, lab: Lab) -> None:
        """Run until the budget ends it."""
        run = lab.restored
        if not isinstance(run, _Run):
            run = _Run(self, lab)
            await lab.gather(
                *(run.enter_candidate(seed) for seed in lab.seeds)
            )  # Algorithm 1, lines 1-5
        await lab.gather(*(run.run_lane() for _ in range(self.lanes)))


class _Run:
    """One search: the frontier, the family tree, and the turns of the parts."""

    def __init__(self, gepa: Gepa, lab: Lab) -> None:
        self.gepa, self.lab = gepa, lab
        self.frontier, self.family = Frontier(), Family()
        self.cases: tuple[Case | None, ...] = (
            lab.task.split("val") or lab.task.split("train") or (None,)
        )
        self.cases = self.cases[: gepa.pareto]
        self.turns, self.merged = Counter[str](), 0

    async def run_lane(self) -> None:
        """Algorithm 1, lines 6-17; every turn awaits a proposal."""
        while True:
            await self.lab.checkpoint(self)
            key = self.frontier.sample_candidate(self.lab.rng)  # line 7, Algorithm 2
            if key is None:
                answer = await self.lab.propose(Brief(k=self.gepa.proposals))
                await self.lab.gather(*(self.enter_candidate(child) for child in answer.candidates))
                continue
            parent = self.family.members[key]
            part = self.next_part(parent)  # line 8
            cases = self.lab.minibatch(self.gepa.batch)  # line 9
            seen = await self.lab.evaluate(parent, cases)  # line 10
            children = await self.mutate_part(parent, part, seen)  # lines 11-12
            rollouts = await self.lab.gather(
                *(self.lab.evaluate(child, cases) for child in children)
            )  # line 13
            better = [
                rollout for rollout in rollouts if total_reward(rollout) > total_reward(seen)
            ]  # line 14
            await self.lab.gather(
                *(self.enter_candidate(rollout.candidate, parent.id) for rollout in better)
            )  # lines 15-16
            await self.lab.gather(
                *(self.enter_candidate(candidate) for candidate in self.lab.handed())
            )  # handed in by a person
            if better:
                await self.try_merge()
            leads = self.frontier.led_case_counts()
            self.lab.note(
                "pareto",
                parent=key,
                part=part,
                accepted=len(better),
                members=len(self.frontier),
                leads=leads,
            )

    def next_part(self, parent: Candidate) -> str:
        """The editable parts in turn, for each candidate."""
        names = [name for name in parent.parts if name not in self.lab.task.surface.frozen] or list(
            parent.parts
        )
        turn = self.turns[parent.id]
        self.turns[parent.id] += 1
        return names[turn % len(names)]

    async def mutate_part(self, parent: Candidate, part: str, seen: Rollout) -> list[Candidate]:
        """Reflective mutation: children with one part changed, given the parent's observations.

        Changes of other parts are dropped, and so are children that are members already.
        """
        context = f"In this step change only the part `{part}`." if len(parent.parts) > 1 else ""
        brief = Brief(
            parent, seen.observations, seen.reward, context=context, k=self.gepa.proposals
        )
        answer = await self.lab.propose(brief)
        children = [_restrict_to_part(parent, part, child) for child in answer.candidates]
        fresh = {child.id: child for child in children if child.id not in self.family.members}
        return list(fresh.values())

    async def enter_candidate(self, candidate: Candidate, *parents: str) -> None:
        """Score on the Pareto cases and join."""
        rollout = await self.lab.evaluate(candidate, self.cases)
        self.family.add(candidate, *parents)
        rewards = {o.case: reward for o, reward in zip(rollout.observations, rollout.rewards)}
        self.frontier.add(candidate.id, rewards)

    async def try_merge(self) -> None:
        """System-aware merge: a candidate of two.

        It joins if it is no worse than both on some Pareto cases.
        """
        if self.merged >= self.gepa.merges:
            return
        merge = self.family.draw_merge(self.frontier, self.lab.rng)
        if merge is None or merge.child.id in self.family.members:
            return
        self.merged += 1
        cases = self.lab.rng.sample(self.cases, min(self.gepa.subsample, len(self.cases)))
        rollout = await self.lab.evaluate(merge.child, cases)
        known = [self.frontier.rewards_of(key) for key in (merge.one, merge.two)]
        level = max(
            sum_floats(rewards[case.id if case else ""] for case in cases) for rewards in known
        )
        accepted = total_reward(rollout) >= level
        if accepted:
            await self.enter_candidate(merge.child, merge.one, merge.two)
        self.lab.note("merge", child=merge.child.id, of=[merge.one, merge.two], accepted=accepted)


def total_reward(rollout: Rollout) -> float:
    """Sum of rewards, -inf if any evaluation failed."""
    rewards: Sequence[float | None] = rollout.rewards
    return sum_floats(float("-inf") if reward is None else reward for reward in rewards)


def _restrict_to_part(parent: Candidate, part: str, child: Candidate) -> Candidate:
    """The child without its changes of other parts."""
    if all(child.parts.get(name) == text for name, text in parent.parts.items() if name != part):
        return child
    text = child.parts.get(part, parent.parts[part])
    origin = Origin(
        child.origin.operator, child.origin.model, child.origin.rank, child.origin.weight
    )
    return Candidate.of({**parent.parts, part: text}, (parent.id,), origin)
