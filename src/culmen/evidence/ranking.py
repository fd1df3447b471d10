"""Ranking: the one rule by which candidates are compared wherever the best is named.

A candidate's worth is its posterior mean reward, failures at the floor, by the value model of
relatives, cases and noise: one lucky evaluation never wins. Searches too long for the model are
ranked by means shrunk towards that of all candidates (empirical Bayes, normal-normal). A value that
a verifier certified replaces the estimate. Evaluations of the final choice are combined with the
posterior of the search, each by its precision.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from culmen.core.candidate import key_of
from culmen.core.result import NoiseReport
from culmen.core.spread import spread_of, sum_floats
from culmen.evidence.account import (
    EXACT_CANDIDATES,
    UNLIKELY,
    Account,
    Fact,
    PooledNoise,
    is_fine,
    rewards_by_case,
)
from culmen.evidence.failures import failure_chances, kernel_width
from culmen.evidence.noise import NoiseLaw
from culmen.evidence.pedigree.arrays import SMALLEST

Floats = NDArray[np.float64]

EQUAL = 1e-9
"""Share of the spread of worths below which two worths are equal."""

BELIEVED = 0.9
"""Probability of being better at which a candidate replaces the initial program."""

SURE = 2.0
"""Standard deviations by which a finalist must lead to be better beyond doubt."""


class Belief(NamedTuple):
    """Posterior mean of a candidate's reward, failures at the floor, with its deviation.

    `sd` is the standard deviation.
    """

    mean: float
    sd: float


class Beliefs(NamedTuple):
    """Posteriors of all candidates, arrays in the order of their first evaluation.

    `mean` and `sd` are of the reward of a candidate that does not fail, `fails` the chance that it
    does with standard deviation `fails_sd`, `worth` and `worth_sd` those of the reward with
    failures at the floor; -inf for candidates that never scored. `known` ones can be the best.
    """

    mean: Floats
    sd: Floats
    fails: Floats
    fails_sd: Floats
    worth: Floats
    worth_sd: Floats
    known: NDArray[np.bool_]
    refused: NDArray[np.bool_]


class Posteriors:
    """Posteriors of the candidates of an account in its present state."""

    def __init__(self, account: Account) -> None:
        self.account = account
        self._at: tuple[int, ...] = ()
        self._beliefs: Beliefs | None = None

    @property
    def beliefs(self) -> Beliefs:
        """Present posteriors of all candidates."""
        at = self.account.state
        if self._beliefs is None or self._at != at:
            self._beliefs, self._at = self._compute_beliefs(), at
        return self._beliefs

    def belief_of(self, candidate: str) -> Belief | None:
        """Posterior of one candidate; None if it never scored."""
        tally = self.account.tally(candidate)
        if tally is None or not tally.count:
            return None
        beliefs = self.beliefs
        return Belief(float(beliefs.worth[tally.order]), float(beliefs.worth_sd[tally.order]))

    def worths_of(self, names: list[str]) -> Floats:
        """Posterior mean rewards of these candidates, failures at the floor.

        -inf without a score.
        """
        numbers = [self.account.numbers.get(key_of(name), -1) for name in names]
        return np.append(self.beliefs.worth, -math.inf)[numbers]

    def _compute_beliefs(self) -> Beliefs:
        account, rows = self.account, self.account.rows
        scored = rows["count"] > 0
        mean, sd, parents = self._reward_estimates()
        certified = rows["certified"]
        vouched = scored & ~np.isnan(certified)
        mean = np.where(vouched, certified, mean)
        sd = np.where(vouched, 0.0, sd)
        failed = account.counted_failures().astype(float)
        counts, early = rows["count"].astype(float), rows["early"].astype(float)
        chances = failure_chances(counts, failed, early, np.nan_to_num(mean), parents)
        fails = np.where(vouched, 0.0, chances.mean)
        fails_sd = np.where(vouched, 0.0, chances.sd)
        worth, worth_sd = with_failures(mean, sd, fails, fails_sd, account.floor)
        worth = np.where(scored, worth, -math.inf)
        known = scored & ~rows["barred"]
        return Beliefs(mean, sd, fails, fails_sd, worth, worth_sd, known, rows["refused"] & scored)

    def _reward_estimates(self) -> tuple[Floats, Floats, NDArray[np.int64]]:
        """Posterior mean and standard deviation of every reward without failures, and parents."""
        account, rows = self.account, self.account.rows
        model = account.value_model()
        if model is not None and len(model) == len(rows) and not model.is_noiseless:
            mean, sd = model.sound_rewards()
            absurd = (model.scored_counts == 0) & (rows["count"] > 0)  # by the model: failures
            mean, sd = np.where(absurd, rows["mean"], mean), np.where(absurd, 0.0, sd)
            return mean, sd, model.parents
        noise = account.pooled_noise()
        counts, means = rows["count"].astype(float), rows["mean"].copy()
        parents = np.full(len(rows), -1) if model is None else model.parents
        if not noise.within or noise.between <= 0:
            return means, np.zeros(len(rows)), parents
        share = noise.between / (noise.between + noise.within / np.maximum(counts, 1.0))
        sd = np.sqrt(1.0 / (1.0 / noise.between + counts / noise.within))
        return noise.centre + share * (means - noise.centre), sd, parents


class Ranking(Posteriors):
    """Compares the candidates of an account in its present state."""

    def __init__(self, account: Account) -> None:
        super().__init__(account)
        self._laws: tuple[tuple[int, ...], tuple[NoiseLaw, NoiseLaw]] | None = None
        self._report: tuple[tuple[int, ...], NoiseReport] | None = None

    def best_ids(self, most: int) -> list[str]:
        """Ids of the best `most` candidates, best first.

        Candidates with an output that a verifier refused come last; fewer failures, then age break
        ties, and the shorter text those of the best. Candidates rejected for their integrity are
        left out.
        """
        return [self.account.id_at(number) for number in self.best_numbers(most).tolist()]

    def best_numbers(self, most: int) -> NDArray[np.int64]:
        """Numbers of the best `most` candidates in the order of first evaluations, best first."""
        beliefs, rows = self.beliefs, self.account.rows
        numbers = np.flatnonzero(beliefs.known)
        if not len(numbers):
            return numbers
        worth = self._rounded_worths(beliefs.worth[numbers])
        refused = beliefs.refused[numbers]
        candidates = _possible_best(worth, refused, most)
        numbers, worth, refused = numbers[candidates], worth[candidates], refused[candidates]
        failures = self.account.counted_failures()[numbers]
        order = _sort_by(refused, -worth, failures)
        first = order[0]
        equal = (
            (worth == worth[first]) & (failures == failures[first]) & (refused == refused[first])
        )
        if equal.sum() > 1:
            # equal candidates among which the shortest is looked for
            equals = np.flatnonzero(equal)[:1000]
            self.account.measure_sizes(numbers[equals].tolist())
            sizes = np.full(len(numbers), np.iinfo(np.int64).max)
            sizes[equals] = rows["size"][numbers[equals]]
            order = _sort_by(refused, -worth, failures, sizes)
        return numbers[order[:most]]

    def _rounded_worths(self, worth: Floats) -> Floats:
        """Worths in steps of `EQUAL` of their spread, so that rounding errors break no tie."""
        spread = float(np.ptp(worth)) or float(np.abs(worth).max()) or 1.0
        return np.round(worth / (EQUAL * spread)) if spread > SMALLEST else worth

    def best_initial(self) -> str | None:
        """The best initial program by the search; None if there is none, or it was rejected."""
        names = self.account.initial_ids
        tallies = [tally for name in names if (tally := self.account.tally(name)) is not None]
        scored = [tally for tally in tallies if tally.count and not tally.barred]
        if scored:
            worth = self.beliefs.worth
            return min(scored, key=lambda each: (each.refused, -worth[each.order], each.order)).id
        return None if not names or any(tally.barred for tally in tallies) else names[0]

    def leader(self) -> str | None:
        """The candidate that the search would report now; None without a score.

        The initial program stays the leader until another one is better with probability
        `BELIEVED`, by more than the drift of the run, since it was measured first.
        """
        best, initial = self.best_ids(1), self.best_initial()
        if not best or initial is None or best[0] == initial or self.belief_of(initial) is None:
            return best[0] if best else None
        return best[0] if self.is_better(best[0], initial) else initial

    def is_better(self, one: str, other: str) -> bool:
        """True if `one` is better than `other` with probability `BELIEVED` by the search."""
        tallies = [self.account.tally(name) for name in (one, other)]
        refused = [tally is not None and tally.refused for tally in tallies]
        if refused[0] != refused[1]:
            return refused[1]
        a, b = self.belief_of(one), self.belief_of(other)
        if a is None or b is None:
            return a is not None
        gain = a.mean - b.mean - self.account.largest_drift
        return probability_above(gain, math.hypot(a.sd, b.sd)) >= BELIEVED

    def noise_at(self, *levels: float, without: str | None = None) -> PooledNoise:
        """The noise at the expected reward, of these, where it is largest.

        It is learnt within reach of the leader and of the initial program; for a candidate
        `without` its own fresh evaluations, of its levels and of the initial program.
        """
        if without is None:
            laws = self._present_laws
        else:
            laws = self.account.noise_laws([*levels, *self._initial_levels], without)
        found = [self.account.noise_at(level, laws) for level in levels]
        return max(found, key=_variance_of, default=self.account.pooled_noise())

    def _levels_of(self, *names: str | None) -> list[float]:
        """The rewards that are expected of these candidates, of those that scored."""
        found = [self.belief_of(name) for name in names if name is not None]
        return [belief.mean for belief in found if belief is not None]

    @property
    def _initial_levels(self) -> list[float]:
        """The rewards of the initial program, expected and seen.

        The latter is that of its own repeats, which, unlike others', never follow a lucky score.
        """
        initial = self.best_initial()
        tally = None if initial is None else self.account.tally(initial)
        return self._levels_of(initial) + ([tally.mean] if tally and tally.count else [])

    @property
    def _present_laws(self) -> tuple[NoiseLaw, NoiseLaw]:
        at = self.account.state
        if self._laws is None or self._laws[0] != at:
            levels = [*self._levels_of(self.leader()), *self._initial_levels]
            self._laws = at, self.account.noise_laws(levels)
        return self._laws[1]

    @property
    def noise_report(self) -> NoiseReport:
        """Estimated noise of the evaluator, at the level of the leader."""
        at = self.account.state
        if self._report is None or self._report[0] != at:
            self._report = at, self.noise_report_at(*self._levels_of(self.leader()))
        return self._report[1]

    def noise_report_at(self, *levels: float) -> NoiseReport:
        """Estimated noise of the evaluator at the level of these, where it is largest."""
        return noise_report(self.account, _variance_of(self.noise_at(*levels)))

    def similarity_width(self) -> float:
        """Distance up to which rewards are similar.

        Chances to fail are learnt from neighbours within it.
        """
        means = self.beliefs.mean[self.beliefs.known]
        return kernel_width(means) if len(means) else 0.0


def _variance_of(noise: PooledNoise) -> float:
    return noise.squares / noise.repeats if noise.repeats else 0.0


def _sort_by(*keys: Floats | NDArray[np.bool_] | NDArray[np.int64]) -> NDArray[np.int64]:
    """Places in ascending order of these keys, the first one first; equal ones stay in order."""
    varied = [key for key in keys if key[0] != key.min() or key[0] != key.max()]
    return np.lexsort(varied[::-1]) if varied else np.arange(len(keys[0]))


def _possible_best(worth: Floats, refused: NDArray[np.bool_], most: int) -> NDArray[np.int64]:
    """Places, in order, among which the best `most` are: all of them unless `most` is few."""
    sound = np.flatnonzero(~refused)
    if not 0 < most < len(sound) // 4:
        return np.arange(len(worth))
    return sound[worth[sound] >= np.partition(worth[sound], -most)[-most]]


def with_failures(
    mean: Floats, sd: Floats, fails: Floats, fails_sd: Floats, floor: float
) -> tuple[Floats, Floats]:
    """Mean and standard deviation of rewards that are `floor` with chance `fails`."""
    fall = np.maximum(mean - floor, 0.0)
    return mean - fails * fall, np.hypot((1.0 - fails) * sd, fails_sd * fall)


def probability_above(mean: float, sd: float) -> float:
    """P(X > 0) for X ~ N(mean, sd²)."""
    if sd <= 0 or not math.isfinite(sd):
        return float(mean > 0) if sd <= 0 else 0.5
    return NormalDist().cdf(mean / sd)


class Finalist(NamedTuple):
    """A candidate in the final choice: worth by search and all looks, and its deviation.

    `reward` is its worth if it did not fail, `looks` the number of looks, `failed` of which gave no
    score.
    """

    id: str
    worth: float
    sd: float
    reward: float
    looks: int
    failed: int


class Race:
    """Finalists compared by the search's posteriors and their evaluations since.

    Looks update each finalist's reward by precision, and the chance to fail of the finalist and of
    its neighbourhood: a kind of candidate whose members fail loses to another kind, though each
    member was seen once.
    """

    def __init__(self, ranking: Ranking, names: list[str], with_fresh: bool = True) -> None:
        self._ranking, self._names = ranking, names
        account = ranking.account
        self._account = account
        self._looks = {name: self._finalist_looks(name, with_fresh) for name in names}
        self._numbers = {
            name: account.numbers[key] for name in names if (key := key_of(name)) in account.numbers
        }

    def _finalist_looks(self, name: str, with_fresh: bool) -> list[Fact]:
        fresh = self._account.fresh.get(name, ()) if with_fresh else ()
        return self._account.without_external_failures([*self._account.looks.get(name, ()), *fresh])

    def standings(self) -> dict[str, Finalist]:
        """Every finalist's present standing, best first."""
        beliefs, account = self._ranking.beliefs, self._account
        noise, floor = account.pooled_noise(), account.floor
        rates = self._failure_rates(beliefs)
        standings: list[Finalist] = []
        for name in self._names:
            number = self._numbers.get(name)
            if number is None:
                continue
            seen = self._looks[name]
            mean, sd = self._updated_reward(beliefs, number, seen, noise.between)
            worth, spread = with_failures(
                np.array([mean]),
                np.array([sd]),
                rates[0][number : number + 1],
                rates[1][number : number + 1],
                floor,
            )
            lost = sum(fact.reward is None for fact in seen)
            standings.append(
                Finalist(name, float(worth[0]), float(spread[0]), mean, len(seen), lost)
            )
        return {
            finalist.id: finalist
            for finalist in sorted(standings, key=lambda finalist: -finalist.worth)
        }

    def _failure_rates(self, beliefs: Beliefs) -> tuple[Floats, Floats]:
        """Chances to fail, looks included, and their standard deviations."""
        account = self._account
        scored = account.rows["count"].astype(float)
        failed = account.counted_failures().astype(float)
        for name, number in self._numbers.items():
            lost = sum(fact.reward is None for fact in self._looks[name])
            failed[number] += lost
            scored[number] += len(self._looks[name]) - lost
        model = account.value_model()
        parents = np.full(len(scored), -1) if model is None else model.parents
        early = account.rows["early"].astype(float)
        chances = failure_chances(scored, failed, early, np.nan_to_num(beliefs.mean), parents)
        return chances.mean, chances.sd

    def _updated_reward(
        self, beliefs: Beliefs, number: int, seen: list[Fact], between: float
    ) -> tuple[float, float]:
        """Reward of one finalist without failures, and its standard deviation.

        The search's posterior and the looks are combined by precision.
        """
        mean, variance = float(beliefs.mean[number]), float(beliefs.sd[number]) ** 2
        rewards = [fact.reward for fact in seen if fact.reward is not None]
        if not rewards:
            return mean, math.sqrt(variance)
        if self._account.task.split("val") or self._account.task.split("test"):
            variance += between  # a result on the training cases may not hold on others
        within = self._ranking.noise_at(mean).within or 0.0
        average, error = sum_floats(rewards) / len(rewards), within / len(rewards)
        if variance + error <= 0:  # both exact: the looks were on the cases that were asked for
            return average, 0.0
        weight = variance / (variance + error)
        return mean + weight * (average - mean), math.sqrt(variance * (1.0 - weight))


def possible_winners(ordered: Sequence[Finalist], most: int, width: float) -> list[Finalist]:
    """The leader and its possible betters, the strongest of each kind first.

    Rewards of a kind differ by `width` at most. The failures of one kind are no evidence about
    another.
    """
    leader, *others = ordered
    others.sort(key=lambda finalist: -(finalist.worth + SURE * finalist.sd))
    kinds, alike = [leader], list[Finalist]()
    for finalist in others:
        is_possible = finalist.worth + SURE * finalist.sd > leader.worth
        is_new = is_possible and all(abs(finalist.reward - known.reward) > width for known in kinds)
        (kinds if is_new else alike).append(finalist)
    return [*kinds, *alike][:most]


# Exactness: whether equal evaluations give equal scores, by all repeats of a run.


def noise_report(account: Account, variance: float) -> NoiseReport:
    """Estimated evaluator noise, from all repeats of the search and of the final choice.

    `variance` is that of one evaluation at the level that is reported.
    """
    repeats, differs = account.repeated.repeats, variance > 0.0
    for kept in (account.looks, account.fresh):
        for case in (each for seen in kept.values() for each in rewards_by_case(seen)):
            repeats += len(case) - 1
            differs |= spread_of(case)[1] > 0.0
    sd = math.sqrt(variance) if differs else 0.0
    draws = account.repeated.has_drawn
    known = account.is_exact is True or _compared_agree(account)
    exact = False if differs or draws or account.is_flaky else known or None
    rate = 1.0 - UNLIKELY ** (1.0 / repeats) if repeats and not (exact or differs) else None
    one_draw = account.is_on_one_draw and not differs
    return NoiseReport(exact, sd, repeats, None if one_draw else rate, draws, one_draw)


def _compared_agree(account: Account) -> bool:
    """True if the candidates of the final choice gave equal scores throughout.

    Those of the search are included: repeats of two different scores, one of them fine, or
    two of each of `EXACT_CANDIDATES` if unrelated scores of the run agree too rarely for
    luck and have more than a few values. A score that others have, too, counts here: it is the
    candidate's own that is reported. Not for cases, nor with one draw for all.
    """
    if account.task.cases or account.repeated.has_differed or account.task.is_evaluated_once:
        return False
    found = [_equal_repeats(account, name) for name in {*account.looks, *account.fresh}]
    equal = {score for score, many in found if many}
    if len(equal) >= EXACT_CANDIDATES and any(map(is_fine, equal)):
        return True
    agreeing = [many for _, many in found if many >= 2]
    is_unlikely = account.repeated.agreement ** sum(map(int, agreeing)) < UNLIKELY
    return len(agreeing) >= EXACT_CANDIDATES and is_unlikely and not account.has_few_values


def _equal_repeats(account: Account, name: str) -> tuple[float, int]:
    """Score and repeats of a candidate if all its evaluations gave it; 0 if any differs."""
    later = [fact.reward for kept in (account.looks, account.fresh) for fact in kept.get(name, ())]
    tally = account.tally(name)
    before = 0 if tally is None else tally.count
    known = tally.mean if tally is not None and before else next(iter(later), None)
    steady = tally is None or not (tally.squares or tally.failures)
    if known is None or not steady or any(each != known for each in later):
        return 0.0, 0
    return known, before + len(later) - 1
