"""The lab as the proposer of an agent sees it: what it evaluates is an experiment of that agent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

from culmen.core.candidate import Candidate
from culmen.core.evaluation import Case, Rollout
from culmen.core.ports import Lab

Run = Callable[[Candidate], Awaitable[Rollout]]
Left = Callable[[str], float]


class _View:
    """Passes everything on to a lab but evaluations, which `run` makes, and what is left, which is the agent's."""

    def __init__(self, lab: Lab, run: Run, left: Left) -> None:
        self._lab, self._run, self._left = lab, run, left

    def left(self, budget: str) -> float:
        """What remains of the agent's part of a budget."""
        return min(self._lab.left(budget), self._left(budget))

    async def evaluate(
        self,
        candidate: Candidate,
        cases: Sequence[Case | None] | None = None,
        repeats: int = 1,
        *,
        certify: bool = False,
    ) -> Rollout:
        """One experiment, on all training cases; nothing was measured if the agent's desk is closed."""
        return await self._run(candidate)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lab, name)


def view(lab: Lab, run: Run, left: Left) -> Lab:
    """A lab on which `run` evaluates candidates, with no more of a budget than `left` says."""
    return cast(Lab, _View(lab, run, left))
