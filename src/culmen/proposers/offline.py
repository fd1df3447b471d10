"""A proposer without a language model: it edits the parent by general-purpose operators and learns which ones pay.

It is the control of every experiment with a model: it knows no task and reads neither goals nor feedback, only texts
and rewards. What it does to a text is done by the tools of `edits`; here is decided which tool to use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from culmen.core.brief import Brief, Proposal
from culmen.core.candidate import Candidate, Origin
from culmen.core.errors import UserError
from culmen.core.evaluation import Case, Rollout
from culmen.core.event import Edits
from culmen.core.ports import Lab

OPERATORS = (
    "numbers",
    "lines",
    "crossover",
    "statements",
    "operators",
    "bounds",
    "cheaper",
    "refine",
    "restart",
    "effort",
    "cma",
)
_FADE = 0.98  # older trials count less, so that an operator whose time comes later is found
_AGAIN = 0.35  # probability of one more edit on top of the last
_ATTEMPTS = 8  # operators tried for one child before giving up on it
_BARREN = 500  # proposals in a row without a child after which there is plainly nothing to edit


@dataclass
class Credit:
    """How an operator has done: faded counts of its children and of those better than their parents."""

    tried: float = 0.0
    better: float = 0.0
    fits: float = 1.0  # lowered each time there was nowhere to apply it, raised when there was

    @property
    def weight(self) -> float:
        """Probability matching on the success rate, from an optimistic prior, never quite zero."""
        return self.fits * (self.better + 1.0) / (self.tried + 4.0) + 0.005

    def fade(self) -> None:
        """Let what is past count less."""
        self.tried, self.better = self.tried * _FADE, self.better * _FADE


@dataclass(frozen=True)
class Birth:
    """What is to be remembered of a child until its reward is seen."""

    operators: tuple[str, ...]
    reward: float


class OfflineProposer:
    """Adaptive choice among operators; the step of numeric changes follows their success (1/5 rule).

    A child counts as a success of its operators when it comes back in a brief with a higher reward than its parent
    had. `cma` spends evaluations of its own, at most `share` of the budget that is left each time.
    """

    def __init__(self, operators: Sequence[str] = OPERATORS, share: float = 0.1) -> None:
        self._credits = {name: Credit() for name in operators}
        self._births: dict[str, Birth] = {}
        self._step, self._share, self._barren = 0.3, share, 0

    async def propose(self, lab: Lab, brief: Brief) -> Proposal:
        """Up to `brief.k` children of the parent; fault `inapplicable` if no operator found anything to change."""
        if brief.parent is None:
            return Proposal(fault="no_parent", model="offline")
        self._learn(brief)
        children: dict[str, Candidate] = {}
        for _ in range(brief.k):
            child = await self._child(lab, brief, brief.parent)
            if child is not None:
                children.setdefault(child.id, child)
        self._barren = 0 if children else self._barren + 1
        if self._barren > _BARREN:
            raise UserError(
                "the offline proposer finds nothing that it could change",
                where="the candidate's editable text",
                fix="check `frozen` and the EVOLVE-BLOCK markers, or use a model: --model NAME",
            )
        return Proposal(tuple(children.values()), fault="" if children else "inapplicable", model="offline")

    async def _child(self, lab: Lab, brief: Brief, parent: Candidate) -> Candidate | None:
        """One child by one or more edits in a row, or by tuning."""
        current, used = parent, list[str]()
        for _ in range(_ATTEMPTS):
            name = self._choose(lab.rng, plain=bool(used))
            if name == "cma":
                return await self._tune(lab, brief, parent)
            mates = [exhibit.candidate for exhibit in brief.inspirations]
            edits: Edits = await lab.edit(name, (current, *mates), **self._options(lab))
            self._fit(name, bool(edits.parts))
            if edits.parts:
                used.append(name)
                current = _bred(edits.parts[0], parent, used, brief)
                if lab.rng.random() > _AGAIN:
                    break
        if not used or current.id == parent.id:
            return None
        self._bear(current, tuple(used), brief)
        return current

    async def _tune(self, lab: Lab, brief: Brief, parent: Candidate) -> Candidate | None:
        """CMA-ES over the parent's numbers by evaluations of our own; the best candidate seen.

        The first one is evaluated alone: if what it cost says that a generation is too much, it is the answer.
        """
        begun, cases = lab.progress, _cases(lab, brief)
        most = self._share * (1 - begun)
        options = self._options(lab) | {"seed": lab.rng.getrandbits(30), "size": max(6, 2 * lab.workers), "step": 0.15}
        rewards, best, stalled = list[list[float | None]](), None, 0
        while stalled < 2 and (not rewards or lab.progress - begun < most):
            edits: Edits = await lab.edit("cma", (parent,), generations=rewards, **options)
            self._fit("cma", bool(edits.parts))
            if not edits.parts:
                break
            bred = [_bred(parts, parent, ["cma"], brief) for parts in edits.parts]
            first = [await lab.evaluate(bred[0], cases)]
            if not rewards and (lab.progress - begun) * len(bred) > most:
                self._bear(bred[0], ("cma",), brief)
                return bred[0] if bred[0].id != parent.id else None
            generation = first + await lab.gather(*(lab.evaluate(candidate, cases) for candidate in bred[1:]))
            rewards.append([rollout.reward for rollout in generation])
            top = _best(generation, best)
            stalled = stalled + 1 if top is best else 0
            best = top
        if best is None or best.candidate.id == parent.id:
            return None
        self._bear(best.candidate, ("cma",), brief)
        return best.candidate

    def _options(self, lab: Lab) -> dict[str, Any]:
        """What tools may do: the task's surface, the step, and time for inserted loops well inside the limit."""
        surface, seconds = lab.task.surface, lab.task.limits.seconds
        return {
            "step": self._step,
            "frozen": list(surface.frozen),
            "marked": surface.markers != "off",
            "chars": surface.max_chars,
            "seconds": min(0.5, 0.1 * seconds),
            "most": 0.4 * seconds,
        }

    def _choose(self, rng: Random, plain: bool) -> str:
        names = [name for name in self._credits if not (plain and name == "cma")]
        return rng.choices(names, [self._credits[name].weight for name in names])[0]

    def _fit(self, name: str, fits: bool) -> None:
        credit = self._credits[name]
        credit.fits = min(1.0, 2.0 * credit.fits) if fits else max(0.02, 0.6 * credit.fits)

    def _bear(self, child: Candidate, operators: tuple[str, ...], brief: Brief) -> None:
        """Remember the child; until it comes back as a success it counts as a failure of its operators."""
        if child.id in self._births or brief.reward is None:
            return
        self._births[child.id] = Birth(operators, brief.reward)
        for credit in self._credits.values():
            credit.fade()
        for name in operators:
            self._credits[name].tried += 1.0
        if "numbers" in operators:
            self._step = self._step * 0.93 if self._step > 0.02 else 0.5

    def _learn(self, brief: Brief) -> None:
        """Credit the operators of the parent and the inspirations shown, once each."""
        shown = [(brief.parent, brief.reward), *((one.candidate, one.reward) for one in brief.inspirations)]
        for candidate, reward in shown:
            birth = self._births.get(candidate.id) if candidate is not None else None
            if candidate is None or birth is None or reward is None:
                continue
            del self._births[candidate.id]
            if reward > birth.reward:
                for name in birth.operators:
                    self._credits[name].better += 1.0
                if "numbers" in birth.operators:
                    self._step = min(1.0, self._step * 1.4)


def _bred(parts: dict[str, str], parent: Candidate, operators: Sequence[str], brief: Brief) -> Candidate:
    parents = (parent.id, *(e.candidate.id for e in brief.inspirations if "crossover" in operators))
    origin = Origin(operator="offline:" + "+".join(operators), model="offline", island=brief.island)
    return Candidate.of(parts, parents, origin)


def _best(generation: Sequence[Rollout], best: Rollout | None) -> Rollout | None:
    """The rollout of the highest reward, the earlier one on a tie."""
    for rollout in generation:
        if rollout.reward is not None and (best is None or best.reward is None or rollout.reward > best.reward):
            best = rollout
    return best


def _cases(lab: Lab, brief: Brief) -> tuple[Case | None, ...] | None:
    """The cases that the brief's observations were made on; None (all) without any."""
    known = {case.id: case for case in lab.task.cases}
    seen = {observation.case: known.get(observation.case) for observation in brief.observations}
    return tuple(seen.values()) or None
