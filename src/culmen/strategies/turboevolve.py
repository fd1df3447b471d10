"""TurboEvolve: islands of programs, K candidates per request, divided seed pools.

K adapts to progress.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from culmen.core.ports import Lab
from culmen.strategies.backbone import Backbone, Grids, Openevolve
from culmen.strategies.island_loops import (
    Adaptive,
    Fixed,
    Inspirations,
    IslandLoops,
    Middle,
    Requery,
    Usual,
    Width,
)
from culmen.strategies.judging import Judge
from culmen.strategies.memory.grid import Selection
from culmen.strategies.seed_pool import Allocate, Evaluated, KmeansElite, PoolScores
from culmen.strategies.settings import About, Cases, Format, check

Dimensions = Annotated[
    tuple[str, ...],
    About("dimensions of the grid; none: the task's, else complexity and diversity"),
]
Bins = Annotated[int, About("bins per dimension", least=1)]
Exploration = Annotated[
    float, About("share of parents drawn from all cells alike", least=0, most=1)
]
Exploitation = Annotated[
    float,
    About("share of parents drawn from the elites; the rest is drawn by rank", least=0, most=1),
]
EliteShare = Annotated[
    float | None,
    About(
        "share of the cells that counts as the elites (grids), or of the drawn programs shown "
        "that are the best (openevolve); none: 0.2, or 0.1 on openevolve",
        least=0,
        most=1,
    ),
]
Top = Annotated[int, About("best other programs shown", least=0)]
Diverse = Annotated[
    int, About("further programs shown: from distant cells, or (openevolve) drawn ones", least=0)
]
Interval = Annotated[int, About("iterations of an island between two migrations", least=1)]
Rate = Annotated[
    float, About("share of an island that competes for cells of the next; 0: none", least=0, most=1)
]
_Widths = Annotated[Width, About("candidates per request", choices=(Adaptive, Fixed))]
_Backbones = Annotated[
    Backbone,
    About("populations: programs kept, and migration", choices=(Grids, Openevolve)),
]
_Shown = Annotated[
    Inspirations, About("rule for the programs shown beside the parent", choices=(Usual, Middle))
]


@dataclass(frozen=True)
class TurboEvolve:
    """Search on islands of programs that never wait for one another.

    An island draws a parent and inspirations, asks for K candidates in one request, evaluates them,
    inserts them, and adapts its K: wider after three iterations that changed no cell of its grid,
    narrower after three that all did. Every `interval` iterations the best migrate. `preset=paper`
    is the paper's: OpenEvolve's populations, and K by cells whose occupant was replaced.

    Several seeds (a pool, `culmen run --pool`) are evaluated, clustered by meaning, one cluster per
    island, and mixed a little. For deterministic evaluators and expensive model calls: one prompt
    pays for several candidates.
    """

    paper = (
        "TurboEvolve: LLM-driven program evolution with verbalized sampling, adaptive K and seed "
        "pools"
    )
    presets: ClassVar[dict[str, dict[str, str]]] = {  # Sections 3.2 and 4.2; u read two ways
        "paper": {"backbone": "openevolve", "width": "adaptive(new_cells=false)"},
        "paper_any_cell": {"backbone": "openevolve", "width": "adaptive(new_cells=true)"},
    }

    islands: Annotated[int, About("populations side by side", 1, 10_000)] = 5
    width: _Widths = field(default=Adaptive())
    backbone: _Backbones = field(default=Grids())
    format: Format = "verbalized_auto"
    tail: Annotated[
        float,
        About("share of the candidates asked for from the tail of the model's", least=0, most=1),
    ] = 0.0
    requery: Annotated[Requery, About("action if a reply holds too few candidates")] = field(
        default=Requery()
    )
    allocation: Allocate = field(default=KmeansElite())
    pool_scores: PoolScores = field(default=Evaluated())
    features: Dimensions = ()
    bins: Bins = 10
    exploration: Exploration = 0.2
    exploitation: Exploitation = 0.7
    elites: EliteShare = None
    top: Top = 3
    diverse: Diverse = 2
    inspirations: _Shown = field(default=Usual())
    interval: Annotated[
        int | None,
        About(
            "iterations of an island between two migrations; none: 10, or 50 on openevolve", least=1
        ),
    ] = None
    rate: Rate = 0.1
    batch: Cases = None
    lanes: Annotated[
        int | None, About("turns at once over all islands; none: one on each", least=1)
    ] = None

    def __post_init__(self) -> None:
        check(self)

    async def search(self, lab: Lab) -> None:
        """Run until the budget ends it."""
        backbone = self.backbone
        elites = backbone.ELITES if self.elites is None else self.elites
        loops = IslandLoops(
            backbone,
            self.islands,
            self.lanes or self.islands,
            self.width,
            self.format,
            self.requery,
            Selection(self.exploration, self.exploitation, elites, self.top, self.diverse),
            self.inspirations,
            backbone.INTERVAL if self.interval is None else self.interval,
            self.rate,
            self.tail,
        )
        judge = Judge(lab, self.features, self.bins, self.batch)
        allocation = self.allocation if len(lab.seeds) > 1 else backbone.ONE_SEED
        await loops.search(lab, judge, allocation, self.pool_scores)
