"""What the offline proposer may spend: how many variants it looks at, and how long the loops that it writes work."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from culmen.core.evaluation import Rollout
from culmen.core.ports import Lab

_OVERHEAD = 0.02  # seconds that an evaluation takes beside the candidate's own, roughly
_CALL = 1e-4  # seconds that one call of a loop's criterion is reckoned at
_QUICK, _LONG = 0.15, 4.0  # seconds that the loops of a program should take, first and last
_GUARD = 5  # times what a loop is reckoned at, after which it ends in any case


class EvaluationAllowance:
    """Prices and allowances of one search; all of it a function of what the journal holds.

    Where evaluations are counted nothing here depends on the clock until the clock plainly is what will end the run:
    so choices are the same on a slow and on a fast machine. Up to `most` variants are looked at side by side, fewer
    where two of them would cost more than `share` of the budget left.
    """

    def __init__(self, most: int, share: float) -> None:
        self.share = share
        self._most = most
        self._whole = math.inf  # evaluations there were to begin with
        self._spent = self._usual = 0.0  # seconds of evaluation: all so far, a typical one of late

    def open(self, lab: Lab) -> None:
        """To be called before anything is spent; further calls change nothing."""
        if self._whole == math.inf:
            self._whole = max(1.0, lab.left("evaluations"))

    def pay(self, rollouts: Sequence[Rollout]) -> None:
        """These were evaluated."""
        for rollout in rollouts:
            seconds = _OVERHEAD + sum(observation.seconds for observation in rollout.observations)
            self._spent += seconds
            self._usual += 0.1 * (seconds - self._usual)

    def progress(self, lab: Lab) -> float:
        """Share of the budget spent, 0..1."""
        if self._whole == math.inf:
            return lab.progress
        left, share = lab.left("seconds"), 1 - lab.left("evaluations") / self._whole
        late = 1.5 * lab.elapsed / (lab.elapsed + left) - 0.45 if lab.elapsed > 0 and left < math.inf else 0.0
        return min(1.0, max(share, late))

    def price(self, lab: Lab) -> float:
        """What a typical evaluation costs as a share of the budget: one of those counted, or the progress so far,
        shared out by seconds."""
        if self._whole < math.inf:
            return 1 / self._whole
        return self._usual * lab.progress / self._spent if self._spent > 0 else 0.0

    def width(self, lab: Lab) -> int:
        """How many variants to look at: as many as a small share of what is left of the budget pays for.

        On a deterministic task without cases a look is no loss, for a strategy that takes the child up has its score:
        there, no worker is left without one.
        """
        price = self.price(lab)
        least = min(self._most, lab.workers) if lab.task.deterministic and not lab.task.cases else 1
        if price <= 0:
            return self._most
        return max(least, min(self._most, int(self.share * (1 - self.progress(lab)) / price)))

    def allowed(self, lab: Lab) -> dict[str, Any]:
        """The options of tools that say how much an inserted loop may do (see `edits`): quick looks first, long ones
        last."""
        longest = self._longest(lab)
        quick = min(_QUICK, longest)
        seconds = quick * (longest / quick) ** self.progress(lab) if quick > 0 else 0.0
        pace = min(_GUARD * _CALL, 0.5 * lab.task.limits.seconds / max(longest / _CALL, 1.0))
        return {"calls": max(10, round(quick / _CALL)), "most": max(10, round(seconds / _CALL)), "pace": pace}

    def rungs(self, lab: Lab) -> list[int]:
        """Calls of the criterion for the rungs of a race, each four times the last."""
        allowed = self.allowed(lab)
        rungs = [int(allowed["calls"])]
        while rungs[-1] * 4 < 0.7 * allowed["most"]:
            rungs.append(4 * rungs[-1])
        return rungs if allowed["most"] < 1.2 * rungs[-1] else [*rungs, int(allowed["most"])]

    def _longest(self, lab: Lab) -> float:
        """Seconds that the loops of a program should take in the end: less where time is short, and never beyond 0.2 of
        an evaluation's limit, so that loops that take twice as long still fit."""
        whole = round(lab.elapsed + lab.left("seconds"), 3)
        return min(_LONG, 0.1 * whole, 0.2 * lab.task.limits.seconds)
