"""MAP-Elites with a language model as its variation operator: one grid, the baseline of the program-search family."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from culmen.core.brief import Brief, Exhibit
from culmen.core.candidate import Candidate
from culmen.core.ports import Lab
from culmen.memory.grid import Axis, Elite, Grid
from culmen.strategies.parts.features import BUILT_IN, Features
from culmen.strategies.parts.fields import Cases, Proposals, WorkerLanes
from culmen.strategies.parts.settings import About, check


@dataclass(frozen=True)
class MapElites:
    """Keeps the best program of every cell of a feature grid and improves a sampled one, shown with inspirations.

    With probability `exploration` the parent is drawn uniformly from all cells, otherwise uniformly from the best
    `elites` share of them; inspirations are the best program and others drawn from the grid. Each program is evaluated
    once, when it is proposed, and what it scored then is kept: on noisy evaluators prefer `polca`.

    Dimensions are `complexity` (text length), `diversity` (embedding distance from the first program) and the names of
    metrics that the evaluator reports. Lanes run side by side and never wait for one another.
    """

    paper = "Illuminating search spaces by mapping elites (Mouret and Clune, 2015), varied by a language model"

    features: Annotated[tuple[str, ...], About("dimensions; none: the task's, else complexity and diversity")] = ()
    bins: Annotated[int, About("bins per dimension", least=1)] = 10
    exploration: Annotated[float, About("share of parents drawn from all cells alike", least=0, most=1)] = 0.3
    elites: Annotated[float, About("share of the cells that counts as the best", least=0, most=1)] = 0.2
    inspirations: Annotated[int, About("other programs shown", least=0)] = 3
    proposals: Proposals = 1
    batch: Cases = None
    lanes: WorkerLanes = None

    def __post_init__(self) -> None:
        check(self)

    async def search(self, lab: Lab) -> None:
        """Run until the budget ends it."""
        names = self.features or lab.task.features or BUILT_IN
        grid, measure = Grid([Axis(name, self.bins) for name in names]), Features(names)
        await self.insert(lab, grid, measure, lab.seeds)
        known = {candidate.digest for candidate in lab.seeds}
        await lab.gather(*(self.lane(lab, grid, measure, known) for _ in range(self.lanes or lab.workers)))

    async def lane(self, lab: Lab, grid: Grid, measure: Features, known: set[str]) -> None:
        """Select, vary, evaluate what is new, insert; every turn awaits a proposal."""
        while True:
            parent = self.parent(lab, grid)
            answer = await lab.propose(self.brief(lab, grid, parent))
            fresh = {candidate.digest: candidate for candidate in answer.candidates if candidate.digest not in known}
            known.update(fresh)
            entered = await self.insert(lab, grid, measure, tuple(fresh.values()))
            best = grid.elites()[:1]
            lab.note(
                "grid",
                cells=len(grid),
                quality=grid.quality,
                entered=entered,
                best=best[0].reward if best else None,
            )

    async def insert(self, lab: Lab, grid: Grid, measure: Features, programs: tuple[Candidate, ...]) -> int:
        """Evaluate programs and offer those that were scored; returns how many took a cell."""
        cases = None if self.batch is None else lab.minibatch(self.batch)
        rollouts = await lab.gather(*(lab.evaluate(program, cases) for program in programs))
        scored = [(rollout, rollout.reward) for rollout in rollouts if rollout.reward is not None]
        features = await measure.measure(lab, [rollout for rollout, _ in scored])
        return sum(grid.add(rollout, reward, at) for (rollout, reward), at in zip(scored, features))

    def parent(self, lab: Lab, grid: Grid) -> Elite | None:
        """Explore all cells or exploit the best; None while the grid is empty."""
        elites = grid.elites()
        if not elites or lab.rng.random() < self.exploration:
            return grid.sample(lab.rng)
        return lab.rng.choice(elites[: max(1, round(self.elites * len(elites)))])

    def brief(self, lab: Lab, grid: Grid, parent: Elite | None) -> Brief:
        """The request for one parent; without one the first seed is improved unscored, or a first program written."""
        if parent is None:
            return Brief(lab.seeds[0] if lab.seeds else None, k=self.proposals)
        others = [elite for elite in grid.elites() if elite is not parent]
        shown = others[:1] + lab.rng.sample(others[1:], min(max(self.inspirations - 1, 0), len(others[1:])))
        exhibits = tuple(Exhibit(elite.rollout.candidate, elite.reward) for elite in shown[: self.inspirations])
        rollout = parent.rollout
        return Brief(rollout.candidate, rollout.observations, parent.reward, exhibits, k=self.proposals)
