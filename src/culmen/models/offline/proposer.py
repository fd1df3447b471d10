"""A proposer without a language model: edits by general-purpose operators.

It learns which operators pay. The control of every experiment with a model: it reads neither goals
nor feedback, only texts and rewards. The tools of `changes` and `loops` change the texts; this
module decides which tool to use.
"""

from __future__ import annotations

import asyncio
import math
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from culmen.core.brief import Brief, Proposal
from culmen.core.candidate import Candidate, Origin
from culmen.core.errors import UserError
from culmen.core.evaluation import Case, Rollout
from culmen.core.event import EditRequest, Edits
from culmen.core.foreign import UNREADABLE
from culmen.core.json import JsonObject
from culmen.core.ports import Lab, Proposer

OPERATORS = {  # prior number of successes in eight trials, by operator
    "numbers": 1.0,
    "lines": 1.0,
    "crossover": 1.0,
    "statements": 0.5,
    "operators": 0.5,
    "names": 0.5,
    "bounds": 3.0,
    "refine": 4.0,
    "effort": 4.0,
    "cma": 0.75,
}
_SKILLS = 2.0  # the same of the operator that drops, adopts and merges skills of a set
_TIMED = ("refine", "effort")
UNTIMED = {
    name: prior for name, prior in OPERATORS.items() if name not in _TIMED
}  # operators without a time limit
# variants of a race per usual variant; their loops are limited by the race alone
_FIELD, _ANY = 4, 10**9
# probability of one more edit on top of the last: at least, at most, and its change after a draw
# that brought nothing new and after one that did
_AGAIN, _MOST_AGAIN, _MORE_AGAIN, _LESS_AGAIN = 0.25, 0.9, 0.05, 0.01
_PREFIX = "offline:"
# draws in a row without any text, and without a new one, after which the run ends
_BARREN, _REPEATED = 500, 500
_FADE = 0.98  # older trials count less, so that operators that pay only later are found
_OVERHEAD = 0.02  # approximate seconds of an evaluation beside the candidate's own
_CALL = 1e-4  # assumed seconds of one call of a loop's criterion
_LONG = 0.8  # seconds that the loops of a program should take in the end
# shares of that: all loops at first, and the short ones of a race in the end
_FIRST, _SHORT = 0.06, 0.2
# turns of a strategy that fit into any budget of evaluations; the last one may be cut short
_TURNS = 11
_GENERATION = 6  # texts in a generation of CMA-ES, at least
_GUARD = 5  # a loop ends in any case after this many times its assumed seconds


@dataclass
class OperatorCredit:
    """Record of an operator: faded counts of its children, and of those that improved."""

    prior: float = 1.0
    tried: float = 0.0
    better: float = 0.0

    @property
    def weight(self) -> float:
        """Probability matching on the success rate, from an optimistic prior, never quite zero."""
        return (self.better + self.prior) / (self.tried + 8.0)

    def fade(self) -> None:
        """Reduce the weight of earlier trials."""
        self.tried, self.better = self.tried * _FADE, self.better * _FADE


@dataclass(frozen=True)
class Birth:
    """A child proposed without an evaluation: its operators, and its parent's reward."""

    operators: tuple[str, ...]
    reward: float


@dataclass
class Ration:
    """Evaluations that are left to one child.

    A text takes `price` of them, one for each of its cases.
    """

    left: float
    price: int

    @property
    def texts_left(self) -> float:
        """Number of texts that can still be evaluated."""
        return max(0.0, self.left / self.price)

    def spend_on_texts(self, count: int) -> int:
        """Spend on `count` texts; the number of evaluations spent."""
        self.left -= count * self.price
        return count * self.price


class EvaluationAllowance:
    """Costs and limits of one search, computed from the journal alone.

    If evaluations are limited, nothing depends on the clock unless the time limit will end the run
    first, so choices are the same on slow and fast machines. Up to `most` variants are evaluated
    side by side, fewer if two of them would cost more than `share` of the remaining budget. All
    evaluations of one proposal are rationed (`open`).
    """

    def __init__(self, most: int, share: float) -> None:
        self.share = share
        self._most = most
        self._whole = math.inf  # evaluations left at the beginning
        self._spent = self._usual = 0.0  # seconds of evaluation: all so far, a typical one of late
        self._asked = self._beginning = self._together = self._own = 0

    async def open_ration(self, lab: Lab) -> float:
        """Begin a proposal; its ration of evaluations.

        The ration lets ten turns of the strategy fit into the budget. Proposals that begin together
        share a turn. The strategy's own evaluations for each are taken from its share.
        """
        if self._whole == math.inf:
            self._whole = max(1.0, lab.left("evaluations"))
        self._together = self._together + 1 if self._beginning else 1
        self._asked, self._beginning = self._asked + 1, self._beginning + 1
        await lab.spawn(_yield_turn())  # the others of this turn begin
        self._beginning -= 1
        others = (
            (self._whole - lab.left("evaluations") - self._own) / self._asked
            if self._whole < math.inf
            else 0.0
        )
        return self._whole / (_TURNS * self._together) - max(0.0, others)

    def count_evaluations(self, count: int) -> None:
        """Count evaluations that the proposer asks for."""
        self._own += count

    def count_seconds(self, rollouts: Sequence[Rollout]) -> None:
        """Count the seconds of these evaluations."""
        for rollout in rollouts:
            seconds = _OVERHEAD + sum(observation.seconds for observation in rollout.observations)
            self._spent += seconds
            self._usual += 0.1 * (seconds - self._usual)

    def budget_progress(self, lab: Lab) -> float:
        """Share of the budget spent, 0..1."""
        if self._whole == math.inf:
            return lab.progress
        left, share = lab.left("seconds"), 1 - lab.left("evaluations") / self._whole
        late = (
            1.5 * lab.elapsed / (lab.elapsed + left) - 0.45
            if lab.elapsed > 0 and left < math.inf
            else 0.0
        )
        return min(1.0, max(share, late))

    def evaluation_price(self, lab: Lab) -> float:
        """Cost of a typical evaluation as a share of the budget.

        It is one of the counted evaluations, or else the progress so far, divided by seconds.
        """
        if self._whole < math.inf:
            return 1 / self._whole
        return self._usual * lab.progress / self._spent if self._spent > 0 else 0.0

    def variant_count(self, lab: Lab, room: float = math.inf) -> int:
        """Number of variants to evaluate, at least one.

        It is the number that `room` evaluations hold and a small share of the remaining budget pays
        for. On a task without cases that is evaluated once no evaluation is wasted, since a
        strategy that admits the child reuses its score: there is at least one variant per worker.
        """
        price = self.evaluation_price(lab)
        once = lab.task.is_evaluated_once and not lab.task.cases
        least = min(self._most, lab.workers) if once else 1
        paid = (
            self._most
            if price <= 0
            else min(self._most, int(self.share * (1 - self.budget_progress(lab)) / price))
        )
        return max(1, int(min(room, max(least, paid))))

    def loop_options(self, lab: Lab) -> JsonObject:
        """Tool options that limit inserted loops (see `loops`), from short to long ones."""
        longest, progress = self._final_loop_seconds(lab), self.budget_progress(lab)
        first = _FIRST * longest
        calls, largest_total = (
            max(10, round(first * growth**progress / _CALL))
            for growth in (_SHORT / _FIRST, 1 / _FIRST)
        )
        pace = min(_GUARD * _CALL, 0.5 * lab.task.limits.seconds / max(longest / _CALL, 1.0))
        return {"calls": calls, "most": largest_total, "pace": pace}

    def race_plan(self, lab: Lab, room: float) -> tuple[int, list[int]] | None:
        """(number of variants, calls of the rungs) of a race that `room` evaluations hold.

        None if they do not hold a race of three variants.
        """
        rungs = self._race_rungs(lab)
        for kept in (rungs, [rungs[0], rungs[-1]], rungs[:1]):
            for field in range(_FIELD * self.variant_count(lab), 2, -1):
                if _race_cost(field, len(kept), lab.workers) <= room:
                    return field, kept
        return None

    def _race_rungs(self, lab: Lab) -> list[int]:
        """Calls of the criterion for the rungs of a race, each four times the last."""
        allowed = self.loop_options(lab)
        rungs = [int(allowed["calls"])]
        while rungs[-1] * 4 < 0.7 * allowed["most"]:
            rungs.append(4 * rungs[-1])
        return rungs if allowed["most"] < 1.2 * rungs[-1] else [*rungs, int(allowed["most"])]

    def _final_loop_seconds(self, lab: Lab) -> float:
        """Seconds that the loops of a program should take in the end.

        Fewer if time is short, and never more than 0.2 of an evaluation's limit, so that loops that
        take twice as long still fit.
        """
        run_seconds = round(lab.elapsed + lab.left("seconds"), 3)
        return min(_LONG, 0.1 * run_seconds, 0.2 * lab.task.limits.seconds)


class OfflineProposer(Proposer):
    """Adaptive choice among operators, with steps of numeric changes by the 1/5 rule.

    For one child up to `width` variants are made by one operator and evaluated, as ordinary
    budgeted evaluations on the cases of the brief, and the best goes on, for up to `depth` rounds
    while it gets better. If evaluations are expensive (two of them would cost more than `share` of
    the remaining budget) and noisy, a single variant is proposed without evaluation, and credited
    when it comes back as a parent with a higher reward than its own parent.
    """

    free = True

    def __init__(
        self,
        operators: Mapping[str, float] = OPERATORS,
        width: int = 4,
        depth: int = 3,
        share: float = 0.02,
    ) -> None:
        self._credits = {name: OperatorCredit(prior) for name, prior in operators.items()}
        self._births: dict[str, Birth] = {}
        self._reached: dict[str, tuple[Candidate, float | None]] = {}
        self._allowance, self._depth = EvaluationAllowance(width, share), depth
        self._step, self._barren, self._repeated = 0.3, 0, 0
        self._again, self._drawn = _AGAIN, set[str]()
        self._loops = "refine" in operators

    async def propose(self, lab: Lab, brief: Brief) -> Proposal:
        """Up to `brief.k` children of the parent.

        Fault `inapplicable` if no operator could change anything.
        """
        if brief.parent is None:
            return Proposal(fault="no_parent", model="offline")
        self._credit_births(brief)
        ration, price = (
            await self._allowance.open_ration(lab),
            len(_brief_cases(lab, brief) or lab.task.split("train") or (None,)),
        )
        if brief.hypothesis:
            return await self._directed_children(lab, brief, brief.parent, Ration(ration, price))
        children: dict[str, Candidate] = {}
        for _ in range(brief.k):
            child = await self._best_child(
                lab, brief, brief.parent, Ration(ration / brief.k, price)
            )
            if child is not None:
                children.setdefault(child.id, child)
        return Proposal(
            tuple(children.values()), fault="" if children else "inapplicable", model="offline"
        )

    async def _directed_children(
        self, lab: Lab, brief: Brief, parent: Candidate, room: Ration
    ) -> Proposal:
        """Children by the operators that the hypothesis names, not evaluated here."""
        named = {
            name: 1.0 for name in OPERATORS if name in brief.hypothesis.partition(":")[0].split("+")
        }
        options = self._tool_options(lab) | {
            "weights": named or {"numbers": 1.0},
            "count": brief.k,
            "again": 0.0,
        }
        mates = [exhibit.candidate for exhibit in brief.inspirations]
        if "cma" in named:
            best = await self._tune_numbers(lab, brief, parent, room)
            return Proposal(
                (best.candidate,) if best else (),
                fault="" if best else "inapplicable",
                model="offline",
            )
        edits: Edits = await lab.edit("vary", (parent, *mates), **options)
        children = tuple(
            _child_candidate(parts, brief, names) for parts, names in zip(edits.parts, edits.notes)
        )
        return Proposal(
            children[: brief.k], fault="" if children else "inapplicable", model="offline"
        )

    async def _best_child(
        self, lab: Lab, brief: Brief, parent: Candidate, room: Ration
    ) -> Candidate | None:
        """The best of a few rounds of edits; None without an edit or a score.

        On a task without cases that is evaluated once, a parent that is proposed from again
        continues at its last improvement: a strategy's filter may refuse small steps, and they need
        not be found twice.
        """
        start, reward = self._reached.get(parent.id, (parent, _parent_reward(lab, brief)))
        best, repeats = start, lab.task.is_evaluated_once and not lab.task.cases
        if not repeats and self._allowance.variant_count(lab, room.texts_left) == 1:
            variants = await self._draw_variants(lab, brief, start, 1)
            return self._remember_birth(variants[0], brief) if variants else None
        for turn in range(self._depth):
            race = (
                self._allowance.race_plan(lab, room.texts_left) if repeats and self._loops else None
            )
            if turn and (room.texts_left < 1 or (repeats and self._loops and race is None)):
                break
            if race is None:
                top = await self._best_of_round(lab, brief, best, reward, room)
            else:
                top = await self._best_of_race(lab, brief, best, room, race)
            better = top is not None and _is_reward_better(top.reward, reward)
            if top is not None and top.reward is not None and (better or best.id == start.id):
                best, reward = top.candidate, top.reward
                if better and repeats:
                    self._reached[parent.id] = best, reward
            if not better:
                break
        return None if best.id == start.id else best

    async def _best_of_round(
        self, lab: Lab, brief: Brief, parent: Candidate, reward: float | None, room: Ration
    ) -> Rollout | None:
        """The best of a few variants, or of a tuning of the numbers.

        None if no edit had an effect that was scored.
        """
        if room.texts_left >= _GENERATION and lab.rng.random() < self._numbers_probability():
            top = await self._tune_numbers(lab, brief, parent, room)
            self._credit_operators(
                ("cma",), top is not None and _is_reward_better(top.reward, reward)
            )
            return top
        variants = await self._draw_variants(
            lab, brief, parent, self._allowance.variant_count(lab, room.texts_left)
        )
        rollouts = await self._evaluate_variants(lab, brief, variants, room)
        for rollout in rollouts:
            self._credit_operators(
                _operator_names(rollout.candidate), _is_reward_better(rollout.reward, reward)
            )
        return _best_rollout([rollout for rollout in rollouts if rollout.reward != reward])

    async def _best_of_race(
        self, lab: Lab, brief: Brief, parent: Candidate, room: Ration, race: tuple[int, list[int]]
    ) -> Rollout | None:
        """Successive halving over the length of inserted loops; the best rollout.

        Many variants start with short loops, the best quarter of them goes on with loops four times
        as long, and so on. The parent runs along: its short form shows which variants are better,
        and its loops get longer like theirs. Source: Jamieson and Talwalkar 2016, arXiv 1502.07943.
        """
        field, rungs = race
        short = (await self._programs_with_calls(lab, brief, [parent], rungs[0]))[0]
        # not first: it is slow to load
        tuned = (
            self._credits["refine"].tried
            and field >= _GENERATION
            and lab.rng.random() < self._numbers_probability()
        )
        if tuned:
            (base,) = await self._evaluate_variants(lab, brief, [short], room)
            top = await self._tune_numbers(lab, brief, short, room, field)
            rollouts = [base, *([top] if top else [])]
        else:
            variants = await self._draw_variants(lab, brief, short, field, most=_ANY, rung=rungs[0])
            base, *rollouts = await self._evaluate_variants(lab, brief, [short, *variants], room)
            rollouts = [
                base,
                *(rollout for rollout in rollouts if rollout.reward != base.reward),
            ]  # the rest had no effect
        for rollout in rollouts[1:]:
            self._credit_operators(
                _operator_names(rollout.candidate), _is_reward_better(rollout.reward, base.reward)
            )
        for rung in rungs[1:]:
            ranked = sorted(
                (rollout for rollout in rollouts if rollout.reward is not None),
                key=lambda rollout: -(rollout.reward or 0),
            )
            kept = [
                rollout.candidate for rollout in ranked[: _survivor_count(len(ranked), lab.workers)]
            ]
            rollouts = await self._evaluate_variants(
                lab, brief, await self._programs_with_calls(lab, brief, kept, rung), room
            )
        return _best_rollout(rollouts)

    async def _programs_with_calls(
        self, lab: Lab, brief: Brief, programs: Sequence[Candidate], calls: int
    ) -> list[Candidate]:
        """These programs with `calls` shared among their loops; those without loops unchanged."""
        options = self._tool_options(lab) | {"calls": calls}
        edits: Edits = await lab.edit("pace", tuple(programs), **options)
        pairs = zip(programs, edits.parts)
        return [
            old if old.parts == parts else _child_candidate(parts, brief, _operator_label(old))
            for old, parts in pairs
        ]

    async def _draw_variants(
        self, lab: Lab, brief: Brief, parent: Candidate, count: int, **more: object
    ) -> list[Candidate]:
        """Up to `count` different edits of the parent, by operators drawn by their credit.

        The more often all of them were drawn before, the more edits are made on top of one another.
        """
        mates = [exhibit.candidate for exhibit in brief.inspirations]
        if lab.task.surface.skills:
            self._credits.setdefault("skills", OperatorCredit(_SKILLS))
        weights = {name: credit.weight for name, credit in self._credits.items() if name != "cma"}
        if "rung" in more:
            weights.pop("effort", None)
        options = (
            self._tool_options(lab)
            | {"weights": weights, "count": count, "again": self._again}
            | more
        )
        edits: Edits = await lab.edit("vary", (parent, *mates), **options)
        self._barren = 0 if edits.parts else self._barren + 1
        if self._barren > _BARREN:
            raise _nothing_to_edit("finds nothing to change")
        variants = [
            _child_candidate(parts, brief, names) for parts, names in zip(edits.parts, edits.notes)
        ]
        self._notice_repeats(variants)
        return variants

    def _notice_repeats(self, variants: Sequence[Candidate]) -> None:
        """Make more edits at once after a draw without a new text, fewer after any other."""
        ids = {variant.id for variant in variants}
        if not ids:
            return
        if ids <= self._drawn:
            self._again = min(_MOST_AGAIN, self._again + _MORE_AGAIN)
            self._repeated += 1
        else:
            self._again = max(_AGAIN, self._again - _LESS_AGAIN)
            self._repeated = 0
        if self._repeated > _REPEATED:
            raise _nothing_to_edit(f"has made all it can: {len(self._drawn)} texts")
        self._drawn |= ids

    async def _evaluate_variants(
        self, lab: Lab, brief: Brief, variants: Sequence[Candidate], room: Ration
    ) -> list[Rollout]:
        """Evaluate on the cases of the brief, and record the cost."""
        cases = _brief_cases(lab, brief)
        self._allowance.count_evaluations(room.spend_on_texts(len(variants)))
        rollouts = await lab.gather(*(lab.evaluate(variant, cases) for variant in variants))
        self._allowance.count_seconds(rollouts)
        return rollouts

    async def _tune_numbers(
        self, lab: Lab, brief: Brief, parent: Candidate, room: Ration, count: float = math.inf
    ) -> Rollout | None:
        """CMA-ES over the parent's numbers until it stalls or has spent its share of the budget.

        Returns the best rollout.
        """
        size, best, stalled, rewards = (
            max(_GENERATION, 2 * lab.workers),
            None,
            0,
            list[list[float | None]](),
        )
        size = int(min(size, max(4.0, room.texts_left), max(4.0, count)))
        begun = self._allowance.budget_progress(lab)
        most = 5 * self._allowance.share * (1 - begun)
        options = self._tool_options(lab) | {
            "seed": lab.rng.getrandbits(30),
            "size": size,
            "step": 0.15,
        }
        while stalled < 2 and size <= min(room.texts_left, count):
            if (
                self._allowance.budget_progress(lab)
                - begun
                + size * self._allowance.evaluation_price(lab)
                > most
            ):
                break
            edits: Edits = await lab.edit("cma", (parent,), generations=rewards, **options)
            if not edits.parts:
                break
            generation = await self._evaluate_variants(
                lab, brief, [_child_candidate(parts, brief, "cma") for parts in edits.parts], room
            )
            rewards.append([rollout.reward for rollout in generation])
            top, count = _best_rollout(generation, best), count - size
            stalled = stalled + 1 if top is best else 0
            best = top
        return best

    def _tool_options(self, lab: Lab) -> JsonObject:
        """Options of the tools: the task's surface, the step, and the limits of inserted loops."""
        surface = lab.task.surface
        return {
            "step": self._step,
            "frozen": list(surface.frozen),
            "marked": surface.markers != "off",
            "chars": surface.max_chars,
            **({"skills": surface.skills} if surface.skills else {}),
            **({"headed": True} if surface.skills or surface.frontmatter == "frozen" else {}),
            "sense": 1 if lab.task.objective.direction == "max" else -1,
            **self._allowance.loop_options(lab),
        }

    def _numbers_probability(self) -> float:
        """Probability of the operator `cma` among all."""
        credit = self._credits.get("cma")
        return credit.weight / sum(c.weight for c in self._credits.values()) if credit else 0.0

    def _credit_operators(self, operators: Sequence[str], better: bool) -> None:
        """One trial of these operators; the factors of the step balance at one success in five."""
        for credit in self._credits.values():
            credit.fade()
        for name in operators:
            self._credits[name].tried += 1.0
            self._credits[name].better += better
        if "numbers" in operators:
            self._step = min(1.0, self._step * 1.4) if better else self._step * 0.92
            self._step = 0.5 if self._step < 0.02 else self._step

    def _remember_birth(self, child: Candidate, brief: Brief) -> Candidate:
        """Remember a child without an evaluation; it counts as a failure until it comes back."""
        if brief.reward is not None and child.id not in self._births:
            self._births[child.id] = Birth(_operator_names(child), brief.reward)
            self._credit_operators(_operator_names(child), better=False)
        return child

    def _credit_births(self, brief: Brief) -> None:
        """Count children that came back better than their parents as successes, once each.

        They had counted as failures.
        """
        shown = [
            (brief.parent, brief.reward),
            *((one.candidate, one.reward) for one in brief.inspirations),
        ]
        for candidate, reward in shown:
            birth = self._births.get(candidate.id) if candidate is not None else None
            if candidate is not None and birth is not None and reward is not None:
                del self._births[candidate.id]
                for name in birth.operators if reward > birth.reward else ():
                    self._credits[name].better += 1.0


def _survivor_count(racing: int, workers: int) -> int:
    """Number of variants that go on to the next rung of a race."""
    return min(racing, max(workers, racing // 4))


def _race_cost(field: int, rungs: int, workers: int) -> int:
    """Largest number of evaluations of a race.

    They are the parent and `field` variants, and those kept at each further rung.
    """
    racing = cost = 1 + field
    for _ in range(rungs - 1):
        racing = _survivor_count(racing, workers)
        cost += racing
    return cost


async def _yield_turn() -> None:
    """Let all other ready coroutines run first."""


def _nothing_to_edit(finding: str) -> UserError:
    return UserError(
        f"the offline proposer {finding}",
        where="the candidate's editable text",
        fix="check `frozen` and the EVOLVE-BLOCK markers, or use a model: --model NAME",
    )


def _child_candidate(parts: dict[str, str], brief: Brief, names: str) -> Candidate:
    mates = brief.inspirations if {"crossover", "skills"} & set(names.split("+")) else ()
    parents = (
        *((brief.parent.id,) if brief.parent else ()),
        *(mate.candidate.id for mate in mates),
    )
    return Candidate.of(
        parts, parents, Origin(_PREFIX + names, model="offline", island=brief.island)
    )


def _operator_label(candidate: Candidate) -> str:
    """The operators that made a candidate; `effort` for one made elsewhere."""
    operator = candidate.origin.operator
    return operator.removeprefix(_PREFIX) if operator.startswith(_PREFIX) else "effort"


def _operator_names(child: Candidate) -> tuple[str, ...]:
    return tuple(child.origin.operator.removeprefix(_PREFIX).split("+"))


def _is_reward_better(reward: float | None, other: float | None) -> bool:
    return reward is not None and (other is None or reward > other)


def _best_rollout(generation: Sequence[Rollout], best: Rollout | None = None) -> Rollout | None:
    """The rollout of the highest reward, the earlier one on a tie."""
    for rollout in generation:
        if rollout.reward is not None and (
            best is None or best.reward is None or rollout.reward > best.reward
        ):
            best = rollout
    return best


def _parent_reward(lab: Lab, brief: Brief) -> float | None:
    """The parent's reward on its children's cases, else its mean so far."""
    rewards = [lab.task.effective_reward(observation) for observation in brief.observations]
    scored = [reward for reward in rewards if reward is not None]
    return sum(scored) / len(scored) if scored and len(scored) == len(rewards) else brief.reward


def _brief_cases(lab: Lab, brief: Brief) -> tuple[Case | None, ...] | None:
    """The cases of the brief's observations; None (all) without any."""
    known = {case.id: case for case in lab.task.cases}
    seen = {observation.case: known.get(observation.case) for observation in brief.observations}
    return tuple(seen.values()) or None


# Performs `edit` effects in worker processes, so that parsing never blocks the event loop.

_RESULTS = msgspec.msgpack.Decoder(Edits)
_REQUESTS = msgspec.msgpack.Encoder()


class EditWorkers:
    """Up to `workers` processes, started when first needed, each for one request at a time.

    A worker that takes longer than `seconds` is killed (fault `timeout`); one that dies is replaced
    and the request repeated once (then fault `crashed`). No tool or text raises an error here.
    """

    def __init__(self, workers: int = 1, seconds: float = 20.0) -> None:
        self.seconds = seconds
        self._slots = asyncio.Semaphore(workers)
        self._idle: list[Process] = []
        self._all: set[Process] = set()

    @property
    def process_ids(self) -> tuple[int, ...]:
        """The ids of the worker processes."""
        return tuple(sorted(worker.pid for worker in self._all))

    async def perform(self, request: EditRequest) -> Edits:
        """The tool's result, or `Edits` with a fault."""
        try:
            body = _REQUESTS.encode(request)
        except (UnicodeEncodeError, OverflowError):  # half a sign; a number beyond 64 bits
            return Edits(fault=UNREADABLE)
        frame = len(body).to_bytes(4, "big") + body
        async with self._slots:
            for _ in range(2):
                worker = self._idle.pop() if self._idle else await self._start_worker()
                try:
                    reply = await asyncio.wait_for(_ask_worker(worker, frame), self.seconds)
                except TimeoutError:
                    await self._end_worker(worker)
                    return Edits(fault="timeout")
                except (OSError, asyncio.IncompleteReadError, msgspec.DecodeError):
                    await self._end_worker(worker)
                    continue
                except asyncio.CancelledError:
                    await self._end_worker(worker)
                    raise
                self._idle.append(worker)
                return reply
        return Edits(fault="crashed")

    async def close(self) -> None:
        """End all workers; a later `perform` starts new ones."""
        for worker in list(self._all):
            await self._end_worker(worker)

    async def _start_worker(self) -> Process:
        """A worker in a session of its own, so that Ctrl-C in a terminal does not reach it."""
        command = (sys.executable, "-P", "-m", "culmen.models.offline.tools")
        worker = await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, start_new_session=True
        )
        self._all.add(worker)
        return worker

    async def _end_worker(self, worker: Process) -> None:
        if worker in self._idle:
            self._idle.remove(worker)
        self._all.discard(worker)
        if worker.returncode is None:
            worker.kill()
        await worker.wait()


async def _ask_worker(worker: Process, frame: bytes) -> Edits:
    assert worker.stdin is not None and worker.stdout is not None  # both are pipes
    worker.stdin.write(frame)
    await worker.stdin.drain()
    size = int.from_bytes(await worker.stdout.readexactly(4), "big")
    return _RESULTS.decode(await worker.stdout.readexactly(size))
