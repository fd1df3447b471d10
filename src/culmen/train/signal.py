"""From a barrier's rewards to its advantages, or the reason why there is nothing to learn from them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from culmen.core.errors import UserError
from culmen.train import OBJECTIVES, Objective
from culmen.train import objectives as f


@dataclass(frozen=True)
class Signal:
    """`advantages` has one number per reward, or is empty with the reason in `skip`: then no optimiser step is taken.

    `spreads` are standard deviations by name (rewards, and each branch that is active), for the diagnostics.
    """

    advantages: tuple[float, ...] = ()
    skip: str = ""
    alpha: float = 0.0
    spreads: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Credit:
    """How rewards become advantages: ThetaEvolve is grpo, TTT-Discover entropic, Max@k max_at_k.

    `k` of the frontier, `gamma` nats of the entropic tilt, `floor` below which a branch counts as noise. Where the
    evaluator's own noise is known (`noise`, in units of the reward), the floor is at least that.
    """

    objective: Objective = "phase_adaptive"
    k: int = 4
    gamma: float = math.log(2)
    floor: float = f.EPS_SKIP
    noise: float = 0.0

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            raise UserError(
                f"there is no objective '{self.objective}'", where="objective", fix=f"one of {', '.join(OBJECTIVES)}"
            )

    def signal(self, rewards: Sequence[float], alpha: float) -> Signal:
        """The advantages of one group at mixing weight `alpha` (used by phase_adaptive alone)."""
        if self.objective == "none":
            return Signal(skip="not_training")
        if len(rewards) < 2:
            return Signal(skip="group_too_small")
        if not all(map(math.isfinite, rewards)):
            return Signal(skip="rewards_not_finite")
        weight = {"phase_adaptive": alpha, "max_at_k": 1.0}.get(self.objective, 0.0)
        branches = self._branches(rewards, weight)
        spreads = [("rewards", float(np.std(rewards)))]
        spreads += [(name, float(np.std(branch))) for name, branch in branches.items()]
        floor = max(self.floor, self.noise)
        for name, branch in branches.items():
            if f.collapsed(branch, floor):
                return Signal(skip=f"{name}_collapsed", alpha=weight, spreads=tuple(spreads))
        return Signal(tuple(map(float, self._combined(rewards, weight))), "", weight, tuple(spreads))

    def _branches(self, rewards: Sequence[float], weight: float) -> dict[str, f.Floats]:
        """The branches that count at this weight, by name."""
        branches = {"group": f.centred(rewards)} if weight < 1.0 else {}
        return branches | ({"frontier": f.sloo(rewards, self.k)} if weight > 0.0 else {})

    def _combined(self, rewards: Sequence[float], weight: float) -> f.Floats:
        match self.objective:
            case "grpo":
                return f.grpo(rewards)
            case "dr_grpo":
                return f.centred(rewards)
            case "entropic":
                return f.entropic(rewards, self.gamma)
            case _:
                return f.mixed(f.centred(rewards), f.sloo(rewards, self.k), weight)
