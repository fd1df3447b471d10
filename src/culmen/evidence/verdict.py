"""Verdict: from the account of a run to its result, at any time of the run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

import msgspec
import numpy as np

from culmen.core.candidate import key_of
from culmen.core.evaluation import meets_trust_level, weakest_trust
from culmen.core.json import JsonObject
from culmen.core.result import COVERAGE, NoiseReport, RunResult, Score, Z, coverage_of
from culmen.core.spread import spread_of, sum_floats
from culmen.core.task import NO_TOLERANCE, Task
from culmen.evidence.account import (
    EXACT_REPEATS,
    Account,
    Fact,
    PooledNoise,
    Tally,
    facts_after_search,
)
from culmen.evidence.failures import unseen_failures
from culmen.evidence.intervals import (
    Chance,
    Error,
    FreshMean,
    bounded_variance,
    chance_margin,
    mean_difference,
    mean_of,
    t_quantile_95,
)
from culmen.evidence.noise import pair_differences
from culmen.evidence.ranking import BELIEVED, Race, Ranking, probability_above

FEW_CASES = 4
"""Number of cases from which a single deciding one is reported."""

HELD_OUT = ("test", "val", "train")
"""Splits by preference for the evaluations that are reported."""


def reported_split(task: Task) -> str:
    """The split whose cases confirm the final choice; "" without a data set."""
    return next((split for split in HELD_OUT if task.split(split)), "")


class GainEstimate(NamedTuple):
    """Gain of one finalist over the initial program, as a reward, and its error.

    `probability` is that of being better by all evidence, `alone` by the fresh evaluations (1 if
    their error is unknown, or 0).
    """

    gain: float | None
    error: Error
    probability: float
    alone: float = 1.0


SHOWN = 0.95
"""Probability of being better by fresh evaluations alone at which a candidate replaces the initial
program: the search's own estimate is of the luckiest of many."""


class FreshComparison:
    """Evaluations made after the choice: means, and gains of one candidate over another."""

    def __init__(self, ranking: Ranking, split: str | None = None) -> None:
        """Compare on `split`, by default the one that confirms the final choice."""
        self.ranking, self.account = ranking, ranking.account
        self.task = self.account.task
        self.split = reported_split(self.task) if split is None else split
        self.of = len(self.task.split(self.split)) if self.split else 0

    def fresh_facts(self, name: str) -> list[Fact]:
        """Evaluations of a candidate made after the choice, its own failures included."""
        return self.account.without_external_failures(self.account.fresh.get(name, ()))

    def fresh_rewards(self, name: str) -> dict[str, list[float]]:
        """Rewards of the fresh evaluations by case, failures at the floor."""
        by_case: dict[str, list[float]] = {}
        for fact in self.fresh_facts(name):
            by_case.setdefault(fact.case, []).append(self.worth_of(fact))
        return by_case

    def worth_of(self, fact: Fact) -> float:
        """Reward of one evaluation, a failure at the floor."""
        return self.account.floor if fact.reward is None else fact.reward

    def noise_prior(self, name: str, failures: int) -> Chance:
        """Prior knowledge of the noise for a candidate's fresh evaluations, `failures` failed."""
        account, noise = self.account, self._noise_at_level(name)
        if account.drift.line is not None:  # repeats at other times deviate by that as well
            noise = noise._replace(repeats=0, squares=0.0)
        flaky = bool(failures or noise.failed or self._is_flaky)
        report = self.ranking.noise_report
        exact = False if flaky else report.one_draw or report.exact
        top = account.top if flaky else None
        floor = account.floor if flaky else None
        span, few = account.score_span, account.has_few_values
        drawn = account.repeated.has_drawn
        is_spared = flaky and not failures and self.of <= 1
        unseen = _unseen_failures(self.ranking, name) if is_spared else None
        return Chance(noise, self.of or None, exact, failures, floor, top, span, few, drawn, unseen)

    def _noise_at_level(self, name: str) -> PooledNoise:
        """The run's noise at the level of one candidate.

        A low fresh mean may go with a low spread, so the level is the fresh mean or that of the
        search, where the noise is larger.
        """
        levels, belief = _rewards_of(self.fresh_facts(name)), self.ranking.belief_of(name)
        known = [fmean(levels)] if levels else []
        known += [] if belief is None else [belief.mean]
        return self.ranking.noise_at(*known, without=name)

    @property
    def _is_flaky(self) -> bool:
        """True if candidates that score fail at times, by no fault of the evaluator."""
        fresh = map(self.fresh_facts, self.account.fresh)
        failed = (fact.reward is None and not fact.barred for seen in fresh for fact in seen)
        return any(failed) or bool(self.account.is_flaky and self.account.pooled_noise().failed)

    def fresh_mean(self, name: str) -> FreshMean | None:
        """Mean and intervals of a candidate's fresh evaluations; None without any."""
        values = self.fresh_rewards(name)
        if not values:
            return None
        failures = sum(fact.reward is None for fact in self.fresh_facts(name))
        mean = mean_of(values, failures, self.noise_prior(name, failures))
        if mean.se == 0 and self.ranking.noise_report.one_draw:
            new = mean.new_margin or None
            return msgspec.structs.replace(mean, se=None, margin=None, new_margin=new)
        return mean

    def estimate_gain(self, name: str, other: str) -> GainEstimate:
        """Comparison of two candidates, the second usually the initial program, by all evidence."""
        prior, spread = self._prior_gain(name, other)
        rewards, other_rewards = self.fresh_rewards(name), self.fresh_rewards(other)
        if not rewards or not other_rewards:
            prior -= self.account.largest_drift
            return GainEstimate(None, Error(None, None), probability_above(prior, spread))
        lost = {
            each: sum(fact.reward is None for fact in self.fresh_facts(each))
            for each in (name, other)
        }
        chance, other_chance = (self.noise_prior(each, lost[each]) for each in (name, other))
        gain, error = mean_difference(rewards, other_rewards, chance, other_chance)
        if error.se and not (any(lost.values()) or self._is_flaky or self.account.has_few_values):
            gain, error = self._paired_gain(name, other, (chance, other_chance), (gain, error))
        alone = probability_above(gain, error.margin / Z) if error.margin else 1.0
        if self.account.drift.line is not None:  # the search saw one before the other
            prior, spread = 0.0, math.inf
        # One evaluation of each shows no error: it is trusted as much as the search.
        doubt = spread if error.doubt is None else error.doubt
        mean, sd = combined_estimate(prior, spread, gain, doubt)
        better = probability_above(mean, sd) if gain > 0 else 0.0
        return GainEstimate(gain, error, better, alone)

    def _paired_gain(
        self,
        name: str,
        other: str,
        chances: tuple[Chance, Chance],
        unpaired: tuple[float, Error],
    ) -> tuple[float, Error]:
        """Gain without a data set, with pairs of evaluations side by side as the unit.

        `unpaired` is returned if there are too few pairs, or all differ alike.
        """
        first, second = (self.fresh_facts(each) for each in (name, other))
        pairs = pair_differences(first, second, lambda fact: fact.order, self.worth_of)
        centre, own, degrees = spread_of(pairs) if pairs else (0.0, 0.0, 0.0)
        if self.of > 1 or not own:
            return unpaired
        noises = [chance.noise for chance in chances]
        known = min(noise.repeats for noise in noises)
        run = sum_floats(noise.squares / noise.repeats for noise in noises) if known else 0.0
        variance, degrees = bounded_variance(own, degrees, run, float(known))
        error = math.sqrt(variance / len(pairs))
        margin = t_quantile_95(degrees) * error
        return centre, unpaired[1]._replace(se=error, margin=margin, doubt=error)

    def _prior_gain(self, name: str, other: str) -> tuple[float, float]:
        """Expected gain by the search and the choice, and its standard deviation."""
        standings = Race(self.ranking, [name, other], with_fresh=False).standings()
        if name not in standings or other not in standings:
            return 0.0, math.inf
        standing, other_standing = standings[name], standings[other]
        variance = standing.sd**2 + other_standing.sd**2
        if self.split in ("test", "val"):  # a gain on training cases may not hold on others
            variance += 2.0 * self.account.pooled_noise().between
        return standing.worth - other_standing.worth, math.sqrt(variance)

    def score_of(self, name: str) -> Score | None:
        """A candidate's score: fresh if it was measured, otherwise the search's estimate."""
        fresh = self.fresh_mean(name)
        if fresh is not None:
            value = self.task.objective.score(fresh.mean)
            return Score(
                name, value, fresh.count, fresh.se, fresh.margin, fresh.failures, fresh=True
            )
        tally, belief = self.account.tally(name), self.ranking.belief_of(name)
        if tally is None or belief is None:
            return None
        return expected_score(self.ranking, name, tally.count, belief.mean, belief.sd)

    def _is_measured(self, name: str) -> bool:
        return bool(self.fresh_facts(name)) and not self.is_barred(name)

    def is_barred(self, name: str) -> bool:
        """True if the candidate was rejected for its integrity."""
        tally = self.account.tally(name)
        return tally is not None and tally.barred


def _unseen_failures(ranking: Ranking, name: str) -> float | None:
    """`unseen_failures` of a candidate, by all evaluations of those with similar means.

    None if it never scored. The failures of one kind are no evidence about another.
    """
    account = ranking.account
    tally, rows = account.tally(name), account.rows
    if tally is None or not tally.count:
        return None
    works = rows["count"] > 0
    fails = np.where(works, account.counted_failures() - rows["early"].astype(float), 0.0)
    fails, succeeds = np.maximum(fails, 0.0), np.where(works, rows["count"] - 1.0, 0.0)
    for fact in account.without_external_failures(facts_after_search(account)):
        number = account.numbers.get(key_of(fact.candidate), -1)
        if number >= 0 and works[number]:
            (fails if fact.reward is None else succeeds)[number] += 1.0
    width = 2.0 * ranking.similarity_width()
    kind = np.flatnonzero(works & (np.abs(rows["mean"] - tally.mean) <= width))
    place, is_chosen = int(np.searchsorted(kind, tally.order)), name != ranking.best_initial()
    return unseen_failures(fails[kind], succeeds[kind], place, is_chosen)


def steadily_above(one: Tally | None, other: Tally | None) -> bool:
    """True if each always had the same score, in a few evaluations, and the first the better."""
    if one is None or other is None or min(one.count, other.count) < EXACT_REPEATS:
        return False
    has_differed = one.squares or other.squares or one.failures or other.failures
    return not has_differed and one.mean > other.mean


class Verdict(FreshComparison):
    """The best candidate of a run by its account."""

    def chosen_candidate(self) -> str | None:
        """The best candidate by all evidence, the initial program apart."""
        confirmed = [name for name in self.account.fresh if self._is_measured(name)]
        if self.task.evaluator.verifier and confirmed:
            initial = self.ranking.best_initial()
            return min(confirmed, key=lambda name: (self.certified_standing(name), name == initial))
        looked = confirmed or [name for name in self.account.looks if not self.is_barred(name)]
        initial = self.ranking.best_initial()
        others = [name for name in looked if name != initial and self.account.tally(name)]
        if (
            confirmed
            and others
            and all(fact.reward is not None for fact in self.fresh_facts(others[-1]))
        ):
            return others[-1]  # those that were confirmed before it fell
        if others:
            return next(iter(Race(self.ranking, others).standings()), None)
        best = self.ranking.best_ids(2)
        return next((name for name in best if name != initial), best[0] if best else None)

    def certified_standing(self, name: str) -> tuple[int, float]:
        """Sort key of a confirmed candidate if there is a verifier; lower is better.

        Certified ones by value, then those that scored, then those that failed.
        """
        seen = self.fresh_facts(name)
        value = worst_certified(seen)
        if value is not None:
            return 0, -value
        return (1, 0.0) if seen and all(fact.reward is not None for fact in seen) else (2, 0.0)

    def keeps_initial(self, name: str) -> bool:
        """True if the initial program stays the best beside this candidate."""
        initial = self.ranking.best_initial()
        if initial is None or initial == name or self.is_barred(initial):
            return False
        if self.task.evaluator.verifier and self.fresh_rewards(name):
            if not self.fresh_rewards(initial):
                return False
            first, other = self.certified_standing(initial), self.certified_standing(name)
            return first <= other if first[0] == 0 else first[0] < other[0]
        tally = self.account.tally(initial)
        if not self.fresh_rewards(initial) and (tally is None or not tally.count):
            return False  # it never scored
        if coverage_of(failed_by_culprit(self.account), self.account.made) < COVERAGE:
            return True
        found = self.estimate_gain(name, initial)
        repeated, is_known = self.account.repeated, self.account.is_settled
        may_differ = self.of <= 1 or bool(repeated.squares)
        is_steady = steadily_above(self.account.tally(name), tally)
        by_luck = repeated.may_agree_by_luck and not is_known and not is_steady
        may_differ = may_differ or by_luck
        return found.probability < BELIEVED or (may_differ and found.alone < SHOWN)

    def result(self) -> RunResult | None:
        """The result of the run at present; None without a score."""
        chosen = self.chosen_candidate()
        if chosen is None:
            return None
        initial = self.ranking.best_initial()
        kept = initial is not None and chosen != initial and self.keeps_initial(chosen)
        best = initial if kept and initial is not None else chosen
        found = self._result_for(best)
        if initial is None:
            return found
        if initial == chosen:
            return replace_fields(
                found, kept_initial=True, initial=self._initial_score(initial, found)
            )
        comparison = self.estimate_gain(chosen, initial)
        gain, margin = comparison.gain, comparison.error.margin
        challenger = self.score_of(chosen) if kept else None
        first = self._initial_score(initial, found)
        if gain is None and first is not None and found.confirmed and not kept:
            gain, margin = found.score_difference(found.score, first.score), 0.0  # both are exact
        return replace_fields(
            found,
            initial=first,
            gain=None if gain is None else self.task.objective.score(gain),
            gain_margin=margin or None if found.noise.one_draw else margin,
            kept_initial=kept,
            challenger=challenger,
            **_deciding_case(self, chosen, initial),
        )

    def _initial_score(self, initial: str, reported: RunResult) -> Score | None:
        """The initial program's score of the same kind as the reported one: fresh beside fresh.

        An exact score is fresh at any time.
        """
        score = self.score_of(initial)
        is_exact = reported.noise.exact and score is not None and score.margin == 0
        is_like = score is not None and (score.fresh or is_exact or not reported.confirmed)
        return score if is_like else None

    def _result_for(self, name: str) -> RunResult:
        """The result for this candidate."""
        account, task = self.account, self.task
        score, fresh, tally = self.score_of(name), self.fresh_mean(name), account.tally(name)
        search_score = self._search_score(name)
        value = clip_to_bounds(task, tally.mean) if tally else 0.0
        return RunResult(
            id=name,
            score=score.score if score else task.objective.score(value),
            count=score.count if score else 0,
            se=score.se if score else None,
            margin=score.margin if score else None,
            new_margin=None if fresh is None else fresh.new_margin,
            failures=score.failures if score else 0,
            split="" if fresh is None else self.split,
            cases=0 if fresh is None else fresh.cases,
            of=0 if fresh is None else self.of,
            search_score=None if search_score is None else search_score.score,
            search_count=tally.count if tally else 0,
            finalists=tuple(dict.fromkeys([*account.looks, *account.fresh])),
            noise=self._noise_beside(name),
            failed=failed_by_culprit(account),
            evaluations=account.made + account.further,
            drift=account.drift_of_scores,
            direction=task.objective.direction,
            bounds=task.objective.bounds,
            **_trust_in(self, name),
            **equal_scores(account, self.ranking.best_initial()),
        )

    def _noise_beside(self, name: str) -> NoiseReport:
        """The run's noise, at the level of the candidate's fresh evaluations if there are any.

        The search's leader, at whose level it is otherwise, may have led by luck.
        """
        rewards, ranking = _rewards_of(self.fresh_facts(name)), self.ranking
        return ranking.noise_report_at(fmean(rewards)) if rewards else ranking.noise_report

    def _search_score(self, name: str) -> Score | None:
        """The score that the search's own evaluations let one expect."""
        tally, belief = self.account.tally(name), self.ranking.belief_of(name)
        if belief is None or tally is None:
            return None
        return expected_score(self.ranking, name, tally.count, belief.mean, belief.sd)


def _deciding_case(verdict: Verdict, name: str, initial: str) -> JsonObject:
    """The case with the largest share of the changes by case, given enough cases."""
    one, two = verdict.fresh_rewards(name), verdict.fresh_rewards(initial)
    changes = {case: abs(fmean(one[case]) - fmean(two[case])) for case in one if case in two}
    total = sum_floats(changes.values())
    if len(changes) < FEW_CASES or not total:
        return {}
    case = max(changes, key=changes.__getitem__)
    return {"deciding_case": case, "deciding_share": changes[case] / total}


def _trust_in(verdict: Verdict, name: str) -> JsonObject:
    """Fields of the result on how far its score can be trusted."""
    seen, tally = verdict.fresh_facts(name), verdict.account.tally(name)
    scored = [fact for fact in seen if fact.reward is not None]
    passed = [fact.strict for fact in scored]
    strict = None if all(each is None for each in passed) else all(passed)
    vouched = worst_certified(seen) if len(scored) == len(seen) else None
    if not seen and tally is not None:
        vouched, strict = None if tally.refused else tally.certified, tally.strict
    confirmed = bool(scored)
    level = weakest_trust(fact.trust for fact in scored)
    trust = level if confirmed else (tally.trust if tally else "")
    trust = "verified" if trust == "certified" and vouched is None else trust
    tolerance = _tolerance_finding(verdict, name, confirmed)
    sound = strict is not False and not tolerance.startswith(("used", "doubtful"))
    return {
        "confirmed": confirmed,
        "verified": confirmed and sound and meets_trust_level(trust, "verified"),
        "certified": None if vouched is None else verdict.task.objective.score(vouched),
        "strict": strict,
        "trust": trust,
        "tolerance": tolerance,
    }


def _tolerance_finding(verdict: Verdict, name: str, confirmed: bool) -> str:
    """Findings of the test if the score depends on a tolerance of the evaluator."""
    looked = (*verdict.account.looks.get(name, ()), *verdict.account.fresh.get(name, ()))
    unseen = NO_TOLERANCE if confirmed and not verdict.task.evaluator.tolerances else ""
    return next((fact.tolerance for fact in looked if fact.tolerance), unseen)


def replace_fields(result: RunResult, **changes: object) -> RunResult:
    """The result with some fields changed."""
    return msgspec.structs.replace(result, **changes)


def combined_estimate(mean: float, sd: float, other: float, error: float) -> tuple[float, float]:
    """Mean and standard deviation of two independent estimates of one number, by precision."""
    if not math.isfinite(sd):
        return other, error
    if error <= 0:
        return other, 0.0
    if sd <= 0:
        return other, error  # certainty of the search does not outweigh a measurement
    weight = sd**2 / (sd**2 + error**2)
    return mean + weight * (other - mean), math.sqrt(weight) * error


def _rewards_of(seen: Sequence[Fact]) -> list[float]:
    return [fact.reward for fact in seen if fact.reward is not None]


def worst_certified(seen: Sequence[Fact]) -> float | None:
    """The worst certified reward; None if any of these has none."""
    values = [fact.vouched for fact in seen]
    if not values or any(value is None for value in values):
        return None
    return min(value for value in values if value is not None)


def clip_to_bounds(task: Task, reward: float) -> float:
    """A reward inside the bounds of honest scores."""
    low, high = task.objective.reward_range
    return min(max(low, reward), high)


def expected_score(ranking: Ranking, name: str, count: int, mean: float, sd: float) -> Score:
    """The search's estimate of a candidate's score, from the posterior of its reward.

    Its interval is no wider than that of its own evaluations by the noise that was seen, unless the
    luck that made it lead may have been larger; without any noise seen, it has none. Rollouts that
    pass or fail by chance have at least that of as many trials.
    """
    account = ranking.account
    exact = _is_shown_exactly(account)
    tally = account.tally(name)
    is_certain = (exact and account.is_exact) or (tally is not None and tally.certified is not None)
    margin, error = (0.0, 0.0) if is_certain else (None, None)
    noise = ranking.noise_report
    if not is_certain and (noise.sd or account.is_flaky or account.task.cases) and not exact:
        error = sd if account.is_exact is not None and sd else None
        margin = None if error is None else Z * error
        own = ranking.noise_at(mean) if not account.is_flaky and not account.task.cases else None
        if margin is not None and own is not None and own.repeats and own.squares:
            alone = math.sqrt(own.squares / own.repeats / max(1, count))
            luck = _luck_of(ranking, name, mean)
            error = max(min(sd, alone), luck)
            margin = max(min(margin, t_quantile_95(own.repeats) * alone), Z * luck)
    if margin is not None and (least := chance_margin(account, mean, count)) > margin:
        margin, error = least, least / Z
    return Score(name, _shown_value(account, mean), count, error, margin, expected=not exact)


def value_of(verdict: FreshComparison, name: str) -> tuple[float, int] | None:
    """A candidate's score without its interval, and the number of evaluations behind it."""
    fresh, account = verdict.fresh_mean(name), verdict.account
    if fresh is not None:
        return account.task.objective.score(fresh.mean), fresh.count
    tally, belief = account.tally(name), verdict.ranking.belief_of(name)
    if tally is None or belief is None:
        return None
    return _shown_value(account, belief.mean), tally.count


def _is_shown_exactly(account: Account) -> bool:
    return account.is_settled and not account.is_flaky and not account.task.cases


def _shown_value(account: Account, mean: float) -> float:
    """The score that a mean reward is reported as."""
    known = mean if _is_shown_exactly(account) else float(f"{mean:.{_ESTIMATE_DIGITS}g}")
    return account.task.objective.score(clip_to_bounds(account.task, known))


def _luck_of(ranking: Ranking, name: str, mean: float) -> float:
    """Deviation of a reward that may be luck: what was seen best is shown, so luck was selected.

    As far as the run's noise and its own evaluations allow, a candidate is no better than the
    ancestor that differs most, whatever the model's scale makes of one extreme score: its parents
    may have been chosen for their luck, too. 0 without an ancestor that scored.
    """
    account, rows = ranking.account, ranking.account.rows
    number = account.numbers.get(key_of(name), -1)
    seen, levels, above = {number}, [mean], -1 if number < 0 else account.parent_of(number)
    while above >= 0 and above not in seen:  # parents may form a circle
        seen.add(above)
        levels += [float(rows["mean"][above])] if rows["count"][above] else []
        above = account.parent_of(above)
    step = max(abs(mean - level) for level in levels)
    within = ranking.noise_at(*levels).within or 0.0  # a lucky level may have less
    if not step or not within:
        return 0.0
    own = math.sqrt(float(rows["count"][number])) * step
    return step * math.sqrt(within) / math.hypot(math.sqrt(within), own)


_ESTIMATE_DIGITS = 9
"""Significant digits of an estimate; further ones are the arithmetic's, as in 0.99999999994."""


def equal_scores(account: Account, initial: str | None) -> JsonObject:
    """Number of candidates that scored, and of those with exactly the initial program's mean."""
    rows = account.rows
    scored = rows[rows["count"] > 0]
    first = account.tally(initial) if initial is not None else None
    if first is None or not first.count:
        return {"scored": len(scored)}
    near = np.isclose(scored["mean"], first.mean, rtol=1e-9, atol=0.0)
    return {"scored": len(scored), "equal": int(near.sum())}


def failed_by_culprit(account: Account) -> dict[str, int]:
    """Failed evaluations of the run by culprit, judged ones included."""
    failed = dict(account.failed)
    excused = account.judge.excused_failures
    rows = account.rows
    own = int(rows["failures"].sum()) - excused if len(rows) else 0
    failing = [fact for fact in facts_after_search(account) if fact.reward is None]
    counted = len(account.without_external_failures(failing))
    own, excused = own + counted, excused + len(failing) - counted
    failed = {name: many for name, many in failed.items() if name != "candidate"}
    if own:
        failed["candidate"] = own
    if excused:
        failed["scorer"] = failed.get("scorer", 0) + excused
    return failed
