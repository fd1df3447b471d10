"""POLCA: Prioritized Optimization with Local Contextual Aggregation.

Algorithms 1, 3 and 4 of the paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Protocol

from culmen.core.brief import Brief
from culmen.core.candidate import Candidate
from culmen.core.evaluation import Case, Rollout
from culmen.core.ports import Lab
from culmen.strategies.memory import priorities as by
from culmen.strategies.memory.priorities import Newest, Quantile, ThisRound
from culmen.strategies.settings import About, Batch, Lanes, Proposals, check
from culmen.strategies.summarizer import RunningSummary, Summarizer, Tau

if TYPE_CHECKING:
    from culmen.strategies.memory.epsilon_net import EpsilonNet, KeepAll
    from culmen.strategies.memory.queue import PriorityQueue


class Validation(Protocol):
    """Chooses the cases for lines 9-10, given the iteration's minibatch."""

    def cases(self, lab: Lab, batch: Sequence[Case | None]) -> Sequence[Case | None]: ...


@dataclass(frozen=True)
class SameBatch:
    """The iteration's minibatch (the paper).

    Parents and children are compared on the same cases.
    """

    def cases(self, lab: Lab, batch: Sequence[Case | None]) -> Sequence[Case | None]:
        return batch


@dataclass(frozen=True)
class FreshBatch:
    """A new minibatch for the children.

    They are not judged on the cases that they were written to solve.
    """

    def cases(self, lab: Lab, batch: Sequence[Case | None]) -> Sequence[Case | None]:
        return lab.minibatch(len(batch))


@dataclass(frozen=True)
class ByEmbedder:
    """The paper's distance with its embedders, a quantile with any other.

    Distances in the spaces of two embedders cannot be compared.
    """

    distance: Annotated[
        float, About("with text-embedding-004 or gemini-embedding-001", least=0)
    ] = 0.1
    share: Annotated[float, About("quantile with any other embedder", least=0, most=1)] = 0.05

    def __post_init__(self) -> None:
        check(self)

    def rule_for(self, embedder: str) -> float | Quantile:
        """The rule for an embedder of this name."""
        return (
            self.distance
            if embedder.rpartition("/")[2] in _PAPER_EMBEDDERS
            else Quantile(self.share)
        )


_PAPER_EMBEDDERS = ("text-embedding-004", "gemini-embedding-001")  # Sections 5 and D

Epsilon = Annotated[
    float | Quantile | ByEmbedder | None,
    About(
        "least distance between programs in memory; q0.1: refuse the closest tenth; off: no filter",
        least=0,
    ),
]
SummaryRule = Annotated[
    Summarizer | None, About("writes summaries of the whole memory for proposals; off: none")
]
_Success = Annotated[
    Tau,
    About(
        "score that separates success from failure; q0.5: quantile; none: 0.5 for scores in "
        "0..1, else the median"
    ),
]
_RANKS = (by.Mean, by.Ucb, by.UcbSigma, by.Pedigree, by.Newest, by.ThisRound)
_Rank = Annotated[by.Priority, About("priority of a program for exploration", choices=_RANKS)]
_Validate = Annotated[
    Validation, About("cases of a new program's first evaluation", choices=(SameBatch, FreshBatch))
]
_TieRule = Annotated[
    by.Ties, About("order among equal priorities", choices=(by.Earliest, by.Shuffled))
]


@dataclass(frozen=True)
class Polca:
    """Search over a priority queue of programs whose estimates converge.

    It keeps every admitted program, re-evaluates the best ones again and again, so that their means
    converge, and asks the model to improve each from its latest observations and a summary of all
    observations so far. A semantic filter keeps the queue small.

    One iteration: draw a minibatch; evaluate the `explore` programs of highest priority on it; have
    each improved; admit the proposals that are at least `epsilon` away from everything in memory;
    evaluate those. For noisy evaluators, data sets, prompts and agents; works unchanged for
    deterministic ones.

    `lanes` > 1 runs that many such loops over one memory, none waiting for another; a lane passes
    over the programs that another is working on. One lane is the paper's algorithm.
    """

    paper = "POLCA: Stochastic Generative Optimization with LLM"

    explore: Annotated[
        int, About("programs explored per iteration: the top k by priority", least=1)
    ] = 5
    batch: Batch = 2
    epsilon: Epsilon = field(default=ByEmbedder())
    tau: _Success = None
    priority: _Rank = field(default=by.Mean())
    summarizer: SummaryRule = field(default=Summarizer())
    proposals: Proposals = 1
    validation: _Validate = field(default=SameBatch())
    ties: _TieRule = field(default=by.Earliest())
    lanes: Lanes = 1

    def __post_init__(self) -> None:
        check(self)

    @property
    def asides(self) -> str:
        """Requests to models besides those for programs, in words."""
        return "" if self.summarizer is None else self.summarizer.cost

    async def search(self, lab: Lab) -> None:
        """Run until the budget ends it."""
        # these load numpy, which describing a strategy need not do
        from culmen.evidence.evidence import evidence_of
        from culmen.strategies.memory.queue import PriorityQueue

        memory = lab.restored
        if not isinstance(memory, _Memory):
            queue = PriorityQueue(lab.task.objective.floor, evidence_of(lab).ranking)
            memory = _Memory(queue, self.net(), RunningSummary(self.summarizer, self.tau))
            await self.enter_initial_programs(lab, memory)
        await lab.gather(*(self.run_lane(lab, memory) for _ in range(self.lanes)))

    async def enter_initial_programs(self, lab: Lab, memory: _Memory) -> None:
        """Begin the memory with the initial programs (line 1)."""
        queue, net = memory.queue, memory.net
        seeds = net.add(
            lab.seeds, await lab.embed(lab.seeds) if net.needs_vectors and lab.seeds else ()
        )
        queue.add(seeds)  # line 1
        if len(seeds) > self.explore:  # line 4 has nothing to choose by yet
            queue.update(await evaluate_all(lab, seeds, lab.minibatch(self.batch)))

    def net(self) -> EpsilonNet | KeepAll:
        """An empty semantic filter as configured."""
        from culmen.strategies.memory.epsilon_net import (  # with numpy, as the queue
            EpsilonNet,
            KeepAll,
        )

        if self.epsilon is None:
            return KeepAll()
        is_fixed = isinstance(
            self.epsilon, float | int
        )  # a distance set by the user is never adapted
        return EpsilonNet(
            Quantile(self.epsilon.share) if isinstance(self.epsilon, ByEmbedder) else self.epsilon,
            not is_fixed,
        )

    async def run_lane(self, lab: Lab, memory: _Memory) -> None:
        """Algorithm 1's loop; every turn awaits at least one proposal."""
        queue, net, history = memory.queue, memory.net, memory.history
        while True:
            await lab.checkpoint(memory)
            turn = memory.rounds = memory.rounds + 1  # line 2
            batch = lab.minibatch(self.batch)  # line 3
            parents = queue.take(self.explore, self.priority, self.ties, lab.rng)  # line 4
            rollouts = await evaluate_all(lab, parents, batch)  # line 5
            queue.update(rollouts, turn)  # line 6
            raw = await self.propose_children(
                lab, queue, rollouts, await history.read(lab, queue)
            )  # line 7
            raw += lab.handed()  # a person's candidates count like a model's
            queue.release(parents)
            new = await admit_proposals(lab, net, raw, self.epsilon)  # line 8
            rollouts = await evaluate_all(lab, new, self.validation.cases(lab, batch))  # line 9
            queue.add(new, turn)
            queue.update(rollouts, turn)  # line 10
            lab.note("memory", round=turn, admitted=len(new), **net.facts())
            lab.note(
                "priority", round=turn, parents=[queue.statistics.as_dict(p.id) for p in parents]
            )

    async def propose_children(
        self, lab: Lab, queue: PriorityQueue, rollouts: Sequence[Rollout], context: str
    ) -> list[Candidate]:
        """PROPOSEPROGRAMS (Algorithm 3) with c_history as context (line 3).

        Without any program, ask for `explore` first ones.
        """
        briefs = [
            Brief(
                r.candidate,
                r.observations,
                queue.mean_reward(r.candidate),
                context=context,
                k=self.proposals,
            )  # line 5
            for r in rollouts  # line 4
        ] or [Brief(k=self.proposals) for _ in range(self.explore)]
        answers = await lab.gather(*(lab.propose(brief) for brief in briefs))  # lines 8-12
        return [candidate for answer in answers for candidate in answer.candidates]  # line 13


@dataclass
class _Memory:
    """The memory of one search; `rounds` were begun."""

    queue: PriorityQueue
    net: EpsilonNet | KeepAll
    history: RunningSummary
    rounds: int = 0


async def evaluate_all(
    lab: Lab, programs: Sequence[Candidate], cases: Sequence[Case | None]
) -> list[Rollout]:
    """EVALUATE (Algorithm 2): every program on every case, all side by side."""
    return await lab.gather(*(lab.evaluate(program, cases) for program in programs))


async def admit_proposals(
    lab: Lab,
    net: EpsilonNet | KeepAll,
    raw: Sequence[Candidate],
    epsilon: float | Quantile | ByEmbedder | None,
) -> list[Candidate]:
    """SEMANTICFILTER (Algorithm 4): the proposals that are new to the memory.

    Exact duplicates are not embedded. Journals a note if most proposals were refused.
    """
    from culmen.strategies.memory.epsilon_net import EpsilonNet

    fresh = net.unknown(raw)
    net.refused += len(raw) - len(fresh)
    vectors = await lab.embed(fresh) if net.needs_vectors and fresh else ()
    if not isinstance(net, EpsilonNet):
        return net.admit(fresh, vectors)
    if isinstance(epsilon, ByEmbedder):
        net.configured = epsilon.rule_for(lab.embedder)
    before, wide = net.crowded, net.epsilon
    new = net.admit(fresh, vectors)
    if net.crowded > before:
        done = (
            f"epsilon was {wide:.3g}, and is {net.epsilon:.3g} from now on"
            if net.epsilon < wide
            else _KEPT
        )
        report = {} if before else {"told": f"{_CROWDED}: {done}."}
        lab.note(
            "filter_crowded",
            refused=net.refused,
            size=len(net),
            epsilon=[wide, net.epsilon],
            **report,
        )
    return new


_CROWDED = (
    "The filter refused most of the latest 20 candidates, which were paid for, as too close to "
    "known ones"
)
_KEPT = "--set epsilon=q0.05 would refuse fewer, --set epsilon=off none"


# Special cases of POLCA (Appendix C): sequential search and beam search.


class _SpecialCase:
    paper = "POLCA: Stochastic Generative Optimization with LLM, Appendix C"

    summarizer: SummaryRule

    def __post_init__(self) -> None:
        check(self)

    @property
    def asides(self) -> str:
        """Requests to models besides those for programs, in words."""
        return "" if self.summarizer is None else self.summarizer.cost


@dataclass(frozen=True)
class Sequential(_SpecialCase):
    """Iterative refinement of the newest program, with any score.

    It is the simplest loop; a bad proposal sets it back (Theorem 2), and it waits for every step.
    The filter and the summary are off, as in plain iterative refinement; switch them on to isolate
    the effect of the priority.
    """

    batch: Batch = 2
    epsilon: Epsilon = None
    summarizer: SummaryRule = None

    async def search(self, lab: Lab) -> None:
        """Run until the budget ends it."""
        polca = Polca(1, self.batch, self.epsilon, priority=Newest(), summarizer=self.summarizer)
        await polca.search(lab)


@dataclass(frozen=True)
class Beam(_SpecialCase):
    """Beam search over generations.

    It keeps the best `width` programs of the newest generation and asks for `proposals`
    improvements of each. Everything older is dropped. Each program is judged once, on its own
    iteration's minibatch: efficient if evaluations are exact, misled by luck if they are not. A
    generation that fails altogether does not replace the one before it.
    """

    width: Annotated[int, About("programs kept per generation", least=1)] = 3
    proposals: Proposals = 3
    batch: Batch = 2
    epsilon: Epsilon = None
    summarizer: SummaryRule = None

    async def search(self, lab: Lab) -> None:
        """Run until the budget ends it."""
        polca = Polca(
            self.width,
            self.batch,
            self.epsilon,
            priority=ThisRound(),
            summarizer=self.summarizer,
            proposals=self.proposals,
        )
        await polca.search(lab)
