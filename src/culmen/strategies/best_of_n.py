"""Best of n: independent drafts, and the rest of the budget to tell the best of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from culmen.core.brief import BANK_EMPTY, Brief
from culmen.core.candidate import Candidate
from culmen.core.evaluation import Case, Rollout
from culmen.core.ports import Lab
from culmen.strategies.settings import About, Cases, Proposals, WorkerLanes, check

if TYPE_CHECKING:
    from culmen.strategies.drafts import Drafts


@dataclass(frozen=True)
class BestOfN:
    """Independent improvements of the initial program; the best of them are compared at the end.

    It is the control that shows the gain of a search: nothing learnt from one proposal reaches the
    next. A draft is evaluated once; on a data set case by case, as long as it may be the best. If
    scores have noise, drawing ends once the rest of the budget is worth more for telling apart the
    drafts there are, or when a bank is empty. Then of the leader and the draft with the largest
    expected improvement on it the less known one is evaluated, again and again. Several initial
    programs take turns; without one every program is written from scratch. Lanes run side by side
    and never wait for one another.
    """

    paper = (
        "repeated sampling, then the pairs of top-two expected improvement (Qin, Klabjan, Russo, "
        "2017)"
    )

    proposals: Proposals = 1
    batch: Cases = None
    again: Annotated[
        float,
        About("largest share of the budget that tells drafts apart before a bank is empty", 0, 1),
    ] = 0.5
    lanes: WorkerLanes = None

    def __post_init__(self) -> None:
        check(self)

    async def search(self, lab: Lab) -> str | None:
        """Run until the budget ends it, or a bank is empty and its best program is clear."""
        from culmen.strategies.drafts import Drafts  # it loads numpy

        run = lab.restored
        if not isinstance(run, _Run):
            run = _Run(self, lab, Drafts(lab))
            run.seeds = await lab.gather(*(run.evaluate_seed(seed) for seed in lab.seeds))
        lanes = range(self.lanes or lab.workers)
        reasons = await lab.gather(*(self.run_lane(run) for _ in lanes))
        return next(filter(None, reasons), None)

    async def run_lane(self, run: _Run) -> str:
        """Draw drafts, and compare the best; ends when a bank is empty and the best is clear."""
        while True:
            await run.lab.checkpoint(run)
            compares = run.is_bank_empty or run.should_compare()
            name = run.drafts.next_compared() if compares else ""
            if name:
                await run.evaluate_next_case(run.lab.find(name))
            elif run.is_bank_empty:
                return BANK_EMPTY
            elif run.seeds:
                seed = run.seeds[run.draws % len(run.seeds)]
                run.draws += 1
                known = (seed.candidate, seed.observations, seed.reward)
                await run.draw(Brief(*known, k=self.proposals))
            else:
                await run.draw(Brief(k=self.proposals))


class _Run:
    """The requests and evaluations of one search."""

    def __init__(self, settings: BestOfN, lab: Lab, drafts: Drafts) -> None:
        self.settings, self.lab, self.drafts = settings, lab, drafts
        self.is_bank_empty = False
        self.seeds: list[Rollout] = []
        self.draws = 0  # from initial programs, which take turns

    async def draw(self, brief: Brief) -> None:
        """Ask for drafts, and evaluate the new ones side by side."""
        asked = self.lab.elapsed
        answer = await self.lab.propose(brief)
        self.drafts.costs.add_answer(answer, brief.k, self.lab.elapsed - asked)
        self.is_bank_empty = self.is_bank_empty or answer.fault == BANK_EMPTY
        fresh = [each for each in answer.candidates if each.id not in self.drafts.looks]
        await self.lab.gather(*(self.evaluate_draft(each) for each in fresh))

    async def evaluate_draft(self, draft: Candidate) -> None:
        """Evaluate a draft once; on a data set case by case, as long as it may be the best."""
        batch, cases = self.settings.batch, self.drafts.cases
        if batch is not None:
            await self.evaluate(draft, self.lab.minibatch(batch))
            return
        await self.evaluate_next_case(draft)
        while len(self.drafts.looks[draft.id]) < len(cases) and self.drafts.may_be_best(draft.id):
            await self.evaluate_next_case(draft)

    async def evaluate_seed(self, seed: Candidate) -> Rollout:
        """Evaluate an initial program, on all training cases unless a number is set."""
        batch = self.settings.batch
        cases = self.drafts.cases if batch is None else self.lab.minibatch(batch)
        return await self.evaluate(seed, cases)

    async def evaluate_next_case(self, draft: Candidate) -> None:
        """Evaluate a draft on a case on which it was evaluated least."""
        await self.evaluate(draft, (self.lab.rng.choice(self.drafts.least_seen_cases(draft.id)),))

    async def evaluate(self, program: Candidate, cases: tuple[Case | None, ...]) -> Rollout:
        """Evaluate a program on these cases."""
        self.drafts.begin_looks(program.id, cases)
        rollout = await self.lab.evaluate(program, cases)
        self.drafts.end_looks(rollout)
        return rollout

    def should_compare(self) -> bool:
        """True if the rest of the budget is best spent on the drafts there are."""
        late = self.lab.progress >= 1.0 - self.settings.again
        return late and self.drafts.should_compare(self.settings.proposals)
