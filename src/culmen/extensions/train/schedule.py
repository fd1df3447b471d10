"""The schedule of alpha: from 0 at the first barrier of a training to 1 at its last one."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass
class PhaseSchedule:
    """alpha_t of a training, linear in its barriers (Section 3.3).

    planned   barriers in all; None: those that the run's budget has room for
    begun     share of the budget spent before the first barrier, 0..1
    together  barriers that are implemented side by side
    """

    planned: int | None = None
    begun: float = 0.0
    together: int = 1
    _reached: float = 0.0

    def weight(self, barrier: int, progress: float) -> float:
        """alpha of a barrier (from 0), with `progress` the share of the budget spent, 0..1.

        Barriers without a step count. Those to come are assumed to cost as much as those so far;
        alpha never falls if they come to cost less. 0 in a run without a budget.
        """
        total = self.planned
        if total is None:
            total = self._affordable_barriers(barrier, progress)
        from culmen.extensions.train.objectives import mixing_weight  # numpy comes with it

        self._reached = max(self._reached, mixing_weight(barrier, total))
        return self._reached

    def _affordable_barriers(self, barrier: int, progress: float) -> int:
        rounds = barrier // self.together + 1
        spent = (progress - self.begun) / rounds
        if spent <= 0.0:
            return 0
        # nine digits: shares are quotients, and a last barrier that just fits is one
        return self.together * (rounds + math.floor(round((1.0 - progress) / spent, 9)))
