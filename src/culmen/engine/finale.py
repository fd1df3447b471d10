"""The end of a search: the final choice, and stopping at a confirmed score.

The finalists are evaluated afresh, from a reserve. One part of it picks the winner together with
the evaluations of the search: by sequential halving on the cases of a data set, otherwise by a race
in which the leader and the strongest rival of each kind are evaluated in turn. The other part,
spent on the winner and the initial program, gives the scores that are reported: it took no part in
the choice among finalists, so that puts no selection bias (winner's curse) into them. It does
decide whether the winner replaces the initial program. All are evaluated on the same cases, and a
failed evaluation counts as the floor. `culmen.evidence` draws the conclusions.

Whatever is compared is evaluated in rounds, each candidate once in each and in random order: scores
that change in the course of a run, as timings on a warming machine do, then favour nobody.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Coroutine, Sequence
from statistics import fmean
from typing import NamedTuple

from culmen.core.candidate import Candidate
from culmen.core.evaluation import Case, Observation, Rollout
from culmen.core.event import NEIGHBOUR_GAIN, TrustChecks
from culmen.core.task import Task
from culmen.engine.lab import EngineLab
from culmen.engine.ledger import (
    CHECKS,
    LEAST_PUSHES,
    MEMBERS,
    PUSHES,
    RIVALS,
    TWICE,
    held_out_case_count,
    may_be_pushed,
    may_rest_on_tolerance,
)
from culmen.engine.reserve import CHOOSING
from culmen.evidence.account import CHOICE, FINAL
from culmen.evidence.evidence import Evidence
from culmen.evidence.front import dispersed_rows
from culmen.evidence.ranking import SURE, Finalist, Race, possible_winners

_FINALISTS = 8  # candidates that sequential halving begins with
_FIELD = 60  # candidates that a race may look at
UNBUDGETED = 24
"""Evaluations of the final choice, at least, if no budget limits evaluations."""

_RACING = 0.6  # share of the reserve that picks the winner if candidates fail at times
_VALIDATING = 0.4  # the same if val cases pick it, which the search never saw
_EACH = 3  # evaluations of each finalist in a round of halving
_PARTS = 4  # of a confirmation, between which a winner that failed may give way
_PAIRS = 2  # rounds after which repeats may have shown that scores are exact
_FALLS = 0.25  # standard deviations by which a rival must be ahead of a winner that failed


Round = list[tuple[str, Case | None]]
"""Candidates that are evaluated side by side, each on a case."""


class _Plan(NamedTuple):
    """Evaluations that choose, and cases on which winner and initial program are evaluated."""

    choosing: int
    each: int


class Finale:
    """Runs the final choice of a search on its lab."""

    def __init__(
        self,
        task: Task,
        evidence: Evidence,
        evaluations: int,
        to_tell: int = 0,
        seconds: float | None = None,
    ) -> None:
        """Plan at most `evaluations`, of which `to_tell` were added to tell the gain.

        `seconds` is the time of the run at which it ends.
        """
        self._task, self._evidence, self._account = task, evidence, evidence.account
        self._exact = self._account.is_settled
        self._kept, self._seconds = evaluations, math.inf if seconds is None else seconds
        self._to_tell, self._rounds = min(to_tell, evaluations), 0
        self._initial = evidence.ranking.best_initial() if self._kept > 1 else None
        self._checks = CHECKS if may_rest_on_tolerance(task) and self._kept > 2 + CHECKS else 0
        spare = self._kept - self._checks
        self._pushes = push_count(spare) if self._exact and may_be_pushed(task) else 0
        self._pool = task.split(evidence.verdict.split) if evidence.verdict.split else ()
        is_fresh = task.evaluator.verifier or task.objective.metrics
        self.purpose = FINAL if is_fresh else CHOICE
        self._field = self._pick_field()

    def _pick_field(self) -> list[str]:
        """The candidates that the final choice begins with, best first."""
        return self._evidence.ranking.best_ids(_FINALISTS)

    async def run(self, lab: EngineLab) -> None:
        """Pick the winner, then confirm it beside the initial program."""
        if not self._field or self._kept < 1:
            return
        plan = self._plan_evaluations()
        cases = self._draw_cases(lab, self._pool, plan.each)
        if self._task.evaluator.verifier:
            await self._certify_finalists(lab, self._field, cases)
            await self._evaluate_initial_program(lab, cases)
            return
        field = self._field
        if plan.choosing and self._task.cases:
            field = await self._halve_finalists(lab, field, plan.choosing)
        elif plan.choosing:
            field = await self._race_finalists(lab, plan.choosing)
        self.purpose = FINAL
        if plan.choosing and not self._pool:  # what the race did not need is measured longer
            cases = [None] * max(plan.each, self._left // self._arms)
        await self._confirm_finalists(lab, field, cases)
        await self._spend_rest(lab)

    def count_evaluation(self, candidate: Candidate, observation: Observation) -> None:
        """Count one evaluation of the final choice."""
        self._evidence.observe(candidate, observation, self.purpose)

    # -- finalists, cases and numbers of evaluations

    def _plan_evaluations(self) -> _Plan:
        """Whole splits if they fit, otherwise as many cases for both as remain."""
        kept, pool_size = self._kept - self._checks - self._pushes, len(self._pool)
        both = 1 + (self._initial is not None)
        is_open = self._is_open and len(self._field) > 1
        choosing = self._choosing_evaluations(kept) if is_open else 0
        if pool_size and kept >= both * pool_size:
            rounds = 1 if self._exact else max(1, (kept - choosing) // (both * pool_size))
            return _Plan(kept - both * pool_size * rounds if is_open else 0, pool_size * rounds)
        if self._exact and not pool_size:
            return _Plan(0, 1)
        share = max(1, (kept - choosing) // self._arms)
        return _Plan(choosing, min(share, pool_size) if pool_size else share)

    @property
    def _arms(self) -> int:
        """Candidates that are confirmed: a second winner may be needed if candidates fail."""
        second = self._account.is_flaky and not self._pool
        return 1 + (self._initial is not None) + second

    @property
    def _left(self) -> int:
        """Evaluations that are left."""
        account = self._account
        used = sum(len(seen) for kept in (account.looks, account.fresh) for seen in kept.values())
        return self._kept - self._checks - self._pushes - used

    def _choosing_evaluations(self, kept: int) -> int:
        """Evaluations that pick the winner."""
        usual = max(0, kept - self._to_tell)
        return int(self._choosing_share * usual + CHOOSING * (kept - usual))

    @property
    def _choosing_share(self) -> float:
        if self._task.split("val"):
            return _VALIDATING
        return _RACING if self._account.is_flaky else CHOOSING

    @property
    def _is_open(self) -> bool:
        """True if more evaluations could show which finalist is the best."""
        if not self._exact or self._task.split("val"):
            return True
        train = len(self._task.split("train"))
        tallies = map(self._account.tally, self._field)
        return any(tally is not None and tally.count < train for tally in tallies)

    def _draw_cases(self, lab: EngineLab, pool: Sequence[Case], times: int) -> list[Case | None]:
        """`times` cases at random without replacement; None each without a data set.

        If there are fewer, all of them are drawn again and again.
        """
        drawn: list[Case | None] = []
        while pool and len(drawn) < times:
            drawn += lab.rng.sample(pool, len(pool))
        return drawn[:times] if pool else [None] * times

    # -- the choice

    async def _race_finalists(self, lab: EngineLab, choosing: int) -> list[str]:
        """Finalists, best first, after a race that spends at most `choosing` evaluations.

        The leader and its strongest rivals are evaluated until the leader is clear.
        """
        names = self._evidence.ranking.best_ids(_FIELD)
        ordered = list(Race(self._evidence.ranking, names).standings().values())
        until = lab.elapsed + self._choosing_share * (self._seconds - lab.elapsed)
        while choosing >= 2 and len(ordered) > 1 and not _is_clear(ordered) and lab.elapsed < until:
            if self._is_shown_exact:
                break
            limit = min(choosing, max(2, min(lab.workers, 4)))
            picked = possible_winners(ordered, limit, self._kind_width)
            candidates = [lab.find(each.id) for each in picked]
            await lab.gather(*(lab.evaluate_afresh(each, [None]) for each in candidates))
            choosing -= len(picked)
            ordered = list(Race(self._evidence.ranking, names).standings().values())
        return [each.id for each in ordered if not self._is_barred(each.id)]

    @property
    def _kind_width(self) -> float:
        """Difference of rewards between kinds of candidates, if candidates fail at times."""
        return self._evidence.ranking.similarity_width() if self._account.is_flaky else math.inf

    async def _halve_finalists(self, lab: EngineLab, field: list[str], choosing: int) -> list[str]:
        """Finalists, best first, after sequential halving.

        They are ordered by the evaluations of the search and `choosing` further ones.
        """
        pool = self._task.split("val") or self._task.split("train")
        while len(field) > 2 and choosing // (_EACH * len(field)) == 0:
            field = field[:-1]  # fewer finalists, rather than one or two noisy looks at each
        repeat = not (self._exact and pool)
        cases = self._draw_cases(lab, pool, choosing if repeat else min(choosing, len(pool)))
        rounds, dropped = max(1, (len(field) - 1).bit_length()), list[str]()
        while len(field) > 1 and choosing >= len(field) and cases:
            share = max(1, choosing // rounds // len(field))
            look, cases = cases[:share], cases[share:]
            await self._evaluate_in_rounds(lab, field, look)
            choosing, rounds = choosing - share * len(field), max(1, rounds - 1)
            ordered = Race(self._evidence.ranking, field).standings()
            field = [name for name in ordered if not self._is_barred(name)]
            half = (len(field) + 1) // 2
            dropped, field = field[half:] + dropped, field[:half]
        return [*field, *dropped]

    # -- the confirmation

    @property
    def _may_be_exact(self) -> bool:
        """True if repeats may yet show that scores are exact."""
        noise = self._evidence.ranking.noise_report
        is_open = not self._exact and self._task.deterministic is not False
        return is_open and noise.exact is not False

    @property
    def _is_shown_exact(self) -> bool:
        """True if repeats of the final choice have shown that scores are exact."""
        return self._may_be_exact and self._evidence.ranking.noise_report.exact is True

    async def _confirm_finalists(
        self, lab: EngineLab, field: Sequence[str], cases: Sequence[Case | None]
    ) -> None:
        """Evaluate the finalists on these cases, the best first, until one does not fail.

        Each has the initial program beside it.
        """
        left = self._kept - sum(map(len, self._account.looks.values()))
        waiting = list(field)
        if waiting[0] == self._initial and not (self._exact or self._account.is_flaky):
            waiting[:2] = waiting[1::-1]  # noise may have put it first: its best rival is measured
        while waiting:
            name = waiting.pop(0)
            left -= await self._confirm_candidate(lab, name, waiting, cases, left)
            if not self._is_overtaken(name, waiting):
                return
            order = Race(self._evidence.ranking, waiting).standings()
            waiting = [each for each in order if not self._is_barred(each)] if left > 0 else []

    async def _confirm_candidate(
        self,
        lab: EngineLab,
        name: str,
        rivals: Sequence[str],
        cases: Sequence[Case | None],
        left: int,
    ) -> int:
        """Number of evaluations made in parts, each one only if those before did not fail.

        Once repeats have shown that scores are exact, more of them teach nothing.
        """
        rounds = self._plan_rounds(name, cases, left)
        left -= sum(map(len, rounds))
        checks: TrustChecks | None = self._trust_checks(lab, name, left)
        used = begun = 0
        while begun < len(rounds):
            if begun and (self._is_shown_exact or self._is_overtaken(name, rivals)):
                break
            part = rounds[begun : begun + self._part_size(name, begun, len(rounds))]
            begun += len(part)
            used += await self._evaluate_part(lab, part, name, checks)
            checks = None
        return used

    def _trust_checks(self, lab: EngineLab, name: str, left: int) -> TrustChecks:
        """Tests of a candidate that is to be confirmed, as far as `left` evaluations last."""
        checks = max(0, min(self._checks, left))
        room = max(0, min(RIVALS, left - checks)) if checks else 0
        rivals = tuple(map(lab.find, self._evidence.tolerance_rivals(room, name) if room else ()))
        pushes = max(0, min(self._pushes, left - checks - len(rivals)))
        close = self._evidence.neighbours_below(name, NEIGHBOUR_GAIN) if pushes else ()
        return TrustChecks(checks, rivals, pushes, tuple(map(lab.find, close)))

    def _part_size(self, name: str, begun: int, rounds: int) -> int:
        """Rounds of the next part: a quarter, or a single one if candidates fail at times."""
        if self._may_be_exact and not self._pool:
            return _PAIRS
        if name == self._initial:  # it gives way to nothing
            return rounds
        is_careful = begun and self._account.is_flaky and not self._pool
        return 1 if is_careful else math.ceil(rounds / _PARTS)

    def _plan_rounds(self, name: str, cases: Sequence[Case | None], left: int) -> list[Round]:
        """A round for each case, as far as `left` evaluations last.

        The initial program takes part, unless it has been evaluated on that case, or is exact.
        """
        initial, rounds = self._initial, list[Round]()
        seen = self._account.fresh.get(initial, ()) if initial is not None else ()
        done = Counter(fact.case for fact in seen)
        for case in cases:
            key = case.id if case else ""
            is_known = done[key] > 0 and (bool(self._pool) or self._exact or name == initial)
            done[key] -= is_known
            names = [name] if initial in (None, name) or is_known else [name, initial]
            names = [] if name == initial and is_known else names[:left]
            left -= len(names)
            rounds += [[(each, case) for each in names]] if names else []
        return rounds

    async def _evaluate_part(
        self,
        lab: EngineLab,
        rounds: Sequence[Round],
        checked: str = "",
        checks: TrustChecks | None = None,
    ) -> int:
        """Number of evaluations made in these rounds, each but the first in random order.

        The first one of `checked` is tested by `checks`.
        """
        looks: list[Coroutine[object, None, Rollout]] = []
        for each in rounds:
            is_first, self._rounds = not self._rounds, self._rounds + 1
            for name, case in each if is_first else lab.rng.sample(each, len(each)):
                more = checks if name == checked else None
                checked = "" if name == checked else checked
                looks.append(lab.evaluate_afresh(lab.find(name), [case], more))
        rolls = await lab.gather(*looks)
        return sum(int(1 + seen.usage.evaluations) for roll in rolls for seen in roll.observations)

    async def _evaluate_in_rounds(
        self, lab: EngineLab, names: Sequence[str], cases: Sequence[Case | None]
    ) -> None:
        """Evaluate all of these candidates on each case, one case after the other."""
        await self._evaluate_part(lab, [[(name, case) for name in names] for case in cases])

    def _is_overtaken(self, name: str, rivals: Sequence[str]) -> bool:
        """True if a rival is preferable: evaluations failed, and the posterior favours the rival.

        A smaller threshold would favour candidates that failed less often by chance.
        """
        seen = self._evidence.verdict.fresh_facts(name)
        if self._is_barred(name):
            return True
        if all(fact.reward is not None for fact in seen):
            return False
        if self._exact or not any(fact.reward is not None for fact in seen):
            return True
        if not rivals:
            return False
        standings = Race(self._evidence.ranking, [name, *rivals]).standings()
        own = standings[name]
        best = next((each for each in standings.values() if each.id != name), own)
        return best.worth - own.worth > _FALLS * math.hypot(best.sd, own.sd)

    async def _evaluate_initial_program(self, lab: EngineLab, cases: Sequence[Case | None]) -> None:
        """Evaluate the initial program on the cases of the winner, unless that is done."""
        if self._initial is None or (self._initial in self._account.fresh):
            return
        evaluations_left = int(min(lab.left("evaluations"), len(cases)))
        await lab.evaluate_afresh(lab.find(self._initial), cases[:evaluations_left])

    async def _spend_rest(self, lab: EngineLab) -> None:
        """Spend the rest of the reserve on winner and initial program without a data set.

        The rest was kept for a second winner, or to measure scores that seemed exact until a fresh
        one differed.
        """
        chosen = self._evidence.verdict.chosen_candidate()
        if self._task.is_evaluated_once or self._pool or chosen is None:
            return
        if not self._account.is_flaky and (not self._exact or self._is_as_expected(chosen)):
            return
        names = list(dict.fromkeys([chosen, self._initial or chosen]))
        more = [None] * int(min(self._left, lab.left("evaluations")) // len(names))
        await self._evaluate_in_rounds(lab, names, more)

    def _is_as_expected(self, name: str) -> bool:
        """True if the fresh scores of a candidate equal those of the search."""
        tally = self._account.tally(name)
        values = [v for each in self._evidence.verdict.fresh_rewards(name).values() for v in each]
        return tally is not None and all(value == tally.mean for value in values)

    # -- with a verifier

    async def _certify_finalists(
        self, lab: EngineLab, field: list[str], cases: Sequence[Case | None]
    ) -> None:
        """Evaluate finalists until the next ones never scored better in the search.

        Luck plays no part: a certified value belongs to an output that exists. Accepted finalists
        come before the others, which keep the order of the search.
        """
        both = self._kept - len(cases) if self._initial is not None else self._kept
        field = field[: both // len(cases)]
        verdict = self._evidence.verdict
        # Side by side if time may end it, otherwise one by one: the first may suffice.
        together = lab.workers if lab.left("seconds") < float("inf") else 1
        for first in range(0, len(field), together):
            tally = self._account.tally(field[first])
            sound = (name for name in field[:first] if not verdict.is_barred(name))
            done = [verdict.certified_standing(name) for name in sound]
            best = min((standing for standing in done if standing[0] == 0), default=None)
            if best is not None and tally is not None and -best[1] >= tally.mean:
                return
            names = field[first : first + together]
            await lab.gather(*(lab.evaluate_afresh(lab.find(name), cases) for name in names))

    def _is_barred(self, name: str) -> bool:
        return self._evidence.verdict.is_barred(name)


def _is_clear(ordered: Sequence[Finalist]) -> bool:
    """True if the first is ahead of all others beyond doubt, or no posterior has doubt."""
    leader = ordered[0]
    gaps = [(leader.worth - each.worth, math.hypot(leader.sd, each.sd)) for each in ordered[1:]]
    return all(gap > SURE * doubt or doubt == 0 for gap, doubt in gaps)


def push_count(left: float) -> int:
    """Evaluations that push a leader's output, if this many are left; 0 if they are too few."""
    pushes = int(min(PUSHES, max(0.0, left - 3)))  # the winner and the initial program, and one
    return pushes if pushes >= LEAST_PUSHES else 0


def evaluations_after_stop(task: Task) -> int:
    """Number of evaluations of the final choice after a person stopped the search."""
    return max(UNBUDGETED, 2 * held_out_case_count(task))


class StopScore:
    """The score at which the search ends: `level`, in the task's own direction.

    `reached`: one candidate is as good on all training cases, by the task's verifier if there is
    one, otherwise by the mean of its observations.
    """

    def __init__(self, task: Task, level: float, evidence: Evidence) -> None:
        self._task, self._level = task, task.objective.reward(level)
        self._evidence, self._account = evidence, evidence.account
        self._looks: dict[str, float] = {}  # evaluations of a candidate known after its last look
        self.reached = False

    def is_claimed(self, candidate: Candidate) -> bool:
        """True if this candidate seems good enough to be checked.

        With noisy scores, one that failed the check is checked again once it has twice as many
        observations.
        """
        tally = self._account.tally(candidate.id)
        if self.reached or tally is None or tally.barred or tally.failures or not tally.count:
            return False
        seen = self._looks.get(candidate.id, 0)
        noisy = not self._has_verifier and not self._task.is_evaluated_once
        return (seen == 0 or (noisy and tally.count >= 2 * seen)) and tally.mean >= self._level

    async def check_candidate(self, lab: EngineLab, candidate: Candidate) -> None:
        """Evaluate the candidate on all training cases, or on none if the budget has no room.

        Known results of a task that is evaluated once are reused if it has no verifier. Then its
        output is pushed: a candidate with a grave sign reaches nothing.
        """
        if lab.lacks(evaluations=len(self._task.split("train")) or 1):
            return
        self._looks[candidate.id] = math.inf  # its own evaluations are no reason for another look
        rollout = await lab.evaluate(candidate, certify=True)
        tally = self._account.tally(candidate.id)
        if tally is not None:
            self._looks[candidate.id] = tally.count
            is_met = not tally.barred and self._meets_level(rollout, tally.mean)
            if is_met and not self.reached and await self._is_sound(lab, candidate, rollout):
                self.reached = True

    async def _is_sound(self, lab: EngineLab, candidate: Candidate, rollout: Rollout) -> bool:
        """False if an evaluation has a grave sign, or pushes of the output find one."""
        seen = list(rollout.observations)
        pushes = push_count(lab.left("evaluations"))
        if pushes and self._account.is_settled and may_be_pushed(self._task):
            names = self._evidence.neighbours_below(candidate.id, NEIGHBOUR_GAIN)
            checks = TrustChecks(pushes=pushes, neighbours=tuple(map(lab.find, names)))
            case = next(iter(self._task.split("train")), None)
            seen += (await lab.evaluate_afresh(candidate, [case], checks)).observations
        return all(one.grave_sign is None for one in seen)

    @property
    def _has_verifier(self) -> bool:
        return bool(self._task.evaluator.verifier)

    def _meets_level(self, rollout: Rollout, mean: float) -> bool:
        rewards = [reward for reward in rollout.rewards if reward is not None]
        if len(rewards) < len(rollout.observations) or not rewards:
            return False
        if self._has_verifier:
            vouched = all(one.certified is not None for one in rollout.observations)
            return vouched and min(rewards) >= self._level
        return mean >= self._level and fmean(rewards) >= self._level


# -- several objectives


class FrontFinale(Finale):
    """The final choice with several objectives.

    Every member of the front is evaluated again, on the same cases.
    """

    def _pick_field(self) -> list[str]:
        """Members of the front, far from one another."""
        model = self._evidence.front
        assert model is not None, "a task with several objectives"
        rows = model.front_rows()
        points, _ = model.posterior_rewards()
        looks_each = 1 if self._exact and not self._pool else TWICE
        limit = max(1, min(MEMBERS, self._kept // looks_each - (self._initial is not None)))
        kept = [rows[place] for place in dispersed_rows(points[rows], limit)] if rows else []
        return [model.ids[row] for row in kept if self._account.tally(model.ids[row])]

    async def run(self, lab: EngineLab) -> None:
        """Evaluate every member, and the initial program, on the same cases."""
        if not self._field or self._kept < 1:
            return
        first = [self._initial] if self._initial else []
        names = list(dict.fromkeys([*self._field, *first]))
        looks_each, pool_size = self._kept // len(names), len(self._pool)
        if self._exact:
            looks_each = min(looks_each, pool_size or 1)
        elif pool_size and looks_each > pool_size:
            looks_each -= looks_each % pool_size
        cases = self._draw_cases(lab, self._pool, looks_each)
        await self._evaluate_in_rounds(lab, names, cases)
