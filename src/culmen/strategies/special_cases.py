"""Special cases of POLCA (Appendix C): sequential search and beam search.

Sequential search takes programs in the order of creation, beam search by their latest scores.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from culmen.core.ports import Lab
from culmen.strategies.memory.priorities import Newest, ThisRound
from culmen.strategies.polca import Epsilon, Polca, SummaryRule
from culmen.strategies.settings import About, Batch, Proposals, check


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
