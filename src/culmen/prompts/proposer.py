"""The proposer of runs with a model; it drops a format that the model cannot keep."""

from __future__ import annotations

from collections import Counter

import msgspec

from culmen.core.brief import Brief, Proposal
from culmen.core.ports import Lab, Proposer

GIVEN_UP = "format_given_up"
_NOT_JSON = ("not_json", "blocks")
_INSTEAD = {  # the fault that shows that a model cannot keep a format, and what is asked for then
    "verbalized": _NOT_JSON,
    "verbalized_diff": _NOT_JSON,
    "verbalized_auto": _NOT_JSON,
    "auto": ("diff_mismatch", "rewrite"),
}


class FallbackProposer(Proposer):
    """Several candidates as JSON until `patience` replies in a row, to one role, held no such object (`not_json`);
    from then on, as fenced blocks (`blocks`). Diffs of long parents, where the format is left open, until as many in a
    row did not fit (`diff_mismatch`); from then on whole texts.

    The proposal at which that happens has the fault kind `format_given_up`, and a note of that kind is journaled.
    """

    def __init__(self, patience: int = 3) -> None:
        self._patience = patience
        self._misses: Counter[tuple[str, str]] = Counter()

    async def propose(self, lab: Lab, brief: Brief) -> Proposal:
        """One effect: the model's candidates."""
        if brief.format not in _INSTEAD:
            return await lab.ask(brief)
        fault, instead = _INSTEAD[brief.format]
        key = brief.role, fault
        if self._misses[key] >= self._patience:
            return await lab.ask(msgspec.structs.replace(brief, format=instead))
        answer = await lab.ask(brief)
        missed = fault in answer.faults and (fault == "not_json" or not answer.candidates)
        if missed:
            self._misses[key] += 1
        elif answer.candidates:
            self._misses[key] = 0
        if not missed or self._misses[key] != self._patience:
            return answer
        lab.note(GIVEN_UP, role=brief.role, model=answer.model, format=brief.format, replies=self._patience)
        return msgspec.structs.replace(answer, faults={**answer.faults, GIVEN_UP: 1})
