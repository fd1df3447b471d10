"""POLCA's Summarizer: successes and failures of the whole memory, compressed by a model into guidance c_history."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from culmen.core.ports import Lab
from culmen.strategies.parts.contrast import Tau, contrast, threshold
from culmen.strategies.parts.settings import About, check

if TYPE_CHECKING:
    from culmen.memory.queue import PriorityQueue


@dataclass(frozen=True)
class Summarizer:
    """Asks the model behind the role `summarizer` with the slots goal, level (the threshold as a reward) and pairs.

    A pair is {id, mean, count, failures, program, success, failure}; success and failure are None or {case, reward,
    status, input, feedback}.
    """

    programs: Annotated[int, About("programs shown per summary", least=1)] = 10
    chars: Annotated[int, About("characters shown per summary, about", least=1000)] = 24_000

    def __post_init__(self) -> None:
        check(self)

    async def summarize(self, lab: Lab, queue: PriorityQueue, tau: Tau) -> str:
        """c_history (Algorithm 3, line 3); "" while nothing was evaluated or when the model gave nothing usable."""
        level = threshold(tau, lab.task.objective, queue.rewards.ordered())
        cases = {case.id: case for case in lab.task.cases}
        pairs = contrast(queue, level, self.programs, self.chars, cases, lab.rng)
        if not pairs:
            return ""
        reply = await lab.write("summarizer", goal=lab.task.goal, level=level, pairs=pairs)
        return guidance(reply.text)


def guidance(reply: str) -> str:
    """What stands between <summary> tags (an unclosed one runs to the end); without them, all but the reasoning."""
    found = re.search(r"<summary>(.*?)(?:</summary>|\Z)", reply, re.DOTALL | re.IGNORECASE)
    if found:
        return found[1].strip()
    return re.sub(r"<reasoning>.*?(?:</reasoning>|\Z)", "", reply, flags=re.DOTALL | re.IGNORECASE).strip()
