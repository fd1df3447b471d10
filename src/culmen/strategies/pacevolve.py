"""PACEvolve: islands that keep ideas, remember failures, go back when momentum is lost, and learn from one another."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from culmen.core.ports import Lab
from culmen.strategies.parts.advice import Advising
from culmen.strategies.parts.fields import Cases
from culmen.strategies.parts.implementing import Implementing
from culmen.strategies.parts.research import Early, Recent, Versions
from culmen.strategies.parts.scaffold import Research
from culmen.strategies.parts.settings import About, check
from culmen.strategies.parts.upkeep import Upkeep
from culmen.strategies.parts.voice import ModelVoice


@dataclass(frozen=True)
class Pacevolve:
    """An advisor decides what to try, an implementer writes it. Every island has a population and a repository of ideas
    with what came of each; hypotheses are made for one decision, put under an idea, and forgotten. An island whose
    momentum is lost goes back to an old version of its ideas, or takes over those of a more advanced island.

    Roles: `advisor` (may be a small model) and `implementer` (a strong one). Without a model the advisor draws from a
    menu of kinds of edit, and the offline proposer makes them. For expensive evaluations and long searches.
    """

    paper = "PACEvolve (arXiv 2601.10657), the scaffold of PACEvolve++ (arXiv 2605.07039)"

    islands: Annotated[int, About("islands side by side, one experiment in flight on each", least=1)] = 8
    top: Annotated[int, About("best programs among which parents are drawn", least=1)] = 4
    tournament: Annotated[int, About("programs in a tournament", least=1)] = 2
    size: Annotated[int, About("programs an island keeps", least=1)] = 100
    target: Annotated[
        float | None, About("score that counts as full progress; none: the task's target or best known")
    ] = None
    advising: Annotated[Advising, About("how a decision is made")] = field(default=Advising())
    implementing: Annotated[Implementing, About("how an experiment becomes a candidate")] = field(
        default=Implementing()
    )
    upkeep: Annotated[Upkeep, About("how the ideas are kept few and short")] = field(default=Upkeep())
    beta: Annotated[float, About("weight of the past in the momentum", least=0, most=1)] = 0.85
    threshold: Annotated[float, About("momentum below which an island is stalled", least=0)] = 0.001
    freeze: Annotated[int, About("scored candidates after an intervention before the next", least=0)] = 15
    backtrack_length: Annotated[int, About("experiments on an old version", least=1)] = 5
    backtrack_every: Annotated[
        int | None,
        About("experiments of an island after which it goes back in any case; none: momentum alone", least=1),
    ] = None
    versions: Annotated[Versions, About("which old version is gone back to", choices=(Early, Recent))] = field(
        default=Early()
    )
    remembered: Annotated[int, About("failures remembered, by all islands together", least=1)] = 200
    batch: Cases = None

    def __post_init__(self) -> None:
        check(self)

    async def search(self, lab: Lab) -> None:
        """Run until the budget ends it."""
        await Research(self, lab, ModelVoice()).run()
