"""Effects of what made children on their steps: the value model with a drift for each kind.

docs/evidence.md has the equations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from culmen.evidence.pedigree import ValueModel
from culmen.evidence.pedigree.arrays import Flags, Floats, Ints, padded_array
from culmen.evidence.pedigree.inference import Marginals
from culmen.evidence.pedigree.learning import own_evidence, tree_prior
from culmen.evidence.pedigree.tree import FamilyTree, Posterior, TreePrior

ROUNDS = 3
"""Times that effects, their spread and that of steps are learnt from one another."""


GUESS, DOUBT = 0.5, 2.0
"""First guess of the spread of a factor's effects, in steps, and the levels it counts as."""

AVERAGE = 2.0
"""Children like the average of the run that each level counts beside its own."""


_NOTHING = np.zeros(0)


@dataclass(frozen=True, slots=True)
class LevelGain:
    """Gain of one level of a factor: the mean over its children, others being equal.

    `gain` is in units of the reward, with standard deviation `sd`; `count` children were evaluated.
    """

    gain: float
    sd: float
    count: int


class StepFacts(NamedTuple):
    """Arrays by child: its row, its parent's, and if it scored and did not ruin its parent."""

    rows: Ints
    parents: Ints
    sound: Flags


class StepFit(NamedTuple):
    """A fit of effects: t² and the variance of each factor's effects, and by them all others.

    `effects` with their `covariance`; by child, means and variances of its step (0: not sound).
    """

    variance: float
    spreads: list[float]
    effects: Floats = _NOTHING
    covariance: Floats = _NOTHING
    means: Floats = _NOTHING
    variances: Floats = _NOTHING


def level_gains(
    model: ValueModel, ids: Sequence[str], factors: Sequence[Sequence[int]], void: Sequence[bool]
) -> list[list[LevelGain]]:
    """Gain of every level of every factor.

    The candidates `ids` were evaluated and have a parent; `factors` hold the level of each, from 0
    on; `void` ones gained nothing, whatever their scores.
    """
    known = model.marginals_of(ids)
    if known is None:
        return [[] for _ in factors]
    found, rows = known
    return _row_gains(found, rows, [np.array(each) for each in factors], np.array(void))


def _row_gains(
    found: Marginals, rows: Ints, factors: Sequence[Ints], void: Flags
) -> list[list[LevelGain]]:
    facts = _step_facts(found, rows, void)
    levels = [int(factor.max()) + 1 for factor in factors]
    design, centre = _design(found, facts, factors, levels)
    fit = _fit_effects(found, FamilyTree(), facts, design, levels)
    return [
        _factor_gains(found, facts, fit, design, factor, first, centre)
        for factor, first in zip(factors, np.cumsum([2, *levels]).tolist())
    ]


def _step_facts(found: Marginals, rows: Ints, void: Flags) -> StepFacts:
    scores = found.scores
    ruined = padded_array(found.parameters.ruined, scores.size, False)
    sound = (scores.counts[rows] > 0) & ~ruined[rows] & ~void
    return StepFacts(rows, scores.parents[rows], sound)


def _design(
    found: Marginals, facts: StepFacts, factors: Sequence[Ints], levels: Sequence[int]
) -> tuple[Floats, float]:
    """Columns of the regression by child, and the mean level of the parents.

    Columns: one, the parent's level about that mean, and one for each level of each factor.
    """
    above = _levels_of_parents(found, facts)
    centre = float(above.mean())
    columns = [np.ones(len(above)), above - centre]
    for factor, many in zip(factors, levels):
        columns += [(factor == level).astype(float) for level in range(many)]
    return np.stack(columns, axis=1), centre


def _levels_of_parents(found: Marginals, facts: StepFacts) -> Floats:
    """Expectation of a parent from all others except a child and its descendants.

    Its own luck must not make its parent look good.
    """
    posterior, known = found.posterior, found.parameters
    over, drift = facts.parents, padded_array(known.drifts, found.scores.size, known.drift)
    mean, all_mean = posterior.mean[facts.rows], posterior.mean[over]
    own, cavity = posterior.own[facts.rows], posterior.cavity[facts.rows]
    is_apart = (own > 0) & (cavity > 0) & facts.sound
    own, cavity = np.where(is_apart, own, 1.0), np.where(is_apart, cavity, 1.0)
    sent, down, b = 1 / (1 / own + known.step), 1 / (1 / cavity + known.step), drift[over]
    # the child's own mean is (mean (own + down) - down (rest + b)) / own, the parent's
    # (cavity rest + sent (that - b)) / (cavity + sent): solved for `rest`
    whole = all_mean * (cavity + sent) - sent * (mean * (own + down) / own - b * (down / own + 1))
    return np.where(is_apart, whole / (cavity - sent * down / own), all_mean)


class _Sweeps:
    """Posterior means of deviations from the expected steps, linear in what is observed."""

    def __init__(
        self, found: Marginals, tree: FamilyTree, facts: StepFacts, variance: float
    ) -> None:
        scores, known = (
            found.scores,
            found.parameters.padded_to(found.scores.size, found.scores.case_count),
        )
        self.weight, self.pull = own_evidence(known, scores)
        self._scores, self._tree, self.facts = scores, tree, facts
        sound = np.zeros(scores.size, bool)
        sound[facts.rows] = facts.sound
        alone = known.ruined | ((scores.counts > 0) & (scores.parents >= 0) & ~sound)
        prior = tree_prior(known, scores)
        drifts = np.zeros(scores.size)
        self._prior = prior._replace(step=variance, drift=drifts, alone=alone)

    def deviations(self, pull: Floats, prior: TreePrior | None = None) -> tuple[Floats, Posterior]:
        """Expected deviation by child, with the whole posterior."""
        facts = self.facts
        posterior = self._tree.sweep(self._scores.parents, self.weight, pull, prior or self._prior)
        steps = posterior.mean[facts.rows] - posterior.mean[facts.parents]
        return np.where(facts.sound, steps, 0.0), posterior

    def shifts(self, design: Floats) -> Floats:
        """By row and column: the shift of its reward if the expected steps grew by the column."""
        moved = np.zeros((self._scores.size, design.shape[1]))
        moved[self.facts.rows] = np.where(self.facts.sound[:, None], design, 0.0)
        above = np.where(self._prior.alone, -1, self._scores.parents).tolist()
        for row, parent in enumerate(above):
            if parent >= 0:
                moved[row] += moved[parent]
        return moved

    def response(self, shift: Floats) -> Floats:
        """Deviations if rewards were shifted so."""
        return self.deviations(self.weight * shift, self._prior._replace(origin_mean=0.0))[0]

    def variances(self, posterior: Posterior) -> Floats:
        """Posterior variance of each sound child's step."""
        rows = self.facts.rows
        own, cavity = (np.maximum(each[rows], 1e-300) for each in (posterior.own, posterior.cavity))
        return 1.0 / (1.0 / self._prior.step + 1.0 / (1.0 / own + 1.0 / cavity))


def _fit_effects(
    found: Marginals,
    tree: FamilyTree,
    facts: StepFacts,
    design: Floats,
    levels: Sequence[int],
) -> StepFit:
    """Effects by generalised least squares, each factor's drawn to their mean.

    What is expected of a step is linear in the effects, so that a sweep for each column gives the
    exact information; a further one gives what the scores say.
    """
    fit = StepFit(found.parameters.step, [GUESS**2 * found.parameters.step] * len(levels))
    shifts = _Sweeps(found, tree, facts, fit.variance).shifts(design)
    for _ in range(ROUNDS):
        fit = _refit_effects(_Sweeps(found, tree, facts, fit.variance), shifts, design, levels, fit)
    return fit


def _refit_effects(
    sweeps: _Sweeps, shifts: Floats, design: Floats, levels: Sequence[int], known: StepFit
) -> StepFit:
    """Effects by the variances of a fit, and the variances by these effects."""
    sound, variance = sweeps.facts.sound, known.variance
    seen, posterior = sweeps.deviations(sweeps.pull)
    moved = np.stack([sweeps.response(shift) for shift in shifts.T], axis=1)[sound]
    information = design[sound].T @ moved / variance
    score = design[sound].T @ seen[sound] / variance
    effects, covariance, spreads = _solve_effects(
        information, score, known.spreads, levels, variance
    )
    rest, unsure = seen[sound] - moved @ effects, sweeps.variances(posterior)[sound]
    means, variances = np.zeros(len(design)), np.zeros(len(design))
    means[sound], variances[sound] = rest + design[sound] @ effects, unsure
    variance = float((rest**2 + unsure).mean()) if len(rest) else variance
    return StepFit(variance, spreads, effects, covariance, means, variances)


def _solve_effects(
    information: Floats,
    score: Floats,
    spreads: list[float],
    levels: Sequence[int],
    variance: float,
) -> tuple[Floats, Floats, list[float]]:
    """Effects, their covariance, and the variance of each factor's effects."""
    ends = np.cumsum([2, *levels]).tolist()
    for _ in range(20):
        effects, covariance = _ridge(information, score, spreads, levels, variance)
        squares = effects**2 + np.diag(covariance)
        spreads = [
            (float(squares[first:last].sum()) + DOUBT * GUESS**2 * variance)
            / (last - first + DOUBT)
            for first, last in pairwise(ends)
        ]
    return *_ridge(information, score, spreads, levels, variance), spreads


def _ridge(
    information: Floats,
    score: Floats,
    spreads: list[float],
    levels: Sequence[int],
    variance: float,
) -> tuple[Floats, Floats]:
    """Effects and their covariance, given the variance of each factor's effects."""
    factors = [np.full(many, spread) for many, spread in zip(levels, spreads)]
    prior = np.concatenate([[100.0**2 * variance, 100.0**2], *factors])  # a flat prior: 100 steps
    covariance = np.linalg.inv(information + np.diag(1.0 / prior))
    covariance = (covariance + covariance.T) / 2
    return covariance @ score, covariance


def _factor_gains(
    found: Marginals,
    facts: StepFacts,
    fit: StepFit,
    design: Floats,
    factor: Ints,
    first: int,
    centre: float,
) -> list[LevelGain]:
    """Gain of each level: its children's, if all else had been as on the average of the run."""
    many = int(factor.max()) + 1
    others = design.copy()
    others[:, 0] = others[:, first : first + many] = 0.0
    sound = facts.sound
    average = others[sound].mean(axis=0) if sound.any() else others.mean(axis=0)
    means = fit.means - (others - average) @ fit.effects
    sds = np.sqrt(fit.variances)
    chances, densities = _normal_law(means / np.maximum(sds, 1e-300))
    chances = np.where(sound, chances, 0.0)
    gains = np.where(sound, np.maximum(means * chances + sds * densities, 0.0), 0.0)
    squares = np.where(sound, means * gains + sds**2 * chances, 0.0)  # of max(0, step)
    unit = float(found.parameters.scale.to_rewards(np.array([centre]), np.array([1.0]))[1][0])
    told: list[LevelGain] = []
    for level in range(many):
        mine = factor == level
        count = int(mine.sum())
        weight = count + AVERAGE
        gain, square, chance = (
            float(each[mine].sum() + AVERAGE * each.mean()) / weight
            for each in (gains, squares, chances)
        )
        contrast = average.copy()
        contrast[0] = contrast[first + level] = 1.0
        unsure = float(contrast @ fit.covariance @ contrast)
        unsure = max(0.0, unsure - fit.variance / max(1.0, float(sound[mine].sum())))
        sd = math.sqrt(max(0.0, square - gain**2) / weight + chance**2 * unsure)
        told.append(LevelGain(unit * gain, unit * sd, count))
    return told


def _normal_law(values: Floats) -> tuple[Floats, Floats]:
    """Distribution function and density of the standard normal law."""
    bounded = np.clip(values, -38.0, 38.0)
    chances = np.array([0.5 * math.erfc(-each / math.sqrt(2)) for each in bounded.tolist()])
    return chances, np.exp(-0.5 * bounded**2) / math.sqrt(2 * math.pi)
