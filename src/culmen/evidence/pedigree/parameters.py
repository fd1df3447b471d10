"""Parameters of the value model, and the posterior of a sample given them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from culmen.evidence.pedigree.arrays import Flags, Floats, padded, share_below, tally
from culmen.evidence.pedigree.scale import Scale, Scores
from culmen.evidence.pedigree.tree import Posterior, Tree, TreePrior

HEAVY = 5.0  # degrees of freedom of Student's law, for noise with heavy tails
REPEATS = 8  # degrees of freedom within candidates from which tails can be judged
OUTLYING = 6.0  # deviations from which a residual shows a heavy tail


@dataclass(frozen=True, slots=True)
class Parameters:
    """What is learnt of a run; docs/evidence.md has the equations.

    `noise` s², `step` t² and `drift` mu of the docs; `first_step` is the first guess of t² and
    counts as `weight` steps. `drifts` and `ruined` by row, `effects` by case. `root_variance`
    (0: unknown) and `root_mean` of candidates without parents. A child is ruined whose mean
    score lies further than `fall` below its parent (inf: none is). The scale is chosen again at
    `next_look` scores. `settled`: the iteration has converged once on this scale.
    """

    scale: Scale
    next_look: int
    noise: float = math.nan
    step: float = math.nan
    drift: float = 0.0
    first_step: float = 0.0
    weight: float = 0.0
    drifts: Floats = field(default_factory=lambda: np.zeros(0))
    effects: Floats = field(default_factory=lambda: np.zeros(0))
    ruined: Flags = field(default_factory=lambda: np.zeros(0, bool))
    root_variance: float = 0.0
    root_mean: float = 0.0
    fall: float = math.inf
    settled: bool = False

    def padded(self, rows: int, cases: int) -> Parameters:
        """The same for more rows and cases: drifts as the mean, no effects, nothing ruined."""
        return replace(
            self,
            drifts=padded(self.drifts, rows, self.drift),
            effects=padded(self.effects, cases, 0.0),
            ruined=padded(self.ruined, rows, False),
        )


class Within(NamedTuple):
    """Scatter within candidates: Student weights of all scores, and the weighted squares."""

    weights: Floats
    squares: float


def scatter_within(scores: Scores, effects: Floats, noise: float) -> Within:
    """Scatter of scores about their candidate's mean, case effects taken out.

    If repeats show heavy tails, scores far off weigh less: (h + 1) / (h + r² / s²).
    """
    values = scores.values - effects[scores.cases]
    means = tally(scores.rows, values, scores.size) / np.maximum(scores.counts, 1)
    rest, weights = values - means[scores.rows], np.ones(len(values))
    if scores.degrees >= REPEATS and not scores.noiseless:
        off = np.abs(rest[scores.counts[scores.rows] > 1])
        scale = 1.4826 * share_below(off, 0.5)
        if scale > 0 and float(off.max()) > OUTLYING * scale:
            variance = max(noise, scale * scale) if noise > 0 else scale * scale
            weights = (HEAVY + 1.0) / (HEAVY + rest * rest / variance)
    return Within(weights, float((weights * rest * rest).sum()))


def tree_prior(parameters: Parameters, scores: Scores) -> TreePrior:
    """Prior of the tree; an origin that is not known yet is next to flat about the median."""
    if parameters.root_variance > 0:
        origin = 1.0 / parameters.root_variance, parameters.root_mean
    else:
        flat = 1.0 / (1e4 * (parameters.step + scores.spread**2))
        origin = flat, share_below(scores.values, 0.5)
    return TreePrior(parameters.step, parameters.drifts, parameters.ruined, *origin)


def posterior(parameters: Parameters, scores: Scores, tree: Tree) -> Posterior:
    """Exact posterior of all rows given the parameters, which must be padded."""
    weights = scatter_within(scores, parameters.effects, parameters.noise).weights
    values = scores.values - parameters.effects[scores.cases]
    weight = tally(scores.rows, weights, scores.size) / parameters.noise
    pull = tally(scores.rows, weights * values, scores.size) / parameters.noise
    return tree.sweep(scores.parents, weight, pull, tree_prior(parameters, scores))


def inferred(parameters: Parameters, scores: Scores, tree: Tree) -> tuple[Parameters, Posterior]:
    """Posterior with more observations than the parameters were learnt from.

    Children ruined since then are found by the learnt `fall` and stand alone, too.
    """
    known = parameters.padded(scores.size, scores.case_count)
    found = posterior(known, scores, tree)
    if known.fall == math.inf:
        return known, found
    fallen = scores.parents >= 0
    fallen &= scores.counts > 0
    fallen &= scores.means - found.mean[scores.parents] < -known.fall
    if not (fallen & ~known.ruined).any():
        return known, found
    known = replace(known, ruined=known.ruined | fallen)
    return known, posterior(known, scores, tree)
