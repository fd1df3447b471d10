"""Best of n: independent proposals from the initial program, without a search."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

from culmen.core.brief import Brief
from culmen.core.candidate import Candidate
from culmen.core.evaluation import Rollout
from culmen.core.ports import Lab
from culmen.strategies.settings import Cases, Proposals, WorkerLanes, check


@dataclass(frozen=True)
class BestOfN:
    """Independent improvements of the initial program, each evaluated once.

    It is the control that shows the gain of a search: nothing learnt from one proposal reaches the
    next. Several initial programs take turns; without one every program is written from scratch.
    Lanes run side by side and never wait for one another.
    """

    paper = "repeated sampling, the standard baseline"

    proposals: Proposals = 1
    batch: Cases = None
    lanes: WorkerLanes = None

    def __post_init__(self) -> None:
        check(self)

    async def search(self, lab: Lab) -> None:
        """Run until the budget ends it."""
        rollouts = await self.evaluate_programs(lab, lab.seeds)
        turns = count()
        await lab.gather(
            *(self.run_lane(lab, rollouts, turns) for _ in range(self.lanes or lab.workers))
        )

    async def run_lane(self, lab: Lab, seeds: list[Rollout], turns: count[int]) -> None:
        """Propose from a seed, evaluate, forget."""
        for turn in turns:
            brief = Brief(k=self.proposals)
            if seeds:
                seed = seeds[turn % len(seeds)]
                brief = Brief(seed.candidate, seed.observations, seed.reward, k=self.proposals)
            answer = await lab.propose(brief)
            await self.evaluate_programs(lab, answer.candidates)

    async def evaluate_programs(self, lab: Lab, programs: tuple[Candidate, ...]) -> list[Rollout]:
        """Evaluate all programs side by side on the same cases."""
        cases = None if self.batch is None else lab.minibatch(self.batch)
        return await lab.gather(*(lab.evaluate(program, cases) for program in programs))
