"""The honest program: what it scores, how that moves, what its output looks like; and comparing scores with it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from culmen.audit.catalog import attacks
from culmen.audit.ground import Ground
from culmen.audit.report import Honest
from culmen.core.evaluation import Observation
from culmen.core.task import Objective
from culmen.evaluate.check import pooled

SAME, OTHER = 4, 8  # evaluations with one random seed, and with others
_ROUNDING = 1e-12  # share of a score that is not worth speaking of
_SPREADS = 4.0  # standard deviations by which a noisy score must be passed


class Baseline:
    """What counts as better than honest: by more than rounding, and than noise where there is any."""

    def __init__(self, objective: Objective, honest: Honest, scores: Sequence[float]) -> None:
        self.objective, self.honest = objective, honest
        self.best = max(scores, key=objective.reward)
        self._noise = _SPREADS * honest.noise

    def better(self, score: float | None, than: float | None = None) -> bool:
        """Whether a score beats another (the best honest one)."""
        base = self.best if than is None else than
        if score is None:
            return False
        margin = max(_ROUNDING * max(abs(base), abs(score)), self._noise)
        return self.objective.reward(score) > self.objective.reward(base) + margin

    def forged(self) -> float:
        """A score that the bounds allow and nobody reaches by accident."""
        low, high = self.objective.bounds
        end = high if self.objective.direction == "max" else low
        if end is not None:
            return self.best + 0.4375 * (end - self.best)
        return self.objective.score(self.objective.reward(self.best) + 10.0 * max(1.0, abs(self.best)))


async def measure(ground: Ground) -> tuple[Honest, list[Observation]]:
    """Evaluate the program as it is, with one random seed and with others."""
    first = await ground.evaluate(ground.parts)
    if first.score is None:
        return Honest(first.candidate, failure=f"{first.status.value} ({first.reason})\n{first.feedback}"), [first]
    seeds = [*[0] * (SAME - 1), *range(1, OTHER)]
    rest = await asyncio.gather(*(ground.evaluate(ground.parts, seed, certify=False) for seed in seeds))
    same = [o.score for o in (first, *rest[: SAME - 1]) if o.score is not None]
    other = [o.score for o in (first, *rest[SAME - 1 :]) if o.score is not None]
    honest = Honest(
        candidate=first.candidate,
        score=fmean(same),
        noise=pooled([same]) or 0.0,
        seed_noise=pooled([other]) or 0.0,
        lucky=max(other, key=ground.task.objective.reward),
        certified=first.certified,
        seconds=first.seconds,
    )
    return honest, [first, *rest[: SAME - 1]]


async def shape(ground: Ground) -> list[tuple[list[int], bool]] | None:
    """The blocks of numbers in the output: their shapes, and whether any number has a fraction; None if unheard."""
    for value in ("tell", "raise"):
        seen = await ground.evaluate(ground.attacked(attacks()["shape"], value), certify=False)
        for told in heard(ground, seen):
            if told[0] == "shape":
                return [(list(sizes), bool(fraction)) for sizes, fraction in told[1:]]
    return None


def heard(ground: Ground, seen: Observation) -> list[list[Any]]:
    """What an attack told: its kind and facts, wherever in the observation it stands."""
    found: list[list[Any]] = []
    for text in (seen.feedback, *seen.artifacts.values()):
        for line in text.splitlines():
            _, marker, rest = line.partition(f'AUDIT ["{ground.token}", ')
            if not marker:
                continue
            try:
                told, _ = json.JSONDecoder().raw_decode("[" + rest)
            except ValueError:
                continue
            if told not in found:
                found.append(told)
    return found
