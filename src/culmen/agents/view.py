"""The lab as the proposer of an agent sees it: what it evaluates is an experiment of that agent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

from culmen.core.candidate import Candidate
from culmen.core.evaluation import Case, Rollout
from culmen.core.ports import Lab


class _View:
    """Passes everything on to a lab but evaluations, which `run` makes."""

    def __init__(self, lab: Lab, run: Callable[[Candidate], Awaitable[Rollout]]) -> None:
        self._lab, self._run = lab, run

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


def view(lab: Lab, run: Callable[[Candidate], Awaitable[Rollout]]) -> Lab:
    """A lab on which `run` evaluates candidates."""
    return cast(Lab, _View(lab, run))
