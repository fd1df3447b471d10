"""Reserve of the final choice: evaluations enough to tell the run's gain from noise.

Two programs whose rewards differ by g are told apart with probability 0.9 at the 5 % level
(two-sided) if each is evaluated n times:

    n = 2 s² ((z.975 + z.9) / g)²          s² variance of one evaluation

Neither s nor g is known before the search, so the reserve is planned again while it goes on.
"""

from __future__ import annotations

import math
from statistics import NormalDist, fmean
from typing import NamedTuple

import msgspec

from culmen.core.result import Z
from culmen.core.task import Task
from culmen.core.usage import Budget
from culmen.engine.ledger import (
    CHECKS,
    LARGEST_SHARE,
    final_share,
    held_out_case_count,
    may_rest_on_tolerance,
)
from culmen.evidence.evidence import Evidence
from culmen.evidence.ranking import Race

FACTOR, KEPT = (Z + NormalDist().inv_cdf(power) for power in (0.8, 0.9))
"""Standard errors of a difference that a gain must have to be found with this probability.

The second is for reserves: most runs are made once.
"""

CHOOSING = 0.25
"""Share of the reserve that picks the winner if no other is needed."""

BEGINS = 0.5
"""Share of the run after which the reserve is planned by its gain; before, none is kept by it."""

# standard deviations of the expected gain by which less is planned for, as the search's best was
# lucky: with a half, seven strategies told a gain of 1.2 deviations of one evaluation in 111 of 140
# runs of bench_truth.py, with one in 122
_CAUTION = 1.0
# evaluations of each program that a t interval of pairs takes more than a normal one: z.975² / 2
_UNKNOWN_NOISE = 2.0
_NEVER_WITHHELD = 300  # evaluations of a final choice that are left: as a run of 750 may keep
_GROWTH = 1.05  # factor by which the evaluations grow between two plans
# share of the evaluations that hold KEPT² if they are to hold z.975²: an even chance to tell
_EVEN = (Z / KEPT) ** 2


class Reserve(NamedTuple):
    """Evaluations kept for the final choice of a run of `of` evaluations.

    `least` of them are a share of the run; the others are for telling a gain of size `gain` where
    one evaluation deviates by `noise`. Gain 0: none is planned for, or not yet; then noise 0 if the
    scores drift.
    """

    evaluations: int
    least: int
    of: float
    gain: float = 0.0
    noise: float = 0.0


def evaluations_to_tell(gain: float, variance: float, factor: float = FACTOR) -> float:
    """Evaluations of each of two programs that tell a gain where one deviates by `variance`."""
    return 2.0 * variance * (factor / gain) ** 2


class ReservePlanner:
    """Plans the reserve of a search: a share of the run, or more to tell its gain."""

    def __init__(self, budget: Budget, task: Task, evidence: Evidence) -> None:
        self._budget, self._task, self._evidence = budget, task, evidence
        self._basis: tuple[object, ...] = ()
        self._at = 0.0  # evaluations at the last plan by the gain
        share = final_share(budget, task)
        self.plan = Reserve(share, share, budget.evaluations or math.inf)

    def update(self, made: int, expected: float) -> Reserve:
        """The reserve after `made` evaluations of a run that will have `expected` of them."""
        account = self._evidence.account
        basis = account.is_exact is True, account.is_flaky, _rounded(expected)
        is_late = made >= max(BEGINS * expected, _GROWTH * self._at)
        if basis == self._basis and not is_late:
            return self.plan
        self._basis = basis
        least = self._least_share(expected)
        of_gain = self.plan if self._at else None
        if is_late and self._tells_gains:
            self._at = float(made)
            of_gain = self._reserve_for_gain(least, expected)
        self.plan = Reserve(least, least, expected)
        if of_gain is not None and of_gain.evaluations > least:
            self.plan = of_gain._replace(least=least, of=expected)
        return self.plan

    def most_at_end(self, limit: int) -> int:
        """Evaluations of the final choice after a search that ended before its `limit`, at most.

        As many as telling its gain needs, or `LARGEST_SHARE` where that is not known; a few hundred
        are never withheld, since they also choose among candidates that fail at times.
        """
        least = self._least_share(limit)
        plan = self._reserve_for_gain(least, limit) if self._tells_gains else None
        if plan is not None and plan.gain > 0:
            return max(_NEVER_WITHHELD, plan.evaluations)
        return max(_NEVER_WITHHELD, least, math.floor(LARGEST_SHARE * limit))

    def _least_share(self, expected: float) -> int:
        account = self._evidence.account
        known = account.is_exact is True, account.is_flaky
        limit = None if math.isinf(expected) else int(expected)
        whole = msgspec.structs.replace(self._budget, evaluations=limit)
        return final_share(whole, self._task, *known)

    @property
    def _tells_gains(self) -> bool:
        """True if more evaluations of the same programs could show a gain."""
        task, account = self._task, self._evidence.account
        is_single = not (task.objective.metrics or task.evaluator.verifier)
        return is_single and self._budget.final is None and not account.is_settled

    def _reserve_for_gain(self, least: int, expected: float) -> Reserve | None:
        """Reserve for telling the gain expected now, at most `LARGEST_SHARE` of the run.

        If that has less than an even chance, or the search's own gain may be drift, half of the
        largest: a gain that is found later can then be told, and the search goes on to find it.
        None while the noise is unknown.
        """
        most = math.floor(LARGEST_SHARE * expected) if math.isfinite(expected) else 0
        unplanned = Reserve(max(least, most // 2), least, expected)
        if self._evidence.account.drift.line is not None:
            return unplanned
        gain, variance = self._expected_gain()
        if variance <= 0 or most <= least:
            return None
        cases, arms = held_out_case_count(self._task), 2 + self._evidence.account.is_flaky
        if 2 * cases > most:
            return None  # a sample of the cases: their own spread decides
        sd = math.sqrt(variance)
        if gain <= 0:
            return unplanned._replace(noise=sd)
        each = evaluations_to_tell(gain, variance, KEPT) + _UNKNOWN_NOISE
        each = cases * math.ceil(each / cases)
        needed = math.ceil(arms * each / (1 - CHOOSING))
        needed += CHECKS * may_rest_on_tolerance(self._task)
        if most < _EVEN * needed:
            return unplanned._replace(noise=sd)
        return Reserve(max(least, min(most, needed)), least, expected, gain, sd)

    def _expected_gain(self) -> tuple[float, float]:
        """Gain to expect by the search, with caution, and the variance of one evaluation.

        The variance is the mean of the two programs'; 0 while it is unknown.
        """
        ranking, verdict = self._evidence.ranking, self._evidence.verdict
        initial = ranking.best_initial()
        best = next((name for name in ranking.best_ids(2) if name != initial), None)
        if initial is None or best is None or ranking.belief_of(initial) is None:
            return 0.0, 0.0
        standings = Race(ranking, [best, initial], with_fresh=False).standings()
        first, other = standings[best], standings[initial]
        gain = first.worth - other.worth - _CAUTION * math.hypot(first.sd, other.sd)
        noises = [
            verdict.noise_prior(name, 0).noise for name in (best, initial)
        ]  # failures: in the worth
        known = [noise.squares / noise.repeats for noise in noises if noise.repeats]
        return gain, fmean(known) if known else 0.0


def _rounded(expected: float) -> int:
    """A number that changes when the expected evaluations have changed by a twentieth."""
    return round(20 * math.log(expected)) if 1 <= expected < math.inf else 0


_CONTROLS = 0.03  # share of the evaluations that are of the initial program, beside the leader
_FIRST_CONTROL = 25  # evaluations before the first pair


class LeaderControl:
    """Evaluates the initial program and the best other one side by side, now and then.

    The search measures the initial program first, and seldom again: a leader is admitted only to
    be compared with a few early scores, and a drift of the scores would flatter it unseen.
    """

    def __init__(self, evidence: Evidence) -> None:
        self._evidence, self._pairs = evidence, 0

    def next_pair(self) -> tuple[str, ...]:
        """Ids of the initial program and the best other one if a pair is due, else none.

        So the noise and a drift are learnt under any strategy, also one that repeats nothing.
        """
        account, ranking = self._evidence.account, self._evidence.ranking
        due = self._pairs < _CONTROLS * account.evaluations - _CONTROLS * _FIRST_CONTROL
        if not due or account.evaluations < _FIRST_CONTROL:
            return ()
        task = account.task
        if account.is_settled or task.cases or task.objective.metrics or task.evaluator.verifier:
            return ()
        initial = ranking.best_initial()
        best = next((name for name in ranking.best_ids(2) if name != initial), None)
        if initial is None or best is None:
            return ()
        self._pairs += 1
        return initial, best
