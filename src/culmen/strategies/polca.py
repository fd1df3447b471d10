"""POLCA: Prioritized Optimization with Local Contextual Aggregation.

Algorithms 1, 3 and 4 of the paper. In its semantic filter no two members are closer than epsilon.
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
    from culmen.strategies.memory.queue import PriorityQueue
    from culmen.strategies.polca import EpsilonNet, KeepAll
from collections import deque

import numpy as np
from numpy.typing import NDArray

from culmen.core.json import JsonObject
from culmen.strategies.memory.priorities import RunningSample, interpolated_quantile

Vector = Sequence[float]
_WARM = 20  # distances to see before a quantile of them is used
_BLOCK = 250_000  # multiplications per block
_WINDOW = 20  # latest proposals, of which less than half may be refused
_FAR = 2.0  # distance of a proposal to an empty memory: the most that rows of length 1 can have
# relative rounding error allowed to the float32 products; closer calls are decided in float64
_SLACK = 1e-5


class KeepAll:
    """The filter of the ablation without an epsilon-net.

    It refuses exact duplicates only and needs no vectors.
    """

    needs_vectors = False

    def __init__(self) -> None:
        self._digests: dict[str, None] = {}
        self.refused = 0

    def __len__(self) -> int:
        return len(self._digests)

    def __contains__(self, candidate: Candidate) -> bool:
        return candidate.digest in self._digests

    def unknown(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Candidates that are not in the memory, each content once, in their order."""
        fresh = {c.digest: c for c in reversed(candidates) if c.digest not in self._digests}
        return list(reversed(fresh.values()))

    def add(
        self, candidates: Sequence[Candidate], vectors: Sequence[Vector] = ()
    ) -> list[Candidate]:
        """Enter candidates without a test (seeds); returns those entered.

        Exact duplicates are refused.
        """
        fresh = self.unknown(candidates)
        self._digests.update((c.digest, None) for c in fresh)
        return fresh

    def admit(
        self, candidates: Sequence[Candidate], vectors: Sequence[Vector] = ()
    ) -> list[Candidate]:
        """Same as `add`; also counts the refused candidates."""
        fresh = self.add(candidates)
        self.refused += len(candidates) - len(fresh)
        return fresh

    def facts(self) -> JsonObject:
        """Plain data for a note."""
        return {"size": len(self), "refused": self.refused}


class EpsilonNet:
    """Repeatedly admits the candidate farthest from the memory, while it is epsilon away.

    `epsilon` is a Euclidean distance between embeddings (0..2 for rows of length 1), or a
    `Quantile` of the distances at which proposals arrived so far: `Quantile(0.1)` refuses about the
    closest tenth of them, whatever the embedder. Until twenty distances were seen a quantile
    refuses exact duplicates only. Proposals have been paid for: `crowded` counts the times that
    more than half of the latest twenty were refused, and with `widens` the distance is then lowered
    to their lower quartile.

    The test is `>= epsilon`, as Algorithm 4 prints it; the paper's text has `> epsilon`. They
    differ at exact ties only, and at epsilon = 0, where `>=` admits everything: exact duplicates
    are therefore always refused by digest.

    Cost of admitting m candidates to a memory of n: one (m x d) by (d x n) product; distances to
    the growing net are then updated, not recomputed.
    """

    needs_vectors = True

    def __init__(self, epsilon: float | Quantile = 0.1, widens: bool = False) -> None:
        self.configured = epsilon
        self.crowded, self._widens = 0, widens
        self._most = float("inf")
        self._latest: deque[tuple[float, bool]] = deque(maxlen=_WINDOW)
        self._members: dict[str, Candidate] = {}
        self._rows: NDArray[np.float32] = np.empty((0, 0), np.float32)
        self._squares: NDArray[np.float32] = np.empty(0, np.float32)
        self._arrivals = RunningSample()
        self.refused = 0

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, candidate: Candidate) -> bool:
        return candidate.digest in self._members

    @property
    def epsilon(self) -> float:
        """The distance in force now."""
        if isinstance(self.configured, float | int):
            return min(float(self.configured), self._most)
        if len(self._arrivals) < _WARM:
            return 0.0
        return min(self._arrivals.quantiles(self.configured.q)[0], self._most)

    def unknown(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Candidates that are not in the memory, each content once, in their order."""
        fresh = {c.digest: c for c in reversed(candidates) if c.digest not in self._members}
        return list(reversed(fresh.values()))

    def add(self, candidates: Sequence[Candidate], vectors: Sequence[Vector]) -> list[Candidate]:
        """Enter candidates without a test (seeds); returns those entered.

        Exact duplicates are refused.
        """
        fresh = self.unknown(candidates)
        rows = {c.digest: v for c, v in zip(candidates, vectors, strict=True)}
        for candidate in fresh:
            self._append_member(candidate, np.asarray(rows[candidate.digest], np.float32))
        return fresh

    def admit(self, candidates: Sequence[Candidate], vectors: Sequence[Vector]) -> list[Candidate]:
        """Algorithm 4: returns the admitted candidates in the order of admission, farthest first.

        Ties are admitted in the order given. `vectors` holds one embedding per candidate, all of
        the memory's length.
        """
        place = {c.digest: i for i, c in reversed(list(enumerate(candidates)))}
        remaining = self.unknown(candidates)
        self.refused += len(candidates)
        if not remaining:
            return []
        points = np.asarray([vectors[place[c.digest]] for c in remaining], np.float32)
        distances = self.nearest_distances(points)
        self._arrivals.extend(float(d) for d in distances)
        new = self._select_farthest(remaining, points, distances, self.epsilon)
        self.refused -= len(new)
        self._widen_if_crowded()
        return new

    def _widen_if_crowded(self) -> None:
        if (
            len(self._latest) < _WINDOW
            or 2 * sum(int(refused) for _, refused in self._latest) <= _WINDOW
        ):
            return
        self.crowded += 1
        if self._widens:
            self._most = interpolated_quantile(
                sorted(distance for distance, _ in self._latest), 0.25
            )
        self._latest.clear()

    def _select_farthest(
        self,
        remaining: list[Candidate],
        points: NDArray[np.float32],
        distances: NDArray[np.float64],
        epsilon: float,
    ) -> list[Candidate]:
        new: list[Candidate] = []  # line 2
        for _ in remaining:  # line 5
            farthest = int(np.argmax(distances))  # line 7
            if distances[farthest] < epsilon:  # lines 8, 10
                break  # line 14
            new.append(remaining[farthest])  # line 11
            self._latest.append((min(float(distances[farthest]), _FAR), False))
            self._append_member(remaining[farthest], points[farthest])
            distances = np.minimum(distances, _exact_distances(points, points[farthest]))
            distances[farthest] = -np.inf  # line 12
        self._latest.extend((float(distance), True) for distance in distances if distance >= 0)
        return new

    def nearest_distances(self, points: NDArray[np.float32]) -> NDArray[np.float64]:
        """Distance of each row of `points` to the nearest member; inf without members.

        Products in float32 find the nearest, float64 differences measure them, so the outcome
        depends neither on the number of threads nor on the instruction set behind the matrix
        product.
        """
        size = len(self)
        if size == 0:
            return np.full(len(points), np.inf)
        members, squares = self._rows[:size], self._squares[:size]
        own = np.einsum("ij,ij->i", points, points)
        rough = squares[None, :] - 2.0 * _blocked_products(points, members)
        slack = _SLACK * (own + float(squares.max()))
        nearest = np.empty(len(points))
        for i, point in enumerate(points):
            close = np.flatnonzero(rough[i] <= rough[i].min() + slack[i])
            nearest[i] = _exact_distances(members[close], point).min()
        return nearest

    def _append_member(self, candidate: Candidate, row: NDArray[np.float32]) -> None:
        size = len(self)
        if size == 0:
            self._rows = np.empty((64, len(row)), np.float32)
            self._squares = np.empty(64, np.float32)
        elif size == len(self._rows):
            self._rows = np.concatenate([self._rows, np.empty_like(self._rows)])
            self._squares = np.concatenate([self._squares, np.empty_like(self._squares)])
        self._rows[size] = row
        self._squares[size] = float(np.dot(row, row))
        self._members[candidate.digest] = candidate

    def facts(self) -> JsonObject:
        """Plain data for a note.

        Size, epsilon in force, and quantiles of the distances at which proposals arrived.
        """
        levels = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9)
        values = self._arrivals.quantiles(*levels)
        quantiles = {f"q{level:g}": round(value, 6) for level, value in zip(levels, values)}
        return {
            "size": len(self),
            "refused": self.refused,
            "epsilon": self.epsilon,
            "quantiles": quantiles,
        }


def _blocked_products(
    points: NDArray[np.float32], members: NDArray[np.float32]
) -> NDArray[np.float32]:
    """points @ members.T in blocks small enough to stay in cache and on one core.

    More threads would cost more time than they save.
    """
    block = max(1, _BLOCK // max(points.size, 1))
    products = np.empty((len(points), len(members)), np.float32)
    for start in range(0, len(members), block):
        np.matmul(points, members[start : start + block].T, out=products[:, start : start + block])
    return products


def _exact_distances(rows: NDArray[np.float32], point: NDArray[np.float32]) -> NDArray[np.float64]:
    """Euclidean distances in float64, rounded to nine decimals."""
    gaps = rows.astype(np.float64) - point.astype(np.float64)
    lengths: NDArray[np.float64] = np.sqrt((gaps * gaps).sum(axis=1))
    return lengths.round(9)


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
        from culmen.strategies.polca import (  # with numpy, as the queue
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
    from culmen.strategies.polca import EpsilonNet

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
