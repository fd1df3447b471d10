"""A noisy task like packing bins, minimised, with sensible programs and hopeless ones.

The score is the share of bins wasted, in per cent: 14.5 for the initial program, 8.8 for the best
ones, and 160 to 390 for silly ones, a fifth of all. Noise grows with the score, as it does when
real bins are packed (`tests/run/packing.py`): 5.1 at the initial program, 21 to 37 at silly ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from bench.truth.hazards import HazardWorld
from bench.truth.worlds import START, Genome, Shape

from culmen.core.candidate import Candidate

FIRST, BEST, SILLY = 14.5, 8.8, (160.0, 390.0)  # scores
NOISE, GROWTH = 5.1, 0.6  # deviation at the initial program, and the power by which it grows
STEPS = 4  # improvements from the initial program to the best
_SENSIBLE = 0.05  # qualities below are of silly programs


def packing_shape(parent: Genome, rng: Random, world: int) -> Genome:
    """A fifth of the children is silly, an eighth better by a step, half equal, the rest worse."""
    draw = rng.random()
    if draw < 0.2:
        return Genome(_SENSIBLE * rng.random() * 0.99)
    if draw < 0.325:
        return Genome(min(1.0, parent.quality + (1.0 - START) / STEPS))
    if draw < 0.825:
        return parent
    return Genome(max(_SENSIBLE, parent.quality - rng.expovariate(1 / 0.1)))


def packing_reward(quality: float) -> float:
    """The share of bins wasted, turned so that higher is better."""
    if quality < _SENSIBLE:
        low, high = SILLY
        return -(low + (high - low) * quality / _SENSIBLE)
    return -(FIRST - (FIRST - BEST) * (quality - START) / (1.0 - START))


@dataclass(frozen=True)
class PackingWorld(HazardWorld):
    """Bins packed by simulated programs; see above."""

    shape: Shape = packing_shape
    sign: int = -1
    evaluations: int = 300
    reward: Callable[[float], float] = packing_reward

    def _draw_noise(self, candidate: Candidate, draws: Random) -> float:
        level = self.truth(candidate)
        return NOISE * (level / FIRST) ** GROWTH * draws.gauss(0, 1)
