"""The end of a search: the final choice, and stopping at a confirmed score.

The finalists are evaluated afresh, from a reserve. One part of it picks the winner by sequential halving, together
with what the search knows; the other part, spent on the winner and the initial program, gives the scores that are
reported: it took no part in the choice, so it has no selection bias (winner's curse). All are evaluated on the same
cases, and a failed evaluation counts as the floor.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Mapping, Sequence
from functools import lru_cache
from statistics import fmean, stdev
from typing import NamedTuple

import msgspec

from culmen.core.candidate import Candidate
from culmen.core.evaluation import Case, Observation, Rollout, Status, reaches, weakest
from culmen.core.ports import Lab
from culmen.core.task import NO_TOLERANCE, Task
from culmen.engine.lab import EngineLab
from culmen.engine.ledger import CHECKS, may_rest_on_tolerance, once
from culmen.engine.record import LOOKS, CandidateTally, RewardNoise, Scoreboard
from culmen.memory.front import FrontPoint

_FINALISTS = 8
_UNBUDGETED = 24  # evaluations for the final choice where no evaluations budget says how many were kept
_CHOOSING = 0.25  # share of what is kept that picks the winner, where the whole split does not fit
_VALIDATING = 0.4  # the same where val cases pick it, which the search never saw
_EACH = 3  # evaluations of each finalist that a round of halving is worth
_FIRST = 4  # one in so many evaluations of a confirmation goes first: it may show that the winner fails


class InitialScore(msgspec.Struct, frozen=True, omit_defaults=True):
    """The initial program (of several the best), evaluated beside the winner: its mean `score` over `count` fresh
    evaluations with standard error and half the width of the 95 % interval; `failures` of them gave no score."""

    id: str
    score: float
    count: int
    se: float | None = None
    margin: float | None = None
    failures: int = 0


class FinalChoice(msgspec.Struct, frozen=True, omit_defaults=True):
    """The candidate a run reports.

    `score` is the mean over `count` fresh evaluations (all made after the choice), with standard error `se` and
    `margin`, half the width of its 95 % interval; `failures` of them gave no score and count as the floor.
    `search_score` over `search_count` is what the search believed. Without fresh ones `score` is the same and
    `confirmed` is False. `trust` is the level of the weakest of these evaluations (`core.trust`). `verified`:
    confirmed, at least at that level, and where the task has a verifier every output passed it as given. `split` names
    the cases the fresh evaluations used: `cases` of its `of` (0 without a data set). `tolerance` says, where no
    verifier was asked, whether the score holds without the evaluator's tolerances, in words that begin with held,
    rounding, doubtful, used or not checked ("": it was not tried); used ones are not verified.

    With several objectives `front` is what is reported, and `id` the member of it with the best combined score.

    `initial` is the initial program on the same cases (None: there is none, or nothing was left for it). `gain` is how
    much the winner's score is above it, judged case by case, and `gain_margin` half the width of its 95 % interval.

    `certified` is the worst of the values the verifier certified, of the outputs or of their strictly feasible repairs
    (None: there is no verifier, or it did not accept all outputs). `strict`: all passed as given; None: not asked.
    """

    id: str
    score: float
    count: int
    se: float | None = None
    search_score: float | None = None
    search_count: int = 0
    confirmed: bool = False
    verified: bool = False
    failures: int = 0
    split: str = ""
    finalists: tuple[str, ...] = ()
    certified: float | None = None
    strict: bool | None = None
    trust: str = ""
    margin: float | None = None
    cases: int = 0
    of: int = 0
    initial: InitialScore | None = None
    gain: float | None = None
    gain_margin: float | None = None
    tolerance: str = ""
    front: tuple[FrontPoint, ...] = ()


class _Plan(NamedTuple):
    """How many evaluations choose, and on how many cases the winner and the initial program are evaluated each."""

    choosing: int
    each: int


class Finale:
    """Runs the final choice on a lab; `verdict` is valid at any time, from what is known so far.

    It is told every finished evaluation by `see`, and keeps them apart from the search's.
    """

    def __init__(self, task: Task, record: Scoreboard, evaluations: float) -> None:
        self._task, self._record, self._noise = task, record, record.noise()
        unsaid = task.deterministic is None  # then repeats tell
        same = not (self._noise.squares or record.flaky) and self._noise.repeats >= LOOKS
        self._exact = bool(task.deterministic) or (unsaid and same)
        self._kept = _UNBUDGETED if evaluations == float("inf") else int(evaluations)
        self._field = record.ranking(_FINALISTS)
        self._initial = self._best_initial() if self._kept > 1 else None
        self._chosen: CandidateTally | None = None
        self._confirming = False
        self._checks = CHECKS if may_rest_on_tolerance(task) and self._kept > 2 + CHECKS else 0
        self._looks: dict[str, list[Observation]] = {}  # of the choice
        self._fresh: dict[str, list[Observation]] = {}  # after it
        self._finalists: tuple[str, ...] = ()
        self._split = next((s for s in ("test", "val", "train") if task.split(s)), "")
        self._pool = task.split(self._split)

    async def run(self, lab: EngineLab) -> None:
        """Pick the winner, then confirm it beside the initial program."""
        if not self._field or self._kept < 1:
            return
        plan = self._plan()
        cases = self._drawn(lab, self._pool, plan.each)
        if self._task.evaluator.verifier:
            await self._certify(lab, self._field, cases)
            await self._compare(lab, cases)
            return
        field = await self._halving(lab, self._field, plan.choosing) if plan.choosing else self._field
        self._finalists = self._named(field)
        self._confirming = True
        compared = lab.spawn(self._compare(lab, cases))
        await self._confirm(lab, field, cases, compared)
        await compared
        await self._doubt(lab)

    def see(self, candidate: Candidate, observation: Observation) -> None:
        """Count one evaluation of the final choice; lost ones count for nothing."""
        if observation.barred:
            self._record.bar(candidate.id)
        if observation.status is not Status.LOST:
            kept = self._fresh if self._confirming or self._task.evaluator.verifier else self._looks
            kept.setdefault(candidate.id, []).append(observation)

    def verdict(self) -> FinalChoice | None:
        """The choice so far; None if nothing ever scored."""
        chosen = self._chosen or next(iter(self._record.ranking(1)), None)
        if chosen is None:
            return None
        seen = self._fresh.get(chosen.id, [])
        fresh, score = self._mean(chosen.id), self._task.objective.score
        strict = None if all(o.strict is None for o in seen) else all(o.strict for o in seen if o.ok)
        confirmed = any(o.ok for o in seen)
        vouched = certified(self._task, seen) if all(o.ok for o in seen) else None
        trust = weakest(o.trust for o in seen if o.ok) if confirmed else chosen.trust
        trust = "verified" if trust == "certified" and vouched is None else trust
        gain, margin = self._gain(chosen.id)
        tolerance = self._tolerance(chosen.id, confirmed)
        sound = strict is not False and not tolerance.startswith("used")
        believed = score(self._record.belief(chosen, self._noise)[0]) if chosen.count else None
        return FinalChoice(
            id=chosen.id,
            score=believed if fresh is None and believed is not None else score(fresh.mean if fresh else chosen.mean),
            count=chosen.count if fresh is None else fresh.count,
            se=None if fresh is None else fresh.se,
            search_score=believed,
            search_count=chosen.count,
            confirmed=confirmed,
            verified=confirmed and sound and reaches(trust, "verified"),
            failures=0 if fresh is None else fresh.failures,
            split="" if fresh is None else self._split,
            finalists=self._finalists,
            certified=vouched,
            strict=strict,
            trust=trust,
            margin=None if fresh is None else fresh.margin,
            cases=0 if fresh is None else fresh.cases,
            of=0 if fresh is None else len(self._pool),
            initial=self._initial_score(),
            gain=gain,
            gain_margin=margin,
            tolerance=tolerance,
        )

    # What the fresh evaluations say.

    def _values(self, name: str) -> dict[str, list[float]]:
        """Rewards of the fresh evaluations by case, failures at the floor."""
        found: dict[str, list[float]] = {}
        for seen in self._fresh.get(name, ()):
            found.setdefault(seen.case, []).append(self._worth(seen))
        return found

    def _worth(self, observation: Observation) -> float:
        reward = self._task.reward(observation)
        return self._record.floor(self._noise) if reward is None else reward

    def _mean(self, name: str) -> FreshMean | None:
        values = self._values(name)
        if not values:
            return None
        failures = sum(not seen.ok for seen in self._fresh[name])
        return fresh_mean(values, failures, self._spread(failures))

    def _tolerance(self, name: str, confirmed: bool) -> str:
        """What is known of whether the score rests on a tolerance of the evaluator."""
        if confirmed and not self._task.evaluator.tolerances:
            return NO_TOLERANCE
        looked = (*self._looks.get(name, ()), *self._fresh.get(name, ()))
        return next((one.artifacts["tolerance"] for one in looked if "tolerance" in one.artifacts), "")

    def _spread(self, failures: int) -> Spread:
        flaky = bool(failures or self._noise.failing or self._flaky)
        floor = self._record.floor(self._noise) if flaky else None
        exact = self._exact and not (failures or self._flaky)
        return Spread(self._noise, len(self._pool) or None, exact, failures, floor)

    @property
    def _flaky(self) -> bool:
        """Whether candidates that scored also failed, on a task without cases."""
        return self._record.flaky or not (self._pool or all(one.ok for seen in self._fresh.values() for one in seen))

    def _initial_score(self) -> InitialScore | None:
        fresh = None if self._initial is None else self._mean(self._initial)
        if fresh is None or self._initial is None:
            return None
        score = self._task.objective.score(fresh.mean)
        return InitialScore(self._initial, score, fresh.count, fresh.se, fresh.margin, fresh.failures)

    def _gain(self, name: str) -> tuple[float | None, float | None]:
        if self._initial is None or name == self._initial:
            return None, None
        one, other = self._values(name), self._values(self._initial)
        if not one or not other:
            return None, None
        failures = sum(not seen.ok for each in (name, self._initial) for seen in self._fresh[each])
        gain, margin = difference(one, other, self._spread(failures))
        return self._task.objective.score(gain), margin

    # Who is looked at, on which cases, and how often.

    def _best_initial(self) -> str | None:
        """The best of the initial programs; None if there is none, or it was rejected for its integrity."""
        names = [candidate.id for candidate in self._task.candidates()]
        known = self._record.ranking(1, names)
        if known:
            return known[0].id
        barred = (tally.barred for name in names if (tally := self._record.tally(name)))
        return None if not names or any(barred) else names[0]

    def _named(self, field: Sequence[CandidateTally]) -> tuple[str, ...]:
        """The finalists, the initial program always among them."""
        names = [*self._finalists, *(tally.id for tally in field)]
        return tuple(dict.fromkeys([*names, *([self._initial] if self._initial else [])]))

    def _plan(self) -> _Plan:
        """Whole splits where they can be had, else as many cases for both as remain beside the choice."""
        kept, whole = self._kept - self._checks, len(self._pool)
        both = 1 + (self._initial is not None)
        open_choice = self._open and len(self._field) > 1
        share = _VALIDATING if self._task.split("val") else _CHOOSING * (1 + self._record.flaky)
        choosing = int(kept * share) if open_choice else 0
        if whole and kept >= both * whole:
            rounds = 1 if self._exact else max(1, (kept - choosing) // (both * whole))
            return _Plan(kept - both * whole * rounds if open_choice else 0, whole * rounds)
        if self._exact and not whole:
            return _Plan(0, 1)
        each = max(1, (kept - choosing) // both)
        return _Plan(choosing, min(each, whole) if whole else each)

    @property
    def _open(self) -> bool:
        """Whether more evaluations could tell which finalist is the best."""
        if not self._exact or self._task.split("val"):
            return True
        train = len(self._task.split("train"))
        return any(tally.count < train for tally in self._field)

    def _drawn(self, lab: EngineLab, pool: Sequence[Case], times: int) -> list[Case | None]:
        """`times` cases at random without replacement, all of them again and again if there are fewer; None each
        without a data set."""
        drawn: list[Case | None] = []
        while pool and len(drawn) < times:
            drawn += lab.rng.sample(pool, len(pool))
        return drawn[:times] if pool else [None] * times

    # The choice.

    async def _halving(self, lab: EngineLab, field: list[CandidateTally], choosing: int) -> list[CandidateTally]:
        """Sequential halving: finalists, the best first, by what the search knew and `choosing` evaluations."""
        pool = self._task.split("val") or self._task.split("train")
        while len(field) > 2 and choosing // (_EACH * len(field)) == 0:
            field = field[:-1]  # fewer finalists, rather than one or two noisy looks at each
        cases = self._drawn(lab, pool, min(choosing, len(pool)) if self._exact and pool else choosing)
        rounds, dropped = max(1, (len(field) - 1).bit_length()), list[CandidateTally]()
        self._finalists = tuple(tally.id for tally in field)
        while len(field) > 1 and choosing >= len(field) and cases:
            each = max(1, choosing // rounds // len(field))
            look, cases = cases[:each], cases[each:]
            await lab.gather(*(lab.evaluate_afresh(lab.find(tally.id), look) for tally in field))
            choosing, rounds = choosing - each * len(field), max(1, rounds - 1)
            field = sorted(field, key=self._standing_in_choice)
            half = (len(field) + 1) // 2
            dropped, field = field[half:] + dropped, field[:half]
        return [*field, *dropped]

    def _standing_in_choice(self, tally: CandidateTally) -> float:
        """Minus the mean reward to be expected: of the search and the choice together, each by its precision."""
        belief, variance = self._record.belief(tally, self._noise)
        looks = self._looks.get(tally.id, [])
        if self._barred(tally.id):
            return math.inf
        if self._task.split("val"):  # what holds on the training cases may not hold on others
            variance += self._noise.between
        within = ((self._noise.within or 0.0) + self._noise.failing) / max(1, len(looks))
        if not looks:
            return -belief
        if variance + within == 0:  # both without noise: what other cases say is what was asked for
            train = len(self._task.split("train"))
            more = tally.count < train or (train and len({seen.case for seen in looks}) >= train)
            return -(fmean(map(self._worth, looks)) if more or self._task.split("val") else belief)
        weight = variance / (variance + within)
        return -(belief + weight * (fmean(map(self._worth, looks)) - belief))

    # The confirmation.

    async def _confirm(
        self,
        lab: EngineLab,
        field: Sequence[CandidateTally],
        cases: Sequence[Case | None],
        compared: Awaitable[None],
    ) -> None:
        """Evaluate the finalists one after the other on these cases, until one does not fail; the initial program is
        evaluated on them meanwhile, and is when `compared` ends."""
        left = self._kept - sum(map(len, self._looks.values()))
        left -= len(cases) if self._initial is not None else 0
        tried: list[CandidateTally] = []
        for tally, following in zip(field, [*field[1:], None]):
            self._chosen = tally
            if tally.id == self._initial:
                await compared
                fails = self._fails(tally, following, 2.0)
            else:
                made, fails = await self._evaluate(lab, tally, following, cases[: max(0, left)], left)
                left -= made
            tried.append(tally)
            if not fails:
                return
        alive = [tally for tally in tried if self._fresh.get(tally.id) and not self._barred(tally.id)]
        self._chosen = max(alive, key=lambda tally: fmean(map(self._worth, self._fresh[tally.id])), default=None)

    async def _evaluate(
        self,
        lab: EngineLab,
        tally: CandidateTally,
        following: CandidateTally | None,
        cases: Sequence[Case | None],
        left: int,
    ) -> tuple[int, bool]:
        """Evaluate in two parts, the second one only if the first is no failure; how many evaluations were made, and
        whether the next finalist is to be preferred.

        Where candidates fail at times, the first part is one more choice (who is left may have been lucky), and so no
        part of what is reported. A data set is kept whole."""
        first = math.ceil(len(cases) / _FIRST)
        checks = max(0, min(self._checks, left - len(cases)))
        rolls = [await lab.evaluate_afresh(lab.find(tally.id), cases[:first], checks)]
        fails = self._fails(tally, following, 1.0)
        if not fails:
            if self._flaky and not self._pool and len(cases) > first:
                self._looks.setdefault(tally.id, []).extend(self._fresh.pop(tally.id, ()))
            rolls.append(await lab.evaluate_afresh(lab.find(tally.id), cases[first:]))
            fails = self._fails(tally, following, 2.0)
        return sum(1 + seen.usage.evaluations for roll in rolls for seen in roll.observations), fails

    def _fails(self, tally: CandidateTally, following: CandidateTally | None, errors: float) -> bool:
        """Whether the next finalist is to be preferred: evaluations failed, and even so many standard errors above
        their mean, failures at the floor, it is better (where scores are exact: evaluations failed). Giving way to less
        would choose by luck: who is left would be who happened not to fail."""
        seen = self._fresh.get(tally.id, [])
        if all(one.ok for one in seen):
            return False
        seen = [*self._looks.get(tally.id, ()), *seen]
        if self._exact or following is None or not any(one.ok for one in seen) or self._barred(tally.id):
            return True
        values = [self._worth(one) for one in seen]
        error = stdev(values) / len(values) ** 0.5
        return fmean(values) + errors * error < -self._standing_in_choice(following)

    async def _compare(self, lab: EngineLab, cases: Sequence[Case | None]) -> None:
        """Evaluate the initial program on the cases of the winner, unless it was."""
        if self._initial is None or self._initial in self._fresh:
            return
        await lab.evaluate_afresh(lab.find(self._initial), cases[: int(min(lab.left("evaluations"), len(cases)))])

    async def _doubt(self, lab: EngineLab) -> None:
        """Scores that seemed exact and are not: the first one that differs ends that, and the rest measures it."""
        chosen = self._chosen
        if self._task.deterministic or not self._exact or self._pool or chosen is None:
            return
        if all(self._worth(seen) == chosen.mean for seen in self._fresh.get(chosen.id, ())):
            return
        self._exact = False
        names = list(dict.fromkeys([chosen.id, self._initial or chosen.id]))
        used = sum(len(seen) for each in (self._looks, self._fresh) for seen in each.values())
        more = [None] * ((self._kept - used) // len(names))
        await lab.gather(*(lab.evaluate_afresh(lab.find(name), more) for name in names))

    # With a verifier.

    async def _certify(self, lab: EngineLab, field: list[CandidateTally], cases: Sequence[Case | None]) -> None:
        """The finalist with the best certified value wins.

        Luck plays no part: a certified value belongs to an output that exists. Accepted finalists come before the
        others, which keep the order of the search.
        """
        both = self._kept - len(cases) if self._initial is not None else self._kept
        field = field[: both // len(cases)]
        self._finalists = self._named(field)
        best: tuple[int, float, int] = (2, 0.0, 0)

        async def look(place: int) -> None:
            nonlocal best
            roll = await lab.evaluate_afresh(lab.find(field[place].id), cases)
            seen = (*self._standing(roll), place)
            if not self._barred(field[place].id) and (seen < best or self._chosen is None):
                best, self._chosen = seen, field[place]

        # Side by side where time may end it, else one after another: perhaps the first will do.
        together = lab.workers if lab.left("seconds") < float("inf") else 1
        for first in range(0, len(field), together):
            value = certified(self._task, self._fresh.get(self._chosen.id, []) if self._chosen else [])
            if value is not None and self._task.objective.reward(value) >= field[first].mean:
                return  # those that follow were never seen to do better
            await lab.gather(*(look(place) for place in range(first, min(first + together, len(field)))))

    def _barred(self, name: str) -> bool:
        tally = self._record.tally(name)
        return tally is not None and tally.barred

    def _standing(self, roll: Rollout) -> tuple[int, float]:
        """Certified ones by value, then those that scored, then those that failed; lower is better."""
        value = certified(self._task, roll.observations)
        if value is not None:
            return 0, -self._task.objective.reward(value)
        return (1, 0.0) if all(o.ok for o in roll.observations) else (2, 0.0)


def soon(task: Task) -> int:
    """Number of evaluations of the final choice after a person stopped the search."""
    return max(_UNBUDGETED, 2 * once(task))


def certified(task: Task, observations: Sequence[Observation]) -> float | None:
    """The worst certified value; None if any of the observations has none."""
    values = [o.certified for o in observations if o.status is not Status.LOST]
    if not values or any(value is None for value in values):
        return None
    return min((value for value in values if value is not None), key=task.objective.reward)


class Goal:
    """The score at which the search ends: `level`, in the task's own direction. `reached`: one candidate is as good on
    all training cases, by the task's verifier if there is one, else by the mean of its observations."""

    def __init__(self, task: Task, level: float, record: Scoreboard) -> None:
        self._task, self._level, self._record = task, task.objective.reward(level), record
        self._looks: dict[str, float] = {}  # how many evaluations of a candidate were known after the last look at it
        self.reached = False

    def claimed(self, candidate: Candidate) -> bool:
        """Whether this candidate seems good enough to be checked. With noisy scores, one that failed the check is
        checked again once it has twice as many observations."""
        tally = self._record.tally(candidate.id)
        if self.reached or tally is None or tally.barred or tally.failures or not tally.count:
            return False
        seen = self._looks.get(candidate.id, 0)
        again = seen == 0 or (not self._exact and not self._task.deterministic and tally.count >= 2 * seen)
        return again and tally.mean >= self._level

    async def look(self, lab: Lab, candidate: Candidate) -> None:
        """Evaluate the candidate on all training cases, or on none if the budget has no room. Known results of a
        deterministic task without a verifier are reused."""
        if lab.lacks(evaluations=len(self._task.split("train")) or 1):
            return
        self._looks[candidate.id] = math.inf  # until it ends: its own evaluations are no reason for another
        rollout = await lab.evaluate(candidate, certify=True)
        tally = self._record.tally(candidate.id)
        if tally is not None:
            self._looks[candidate.id] = tally.count
            self.reached = self.reached or (not tally.barred and self._holds(rollout, tally.mean))

    @property
    def _exact(self) -> bool:
        return bool(self._task.evaluator.verifier)

    def _holds(self, rollout: Rollout, mean: float) -> bool:
        rewards = [reward for reward in rollout.rewards if reward is not None]
        if len(rewards) < len(rollout.observations) or not rewards:
            return False
        if self._exact:
            vouched = all(one.certified is not None for one in rollout.observations)
            return vouched and min(rewards) >= self._level
        return mean >= self._level and sum(rewards) / len(rewards) >= self._level


# What evaluations made after the choice say: a mean with a 95 % interval, and the difference of two of them.
#
# Where the score is a mean over the cases of a split, the cases evaluated are a sample of it without replacement. Its
# standard error is that of sampling in two stages (Cochran, Sampling Techniques, chapters 2 and 10): the spread of the
# cases weighs with the share of the split that was left out, the noise of single evaluations with the rest. So a split
# that was evaluated whole leaves the noise alone. Intervals use Student's t.

_PSEUDO = 4.0  # degrees of freedom that the spread seen in the whole run counts for: few equal scores are no certainty


class FreshMean(msgspec.Struct, frozen=True):
    """`mean` over `count` evaluations with standard error `se` and `margin`, half the width of the 95 % interval.

    Both are None where one evaluation cannot tell. `failures` of the `count` gave no score and count at the floor.
    `cases` different ones were evaluated (0 without a data set).
    """

    mean: float
    count: int
    se: float | None
    margin: float | None
    failures: int
    cases: int


class Spread(msgspec.Struct, frozen=True):
    """What is known of chance before: `noise` of the run, `of` how many cases there are (None: no data set, each
    evaluation is a sample), `exact` whether equal evaluations give equal scores. Where candidates that score also fail
    at times, `floor` is what a failure counts as, and `failures` how many of these evaluations did."""

    noise: RewardNoise
    of: int | None
    exact: bool
    failures: int = 0
    floor: float | None = None


def fresh_mean(values: Mapping[str, Sequence[float]], failures: int, spread: Spread) -> FreshMean:
    """The mean of `values` (by case; under "" without a data set), at least one; failures are among them."""
    count = sum(len(each) for each in values.values())
    units, repeats, sampled = _units(values, spread)
    error = _error(units, repeats, sampled, spread, 1.0)
    cases = 0 if spread.of is None else len(values)
    return FreshMean(fmean(units), count, error[0], error[1], failures, cases)


def difference(
    one: Mapping[str, Sequence[float]], other: Mapping[str, Sequence[float]], spread: Spread
) -> tuple[float, float | None]:
    """How much larger the mean of `one` is than that of `other`, and half the width of its 95 % interval.

    Judged on the cases that both were evaluated on; without a data set on two independent samples.
    """
    if spread.of is None or spread.of == 1:
        a, b = fresh_mean(one, 0, spread), fresh_mean(other, 0, spread)
        if a.se is None or b.se is None:
            return a.mean - b.mean, None
        degrees = _welch((a.se**2, a.count - 1 + _PSEUDO), (b.se**2, b.count - 1 + _PSEUDO))
        return a.mean - b.mean, t95(degrees) * math.hypot(a.se, b.se)
    shared = [case for case in one if case in other]
    if not shared:
        return fmean(map(fmean, one.values())) - fmean(map(fmean, other.values())), None
    pairs = {case: [x - y for x, y in zip(one[case], other[case])] for case in shared}
    units, repeats, sampled = _units(pairs, spread)
    return fmean(units), _error(units, repeats, sampled, spread, 2.0)[1]


@lru_cache(1024)
def t95(degrees: float) -> float:
    """The quantile of Student's t that leaves 2.5 % above it.

    With theta = atan(t / sqrt(n)) the mass between 0 and t is proportional to the integral of cos^(n-1) up to theta;
    Newton's method from the normal distribution's quantile, from below. (An import of scipy would cost every run more.)
    """
    normal = 1.959963984540054
    if degrees > 1e7:
        return normal
    n = max(1.0, degrees)
    scale = math.exp(math.lgamma((n + 1) / 2) - math.lgamma(n / 2)) / math.sqrt(math.pi)
    theta = math.atan(normal / math.sqrt(n))
    for _ in range(50):
        step = (0.475 / scale - _simpson(theta, n - 1)) / math.cos(theta) ** (n - 1)
        theta += step
        if abs(step) < 1e-14:
            break
    return math.sqrt(n) * math.tan(theta)


def _simpson(upper: float, power: float, pieces: int = 64) -> float:
    """The integral of cos^power from 0 to `upper`."""
    width = upper / pieces
    values = [math.cos(i * width) ** power for i in range(pieces + 1)]
    return width / 3 * (values[0] + 4 * sum(values[1:-1:2]) + 2 * sum(values[2:-1:2]) + values[-1])


def _units(values: Mapping[str, Sequence[float]], spread: Spread) -> tuple[list[float], list[Sequence[float]], bool]:
    """What was sampled: means of cases, or single evaluations where there is no choice of cases."""
    if spread.of is None or spread.of == 1:
        return [value for each in values.values() for value in each], [], False
    return [fmean(each) for each in values.values()], list(values.values()), True


def _error(
    units: Sequence[float], repeats: Sequence[Sequence[float]], sampled: bool, spread: Spread, times: float
) -> tuple[float | None, float | None]:
    """Standard error and margin of the mean of the units; noise weighs `times` as much (2: of a difference)."""
    many = len(units)
    if spread.exact and (not sampled or many == spread.of):
        return 0.0, 0.0
    if many < 2:
        return None, None
    between, degrees = _between(units, spread, times)
    share = many / spread.of if sampled and spread.of else 0.0
    noise, known = _noise(repeats, between, spread, times)
    parts = ((1 - share) * between / many, degrees), (share * noise / many, known or degrees)
    error = math.sqrt(parts[0][0] + parts[1][0])
    return error, t95(_welch(*parts)) * error


def _between(units: Sequence[float], spread: Spread, times: float) -> tuple[float, float]:
    """Variance of the units and its degrees of freedom: their own, or with the run's if that makes it larger."""
    many, centre = len(units), fmean(units)
    squares = sum((unit - centre) ** 2 for unit in units)
    prior = None if spread.noise.within is None else spread.noise.within + _failing(units, spread)
    if times > 1 and (squares or not centre):  # differences on shared cases know nothing of the spread of cases
        prior = times * spread.noise.squares / spread.noise.repeats if spread.noise.repeats else None
    own, pooled = squares / (many - 1), (squares + _PSEUDO * (prior or 0.0)) / (many - 1 + _PSEUDO)
    return (pooled, many - 1 + _PSEUDO) if pooled > own else (own, many - 1.0)


def _failing(units: Sequence[float], spread: Spread) -> float:
    """Variance that the chance to fail adds to one evaluation; none of a few that failed does not mean that none can
    (Agresti and Coull's two pseudo-observations, and `_PSEUDO` at the share of the whole run)."""
    if spread.floor is None:
        return 0.0
    share = (spread.failures + 1 + _PSEUDO * spread.noise.failed) / (len(units) + 2 + _PSEUDO)
    return share * (1 - share) * (max(units) - spread.floor) ** 2


def _noise(repeats: Sequence[Sequence[float]], between: float, spread: Spread, times: float) -> tuple[float, float]:
    """Variance of a case's mean by noise alone, and its degrees of freedom (0: no repeat has told it)."""
    if spread.exact or not repeats:
        return 0.0, 0.0
    each = sum(map(len, repeats)) / len(repeats)
    inside = sum(sum((value - fmean(case)) ** 2 for value in case) for case in repeats)
    degrees = spread.noise.repeats + sum(len(case) - 1 for case in repeats)
    squares = spread.noise.squares * times + inside
    if not squares:  # equal repeats, or none: as large as the spread of cases, until many have told otherwise
        return between / (2 * degrees + 1), float(degrees)
    return min(squares / degrees / each, between), float(degrees)


def _welch(*parts: tuple[float, float]) -> float:
    """Degrees of freedom of a sum of variances (Satterthwaite): (variance, its degrees of freedom) each."""
    below = sum(variance**2 / degrees for variance, degrees in parts if variance)
    return sum(variance for variance, _ in parts) ** 2 / below if below else math.inf
