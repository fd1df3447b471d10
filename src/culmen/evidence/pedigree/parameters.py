"""Parameters of the value model, and the posterior of a sample given them."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from culmen.evidence.pedigree.arrays import Flags, Floats, padded_array, share_below, sum_by_row
from culmen.evidence.pedigree.scale import RewardScale, ScaledScores
from culmen.evidence.pedigree.tree import FamilyTree, Posterior, TreePrior

HEAVY = 5.0  # degrees of freedom of Student's law, for noise with heavy tails
REPEATS = 8  # degrees of freedom within candidates from which tails can be judged
OUTLYING = 6.0  # deviations from which a residual shows a heavy tail


_NOTHING, _NONE = np.zeros(0), np.zeros(0, bool)


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
    values = scores.values - parameters.effects[scores.cases]
    means = sum_by_row(scores.rows, values, scores.size) / np.maximum(scores.counts, 1)
    rest = values - means[scores.rows]
    squares = rest * rest
    if scores.degrees >= REPEATS and not scores.noiseless:
        off = np.abs(rest[scores.counts[scores.rows] > 1])
        variance = (1.4826 * share_below(off, 0.5)) ** 2
        if variance > 0 and float(off.max()) ** 2 > OUTLYING**2 * variance:
            known = parameters.noise  # nan before the first guess
            weights = (HEAVY + 1.0) / (
                HEAVY + squares / (max(known, variance) if known > 0 else variance)
            )
            return Within(weights, float((weights * squares).sum()))
    return Within(None, float(squares.sum()))


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
    values, weights = scores.values, None
    if scores.case_count > 1:
        values = values - parameters.effects[scores.cases]
    if scores.degrees >= REPEATS:
        weights = scatter_within(scores, parameters).weights
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
