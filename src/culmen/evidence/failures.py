"""Failures: their culprits, and the chance that a candidate fails again.

A candidate that scores 1 half of the time and fails otherwise is worth half of the way from the
floor to 1. Only failures of the candidate's own doing count against it; a failure of the evaluator
or of a service strikes any candidate. docs/evidence.md has the equations.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from culmen.core.evaluation import place_in
from culmen.evidence.pedigree.arrays import SMALLEST
from culmen.evidence.pedigree.inference import FailureChances

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Rows = NDArray[np.void]
"""Rows of `evidence.account`, one for each candidate."""


class RowTable(Protocol):
    """A table of candidates (`evidence.account.Account`)."""

    @property
    def rows(self) -> Rows: ...


# -- the chance that a candidate fails again ------------------------------------------------------

STRENGTHS = (8.0, 16.0, 32.0, 64.0, 128.0)
"""Weights, in trials, of a neighbourhood's rate as the prior of one candidate's rate."""

_PSEUDO = 2.0  # pseudo-trials of the run's rate in a neighbourhood's
# share of the run's rate in a neighbourhood without trials: it may be free of failures
_DOUBT = 0.5
_PROOF = 0.5  # pseudo-failures of a candidate that is known to fail at times
_BLOCK = 8192  # numbers handled at once, which stay in the processor's cache
_BINS = 128  # of the candidates' means, for the kernel over similar scores


class FailureRates:
    """Chances to fail from a candidate's own trials and its neighbours' (empirical Bayes).

    Candidates that never scored are no evidence of intermittent failures: they are broken, or have
    not been seen to work. The first score of the others is spent on that condition, and failures
    before it do not count for neighbours, since only failed candidates were evaluated again. A
    candidate's rate has a Beta prior around the rate of its neighbourhood: all, those of similar
    score, or its relatives. Neighbourhoods and strengths of the prior are averaged by their
    likelihood of the run's failures. All chances are 0 while no candidate that scored has failed.
    """

    def __init__(self, judge: CulpritJudge, table: RowTable) -> None:
        self._judge, self._table = judge, table

    def counted_failures(self, failed: Floats) -> Floats:
        """Failures of each candidate, counted like `Account.counted_failures`."""
        failures, rows = failed.copy(), self._table.rows[: len(failed)]
        excuses = self._judge.excuses_by_number()
        numbers = [number for number in excuses if number < len(failures)]
        failures[numbers] -= [excuses[number] for number in numbers]
        failures[: len(rows)][rows["barred"] & (rows["count"] > 0)] = 0.0
        return np.maximum(failures, 0.0)

    def chances_to_fail(
        self, scored: Floats, failed: Floats, means: Floats, parents: Ints
    ) -> FailureChances:
        """Posterior chances of candidates with these counts; see `FailureModel`."""
        early = np.zeros(len(scored))
        known = self._table.rows["early"][: len(scored)]
        early[: len(known)] = known
        return failure_chances(scored, failed, early, means, parents)


def failure_chances(
    scored: Floats, failed: Floats, early: Floats, means: Floats, parents: Ints
) -> FailureChances:
    """Beta posteriors of the chances to fail: mean, standard deviation and step of each.

    `early` of the `failed` evaluations came before the candidate's first score.
    """
    none = np.zeros(len(scored))
    works = scored > 0
    own, succeeds = np.where(works, failed, 0.0), np.where(works, scored - 1.0, 0.0)
    if not own.any():
        return FailureChances(none, none, none)
    fails = np.maximum(own - early, 0.0)
    trials = fails + succeeds
    overall = (float(fails.sum()) + _PROOF) / (float(trials.sum()) + _PSEUDO)
    fits, rates, strengths = _prior_fits(
        fails, succeeds, overall, np.where(works, means, 0.0), works, parents
    )
    total, mean, square, step = 0.0, none, none, none
    for fit, rate, strength in zip(fits, rates, strengths, strict=True):
        weight = math.exp(fit - fits.max())
        a, b = strength * rate + own, strength * (1.0 - rate) + succeeds
        q, size = a / (a + b), a + b + 1.0
        variance = q * (1.0 - q) / size
        total, mean = total + weight, mean + weight * q
        square = square + weight * (variance + q * q)
        step = step + weight * np.sqrt(q * (1.0 - q)) / size
    mean, step = mean / total, step / total
    spread = np.sqrt(np.maximum(square / total - mean * mean, 0.0))
    return FailureChances(*(np.where(works, each, 0.0) for each in (mean, spread, step)))


def unseen_failures(fails: Floats, succeeds: Floats, place: int, is_chosen: bool = True) -> float:
    """Mean square of the chance to fail of the candidate at `place`, which did not fail.

    Some candidates never fail, and the others have a chance each (a spike at 0 and a Beta law):
    share and law are weighed by the likelihood of all counts. `fails` and `succeeds` are those of
    its kind after a first score. If one of the kind failed, one that was chosen (not the initial
    program) is taken to fail at times: it leads because it was not seen to.
    """
    tried = (fails + succeeds) > 0
    a, b, own = fails[tried], succeeds[tried], float(succeeds[place])
    shares = np.array(_SHARES)[:, None]
    fits, squares = list[float](), list[float]()
    for first, second in (*_FAULTY, *_RARELY_FAULTY):
        level = _log_beta(first, second)
        faulty = np.exp(_log_beta_of(a + first, b + second) - level)
        logs = np.log(shares * faulty + (1.0 - shares) * (a == 0)).sum(axis=1)
        alike = math.exp(_log_beta(first, second + own) - level)
        lost, size = first + float(fails[place]), first + second + float(fails[place]) + own
        square = lost * (lost + 1.0) / (size * (size + 1.0))
        for share, fit in zip(_SHARES, logs.tolist(), strict=True):
            fits.append(fit)
            known = 0.0 if is_chosen and fails.any() else 1.0 - share
            squares.append(square * share * alike / (share * alike + known))
    weights = np.exp(np.array(fits) - max(fits))
    return float(weights @ np.array(squares) / weights.sum())


def _prior_fits(
    fails: Floats,
    succeeds: Floats,
    overall: float,
    means: Floats,
    works: NDArray[np.bool_],
    parents: Ints,
) -> tuple[Floats, Floats, Floats]:
    """Log likelihood, rates and strengths of the priors by each neighbourhood and strength.

    One row for each prior. Its strength is bounded by the trials behind its neighbourhood's rate.
    """
    trials = fails + succeeds
    neighbourhoods = [
        (fails.sum() - fails, trials.sum() - trials),  # all others
        _trials_of_similar(fails, trials, means, works),
        _trials_of_relatives(fails, trials, parents),
    ]
    lost, total = (np.array(column) for column in zip(*neighbourhoods, strict=True))
    rates = np.clip((lost + _PSEUDO * _DOUBT * overall) / (total + _PSEUDO), 0.01, 0.99)
    known, limits = (total + _PSEUDO)[:, None], np.array(STRENGTHS)[:, None]
    strengths = (limits * known / (limits + known)).reshape(-1, len(fails))
    rates = np.repeat(rates, len(STRENGTHS), axis=0)
    tried = np.flatnonzero(trials > 0)
    laws = strengths[:, tried], rates[:, tried]
    step = max(1, _BLOCK // max(1, len(tried)))
    blocks = [[law[row : row + step] for law in laws] for row in range(0, len(rates), step)]
    fits = [_log_likelihood(fails[tried], succeeds[tried], *block) for block in blocks]
    return np.concatenate(fits), rates, strengths


def kernel_width(means: Floats) -> float:
    """Width of the kernel over candidates' means: a tenth of their spread, without outliers."""
    ordered, last = np.sort(means), len(means) - 1
    return 0.1 * float(ordered[int(0.95 * last)] - ordered[int(0.05 * last)])


def _trials_of_similar(
    fails: Floats, trials: Floats, means: Floats, works: NDArray[np.bool_]
) -> tuple[Floats, Floats]:
    """Failures and trials of candidates of similar mean, the candidate itself excluded.

    A Gaussian kernel over a histogram of the means.
    """
    known = means[works]
    low, high = float(known.min()), float(known.max())
    if high - low <= SMALLEST:
        return fails.sum() - fails, trials.sum() - trials
    width = max(kernel_width(known), 1e-9 * (high - low))
    bins = np.minimum(((means - low) / (high - low) * _BINS).astype(np.int64), _BINS - 1)
    bins = np.where(works, bins, 0)
    centres = low + (np.arange(_BINS) + 0.5) * (high - low) / _BINS
    kernel = np.exp(-0.5 * ((centres[:, None] - centres[None, :]) / width) ** 2)
    sums = [kernel @ np.bincount(bins, weights, _BINS) for weights in (fails, trials)]
    return sums[0][bins] - fails, sums[1][bins] - trials


def _trials_of_relatives(fails: Floats, trials: Floats, parents: Ints) -> tuple[Floats, Floats]:
    """Failures and trials of each candidate's parent, children, brothers and sisters."""

    def around(values: Floats) -> Floats:
        born = parents >= 0
        over = np.maximum(parents, 0)
        below = np.bincount(parents[born], values[born], len(values)).astype(float)
        return below + np.where(born, values[over] + below[over] - values, 0.0)

    return around(fails), around(trials)


def _log_likelihood(fails: Floats, succeeds: Floats, strength: Floats, rate: Floats) -> Floats:
    """Log likelihoods of Beta-binomial counts by each row's law, binomial coefficients left out."""
    a, b = strength * rate, strength * (1.0 - rate)
    new = _log_gamma(a + fails) + _log_gamma(b + succeeds) - _log_gamma(strength + fails + succeeds)
    return (new - _log_gamma(a) - _log_gamma(b) + _log_gamma(strength)).sum(axis=1)


def _log_gamma(x: Floats) -> Floats:
    """log Gamma(x) for x > 0, to 1e-9: Stirling's series, eight steps up the recurrence."""
    product = x.copy()
    for k in range(1, 8):
        product *= x + k
    z = x + 8.0
    series = 1.0 / (12.0 * z) - 1.0 / (360.0 * z**3) + 1.0 / (1260.0 * z**5)
    return (z - 0.5) * np.log(z) - z + 0.5 * math.log(2.0 * math.pi) + series - np.log(product)


# -- attribution of failures ----------------------------------------------------------------------

_ODDS = math.log(20.0)  # log odds from which a kind is the evaluator's
_GROWTH = 1.1  # factor by which its evidence must have grown before a kind is judged again
_STREAK = 5  # failures alike in a row from which an outage is suspected,
_STRIKES = 3  # of at least this many candidates,
_CHANCE = 1e-3  # if a streak of that length had at most this chance before
# least chance of the initial program to be spared so far at the rate of others, for a kind that is
# the evaluator's though it never struck it
_UNSTRUCK = 0.01
CANARIES = 5
"""Evaluations of the initial program that a run spends to attribute failures, at most."""

PROOFS = 12
"""The same, while a line of the evaluator fails at random and never on the initial program."""

SECOND_LOOKS = 6
"""Failed evaluations that a run repeats to see if failures are intermittent, at most."""


class FailureKind:
    """Failures with the same mark: the candidates that they struck, and their attribution."""

    def __init__(self, name: str) -> None:
        self.is_placed = bool(place_in(name))  # the evaluator's own line raised
        self.struck: dict[int, int] = {}  # failures by number of the candidate
        self.excused: dict[int, int] = {}  # those of an outage
        self.is_scorers = False
        self.erratic = 0  # candidates that it struck and that scored in another evaluation
        self.is_of_initial = False  # it struck an initial program
        self.spared = 1.0  # chance that it did not, at one rate for all
        self.events = 0  # evaluations that bear on the attribution
        self.judged = 0  # of these, at the last judgement
        self.log_odds = 0.0  # of the evaluator against candidates, at the last judgement

    @property
    def total(self) -> int:
        """Failures of this kind."""
        return sum(map(int, self.struck.values()))


class Struck(NamedTuple):
    """A failure of a streak: the candidate's number, the kind, and the order if it came later."""

    number: int
    kind: str
    order: int = 0


class Streak:
    """Failures alike in a row, which an outage may have made.

    `add_outcome` takes every evaluation in turn, those of the final choice too, with an order above
    0. An outage is a streak that was improbable before and that also strikes an initial program,
    though it has scored.
    """

    def __init__(self) -> None:
        self.failures: list[Struck] = []
        self.is_outage = False
        self._before = (0, 0)  # failures and evaluations before the streak
        self.count: tuple[int, int] = (0, 0)

    def add_outcome(self, seen: Struck, culprit: str, initial: bool) -> list[Struck]:
        """Failures that are an outage's, as one more evaluation shows; `kind` "" is a score."""
        excused = list[Struck]()
        if not seen.kind:
            self._begin_anew()
        elif not culprit:
            excused = self._add_failure(seen, initial)
        failures, evaluations = self.count
        self.count = failures + bool(seen.kind), evaluations + 1
        return excused

    def _add_failure(self, seen: Struck, initial: bool) -> list[Struck]:
        if self.failures and self.failures[-1].kind != seen.kind:
            self._begin_anew()
        if not self.failures:
            self._before = self.count
        self.failures.append(seen)
        if self.is_outage:
            return [seen]
        self.is_outage = initial and self.is_suspicious
        return self.failures if self.is_outage else []

    def _begin_anew(self) -> None:
        self.failures, self.is_outage = [], False

    @property
    def is_suspicious(self) -> bool:
        """True while the failures alike in a row are improbable at the rate before."""
        failures, evaluations = self._before
        rate = (failures + 1.0) / (evaluations + 2.0)
        many = len({each.number for each in self.failures})
        return (
            len(self.failures) >= _STREAK
            and many >= _STRIKES
            and rate ** len(self.failures) < _CHANCE
        )


class CulpritJudge:
    """Distinguishes failures of candidates from failures of the evaluator.

    A kind of failure is the evaluator's if it strikes candidates at one rate, the initial program
    among them: decided by the likelihood of one common rate against rates of each candidate's own.
    An outage excuses its `Streak`. Evaluations of the final choice have an order above 0,
    and those of an outage are in `excused_later`.
    """

    def __init__(self, initial: Iterable[int]) -> None:
        self.initial_keys = frozenset(initial)
        self.kinds: dict[str, FailureKind] = {}
        self._initial_numbers: set[int] = set()
        self._streak = Streak()
        self._later = 0  # evaluations of the final choice
        self.excused_later: set[int] = set()  # their orders
        self._excuses: dict[int, int] | None = None

    def observe(self, number: int, key: int, kind: str, culprit: str, rows: Rows) -> None:
        """Enter one evaluation of the search; `kind` is "" for a score."""
        if key in self.initial_keys:
            self._initial_numbers.add(number)
        if kind and not culprit and (kind in self.kinds or len(self.kinds) < 100):
            known = self.kinds.setdefault(kind, FailureKind(kind))
            known.struck[number] = known.struck.get(number, 0) + 1
            self._excuses = None
        self._follow_streak(Struck(number, kind), culprit)
        for name, known_kind in self.kinds.items():
            if name == kind or number in known_kind.struck or number in self._initial_numbers:
                known_kind.events += 1
                self._judge_kind(known_kind, rows)

    def observe_later(self, number: int, key: int, kind: str, culprit: str) -> int:
        """Enter one evaluation of the final choice, and return its order; see `observe`."""
        if key in self.initial_keys and number >= 0:
            self._initial_numbers.add(number)
        self._later += 1
        self._follow_streak(Struck(number, kind, self._later), culprit)
        return self._later

    def load_counts(self, failures: int, evaluations: int) -> None:
        """Take the counts of a search in place of its evaluations."""
        self._streak.count = failures, evaluations

    def _follow_streak(self, seen: Struck, culprit: str) -> None:
        initial = seen.number in self._initial_numbers
        for number, kind, order in self._streak.add_outcome(seen, culprit, initial):
            if order:
                self.excused_later.add(order)
            elif kind in self.kinds:
                excused = self.kinds[kind].excused
                excused[number] = excused.get(number, 0) + 1
            self._excuses = None

    def _judge_kind(self, kind: FailureKind, rows: Rows) -> None:
        if kind.total < 3 or kind.events < _GROWTH * kind.judged:
            return
        kind.erratic = int(np.count_nonzero(rows["count"][list(kind.struck)]))
        kind.is_of_initial = not self._initial_numbers.isdisjoint(kind.struck)
        kind.judged, kind.log_odds = kind.events, self._log_odds(kind, rows)
        kind.spared = _chance_to_be_spared(kind, rows["count"], list(self._initial_numbers))
        is_possible = kind.is_of_initial or kind.spared > _UNSTRUCK
        has_proof = kind.is_placed and kind.erratic >= 2 and is_possible
        struck = kind.is_of_initial or not self.initial_keys
        is_scorers = (has_proof or struck) and len(kind.struck) > 1 and kind.log_odds > _ODDS
        if is_scorers != kind.is_scorers:
            kind.is_scorers, self._excuses = is_scorers, None

    def _log_odds(self, kind: FailureKind, rows: Rows) -> float:
        """Log likelihood of one common rate, less that of a rate of each candidate's own."""
        struck = np.zeros(len(rows))
        struck[list(kind.struck)] = list(kind.struck.values())
        # Other failures are no evidence: they may have ended before this kind could strike.
        trials = rows["count"] + struck
        first = np.zeros(len(trials), bool)
        first[list(self._initial_numbers)] = True
        lost, total = float(struck.sum()), float(trials.sum())
        common = _log_beta(1.0 + lost, 1.0 + total - lost) - _log_beta(1.0, 1.0)
        own = _log_beta(
            0.2 + float(struck[first].sum()), 10.0 + float((trials - struck)[first].sum())
        )
        own -= _log_beta(0.2, 10.0)
        others = ~first & (trials > 0)
        a, b = struck[others], (trials - struck)[others]
        fits: list[float] = []
        for shape in _FAULTY:
            faulty = np.exp(_log_beta_of(a + shape[0], b + shape[1]) - _log_beta(*shape))
            fits += [float(np.log(s * faulty + (1.0 - s) * (a == 0)).sum()) for s in _SHARES]
        own += max(fits) - math.log(len(fits))
        if kind.is_placed:
            always = -math.inf  # whoever is struck fails always: refuted by both outcomes
            if not kind.erratic:
                always = max(float(np.log(np.where(a > 0, s, 1.0 - s)).sum()) for s in _SHARES)
            # 0.02: prior chance that candidates make such a line fail at random
            own = np.logaddexp(always, math.log(0.02) + own)
        return float(common - own)

    def lacks_proof(self, kind: str) -> bool:
        """True for failures at a line of the evaluator that are not attributed yet."""
        known = self.kinds.get(kind)
        return known is not None and known.is_placed and not known.is_scorers

    @property
    def is_outage(self) -> bool:
        """True while the failures in a row are an outage's."""
        return self._streak.is_outage

    @property
    def suspects_outage(self) -> bool:
        """True while the failures alike in a row are improbable at the rate before."""
        return self._streak.is_suspicious

    def excuses_by_number(self) -> dict[int, int]:
        """Failures that do not count against a candidate, by its number."""
        if self._excuses is None:
            excuses: dict[int, int] = {}
            for kind in self.kinds.values():
                for number, times in (kind.struck if kind.is_scorers else kind.excused).items():
                    excuses[number] = excuses.get(number, 0) + times
            self._excuses = excuses
        return self._excuses

    @property
    def lacks_initial(self) -> bool:
        """True if a line of the evaluator fails at random, but never on an initial program."""
        return any(
            kind.is_placed and kind.erratic and not kind.is_of_initial and kind.spared > _UNSTRUCK
            for kind in self.kinds.values()
        )

    @property
    def excused_failures(self) -> int:
        """Undecided failures that were judged not to be a candidate's."""
        return sum(map(int, self.excuses_by_number().values()))

    @property
    def is_doubtful(self) -> bool:
        """True if a kind of failures strikes several candidates and is not attributed yet."""
        return any(
            len(kind.struck) >= _STRIKES and not kind.is_scorers and abs(kind.log_odds) < _ODDS
            for kind in self.kinds.values()
        )

    def is_external(self, kind: str) -> bool:
        """True if failures of this kind are attributed to the evaluator now."""
        known = self.kinds.get(kind)
        return known is not None and (
            known.is_scorers or (self.is_outage and self._streak.failures[-1].kind == kind)
        )


_FAULTY = ((0.5, 0.5), (2.0, 6.0), (5.0, 5.0), (6.0, 2.0))  # laws of the rate of a faulty candidate
_RARELY_FAULTY = ((1.0, 9.0), (1.0, 30.0))  # the same, of one that fails seldom
_SHARES = (0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 0.98)  # of candidates that are faulty, on a grid


def _chance_to_be_spared(kind: FailureKind, scores: Ints, first: list[int]) -> float:
    """Chance of the scores of `first` candidates if they failed as often as the others."""
    scored, own, lost = float(scores.sum()), float(scores[first].sum()), float(kind.total)
    return float((1.0 - lost / max(1.0, scored - own + lost)) ** own)


def _log_beta_of(a: Floats, b: Floats) -> Floats:
    return _log_gamma(a) + _log_gamma(b) - _log_gamma(a + b)


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
