"""The proposer of runs with a model; it drops a format that the model cannot keep."""

from __future__ import annotations

from collections import Counter

import msgspec

from culmen.core.brief import Brief, Proposal
from culmen.core.ports import Lab, Proposer

GIVEN_UP = "format_given_up"
_JSON = ("verbalized", "verbalized_diff")


class FallbackProposer(Proposer):
    """Several candidates as JSON until `patience` replies in a row, to one role, held no such object (`not_json`);
    from then on, as fenced blocks (`blocks`).

    The proposal at which that happens has the fault kind `format_given_up`, and a note of that kind is journaled.
    """

    def __init__(self, patience: int = 3) -> None:
        self._patience = patience
        self._misses: Counter[str] = Counter()

    async def propose(self, lab: Lab, brief: Brief) -> Proposal:
        """One effect: the model's candidates."""
        if brief.format not in _JSON:
            return await lab.ask(brief)
        if self._misses[brief.role] >= self._patience:
            return await lab.ask(msgspec.structs.replace(brief, format="blocks"))
        answer = await lab.ask(brief)
        if "not_json" in answer.faults:
            self._misses[brief.role] += 1
        elif answer.candidates:
            self._misses[brief.role] = 0
        if "not_json" not in answer.faults or self._misses[brief.role] != self._patience:
            return answer
        lab.note(GIVEN_UP, role=brief.role, model=answer.model, format=brief.format, replies=self._patience)
        return msgspec.structs.replace(answer, faults={**answer.faults, GIVEN_UP: 1})
