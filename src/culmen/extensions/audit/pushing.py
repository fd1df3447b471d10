"""Pushes of a leader's output, which find a tolerance however the evaluator states it.

The outputs alone are compared; nothing of the evaluator is read. Of two outputs that are nearly
equal, the leader's is moved on along their difference. If the score rises steadily from the other
output to the leader's and the next step is refused, the leader lies at an edge, and the last hair
of its score is due to that: to a tolerance, or to an honest last step onto the border. The numbers
distinguish the two: an honest border is met exactly (a sum is whole, circles touch, a coordinate is
on a wall), and whoever lives on a tolerance has left it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from itertools import combinations
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from culmen.core.candidate import Candidate
from culmen.core.evaluation import Case, Observation, Sign, Status
from culmen.core.event import NEIGHBOUR_GAIN
from culmen.core.task import NOT_PUSHED, Task
from culmen.core.usage import Usage
from culmen.evaluate.integrity.signs import GAP, make_sign
from culmen.extensions.audit.outputs import Blocks, OutputProgram, json_blocks, reported_blocks

NEAR = 5e-5  # largest difference of two nearly equal outputs, as a share of the largest number
_STEADY = (1 / 3, 2 / 3)  # places between two outputs, as a share of their difference
_BEYOND = (2.0, 11.0)  # places beyond the leader's: one step of the difference, and ten
_CLIFF = 20.0  # multiple of the gain that a refused output loses, if it is not refused in words
_PUSH, _FAR = 1e-7, 1e-3  # sizes of pushes: below a tolerance, and beyond it
_MET = 1e-3  # an output meets a border if its distance is this share of the other's
_REFUSED = (Status.INVALID, Status.ERROR, Status.REJECTED)
Floats = NDArray[np.float64]
Evaluate = Callable[[Candidate, Case | None, int], Awaitable[Observation]]


class _Output(NamedTuple):
    """An output that was observed, and its score."""

    candidate: Candidate
    blocks: Blocks
    score: float


class _NoMorePushes(Exception):
    """The evaluations allowed are used up."""


class OutputPushes:
    """The pushes of one leader's output on one case.

    `evaluate` evaluates any candidate; at most `limit` evaluations are made, and counted in `used`.
    """

    def __init__(
        self, task: Task, evaluate: Evaluate, case: Case | None, seed: int, limit: int
    ) -> None:
        self._objective, self._evaluate = task.objective, evaluate
        self._case, self._seed, self._limit = case, seed, limit
        self._programs = OutputProgram(task)
        self.used = 0

    async def check(
        self, candidate: Candidate, observation: Observation, neighbours: tuple[Candidate, ...]
    ) -> Observation:
        """The observation with the finding, in words in the artifact `tolerance`, and as a sign.

        Words of an earlier check stay before it. The evaluations are added to its usage.
        """
        try:
            with np.errstate(all="ignore"):  # of numbers near the largest
                text, sign = await self._finding(candidate, observation, neighbours)
        except _NoMorePushes:
            text, sign = f"{NOT_PUSHED} to the end: no evaluations were left", None
        earlier = observation.artifacts.get("tolerance", "").removesuffix(f"; {NOT_PUSHED}")
        if sign is None and not earlier.startswith("not checked"):
            text = "; ".join(filter(None, (earlier, text)))
        if text.startswith(NOT_PUSHED):
            text = f"not checked: {text}"
        return msgspec.structs.replace(
            observation,
            signs=observation.signs if sign is None else (*observation.signs, sign),
            usage=observation.usage + Usage(evaluations=self.used),
            artifacts={**observation.artifacts, "tolerance": text},
        )

    async def _finding(
        self, candidate: Candidate, observation: Observation, neighbours: tuple[Candidate, ...]
    ) -> tuple[str, Sign | None]:
        leader = await self._read_output(candidate)
        if leader is None:
            return f"{NOT_PUSHED}: no output of numbers was seen", None
        if leader.score != observation.score:
            scores = f"{leader.score!r} and {observation.score!r}"
            return f"{NOT_PUSHED}: one program scored {scores}", None
        for neighbour in neighbours:
            other = await self._read_output(neighbour)
            if other is not None and await self._is_edge(leader, other):
                text = (
                    f"{other.score!r} of {other.candidate.id} rises to {leader.score!r} while its "
                    f"numbers move by {_distance(leader.blocks, other.blocks):.1e}, and the next "
                    "step is refused"
                )
                return f"used: {text}: the edge is a tolerance", make_sign("edge", text)
        return f"pushed: {await self._push_alone(leader)}", None

    async def _read_output(self, candidate: Candidate) -> _Output | None:
        """The output of a candidate as numbers; None if it was not seen, or did not score."""
        blocks, parts = json_blocks(candidate.parts), dict(candidate.parts)
        if blocks is None:
            reporting = self._programs.reporting(parts, candidate.digest)
            if reporting is None:
                return None
            parts = reporting
        observation = await self._look(parts)
        blocks = blocks or reported_blocks(observation, candidate.digest)
        if blocks is None or observation.score is None or not _can_be_pushed(blocks):
            return None
        return _Output(candidate, blocks, observation.score)

    async def _look(self, parts: Mapping[str, str]) -> Observation:
        if self.used >= self._limit:
            raise _NoMorePushes
        self.used += 1
        return await self._evaluate(Candidate.of(parts), self._case, self._seed)

    async def _move(self, output: _Output, blocks: Blocks) -> Observation:
        """The observation of a program whose output has these numbers."""
        parts = self._programs.replacing(output.candidate.parts, blocks, output.candidate.digest)
        assert parts is not None, "the output was read from this program"
        return await self._look(parts)

    async def _is_edge(self, leader: _Output, other: _Output) -> bool:
        """True if the gain over a nearly equal output is the last hair before a refusal."""
        gain = self._reward(leader.score) - self._reward(other.score)
        scale = max(abs(leader.score), abs(other.score))
        if not GAP * scale < gain <= NEIGHBOUR_GAIN * scale:  # below: a solver's rounding
            return False
        if not 0 < _distance(leader.blocks, other.blocks) <= NEAR or _meets_border(leader, other):
            return False
        rewards = [self._reward(other.score)]
        for share in _STEADY:
            between = await self._move(leader, _along(other.blocks, leader.blocks, share))
            if between.score is None or self._reward(between.score) <= rewards[-1]:
                return False
            rewards.append(self._reward(between.score))
        if self._reward(leader.score) <= rewards[-1]:
            return False
        for share in _BEYOND:
            beyond = await self._move(leader, _along(other.blocks, leader.blocks, share))
            if self._is_refused(beyond, leader.score, gain):
                return True
        return False

    def _is_refused(self, beyond: Observation, score: float, gain: float) -> bool:
        if beyond.score is None:
            return beyond.status in _REFUSED
        return self._reward(score) - self._reward(beyond.score) > _CLIFF * gain

    def _reward(self, score: float) -> float:
        return self._objective.reward(score)

    async def _push_alone(self, leader: _Output) -> str:
        """The result of pushes of the leader's own output, in words."""
        if all((block == np.round(block)).all() for block in leader.blocks):
            return "whole numbers cannot be pushed"
        base = self._reward(leader.score)
        for words, push in (("enlarged", _enlarge), ("spread from its middle", _spread)):
            near = await self._move(leader, [push(block, _PUSH) for block in leader.blocks])
            if near.score is None or self._reward(near.score) <= base + 1e-12 * abs(base):
                continue
            far = await self._move(leader, [push(block, _FAR) for block in leader.blocks])
            if self._is_refused(far, leader.score, self._reward(near.score) - base):
                return (
                    f"{words} by {_PUSH:g} it pays, by {_FAR:g} it is refused: an edge that this "
                    "output does not lie on"
                )
            return f"{words} by {_PUSH:g} and by {_FAR:g} it is not refused: a slope, not an edge"
        return f"enlarged or spread by {_PUSH:g} it does not pay, nor is a nearly equal output less"


def _can_be_pushed(blocks: Blocks) -> bool:
    """True for finite lists of numbers, at least two in all."""
    return (
        all(block.ndim and block.size and np.isfinite(block).all() for block in blocks)
        and sum(block.size for block in blocks) > 1
    )


def _distance(blocks: Blocks, others: Blocks) -> float:
    """Largest difference of two outputs, as a share of the largest number; inf for other shapes."""
    if [block.shape for block in blocks] != [block.shape for block in others]:
        return float("inf")
    largest = max(float(np.abs(block).max()) for block in others if block.size)
    apart = max(float(np.abs(a - b).max()) for a, b in zip(blocks, others) if a.size)
    return apart / largest if largest > 0 and np.isfinite(apart / largest) else float("inf")


def _along(start: Blocks, end: Blocks, share: float) -> Blocks:
    """The output at `share` of the way from one to another; above 1 it is beyond."""
    return [a + share * (b - a) for a, b in zip(start, end)]


def _enlarge(block: Floats, size: float) -> Floats:
    return block * (1.0 + size)


def _spread(block: Floats, size: float) -> Floats:
    middle = block.mean(axis=0)
    return middle + (block - middle) * (1.0 + size)


def _meets_border(leader: _Output, other: _Output) -> bool:
    """True if the leader meets more borders exactly than a nearly equal output does.

    Distances from borders are those of `_border_distances`.
    """
    own = np.concatenate([each.ravel() for each in _border_distances(leader.blocks)])
    their = np.concatenate([each.ravel() for each in _border_distances(other.blocks)])
    met = np.sum((their <= NEAR) & (own <= _MET * their) & (own < their))
    left = np.sum((own <= NEAR) & (their <= _MET * own) & (their < own))
    return bool(met > left)


def _border_distances(blocks: Blocks) -> Iterator[Floats]:
    """Distances of an output from borders that problems usually have.

    Each number, sum, sum of squares and row sum from the next half; gaps between circles, and
    their distances from walls at halves.
    """
    for block in blocks:
        yield _from_half(block)
        yield _from_half(np.array([block.sum(), (block**2).sum()]))
        if block.ndim == 2:
            yield _from_half(block.sum(axis=1))
            yield _from_half((block**2).sum(axis=1))
    for centers, radii in _circles(blocks):
        gaps = [
            abs(float(np.linalg.norm(centers[i] - centers[j])) - radii[i] - radii[j])
            for i, j in combinations(range(len(radii)), 2)
        ]
        yield np.array(gaps)
        yield _from_half(centers - radii[:, None])
        yield _from_half(centers + radii[:, None])


def _circles(blocks: Blocks) -> Iterator[tuple[Floats, Floats]]:
    """Centres and radii: of two blocks, or of one with the radii in its last column."""
    for first, second in zip(blocks, [*blocks[1:], np.empty(0)]):
        if first.ndim != 2 or not 1 < len(first) <= 64:  # circles, whose pairs are compared
            continue
        if second.shape == (len(first),):
            yield first, second
        elif first.shape[1] == 3:
            yield first[:, :2], first[:, 2]


def _from_half(values: Floats) -> Floats:
    return np.abs(values - np.round(2.0 * values) / 2.0)
