"""When an island should stop going on as it does, and what it should do instead (PACEvolve; PACEvolve++, Section 2.1).

All levels are rewards: higher is better, whatever the direction of the task.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

_TINY = 1e-9


class Momentum:
    """Exponentially weighted gain of one island; it stalls where that falls below a threshold.

    The gain of a scored candidate is the share it closes of the way from the best so far to the `target`, 0 if it is no
    better; the first one has none to close. m <- beta m + (1 - beta) gain, from 0. No verdict before the second
    candidate, nor within `freeze` candidates of the last intervention.
    """

    def __init__(self, beta: float = 0.85, threshold: float = 0.001, freeze: int = 15) -> None:
        self.value, self.best = 0.0, float("-inf")
        self._beta, self._threshold, self._freeze = beta, threshold, freeze
        self._count, self._since = 0, 0

    def record(self, reward: float, target: float) -> float:
        """Take in one scored candidate; returns its gain."""
        gain, room = 0.0, target - self.best
        if reward > self.best:
            gain = (reward - self.best) / room if self._count and room > _TINY else 0.0
            self.best = reward
        self.value = self._beta * self.value + (1 - self._beta) * gain
        self._count += 1
        self._since += 1
        return gain

    @property
    def stalled(self) -> bool:
        """Whether it is time to intervene."""
        return self._count > 1 and self._since > self._freeze and self.value < self._threshold

    def intervene(self) -> None:
        """Begin the freeze. The momentum is left as it is."""
        self._since = 0


def absolute_progress(best: float, start: float, target: float) -> float:
    """Share of the way from `start` to `target` that `best` has come, clamped to 0..1."""
    room = target - start
    if room <= _TINY:
        return 1.0 if best >= target else 0.0
    return min(1.0, max(0.0, (best - start) / room))


def interventions(progress: Sequence[float], i: int) -> list[float]:
    """Weights of what a stalled island i may do: at index i backtrack, at any other j take over ideas of island j.

    With b the most advanced of the others and S = 1 - |A_i - A_b| (at least 0): backtracking weighs
    max(0, A_i - A_b) + S (1 - A_i)(1 - A_b), crossover with j max(0, A_j - A_i), plus S A_i A_b for j = b. An island
    that is alone, or whose weights all vanish, backtracks.
    """
    others = [j for j in range(len(progress)) if j != i]
    weights = [0.0] * len(progress)
    if not others:
        return [1.0]
    mine, b = progress[i], max(others, key=lambda j: progress[j])
    likeness = max(0.0, 1.0 - abs(mine - progress[b]))
    weights[i] = max(0.0, mine - progress[b]) + likeness * (1 - mine) * (1 - progress[b])
    for j in others:
        weights[j] = max(0.0, progress[j] - mine)
    weights[b] += likeness * mine * progress[b]
    if all(weight < _TINY for weight in weights):
        weights[i] = 1.0
    return weights


def version_weights(count: int, power: float = 1.5) -> list[float]:
    """Weights of the versions to go back to, the oldest first: (j + 1)^-power."""
    return [(j + 1) ** -power for j in range(count)]


def draw(weights: Sequence[float], rng: Random) -> int:
    """An index with probability proportional to its weight."""
    return rng.choices(range(len(weights)), weights)[0]
