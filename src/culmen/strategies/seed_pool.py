"""Scores of a pool of initial programs, and its division among islands.

Source: TurboEvolve, Section 3.3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Protocol

from culmen.core.candidate import Candidate
from culmen.core.errors import UserError
from culmen.core.evaluation import Rollout
from culmen.core.ports import Lab
from culmen.strategies.judging import Judge
from culmen.strategies.memory.grid import Elite
from culmen.strategies.settings import About, check

if TYPE_CHECKING:
    from random import Random as Generator

Clusters = list[list[int]]
# clusterings tried before giving up; the work is done in a process that may be killed for its time
_ATTEMPTS = 3


class Allocation(Protocol):
    """Assignment of initial programs to islands.

    It returns `islands` clusters of indices into `seeds`, whose rewards are known.
    """

    async def allocate(
        self, lab: Lab, seeds: Sequence[Candidate], rewards: Sequence[float], islands: int
    ) -> Clusters: ...


class InitialScores(Protocol):
    """Rule for the scores with which initial programs enter."""

    async def initial_elites(self, lab: Lab, judge: Judge) -> list[Elite]: ...


@dataclass(frozen=True)
class Evaluated:
    """Evaluation of all initial programs before the search; scores in the pool are ignored."""

    async def initial_elites(self, lab: Lab, judge: Judge) -> list[Elite]:
        """Elites of the initial programs that scored, in order.

        They pass the same feasibility checks as any candidate.
        """
        judged = await judge.judge_candidates(lab, judge.take_unknown(lab.seeds))
        return [elite for _, elite in judged if elite is not None]


@dataclass(frozen=True)
class Given:
    """Initial programs enter with the scores that their pool states.

    Programs without a stated score are evaluated, and so is the one with the best stated score, so
    that it can be reported; the others are never run, and the run can report only their
    descendants.
    """

    async def initial_elites(self, lab: Lab, judge: Judge) -> list[Elite]:
        """Elites with evaluated or stated scores, in the order of the initial programs."""
        seeds = judge.take_unknown(lab.seeds)
        stated = {id: lab.task.objective.reward(score) for id, score in lab.task.stated.items()}
        praised = max(
            (c for c in seeds if c.id in stated), key=lambda c: stated[c.id], default=None
        )
        believed = [c for c in seeds if c.id in stated and c is not praised]
        judged = await judge.judge_candidates(lab, [c for c in seeds if c not in believed])
        elites = [elite for _, elite in judged if elite is not None]
        elites += await judge.scored_elites(
            lab, [Rollout(c, (), (stated[c.id],)) for c in believed]
        )
        order = {c.id: place for place, c in enumerate(seeds)}
        return sorted(elites, key=lambda elite: order[elite.rollout.candidate.id])


PoolScores = Annotated[
    InitialScores,
    About(
        "scores that initial programs enter with: their own or a pool's", choices=(Evaluated, Given)
    ),
]


@dataclass(frozen=True)
class Everywhere:
    """All initial programs on all islands."""

    async def allocate(
        self, lab: Lab, seeds: Sequence[Candidate], rewards: Sequence[float], islands: int
    ) -> Clusters:
        return [list(range(len(seeds))) for _ in range(islands)]


@dataclass(frozen=True)
class First:
    """All initial programs on the first island."""

    async def allocate(
        self, lab: Lab, seeds: Sequence[Candidate], rewards: Sequence[float], islands: int
    ) -> Clusters:
        return [list(range(len(seeds))), *([] for _ in range(islands - 1))]


@dataclass(frozen=True)
class Random:
    """A random partition into parts of equal size."""

    async def allocate(
        self, lab: Lab, seeds: Sequence[Candidate], rewards: Sequence[float], islands: int
    ) -> Clusters:
        return fill_empty_clusters(random_partition(lab, seeds, islands), rewards)


@dataclass(frozen=True)
class Kmeans:
    """One cluster of the embedded pool per island. Needs the extra `pools`."""

    async def allocate(
        self, lab: Lab, seeds: Sequence[Candidate], rewards: Sequence[float], islands: int
    ) -> Clusters:
        return fill_empty_clusters(await embedding_clusters(lab, seeds, islands), rewards)


@dataclass(frozen=True)
class KmeansElite:
    """Clusters with a share of one another's best: copy-and-mix.

    `d` is the mixing ratio, and `rho` protects elites. The paper refers to its Section 4 for d and
    rho, which does not give them; 0.2 is ours.
    """

    d: Annotated[float, About("mixing ratio", least=0, most=1)] = 0.2
    rho: Annotated[
        float, About("share of each cluster's best that is never removed", least=0, most=1)
    ] = 0.2

    def __post_init__(self) -> None:
        check(self)

    async def allocate(
        self, lab: Lab, seeds: Sequence[Candidate], rewards: Sequence[float], islands: int
    ) -> Clusters:
        found = await embedding_clusters(lab, seeds, islands)
        return fill_empty_clusters(copy_and_mix(found, rewards, self.d, self.rho, lab.rng), rewards)


@dataclass(frozen=True)
class RandomElite(KmeansElite):
    """A random partition with the same copy-and-mix.

    It is the control of the paper's initialisation study (Section 4.3).
    """

    async def allocate(
        self, lab: Lab, seeds: Sequence[Candidate], rewards: Sequence[float], islands: int
    ) -> Clusters:
        return fill_empty_clusters(
            copy_and_mix(random_partition(lab, seeds, islands), rewards, self.d, self.rho, lab.rng),
            rewards,
        )


Allocate = Annotated[
    Allocation,
    About(
        "how initial programs are shared out among islands",
        choices=(KmeansElite, Kmeans, RandomElite, Random, Everywhere),
    ),
]


def random_partition(lab: Lab, seeds: Sequence[Candidate], islands: int) -> Clusters:
    """A random partition into parts of equal size."""
    order = lab.rng.sample(range(len(seeds)), len(seeds))
    return [order[i::islands] for i in range(islands)]


async def embedding_clusters(lab: Lab, seeds: Sequence[Candidate], k: int) -> Clusters:
    """k-means over embeddings: indices of the seeds by cluster, `k` in all.

    There are no more non-empty clusters than seeds. Both steps are effects of the lab. Raises
    `UserError` without scikit-learn, or if clustering fails.
    """
    if len(seeds) <= k:
        return [[i] if i < len(seeds) else [] for i in range(k)]
    vectors = await lab.embed(seeds)
    fault = ""
    for _ in range(_ATTEMPTS):
        result = await lab.edit("kmeans", (), vectors=[list(vector) for vector in vectors], k=k)
        if not result.fault:
            labels: list[int] = result.data["labels"]
            return [
                [i for i, label in enumerate(labels) if label == cluster] for cluster in range(k)
            ]
        fault = str(result.fault)
        if fault == "no_sklearn":
            break
    missing = fault == "no_sklearn"
    raise UserError(
        "clustering a pool of programs needs scikit-learn"
        if missing
        else f"the pool could not be clustered: {fault}",
        where="setting 'allocation'",
        fix=(
            "pip install 'culmen[pools]', then culmen resume; or start with --set allocation=random"
        ),
    )


def copy_and_mix(
    found: Clusters, rewards: Sequence[float], d: float, rho: float, rng: Generator
) -> Clusters:
    """Copy-and-mix (Section 3.3): clusters of unchanged sizes with some seeds exchanged.

    Each cluster is best first, then come seeds from others. The shared pool P holds the best ceil(d
    |C|) of every cluster. Each cluster gets floor(d n) of P that are not its own, drawn uniformly,
    and loses the same number from its own bottom, but never one of its best ceil(rho n); if P or
    the bottom is too small for that, fewer are exchanged.
    """
    # 0.7 * 10 is 7, not 7.000000000000001
    exact_d, exact_rho = Fraction(str(d)), Fraction(str(rho))
    ranked = [sorted(cluster, key=lambda i: -rewards[i]) for cluster in found]
    pool = [i for cluster in ranked for i in cluster[: math.ceil(exact_d * len(cluster))]]
    result: Clusters = []
    for cluster in ranked:
        size = len(cluster)
        foreign = [i for i in pool if i not in cluster]
        free = size - math.ceil(exact_rho * size)
        count = min(math.floor(exact_d * size), len(foreign), free)
        result.append(cluster[: size - count] + rng.sample(foreign, count))
    return result


def fill_empty_clusters(found: Clusters, rewards: Sequence[float]) -> Clusters:
    """The same clusters, with the best seeds in turn in empty ones: every island has a seed."""
    best = sorted(range(len(rewards)), key=lambda i: -rewards[i])
    empty = [i for i, cluster in enumerate(found) if not cluster]
    turns = {island: [best[turn % len(best)]] for turn, island in enumerate(empty)} if best else {}
    return [turns.get(i, cluster) for i, cluster in enumerate(found)]
