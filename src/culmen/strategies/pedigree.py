"""Pedigree: a value model of all candidates and their kin, with a knowledge gradient.

Its actions are chosen by gain per share of budget.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

from culmen.core.brief import Brief, Exhibit, Measured
from culmen.core.candidate import Candidate
from culmen.core.evaluation import Case, Observation
from culmen.core.ports import Lab
from culmen.strategies.costs import Costs
from culmen.strategies.settings import About, Format, WorkerLanes, check
from culmen.strategies.summarizer import Summarizer

if TYPE_CHECKING:
    from culmen.evidence.pedigree import ValueModel
    from culmen.strategies.knowledge_gradient import KnowledgeGradient, Move, WeighedMove

    Watch = Callable[[KnowledgeGradient, WeighedMove], None]

_KEPT = 6  # newest observations of a candidate that a prompt may show


@dataclass(frozen=True)
class Prior:
    """Noise, deviation of a child's step, and mean step, in units of the score.

    `sign` is 0, or the sign of all rewards if the model works on their logarithms.
    """

    noise: float = 0.0
    step: float = 0.0
    drift: float = 0.0
    sign: int = 0


@dataclass(frozen=True)
class PedigreeSearch:
    """Search that spends each share of the budget where the best estimate should rise most.

    It estimates every candidate's true reward from its own evaluations and those of its relatives,
    and chooses between another evaluation of a candidate and children of one.

    Noise is measured: the first candidate is evaluated twice, and new leaders once more until two
    values differ. With exact scores no other evaluation is repeated; with noisy ones a candidate
    that can no longer be best is not evaluated further. Cases of a data set are evaluated one at a
    time, in the order of their expected gain. When a record is long overdue, the search goes on
    from candidates that were never tried as parents, and asks for a summary of all observations.
    With several objectives hypervolume replaces the best estimate (`strategies.front_gradient`).
    For every kind of task; lanes run side by side and never wait for one another.
    """

    paper = (
        "knowledge gradient (Frazier, Powell, Dayanik, 2008) on a pedigree's best linear "
        "prediction (Henderson, 1975)"
    )

    most: Annotated[
        int,
        About("most programs asked for at a time; the budgets decide how many", least=1, most=8),
    ] = 4
    inspirations: Annotated[
        int, About("other good programs shown with the one to improve", least=0)
    ] = 2
    format: Format = "auto"
    summarizer: Annotated[
        Summarizer | None, About("writes a summary when progress stalls; off: none")
    ] = field(default=Summarizer())
    prior: Annotated[
        Prior | None, About("noise and steps learnt by an earlier run of the task: see --set prior")
    ] = None
    lanes: WorkerLanes = None

    def __post_init__(self) -> None:
        check(self)

    @property
    def asides(self) -> str:
        """Requests to models besides those for programs, in words."""
        return (
            "" if self.summarizer is None else f"{self.summarizer.price}, whenever progress stalls"
        )

    async def search(self, lab: Lab) -> None:
        """Run until the budget ends it."""
        await self.search_watched(lab, None)

    async def search_watched(self, lab: Lab, watch: Watch | None) -> None:
        """The same search; `watch` is called with each decision, before it is acted upon."""
        run = lab.restored
        if not isinstance(run, _Run):
            run = _Run(self, lab)
            # no other lane has work yet
            unknown = lab.task.deterministic is None and not lab.task.same_draws
            twice = lab.seeds[:1] if lab.workers > 1 and unknown else ()
            await lab.gather(*(run.evaluate_next_case(seed) for seed in (*lab.seeds, *twice)))
        await lab.gather(*(self.run_lane(run, watch) for _ in range(self.lanes or lab.workers)))

    async def run_lane(self, run: _Run, watch: Watch | None) -> None:
        """One decision after another; every turn awaits an evaluation or a proposal."""
        while True:
            await run.lab.checkpoint(run)
            decision = run.choice.decide()
            if watch is not None:
                watch(run.choice, decision)
            move = decision.move
            run.choice.begin_move(move)
            if move.again:
                await run.evaluate_again(move)
            else:
                await run.request_children(decision)
            run.choice.end_move(move, list(decision.made))
            run.note_move(move)


class _Run:
    """The memory of one search, with its requests and evaluations."""

    def __init__(self, settings: PedigreeSearch, lab: Lab) -> None:
        # these load numpy, which describing a strategy need not do
        from culmen.evidence.evidence import evidence_of
        from culmen.strategies.front_gradient import FrontGradient
        from culmen.strategies.knowledge_gradient import KnowledgeGradient
        from culmen.strategies.memory.queue import PriorityQueue

        task = lab.task
        self.settings, self.lab, self.context = settings, lab, ""
        self.cases: tuple[Case | None, ...] = task.split("train") or (None,)
        evidence = evidence_of(lab)
        self.model: ValueModel = evidence.model
        self.account, self.ranking = evidence.account, evidence.ranking
        self.costs = Costs(lab)
        shared = (self.costs, len(self.cases), settings.most, lab.rng)
        self.choice = (
            FrontGradient(evidence.front, *shared)
            if evidence.front is not None
            else KnowledgeGradient(self.model, *shared)
        )
        self.queue = PriorityQueue(task.objective.floor)  # its traces are for summaries
        self.candidates: dict[str, Candidate] = {}
        self.seen: dict[str, list[Observation]] = {}
        self.looks: dict[str, dict[str, int]] = {}  # by candidate and case, those in flight too
        self.exact: bool | None = None  # as the search assumes
        self.told: bool | None = None  # as repeats have shown

    async def evaluate_next_case(self, candidate: Candidate) -> None:
        """Evaluate a candidate once, on its next case."""
        self.candidates.setdefault(candidate.id, candidate)
        self.queue.add([candidate])
        case = self.next_case(candidate.id)
        looks = self.looks.setdefault(candidate.id, {})
        name = case.id if case else ""
        looks[name] = looks.get(name, 0) + 1
        rollout = await self.lab.evaluate(candidate, [case])
        (observation,) = rollout.observations
        self.costs.add_evaluation(observation.seconds, observation.usage)
        self.queue.update([rollout])
        self.seen[candidate.id] = [*self.seen.get(candidate.id, ()), observation][-_KEPT:]

    def next_case(self, id: str) -> Case | None:
        """The next case of a candidate: of those with fewest evaluations, one at random.

        Until the noise is known it is the first case again.
        """
        looks = self.looks.get(id, {})
        if len(self.cases) > 1 and self.exact is None and looks:
            return next(case for case in self.cases if case and case.id in looks)
        counts = [looks.get(case.id if case else "", 0) for case in self.cases]
        least = min(counts)
        return self.lab.rng.choice(
            [case for case, count in zip(self.cases, counts) if count == least]
        )

    async def evaluate_again(self, move: Move) -> None:
        """Evaluate a candidate again."""
        await self.evaluate_next_case(self.candidates.get(move.again) or self.lab.find(move.again))

    async def request_children(self, decision: WeighedMove) -> None:
        """Ask for children and evaluate the new ones, which are entered in the decision."""
        move = decision.move
        if move.stalled and self.settings.summarizer is not None:
            self.context = await self.settings.summarizer.summarize(self.lab, self.queue, None)
        asked = self.lab.elapsed
        answer = await self.lab.propose(self.children_brief(move))
        self.costs.add_answer(answer, move.k, self.lab.elapsed - asked)
        offered = {c.id: c for c in (*answer.candidates, *self.lab.handed())}
        fresh = [candidate for candidate in offered.values() if candidate.id not in self.candidates]
        if not fresh and move.parent:
            self.choice.count_barren_request(move.parent)
        decision.made = tuple(candidate.id for candidate in fresh)
        await self.lab.gather(*(self.evaluate_next_case(candidate) for candidate in fresh))

    def children_brief(self, move: Move) -> Brief:
        """The request for children of a parent.

        It shows the parent's observations, worst first, and other good programs that differ from
        it.
        """
        parent = self.candidates.get(move.parent) or (
            self.lab.find(move.parent) if move.parent else None
        )
        context = "\n\n".join(filter(None, (move.focus, self.context)))
        if parent is None and self.lab.seeds:  # none of its evaluations counted so far
            parent = self.lab.seeds[0]
        if parent is None:
            return Brief(k=move.k, format=self.settings.format, context=context)
        seen = sorted(
            self.seen.get(parent.id, ()), key=lambda o: (o.ok, self.lab.task.reward(o) or 0.0)
        )
        reward, measured = self.measured_mean(parent)
        others, form = self.other_exhibits(parent), self.settings.format
        return Brief(parent, tuple(seen), reward, others, context, move.k, form, measured=measured)

    def measured_mean(self, candidate: Candidate) -> tuple[float | None, Measured]:
        """The value model's mean of a candidate, and its precision; nothing without a score."""
        value = self.model.value_of(candidate.id) if candidate.id in self.model.index else None
        if value is None or not value.count:
            return None, Measured()
        return value.mean, Measured(value.count, value.failures, 1.96 * value.sd)

    def other_exhibits(self, parent: Candidate) -> tuple[Exhibit, ...]:
        """The best candidates except the parent and its parents, children and brothers."""
        near = {parent.id, *parent.parents}
        chosen: list[Exhibit] = []
        counts, index = self.model.scored_counts, self.model.index
        for id in self.choice.leader_ids(50):
            if len(chosen) == self.settings.inspirations or not counts[index[id]]:
                break
            other = self.candidates.get(id) or self.lab.find(id)
            if other.id not in near and near.isdisjoint(other.parents):
                reward, measured = self.measured_mean(other)
                chosen.append(Exhibit(other, reward, measured=measured))
                near.update((other.id, *other.parents))
        return tuple(chosen)

    def note_move(self, move: Move) -> None:
        """Journal the action, and the estimated noise once repeats show it, and if they change."""
        noise, shown = self.model.noise, self.account.is_exact
        if noise.repeats or self.model.declared_exact or self.model.has_differed:
            self.exact = noise.exact
        if shown not in (None, self.told) and (self.exact is not None):
            self.told, report = shown, self.ranking.noise_report
            self.lab.note(
                "noise",
                exact=shown,
                sd=report.sd,
                repeats=report.repeats,
                **({"draws": True} if report.draws else {}),
                **({"one_draw": True} if report.one_draw else {}),
            )
        action = "again" if move.again else "children"
        self.lab.note(
            "pedigree", action=action, of=move.again or move.parent, k=move.k, gain=move.gain
        )
