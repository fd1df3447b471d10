"""Settings that several strategies share, each with its help and range."""

from __future__ import annotations

from typing import Annotated

from culmen.memory.quantile import Quantile
from culmen.memory.selection import Earliest, Priority, Shuffled, Ties
from culmen.strategies.parts.adaptive_width import Adaptive, Fixed, Width
from culmen.strategies.parts.contrast import Tau
from culmen.strategies.parts.priorities import Mean, Newest, ThisRound, Ucb, UcbSigma
from culmen.strategies.parts.seed_pool import Allocation, Everywhere, Kmeans, KmeansElite, Random
from culmen.strategies.parts.settings import About
from culmen.strategies.parts.summarizer import Summarizer
from culmen.strategies.parts.validation import FreshBatch, SameBatch, Validation

Batch = Annotated[int, About("cases per minibatch, or repeats where the task has no cases", least=1)]
Cases = Annotated[int | None, About("cases per evaluation; none: all training cases", least=1)]
Proposals = Annotated[int, About("programs asked for at a time", least=1)]
Epsilon = Annotated[
    float | Quantile | None,
    About("least distance between programs in memory; q0.1: refuse the closest tenth; off: no filter", least=0),
]
History = Annotated[Summarizer | None, About("writes a summary of the whole memory for every proposal; off: none")]
Success = Annotated[
    Tau,
    About("score that separates success from failure; q0.5: quantile; none: 0.5 for scores in 0..1, else the median"),
]
Rank = Annotated[
    Priority, About("what makes a program worth exploring", choices=(Mean, Ucb, UcbSigma, Newest, ThisRound))
]
Validate = Annotated[Validation, About("cases on which new programs are first seen", choices=(SameBatch, FreshBatch))]
TieRule = Annotated[Ties, About("order among equal priorities", choices=(Earliest, Shuffled))]
Lanes = Annotated[int, About("loops over one shared memory, none waiting for another", least=1)]
WorkerLanes = Annotated[int | None, About("loops side by side; none: one per worker", least=1)]

Dimensions = Annotated[
    tuple[str, ...], About("dimensions of the grid; none: the task's, else complexity and diversity")
]
Bins = Annotated[int, About("bins per dimension", least=1)]
Exploration = Annotated[float, About("share of parents drawn from all cells alike", least=0, most=1)]
Exploitation = Annotated[
    float, About("share of parents drawn from the elites; the rest is drawn by rank", least=0, most=1)
]
EliteShare = Annotated[float, About("share of the cells that counts as the elites", least=0, most=1)]
Top = Annotated[int, About("best other programs shown", least=0)]
Diverse = Annotated[int, About("programs from distant cells shown", least=0)]
Interval = Annotated[int, About("iterations of an island between two migrations", least=1)]
Rate = Annotated[float, About("share of an island that competes for cells of the next; 0: none", least=0, most=1)]
Widths = Annotated[Width, About("candidates per request", choices=(Adaptive, Fixed))]
Allocate = Annotated[
    Allocation,
    About("how several seeds are shared out among islands", choices=(KmeansElite, Kmeans, Random, Everywhere)),
]
