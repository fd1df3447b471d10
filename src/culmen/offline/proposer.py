"""A proposer without a language model: it edits the parent by general-purpose operators and learns which ones pay.

It is the control of every experiment with a model: it knows no task and reads neither goals nor feedback, only texts
and rewards. What it does to a text is done by the tools of `edits`; here is decided which tool to use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from culmen.core.brief import Brief, Proposal
from culmen.core.candidate import Candidate, Origin
from culmen.core.errors import UserError
from culmen.core.evaluation import Case, Rollout
from culmen.core.event import Edits
from culmen.core.ports import Lab
from culmen.offline.credit import Birth, OperatorCredit
from culmen.offline.purse import EvaluationAllowance

OPERATORS = {  # and how many successes in eight trials each is believed to have at first
    "numbers": 1.0,
    "lines": 1.0,
    "crossover": 1.0,
    "statements": 0.5,
    "operators": 0.5,
    "bounds": 3.0,
    "cheaper": 0.5,
    "refine": 4.0,
    "method": 1.5,
    "restart": 0.5,
    "effort": 4.0,
    "cma": 0.75,
}
_TIMED = ("refine", "method", "restart", "effort")
UNTIMED = {name: prior for name, prior in OPERATORS.items() if name not in _TIMED}  # nothing that a clock guards
_FIELD, _ANY = 4, 10**9  # a race has this many times as many variants; whatever their loops want, it sets the pace
_AGAIN = 0.25  # probability of one more edit on top of the last
_PREFIX = "offline:"
_BARREN = 500  # proposals in a row without a child after which there is plainly nothing to edit


class OfflineProposer:
    """Adaptive choice among operators; the step of numeric changes follows their success (1/5 rule).

    For one child up to `width` variants are made by one operator and evaluated, as ordinary budgeted evaluations on
    the cases of the brief, and the best goes on, for up to `depth` rounds while it gets better. Where the evaluations
    are dear (two of them would cost more than `share` of the budget left) and noisy, a single variant is handed over
    unseen and is credited when it comes back as a parent with a higher reward than its own parent had.
    """

    def __init__(
        self, operators: Mapping[str, float] = OPERATORS, width: int = 4, depth: int = 3, share: float = 0.02
    ) -> None:
        self._credits = {name: OperatorCredit(prior) for name, prior in operators.items()}
        self._births: dict[str, Birth] = {}
        self._reached: dict[str, tuple[Candidate, float | None]] = {}
        self._purse, self._depth = EvaluationAllowance(width, share), depth
        self._step, self._barren = 0.3, 0
        self._loops = "refine" in operators

    async def propose(self, lab: Lab, brief: Brief) -> Proposal:
        """Up to `brief.k` children of the parent; fault `inapplicable` if no operator found anything to change."""
        if brief.parent is None:
            return Proposal(fault="no_parent", model="offline")
        self._learn(brief)
        self._purse.open(lab)
        if brief.hypothesis:
            return await self._directed(lab, brief, brief.parent)
        children: dict[str, Candidate] = {}
        for _ in range(brief.k):
            child = await self._child(lab, brief, brief.parent)
            if child is not None:
                children.setdefault(child.id, child)
        return Proposal(tuple(children.values()), fault="" if children else "inapplicable", model="offline")

    async def _directed(self, lab: Lab, brief: Brief, parent: Candidate) -> Proposal:
        """Children by the operators that the hypothesis names, without looking at any of them first."""
        named = {name: 1.0 for name in OPERATORS if name in brief.hypothesis.partition(":")[0].split("+")}
        options = self._options(lab) | {"weights": named or {"numbers": 1.0}, "count": brief.k, "again": 0.0}
        mates = [exhibit.candidate for exhibit in brief.inspirations]
        if "cma" in named:
            best = await self._tune(lab, brief, parent)
            return Proposal((best.candidate,) if best else (), fault="" if best else "inapplicable", model="offline")
        edits: Edits = await lab.edit("vary", (parent, *mates), **options)
        children = tuple(_bred(parts, brief, names) for parts, names in zip(edits.parts, edits.notes))
        return Proposal(children[: brief.k], fault="" if children else "inapplicable", model="offline")

    async def _child(self, lab: Lab, brief: Brief, parent: Candidate) -> Candidate | None:
        """The best of a few rounds of edits, None if nothing could be edited or no variant was scored.

        On a deterministic task without cases a parent that is asked about again is taken up where its last improvement
        left off: a strategy's filter may refuse small steps, and they need not be found twice.
        """
        start, reward = self._reached.get(parent.id, (parent, _level(lab, brief)))
        best, repeats = start, lab.task.deterministic and not lab.task.cases
        for _ in range(self._depth):
            if repeats and self._loops:
                top = await self._race(lab, brief, best)
            elif lab.rng.random() < self._odds("cma"):
                top = await self._tune(lab, brief, best)
                self._credit(("cma",), top is not None and _above(top.reward, reward))
            else:
                variants = await self._variants(lab, brief, best)
                if len(variants) == 1 and self._purse.width(lab) == 1 and not repeats:
                    return self._unseen(variants[0], brief)
                rollouts = await self._try(lab, brief, variants)
                for rollout in rollouts:
                    self._credit(_operators(rollout.candidate), _above(rollout.reward, reward))
                top = _best([rollout for rollout in rollouts if rollout.reward != reward])  # the rest had no effect
            better = top is not None and _above(top.reward, reward)
            if top is not None and top.reward is not None and (better or best.id == start.id):
                best, reward = top.candidate, top.reward
                if better and repeats:
                    self._reached[parent.id] = best, reward
            if not better:
                break
        return None if best.id == start.id else best

    async def _race(self, lab: Lab, brief: Brief, parent: Candidate) -> Rollout | None:
        """Successive halving (Jamieson and Talwalkar 2016, arXiv 1502.07943) over how long inserted loops work: many
        variants with short loops, the best quarter of them with loops four times as long, and so on.

        The parent runs along. Its short form says which variants are better, and its loops get longer like theirs.
        """
        rungs = self._purse.rungs(lab)
        short = (await self._paced(lab, brief, [parent], rungs[0]))[0]
        if self._credits["refine"].tried and lab.rng.random() < self._odds("cma"):  # not first: it is slow to load
            (base,) = await self._try(lab, brief, [short])
            top = await self._tune(lab, brief, short)
            rollouts = [base, *([top] if top else [])]
        else:
            variants = await self._variants(lab, brief, short, _FIELD, most=_ANY, rung=rungs[0])
            base, *rollouts = await self._try(lab, brief, [short, *variants])
            rollouts = [base, *(each for each in rollouts if each.reward != base.reward)]  # the rest had no effect
        for each in rollouts[1:]:
            self._credit(_operators(each.candidate), _above(each.reward, base.reward))
        for rung in rungs[1:]:
            ranked = sorted(
                (each for each in rollouts if each.reward is not None), key=lambda each: -(each.reward or 0)
            )
            kept = [each.candidate for each in ranked[: max(lab.workers, len(ranked) // 4)]]
            rollouts = await self._try(lab, brief, await self._paced(lab, brief, kept, rung))
        return _best(rollouts)

    async def _paced(self, lab: Lab, brief: Brief, programs: Sequence[Candidate], calls: int) -> list[Candidate]:
        """These programs with so many calls for their loops together; those without loops as they are."""
        options = self._options(lab) | {"calls": calls}
        edits: Edits = await lab.edit("pace", tuple(programs), **options)
        pairs = zip(programs, edits.parts)
        return [old if old.parts == parts else _bred(parts, brief, _named(old)) for old, parts in pairs]

    async def _variants(
        self, lab: Lab, brief: Brief, parent: Candidate, times: int = 1, **more: Any
    ) -> list[Candidate]:
        """Different edits of the parent, by operators drawn according to their credit."""
        mates = [exhibit.candidate for exhibit in brief.inspirations]
        weights = {name: credit.weight for name, credit in self._credits.items() if name != "cma"}
        if "rung" in more:
            weights.pop("effort", None)
        count = times * self._purse.width(lab)
        options = self._options(lab) | {"weights": weights, "count": count, "again": _AGAIN} | more
        edits: Edits = await lab.edit("vary", (parent, *mates), **options)
        self._barren = 0 if edits.parts else self._barren + 1
        if self._barren > _BARREN:
            raise _nothing_to_edit()
        return [_bred(parts, brief, names) for parts, names in zip(edits.parts, edits.notes)]

    async def _try(self, lab: Lab, brief: Brief, variants: Sequence[Candidate]) -> list[Rollout]:
        """Evaluate on the cases of the brief, and learn what an evaluation costs of the budget."""
        cases = _cases(lab, brief)
        rollouts = await lab.gather(*(lab.evaluate(variant, cases) for variant in variants))
        self._purse.pay(rollouts)
        return rollouts

    async def _tune(self, lab: Lab, brief: Brief, parent: Candidate) -> Rollout | None:
        """CMA-ES over the parent's numbers until it stalls or its share of the budget is spent; the best seen."""
        size, best, stalled, rewards = max(6, 2 * lab.workers), None, 0, list[list[float | None]]()
        begun = self._purse.progress(lab)
        most = 5 * self._purse.share * (1 - begun)
        options = self._options(lab) | {"seed": lab.rng.getrandbits(30), "size": size, "step": 0.15}
        while stalled < 2 and self._purse.progress(lab) - begun + size * self._purse.price(lab) <= most:
            edits: Edits = await lab.edit("cma", (parent,), generations=rewards, **options)
            if not edits.parts:
                break
            generation = await self._try(lab, brief, [_bred(parts, brief, "cma") for parts in edits.parts])
            rewards.append([rollout.reward for rollout in generation])
            top = _best(generation, best)
            stalled = stalled + 1 if top is best else 0
            best = top
        return best

    def _options(self, lab: Lab) -> dict[str, Any]:
        """What tools may do: the task's surface, the step, and what inserted loops may use."""
        surface = lab.task.surface
        return {
            "step": self._step,
            "frozen": list(surface.frozen),
            "marked": surface.markers != "off",
            "chars": surface.max_chars,
            "sense": 1 if lab.task.objective.direction == "max" else -1,
            **self._purse.allowed(lab),
        }

    def _odds(self, name: str) -> float:
        """Probability of this operator among all."""
        return (
            self._credits[name].weight / sum(c.weight for c in self._credits.values()) if name in self._credits else 0.0
        )

    def _credit(self, operators: Sequence[str], better: bool) -> None:
        """One trial of these operators; the factors of the step balance at one success in five."""
        for credit in self._credits.values():
            credit.fade()
        for name in operators:
            self._credits[name].tried += 1.0
            self._credits[name].better += better
        if "numbers" in operators:
            self._step = min(1.0, self._step * 1.4) if better else self._step * 0.92
            self._step = 0.5 if self._step < 0.02 else self._step

    def _unseen(self, child: Candidate, brief: Brief) -> Candidate:
        """Remember a child that was not evaluated here; until it comes back it counts as a failure."""
        if brief.reward is not None and child.id not in self._births:
            self._births[child.id] = Birth(_operators(child), brief.reward)
            self._credit(_operators(child), better=False)
        return child

    def _learn(self, brief: Brief) -> None:
        """Turn the failures of children that came back better than their parents into successes, once each."""
        shown = [(brief.parent, brief.reward), *((one.candidate, one.reward) for one in brief.inspirations)]
        for candidate, reward in shown:
            birth = self._births.get(candidate.id) if candidate is not None else None
            if candidate is not None and birth is not None and reward is not None:
                del self._births[candidate.id]
                for name in birth.operators if reward > birth.reward else ():
                    self._credits[name].better += 1.0


def _nothing_to_edit() -> UserError:
    return UserError(
        "the offline proposer finds nothing that it could change",
        where="the candidate's editable text",
        fix="check `frozen` and the EVOLVE-BLOCK markers, or use a model: --model NAME",
    )


def _bred(parts: dict[str, str], brief: Brief, names: str) -> Candidate:
    mates = brief.inspirations if "crossover" in names else ()
    parents = (*((brief.parent.id,) if brief.parent else ()), *(mate.candidate.id for mate in mates))
    return Candidate.of(parts, parents, Origin(_PREFIX + names, model="offline", island=brief.island))


def _named(candidate: Candidate) -> str:
    """The operators that made a candidate; longer loops alone for one that was made elsewhere."""
    made = candidate.origin.operator
    return made.removeprefix(_PREFIX) if made.startswith(_PREFIX) else "effort"


def _operators(child: Candidate) -> tuple[str, ...]:
    return tuple(child.origin.operator.removeprefix(_PREFIX).split("+"))


def _above(reward: float | None, other: float | None) -> bool:
    return reward is not None and (other is None or reward > other)


def _best(generation: Sequence[Rollout], best: Rollout | None = None) -> Rollout | None:
    """The rollout of the highest reward, the earlier one on a tie."""
    for rollout in generation:
        if rollout.reward is not None and (best is None or best.reward is None or rollout.reward > best.reward):
            best = rollout
    return best


def _level(lab: Lab, brief: Brief) -> float | None:
    """The parent's reward on the cases its children will see, else its mean so far."""
    rewards = [lab.task.worth(observation) for observation in brief.observations]
    scored = [reward for reward in rewards if reward is not None]
    return sum(scored) / len(scored) if scored and len(scored) == len(rewards) else brief.reward


def _cases(lab: Lab, brief: Brief) -> tuple[Case | None, ...] | None:
    """The cases that the brief's observations were made on; None (all) without any."""
    known = {case.id: case for case in lab.task.cases}
    seen = {observation.case: known.get(observation.case) for observation in brief.observations}
    return tuple(seen.values()) or None
