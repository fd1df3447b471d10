"""Sequential search (iterative refinement): POLCA with the creation order as priority (Appendix C)."""

from __future__ import annotations

from dataclasses import dataclass

from culmen.core.ports import Lab
from culmen.memory.priorities import Newest
from culmen.strategies.polca import Epsilon, Polca, SummaryRule
from culmen.strategies.settings import Batch, check


@dataclass(frozen=True)
class Sequential:
    """Always improves the newest program, whatever it scored.

    The simplest loop there is; a bad proposal sets it back (Theorem 2), and it waits for every step. The filter and the
    summary are off, as in plain iterative refinement; switch them on to isolate what the priority alone does.
    """

    paper = "POLCA: Stochastic Generative Optimization with LLM, Appendix C"

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
        polca = Polca(1, self.batch, self.epsilon, priority=Newest(), summarizer=self.summarizer)
        await polca.search(lab)
