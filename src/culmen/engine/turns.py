"""How many turns a strategy had: a budget that holds only a few gives it no chance to learn, and that is told."""

from __future__ import annotations

import math
from typing import Any

ENOUGH, SIZEABLE = 10, 100  # turns that a search should have, in a budget of at least so many evaluations


class Turns:
    """Counts turns by the proposals asked for: those with nothing delivered between them are of one turn."""

    def __init__(self) -> None:
        self._begun = self._under_way = 0
        self._together = False

    def asked(self) -> None:
        """A proposal is asked for."""
        self._begun += not self._together
        self._together = True
        self._under_way += 1

    def answered(self) -> None:
        """A proposal came back."""
        self._under_way -= 1

    def delivered(self) -> None:
        """A result was delivered: what is asked for next is of another turn."""
        self._together = False

    @property
    def finished(self) -> int:
        """Turns that were begun, without the one still under way."""
        return self._begun - (self._under_way > 0)

    def few(self, evaluations: int | None, spent: int) -> dict[str, Any] | None:
        """Fields of the note `few_turns` for a search that spent its budget of `evaluations`; None where it had turns
        enough, never asked for a proposal, or had too small a budget to expect more."""
        if evaluations is None or evaluations < SIZEABLE or not self._begun or self.finished >= ENOUGH:
            return None
        needed = math.ceil(evaluations * ENOUGH / max(self.finished, 1))
        return {"turns": self.finished, "evaluations": spent, "needed": needed}
