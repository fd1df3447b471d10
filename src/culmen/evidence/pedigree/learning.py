"""Parameters of the value model: the posterior given them, and how they are learnt.

They are learnt by expectation maximisation.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from culmen.evidence.pedigree.arrays import (
    SMALLEST,
    Flags,
    Floats,
    padded_array,
    share_below,
    sum_by_row,
)
from culmen.evidence.pedigree.observations import Sample
from culmen.evidence.pedigree.scale import RewardScale, ScaledScores
from culmen.evidence.pedigree.tree import FamilyTree, Posterior, TreePrior

HEAVY = 5.0  # degrees of freedom of Student's law, for noise with heavy tails
REPEATS = 8  # degrees of freedom within candidates from which tails can be judged
OUTLYING = 6.0  # deviations from which a residual shows a heavy tail
_NOTHING, _NONE = np.zeros(0), np.zeros(0, bool)

EVERY = 33  # observations up to which parameters are learnt after every one
SHARE = 33  # after that, when the count has grown by a fiftieth
DAMPING = 0.85  # of the mean drift: an undamped one makes a search timid
KIN = 6.0  # pseudo-children with the mean drift that each parent has
PRIOR = 2.0  # pseudo-steps of the first guess of t²
KNOWN = 10.0  # pseudo-steps, and repeats, of an earlier run's law
LOST = 0.6  # share of the degrees of freedom that the parents' drifts take from t²
DOUBT = 12.0  # largest weight, in repeats, of the noise estimate from all observations
TINY = 1e-8  # noise variance of an exact evaluator, as a share of the steps' variance
FAMILY = 3  # candidates without parents from which they have an origin in common
EQUAL = 1e-6  # share of the largest step up to which a child counts as equal to its parent
RUIN = 3.0  # usual gains of children below its parent at which a child is ruined
RUINED = 0.2  # least share of the children that must be
FEW = 5  # least number of them, and of children that gained
SETTLED = 0.03  # largest relative change of a variance at which an iteration ends
MOST, AGAIN = 30, 3  # most iterations until settled once, and after that


class Parameters(NamedTuple):
    """Learnt parameters of a run; docs/evidence.md has the equations."""

    scale: RewardScale
    next_look: int
    noise: float = math.nan
    step: float = math.nan
    drift: float = 0.0
    first_step: float = 0.0
    weight: float = 0.0
    drifts: Floats = _NOTHING
    effects: Floats = _NOTHING
    ruined: Flags = _NONE
    root_variance: float = 0.0
    root_mean: float = 0.0
    fall: float = math.inf
    settled: bool = False

    def padded_to(self, rows: int, cases: int) -> Parameters:
        """Parameters for more rows and cases: drifts as the mean, no effects, nothing ruined."""
        if len(self.drifts) == rows and len(self.effects) == cases:
            return self
        return self._replace(
            drifts=padded_array(self.drifts, rows, self.drift),
            effects=padded_array(self.effects, cases, 0.0),
            ruined=padded_array(self.ruined, rows, False),
        )


class Within(NamedTuple):
    """Scatter within candidates: weights of all scores (None: 1), and the weighted squares."""

    weights: Floats | None
    squares: float


def scatter_within(scores: ScaledScores, parameters: Parameters) -> Within:
    """Scatter of scores about their candidate's mean, case effects taken out.

    If repeats show heavy tails, scores far off weigh less: (h + 1) / (h + r² / s²).
    """
    if not scores.degrees:
        return Within(None, 0.0)
    weights, near = outlier_weights(scores, parameters), scores.near[scores.rows]
    rest = _residuals(scores, parameters)
    squares = rest * rest
    if weights is not None:
        return Within(weights, float((weights * squares)[near].sum()))
    return Within(None, float(squares[near].sum()))


def outlier_weights(scores: ScaledScores, parameters: Parameters) -> Floats | None:
    """Weights of all scores if repeats near the leader show heavy tails; None: each weighs 1."""
    if scores.degrees < REPEATS or scores.noiseless:
        return None
    rest = _residuals(scores, parameters)
    typical, largest = scores.tails if scores.case_count <= 1 else scores.tails_of(rest)
    variance = (1.4826 * typical) ** 2
    if not (variance > 0 and largest**2 > OUTLYING**2 * variance):
        return None
    known = parameters.noise  # nan before the first guess
    return (HEAVY + 1.0) / (HEAVY + rest * rest / (max(known, variance) if known > 0 else variance))


def _residuals(scores: ScaledScores, parameters: Parameters) -> Floats:
    """Differences of scores from their candidate's mean; the effects of cases are taken out."""
    if scores.case_count <= 1:
        return scores.residuals
    values, rows = scores.values - parameters.effects[scores.cases], scores.rows
    means = sum_by_row(rows, values, scores.size) / np.maximum(scores.counts, 1)
    return values - means[rows]


def tree_prior(parameters: Parameters, scores: ScaledScores) -> TreePrior:
    """Prior of the tree; an origin that is not known yet is next to flat about the median."""
    if parameters.root_variance > 0:
        origin = 1.0 / parameters.root_variance, parameters.root_mean
    else:
        flat = 1.0 / (1e4 * (parameters.step + scores.spread**2))
        origin = flat, scores.median
    return TreePrior(parameters.step, parameters.drifts, parameters.ruined, *origin)


def own_evidence(parameters: Parameters, scores: ScaledScores) -> tuple[Floats, Floats]:
    """Precision of each row's own scores, and that times their mean, case effects taken out."""
    values = scores.values
    if scores.case_count > 1:
        values = values - parameters.effects[scores.cases]
    weights = outlier_weights(scores, parameters)
    pull = sum_by_row(scores.rows, values if weights is None else weights * values, scores.size)
    weight = scores.counts if weights is None else sum_by_row(scores.rows, weights, scores.size)
    return weight / parameters.noise, pull / parameters.noise


def tree_posterior(parameters: Parameters, scores: ScaledScores, tree: FamilyTree) -> Posterior:
    """Exact posterior of all rows given the parameters, which must be padded."""
    prior = tree_prior(parameters, scores)
    return tree.sweep(scores.parents, *own_evidence(parameters, scores), prior)


def extended_posterior(
    parameters: Parameters, scores: ScaledScores, tree: FamilyTree
) -> tuple[Parameters, Posterior]:
    """Posterior with more observations than the parameters were learnt from.

    Children ruined since then are found by the learnt `fall` and stand alone, too.
    """
    known = parameters.padded_to(scores.size, scores.case_count)
    found = tree_posterior(known, scores, tree)
    if known.fall == math.inf:
        return known, found
    fallen = scores.parents >= 0
    fallen &= scores.counts > 0
    fallen &= scores.means - found.mean[scores.parents] < -known.fall
    if not (fallen & ~known.ruined).any():
        return known, found
    known = known._replace(ruined=known.ruined | fallen)
    return known, tree_posterior(known, scores, tree)


class StepLaw(NamedTuple):
    """Standard deviations of evaluations and steps, and mean drift, in units of the score.

    If `sign`, that of all rewards, is not 0, they are those of logarithms.
    """

    noise: float
    step: float
    drift: float
    sign: int = 0


class Learnt(NamedTuple):
    """Parameters, and the scores that they were learnt from."""

    parameters: Parameters
    scores: ScaledScores


def next_turn(count: int) -> int:
    """Number of observations at which parameters are learnt again after `count`."""
    return count + max(1, count // SHARE) if count >= EVERY else count + 1


class Learner:
    """Learns parameters from a sample and those of the sample before.

    `prior` is the law of an earlier run.
    """

    def __init__(self, prior: StepLaw | None = None) -> None:
        self._prior = prior

    def learn(self, known: Parameters | None, sample: Sample, tree: FamilyTree) -> Learnt | None:
        """Parameters after this sample; None without a score."""
        if not len(sample.rewards):
            return None
        known = self._with_scale(known, sample).padded_to(sample.size, max(1, sample.case_count))
        scores = ScaledScores.from_sample(sample, known.scale)
        if not known.step > 0:
            known = self._guess_parameters(known, scores)
        for _ in range(AGAIN if known.settled else MOST):
            before, found = known, tree_posterior(known, scores, tree)
            known = self._fit_parameters(_find_ruined(known, found, scores), found, scores)
            if _is_alike(before, known):
                return Learnt(known._replace(settled=True), scores)
        return Learnt(known, scores)

    def _with_scale(self, known: Parameters | None, sample: Sample) -> Parameters:
        """Parameters with the scale updated, if it is time; parameters anew on another scale."""
        count = len(sample.rewards)
        if known is not None and count < known.next_look:
            return known
        scale, look = RewardScale.from_sample(sample), max(count + 1, int(count * 1.25))
        if known is None:
            return Parameters(scale, look)
        known, before = known._replace(scale=scale, next_look=look), known.scale
        if (scale.sign, scale.unit) != (before.sign, before.unit) or count <= 8:
            return known._replace(noise=math.nan, step=math.nan, settled=False)
        return known

    def _guess_parameters(self, known: Parameters, scores: ScaledScores) -> Parameters:
        """First parameters: the prior's, else by differences of children and parents."""
        size, prior = scores.size, self._prior
        if prior is not None and prior.sign == known.scale.sign and prior.step > 0:
            step = prior.step**2
            noise = TINY * step if scores.noiseless else max(prior.noise**2, 1e-9 * step)
            return _starting_parameters(known, noise, step, step, KNOWN, np.full(size, prior.drift))
        means, above = scores.means, np.maximum(scores.parents, 0)
        pairs = (scores.parents >= 0) & (scores.counts > 0) & (scores.counts[above] > 0)
        gaps = (means[pairs] - means[above[pairs]]) ** 2
        few = len(gaps) == 0
        spread = 0.0 if few else float(np.mean(np.minimum(gaps, 9.0 * share_below(gaps, 0.5))))
        within = scatter_within(scores, known).squares
        degrees = scores.degrees
        # differences below this are rounding
        least = (1e-6 * float(np.abs(scores.values).max(initial=0.0))) ** 2
        if spread <= least:
            noise = within / degrees if degrees else 0.0
            spread = max(noise, float(np.var(scores.values)), least)
            spread = spread if spread > SMALLEST else 1.0
        noise = TINY * spread if scores.noiseless else 0.5 * spread
        if degrees and within > least:
            noise = within / degrees
        return _starting_parameters(known, noise, spread, 0.5 * spread, PRIOR, np.zeros(size))

    def _fit_parameters(
        self, known: Parameters, found: Posterior, scores: ScaledScores
    ) -> Parameters:
        """Parameters of largest expected likelihood; repeats count as evidence of their own."""
        known = self._fit_steps(known, found, scores)
        known = _fit_roots(known, found, scores)
        if scores.noiseless:
            return known._replace(noise=TINY * known.step)
        known = known._replace(effects=_case_effects(known, found, scores))
        return known._replace(noise=self._noise_variance(known, found, scores))

    def _fit_steps(self, known: Parameters, found: Posterior, scores: ScaledScores) -> Parameters:
        """Variance of steps, mean drift and drifts, by the children that do not stand alone."""
        parents = np.where(known.ruined, -1, scores.parents)
        # a cavity of 0: it stood alone in this sweep
        seen = np.flatnonzero((parents >= 0) & (scores.counts > 0) & (found.cavity > 0))
        over, weight = parents[seen], known.weight
        steps = found.mean[seen] - found.mean[over]
        born = np.bincount(over, minlength=scores.size).astype(float)
        prior_drift = weight * self._prior.drift if self._prior and weight == KNOWN else 0.0
        drift = (DAMPING * float(steps.sum()) + prior_drift) / (len(seen) + weight)
        drifts = (sum_by_row(over, steps, scores.size) + KIN * drift) / (born + KIN)
        if not len(seen):
            return known._replace(drift=drift, drifts=drifts)
        rest = (steps - drifts[over]) ** 2
        # children equal to their parents bound nothing, though the drift sets them apart from it
        moved = np.abs(steps) > EQUAL * np.abs(steps).max()
        far = 9.0 * share_below(np.where(moved, rest, 0.0), 0.8)
        apart = 1.0 / found.own[seen] + 1.0 / found.cavity[seen]
        unsure = 1.0 / (1.0 / known.step + 1.0 / apart)
        free = len(seen) + weight - LOST * float((born / (born + KIN)).sum())
        bounded = np.minimum(rest, far) if far > 0 else rest
        step = (float((bounded + unsure).sum()) + weight * known.first_step) / free
        return known._replace(step=step, drift=drift, drifts=drifts)

    def _noise_variance(self, known: Parameters, found: Posterior, scores: ScaledScores) -> float:
        """Variance of one evaluation: from repeats, all observations, and the first guess."""
        within = scatter_within(scores, known)
        rest = scores.values - known.effects[scores.cases] - found.mean[scores.rows]
        squares, near = rest**2 + found.variance[scores.rows], scores.near[scores.rows]
        doubt = DOUBT * min(1.0, float(near.sum()) / 40.0)
        weighted = squares if within.weights is None else within.weights * squares
        everything = float(weighted[near].mean())
        # one lucky pair of repeats must not decide
        few, guess = max(0.0, 1.0 - scores.degrees / 4.0), 0.5 * known.first_step
        if self._prior and known.weight == KNOWN and self._prior.noise > 0:
            few, guess = KNOWN, self._prior.noise**2
        sums = within.squares + doubt * everything + few * guess
        return max(sums / (scores.degrees + doubt + few), 1e-9 * known.step)


def _starting_parameters(
    known: Parameters, noise: float, step: float, first: float, weight: float, drifts: Floats
) -> Parameters:
    drift = float(drifts[0])
    return known._replace(
        noise=noise, step=step, first_step=first, weight=weight, drift=drift, drifts=drifts
    )


def _is_alike(before: Parameters, after: Parameters) -> bool:
    pairs = (
        (before.noise, after.noise),
        (before.step, after.step),
        (before.root_variance, after.root_variance),
    )
    return all(abs(now - old) <= SETTLED * old for old, now in pairs)


def _find_ruined(known: Parameters, found: Posterior, scores: ScaledScores) -> Parameters:
    """Find children so far below their parents that the change must have broken something.

    If many are, steps have two laws; children above their parents show the law of the others. Exact
    scores are believed, and one case of several is too little.
    """
    size, parents = scores.size, scores.parents
    none = known._replace(ruined=np.zeros(size, bool), fall=math.inf)
    if scores.noiseless or scores.case_count > 1:
        return none
    seen = np.flatnonzero((parents >= 0) & (scores.counts > 0))
    gaps = scores.means[seen] - found.mean[parents[seen]]
    up = gaps[gaps > 0] ** 2
    if len(up) < FEW:
        return none
    typical = float(np.minimum(up, 9.0 * share_below(up, 0.5)).mean())
    fall = RUIN * math.sqrt(max(typical, known.noise))
    fallen = gaps < -fall
    # a tail has more children here than beyond, a second law fewer
    between = ((gaps < -0.5 * fall) & ~fallen).sum()
    if fallen.sum() < max(FEW, RUINED * len(seen), between):
        return none
    ruined = np.zeros(size, bool)
    ruined[seen[fallen]] = True
    return known._replace(ruined=ruined, fall=fall)


def _fit_roots(known: Parameters, found: Posterior, scores: ScaledScores) -> Parameters:
    """Mean and variance of the true rewards of candidates without parents."""
    roots = np.flatnonzero((scores.parents < 0) & (scores.counts > 0))
    if len(roots) < FAMILY:
        return known._replace(root_variance=0.0)
    means = found.mean[roots]
    centre = float(means.mean())
    between = float(((means - centre) ** 2).sum()) / (len(roots) - 1)
    variance = between + float(found.variance[roots].mean())
    least = max(1e-6 * scores.spread**2, 1e-300)
    return known._replace(root_variance=max(variance, least), root_mean=centre)


def _case_effects(known: Parameters, found: Posterior, scores: ScaledScores) -> Floats:
    """Effects of the cases: shrunk mean residuals of each, with sum zero."""
    cases = scores.case_count
    if cases < 2:
        return known.effects
    rest = scores.values - found.mean[scores.rows]
    counts = np.bincount(scores.cases, minlength=cases).astype(float)
    raw = np.bincount(scores.cases, rest, minlength=cases) / np.maximum(counts, 1)
    seen = counts > 0
    squares = raw[seen] ** 2
    beyond = float(np.mean(squares - known.noise / counts[seen]))
    spread = max(beyond, 0.05 * float(np.mean(squares)), 1e-300)
    effects = raw * counts / (counts + known.noise / spread)
    return np.where(seen, effects - effects[seen].mean(), 0.0)
