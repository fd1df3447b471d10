"""POLCA: Prioritized Optimization with Local Contextual Aggregation (Algorithms 1, 3 and 4 of the paper)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Annotated, Protocol

from culmen.core.brief import Brief
from culmen.core.candidate import Candidate
from culmen.core.evaluation import Case, Rollout
from culmen.core.ports import Lab
from culmen.memory.priorities import Earliest, Mean, Newest, Priority, Shuffled, ThisRound, Ties, Ucb, UcbSigma
from culmen.memory.quantile import Quantile
from culmen.strategies.settings import About, Batch, Lanes, Proposals, check
from culmen.strategies.summarizer import Summarizer, Tau

if TYPE_CHECKING:
    from culmen.memory.epsilon_net import EpsilonNet, KeepAll
    from culmen.memory.queue import PriorityQueue


class Validation(Protocol):
    """Chooses the cases for lines 9-10, given the iteration's minibatch."""

    def cases(self, lab: Lab, batch: Sequence[Case | None]) -> Sequence[Case | None]: ...


@dataclass(frozen=True)
class SameBatch:
    """The minibatch of the iteration (the paper): parents and children are compared on the same cases."""

    def cases(self, lab: Lab, batch: Sequence[Case | None]) -> Sequence[Case | None]:
        return batch


@dataclass(frozen=True)
class FreshBatch:
    """A minibatch of their own, drawn anew: children are not judged on the cases they were just written to solve."""

    def cases(self, lab: Lab, batch: Sequence[Case | None]) -> Sequence[Case | None]:
        return lab.minibatch(len(batch))


Epsilon = Annotated[
    float | Quantile | None,
    About("least distance between programs in memory; q0.1: refuse the closest tenth; off: no filter", least=0),
]
History = Annotated[Summarizer | None, About("writes a summary of the whole memory for every proposal; off: none")]
_Success = Annotated[
    Tau,
    About("score that separates success from failure; q0.5: quantile; none: 0.5 for scores in 0..1, else the median"),
]
_Rank = Annotated[
    Priority, About("what makes a program worth exploring", choices=(Mean, Ucb, UcbSigma, Newest, ThisRound))
]
_Validate = Annotated[Validation, About("cases on which new programs are first seen", choices=(SameBatch, FreshBatch))]
_TieRule = Annotated[Ties, About("order among equal priorities", choices=(Earliest, Shuffled))]


@dataclass(frozen=True)
class Polca:
    """Keeps every admitted program in a priority queue, re-evaluates the best ones again and again, so that their
    means converge, and asks the model to improve each from what was just seen of it and a summary of all that was
    seen so far. A semantic filter keeps the queue small.

    One iteration: draw a minibatch; evaluate the `explore` programs of highest priority on it; have each improved;
    admit the proposals that are at least `epsilon` away from everything in memory; evaluate those. For noisy
    evaluators, data sets, prompts and agents; works unchanged for deterministic ones.

    `lanes` > 1 runs that many such loops over one memory, none waiting for another; a lane passes over the programs
    that another is working on. One lane is the paper's algorithm.
    """

    paper = "POLCA: Stochastic Generative Optimization with LLM"

    explore: Annotated[int, About("programs explored per iteration: the top k by priority", least=1)] = 5
    batch: Batch = 2
    epsilon: Epsilon = 0.1
    tau: _Success = None
    priority: _Rank = field(default=Mean())
    summarizer: History = field(default=Summarizer())
    proposals: Proposals = 1
    validation: _Validate = field(default=SameBatch())
    ties: _TieRule = field(default=Earliest())
    lanes: Lanes = 1

    def __post_init__(self) -> None:
        check(self)

    async def search(self, lab: Lab) -> None:
        """Run until the budget ends it."""
        from culmen.memory.queue import PriorityQueue  # with numpy, which describing a strategy need not load

        queue, net = PriorityQueue(lab.task.objective.floor), self.net()
        seeds = net.add(lab.seeds, await lab.embed(lab.seeds) if net.needs_vectors and lab.seeds else ())
        queue.add(seeds)  # line 1
        if len(seeds) > self.explore:  # line 4 has nothing to choose by yet
            queue.update(await evaluate_all(lab, seeds, lab.minibatch(self.batch)))
        rounds = count(1)
        await lab.gather(*(self.lane(lab, queue, net, rounds) for _ in range(self.lanes)))

    def net(self) -> EpsilonNet | KeepAll:
        """An empty semantic filter as configured."""
        from culmen.memory.epsilon_net import (  # with numpy, which describing a strategy need not load
            EpsilonNet,
            KeepAll,
        )

        return KeepAll() if self.epsilon is None else EpsilonNet(self.epsilon)

    async def lane(self, lab: Lab, queue: PriorityQueue, net: EpsilonNet | KeepAll, rounds: count[int]) -> None:
        """Algorithm 1's loop; every turn awaits at least one proposal."""
        for turn in rounds:  # line 2
            batch = lab.minibatch(self.batch)  # line 3
            parents = queue.take(self.explore, self.priority, self.ties, lab.rng)  # line 4
            rollouts = await evaluate_all(lab, parents, batch)  # line 5
            queue.update(rollouts, turn)  # line 6
            raw = await self.propose(lab, queue, rollouts)  # line 7
            raw += lab.handed()  # a person's candidates count like a model's
            queue.release(parents)
            new = await admit(lab, net, raw)  # line 8
            rollouts = await evaluate_all(lab, new, self.validation.cases(lab, batch))  # line 9
            queue.add(new, turn)
            queue.update(rollouts, turn)  # line 10
            lab.note("memory", round=turn, admitted=len(new), **net.facts())
            lab.note("priority", round=turn, parents=[queue.statistics.as_dict(p.id) for p in parents])

    async def propose(self, lab: Lab, queue: PriorityQueue, rollouts: Sequence[Rollout]) -> list[Candidate]:
        """PROPOSEPROGRAMS (Algorithm 3). Without any program, `explore` first ones are asked for."""
        context = ""
        if self.summarizer is not None:
            context = await self.summarizer.summarize(lab, queue, self.tau)  # line 3
        briefs = [
            Brief(r.candidate, r.observations, queue.mean(r.candidate), context=context, k=self.proposals)  # line 5
            for r in rollouts  # line 4
        ] or [Brief(k=self.proposals) for _ in range(self.explore)]
        answers = await lab.gather(*(lab.propose(brief) for brief in briefs))  # lines 8-12
        return [candidate for answer in answers for candidate in answer.candidates]  # line 13


async def evaluate_all(lab: Lab, programs: Sequence[Candidate], cases: Sequence[Case | None]) -> list[Rollout]:
    """EVALUATE (Algorithm 2): every program on every case, all side by side."""
    return await lab.gather(*(lab.evaluate(program, cases) for program in programs))


async def admit(lab: Lab, net: EpsilonNet | KeepAll, raw: Sequence[Candidate]) -> list[Candidate]:
    """SEMANTICFILTER (Algorithm 4); exact duplicates are not even embedded."""
    fresh = net.unknown(raw)
    net.refused += len(raw) - len(fresh)
    return net.admit(fresh, await lab.embed(fresh) if net.needs_vectors and fresh else ())
