"""Beam search: POLCA with this iteration's scores as priority (Appendix C)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from culmen.core.ports import Lab
from culmen.memory.priorities import ThisRound
from culmen.strategies.polca import Epsilon, Polca, SummaryRule
from culmen.strategies.settings import About, Batch, Proposals, check


@dataclass(frozen=True)
class Beam:
    """Keeps the best `width` programs of the newest generation, asks for `proposals` improvements of each, and drops
    everything older.

    Each program is judged once, on its own iteration's minibatch: efficient where evaluations are exact, misled by luck
    where they are not. A generation that fails altogether does not replace the one before it.
    """

    paper = "POLCA: Stochastic Generative Optimization with LLM, Appendix C"

    width: Annotated[int, About("programs kept per generation", least=1)] = 3
    proposals: Proposals = 3
    batch: Batch = 2
    epsilon: Epsilon = None
    summarizer: SummaryRule = None

    def __post_init__(self) -> None:
        check(self)

    @property
    def asides(self) -> str:
        """What it asks models for besides programs."""
        return "" if self.summarizer is None else self.summarizer.cost

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
