"""One iteration's candidates: asked for in one request, and again where a reply held too few (TurboEvolve, 3.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import msgspec

from culmen.core.brief import Brief
from culmen.core.candidate import Candidate
from culmen.core.ports import Lab
from culmen.strategies.parts.settings import About, check


@dataclass(frozen=True)
class Requery:
    """The first K candidates in the order returned; fewer are accepted, but below `minimum` (or below K, where K is
    smaller) the same is asked again, up to `times`, and what comes is added."""

    minimum: Annotated[int, About("candidates below which a round asks again", least=0)] = 2
    times: Annotated[int, About("how often a round may ask again", least=0)] = 1

    def __post_init__(self) -> None:
        check(self)

    async def propose(self, lab: Lab, brief: Brief) -> tuple[list[Candidate], list[str]]:
        """The candidates, each content once, and the fault of every request that had one."""
        found: dict[str, Candidate] = {}
        faults: list[str] = []
        for _ in range(1 + self.times):
            answer = await lab.propose(msgspec.structs.replace(brief, k=brief.k - len(found)))
            faults += [answer.fault] if answer.fault else []
            for candidate in answer.candidates:
                found.setdefault(candidate.id, candidate)
            if len(found) >= min(self.minimum, brief.k):
                break
        return list(found.values())[: brief.k], faults
