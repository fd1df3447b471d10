"""How the operators of the offline proposer have done so far."""

from __future__ import annotations

from dataclasses import dataclass

_FADE = 0.98  # older trials count less, so that an operator whose time comes later is found


@dataclass
class OperatorCredit:
    """How an operator has done: faded counts of its children and of those better than their parents."""

    prior: float = 1.0
    tried: float = 0.0
    better: float = 0.0

    @property
    def weight(self) -> float:
        """Probability matching on the success rate, from an optimistic prior, never quite zero."""
        return (self.better + self.prior) / (self.tried + 8.0)

    def fade(self) -> None:
        """Let what is past count less."""
        self.tried, self.better = self.tried * _FADE, self.better * _FADE


@dataclass(frozen=True)
class Birth:
    """What is to be remembered of a child until its reward is seen."""

    operators: tuple[str, ...]
    reward: float
