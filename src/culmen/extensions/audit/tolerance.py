"""The tolerance probe: pushes of an honest output, which must not raise its score.

The output is pushed a little in several directions. An output that is not at the edge of the
feasible region may honestly gain by a push. Two kinds of evidence distinguish a tolerance from
that: the exact verifier, if the task has one; else that pushes pay up to a tiny size and are
refused beyond it, and that the same evaluator with one of its tolerances reduced refuses the push
and still accepts the honest output.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from msgspec.structs import replace

from culmen.core.errors import UserError
from culmen.core.evaluation import Observation
from culmen.extensions.audit import locate, tolerances
from culmen.extensions.audit.attack import AttackOutcome, EvaluatorLine, all_attacks
from culmen.extensions.audit.copies import tightened_sources, tightened_text
from culmen.extensions.audit.sandbox import Baseline, SandboxCopy, attack_try

SIZES = (1e-9, 1e-8, 1e-7, 3e-7, 1e-6, 1e-5, 1e-4, 1e-3)
_FIRST = (1e-8, 1e-6)  # tried in every direction before a direction is followed
_AT_ONCE = 8  # pushes between two checks of the time
Push = tuple[int, str, float]
_FAR = 1e-3  # a push of this size is refused if the output is at the edge of the feasible region
_BRING = "to test that edge, audit a program whose output lies there: --program FILE"
_FREE = f"a slope, not an edge; {_BRING}"

TITLE = "Pushed into the tolerance"
SHOWS = "A check with a tolerance of 1e-6 rewards violations of up to 1e-6."
FIX = (
    "check exactly and repair what rounding broke (culmen docs certified), or score what remains "
    "after the repair"
)


class ToleranceProbe:
    """Probe of one program's output.

    No push begins after `until` (seconds of the monotonic clock).
    """

    def __init__(
        self,
        sandbox: SandboxCopy,
        baseline: Baseline,
        blocks: Sequence[tuple[list[int], bool]] | None,
        until: float,
    ) -> None:
        self.sandbox, self.baseline = sandbox, baseline
        self.observations: dict[Push, Observation] = {}
        self._directions, self._until = _push_directions(blocks), until

    async def probe_outcome(self) -> AttackOutcome:
        """The outcome; skipped if time runs out first."""
        try:
            return await self._outcome_in_time()
        except TimeoutError:
            text = f"left out: time limit reached after {len(self.observations)} pushes (--seconds)"
            return AttackOutcome("tolerance", TITLE, "skipped", text, shows=SHOWS, fix=FIX)

    async def _outcome_in_time(self) -> AttackOutcome:
        held = AttackOutcome(
            "tolerance", TITLE, "held", honest=self.baseline.best, shows=SHOWS, fix=FIX
        )
        await self._try_pushes(
            [(*direction, size) for direction in self._directions for size in _FIRST]
        )
        rising = [
            direction
            for direction in self._directions
            if any(self._is_paying((*direction, size)) for size in _FIRST)
        ]
        if not rising:
            tries = tuple(
                attack_try(list(push), observation)
                for push, observation in self.observations.items()
            )
            text = (
                f"{len(tries)} pushes of up to {_FIRST[-1]:g} in {len(self._directions)} "
                "directions: none paid"
            )
            return await self._settled_outcome(replace(held, evidence=text, tries=tries))
        await self._try_pushes([(*direction, size) for direction in rising for size in SIZES])
        best = [await self._best_push(direction) for direction in rising]
        pushes = sorted((push for push in best if push), key=self._push_reward, reverse=True)
        judged = [await self._push_outcome(held, push) for push in pushes[:3]]
        tries = tuple(
            attack_try(list(push), observation) for push, observation in self.observations.items()
        )
        order = ("gamed", "look", "inconclusive", "held")
        return replace(min(judged, key=lambda outcome: order.index(outcome.result)), tries=tries)

    async def _settled_outcome(self, held: AttackOutcome) -> AttackOutcome:
        """Held, or inconclusive if the program's output comes nowhere near the tolerances."""
        lines = locate.evaluator_lines("tolerance", self.sandbox.evaluators)
        if not lines or self.sandbox.task.evaluator.verifier:
            return held
        await self._try_pushes([(*direction, _FAR) for direction in self._directions])
        far = [self.observations[*direction, _FAR].score for direction in self._directions]
        # a refused output may score 0, too
        if None in far or (0 in far and self.baseline.best):
            return held
        text = (
            f"{held.evidence}, but its output is not near the edge of the feasible region; {_BRING}"
        )
        return replace(held, result="inconclusive", evidence=text, places=lines)

    async def _try_pushes(self, pushes: Sequence[Push]) -> None:
        untried = [push for push in dict.fromkeys(pushes) if push not in self.observations]
        for start in range(0, len(untried), _AT_ONCE):
            if time.monotonic() > self._until:
                raise TimeoutError
            batch = untried[start : start + _AT_ONCE]
            self.observations.update(
                zip(batch, await asyncio.gather(*(self._evaluate_push(push) for push in batch)))
            )

    async def _evaluate_push(self, push: Push, certify: bool = False) -> Observation:
        return await self.sandbox.evaluate(
            self.sandbox.attacked_parts(all_attacks()["push"], list(push)), certify=certify
        )

    def _is_paying(self, push: Push) -> bool:
        return push in self.observations and self.baseline.is_clearly_better(
            self.observations[push].score
        )

    def _push_reward(self, push: Push) -> float:
        score = self.observations[push].score
        return float("-inf") if score is None else self.baseline.objective.reward(score)

    def _worse_beyond(self, push: Push) -> Push | None:
        """The smallest tried push in this direction that is larger and pays less."""
        larger = [
            other
            for other in self.observations
            if other[:2] == push[:2]
            and other[2] > push[2]
            and self._push_reward(other) < self._push_reward(push)
        ]
        return min(larger, key=lambda other: other[2], default=None)

    def _has_cliff(self, push: Push, beyond: Push | None) -> bool:
        """True if larger pushes are refused, rather than a little worse as on a smooth slope."""
        if beyond is None:
            return False
        gain = self._push_reward(push) - self.baseline.objective.reward(self.baseline.best)
        # multiple of its gain that an output must lose just beyond the best push
        return self._push_reward(push) - self._push_reward(beyond) > 20.0 * gain

    async def _best_push(self, direction: tuple[int, str]) -> Push | None:
        """The push in this direction that pays most; just inside the edge, if there is one."""
        paying = [(*direction, size) for size in SIZES if self._is_paying((*direction, size))]
        if not paying:
            return None
        best = max(paying, key=self._push_reward)
        beyond = self._worse_beyond(best)
        for _ in range(8 if beyond else 0):
            assert beyond is not None
            middle = (*direction, 0.5 * (best[2] + beyond[2]))
            await self._try_pushes([middle])
            if self._push_reward(middle) >= self._push_reward(best):
                best = middle
            else:
                beyond = middle
        return best

    async def _push_outcome(self, held: AttackOutcome, push: Push) -> AttackOutcome:
        observation, beyond = self.observations[push], self._worse_beyond(push)
        assert observation.score is not None
        outcome = replace(held, scored=observation.score)
        if self.sandbox.task.evaluator.verifier:
            return await self._certified_outcome(outcome, push, observation.score)
        if beyond is None or not self._has_cliff(push, beyond):
            text = (
                f"{_push_words(push)} pays ({observation.score!r}), and larger pushes, too: {_FREE}"
            )
            lines = locate.evaluator_lines("tolerance", self.sandbox.evaluators)
            result = "inconclusive" if lines else "held"
            return replace(outcome, result=result, evidence=text, places=lines)
        edge = f"{_push_words(push)} pays ({observation.score!r}); {beyond[2]:.3g} is refused"
        proven = await self._proven_lines(push)
        if proven:
            text = (
                f"{edge}; with the tolerance tightened it is refused and the honest output is not"
            )
            return replace(outcome, result="gamed", evidence=text, places=proven)
        lines = locate.evaluator_lines("tolerance", self.sandbox.evaluators)
        text = f"{edge}: a tolerance, unless the honest output has just that distance from the edge"
        return replace(outcome, result="look", evidence=text, places=lines)

    async def _certified_outcome(
        self, outcome: AttackOutcome, push: Push, score: float
    ) -> AttackOutcome:
        """Outcome by the verifier's value of the pushed output."""
        observation = await self._evaluate_push(push, certify=True)
        places = locate.evaluator_lines("tolerance", self.sandbox.evaluators)
        if observation.certified is None:
            text = f"{_push_words(push)} scores {score!r}; the exact verifier does not accept it"
            return replace(outcome, result="gamed", evidence=text, places=places)
        outcome = replace(outcome, certified=observation.certified)
        if self.baseline.is_clearly_better(score, observation.certified):
            text = f"{_push_words(push)} scores {score!r}; certified {observation.certified!r}"
            return replace(outcome, result="gamed", evidence=text, places=places)
        text = f"{_push_words(push)} pays, and the verifier certifies all of it: an honest gain"
        return replace(outcome, evidence=text)

    async def _proven_lines(self, push: Push) -> tuple[EvaluatorLine, ...]:
        """Lines of the evaluator whose tolerance causes the gain.

        With it reduced, the push is refused and the honest output still accepted.
        """
        known = {
            (each.file, each.line): each
            for each in locate.evaluator_lines("tolerance", self.sandbox.evaluators)
        }
        proven: dict[tuple[str, int], EvaluatorLine] = {}
        for file, text in self.sandbox.evaluators.items():
            for constant in tolerances.tolerance_constants(file, text):
                changed = {file: tightened_text(text, constant)}
                if await self._is_push_refused(push, changed):
                    words = text.splitlines()[constant.line - 1].strip()
                    line = EvaluatorLine(file, constant.line, words)
                    proven[file, constant.line] = known.get((file, constant.line), line)
        if not proven and len(known) > 1:  # two tolerances may admit the same push
            changed = tightened_sources(self.sandbox.evaluators)
            proven = known if await self._is_push_refused(push, changed) else {}
        if not proven:
            return ()
        found = {key: replace(each, proven=True) for key, each in proven.items()}
        return tuple({**found, **{k: each for k, each in known.items() if k not in found}}.values())

    async def _is_push_refused(self, push: Push, changed: dict[str, str]) -> bool:
        try:
            variant = await self.sandbox.start_variant(changed)
        except (UserError, OSError):  # an evaluator that no longer loads proves nothing
            return False
        try:
            honest = await variant.evaluate(variant.parts, certify=False)
            pushed = await variant.evaluate(
                variant.attacked_parts(all_attacks()["push"], list(push)), certify=False
            )
        finally:
            self.sandbox.evaluations += variant.evaluations
            await variant.close()
        is_honest_accepted = honest.score is not None and not self.baseline.is_clearly_better(
            self.baseline.best, honest.score
        )
        return is_honest_accepted and not self.baseline.is_clearly_better(pushed.score)


def _push_directions(blocks: Sequence[tuple[list[int], bool]] | None) -> list[tuple[int, str]]:
    """Directions (block, how): each block of fractions alone, then all together.

    Sizes are positive; "shrink" and "less" push the other way.
    """
    if blocks is None:
        return [(-1, "scale"), (-1, "outward"), (-1, "add")]
    directions: list[tuple[int, str]] = []
    block_numbers = [number for number, (_, fraction) in enumerate(blocks) if fraction][:4]
    for number in block_numbers:
        directions += [(number, "scale"), (number, "add"), (number, "shrink"), (number, "less")]
        if blocks[number][0]:
            directions.append((number, "outward"))
    return [*directions, (-1, "scale"), (-1, "outward")] if block_numbers else []


def _push_words(push: Push) -> str:
    block, how, size = push
    what = "the whole output" if block < 0 else f"value {block + 1} of the output"
    verbs = {
        "scale": "enlarged",
        "shrink": "shrunk",
        "outward": "spread from its middle",
        "add": "raised",
        "less": "lowered",
    }
    return f"{what} {verbs[how]} by {size:.3g}"
