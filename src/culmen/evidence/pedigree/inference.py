"""Schedule of learning, the present posterior of all candidates, and their chances to fail."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from culmen.evidence.pedigree.arrays import Flags, Floats, Ints, padded_array
from culmen.evidence.pedigree.learning import (
    Learner,
    Learnt,
    Parameters,
    extended_posterior,
    next_turn,
    tree_prior,
)
from culmen.evidence.pedigree.observations import Observations
from culmen.evidence.pedigree.scale import ScaledScores
from culmen.evidence.pedigree.tree import FamilyTree, Posterior


class FailureChances(NamedTuple):
    """Posterior mean and standard deviation of each candidate's chance to fail.

    `step` is the standard deviation of the mean after one more evaluation: its information.
    """

    mean: Floats
    sd: Floats
    step: Floats


class FailureModel(Protocol):
    """A model of failures; a pure function, so that results do not depend on the calls."""

    def chances_to_fail(
        self, scored: Floats, failed: Floats, means: Floats, parents: Ints
    ) -> FailureChances:
        """Chances to fail of candidates with these counts of evaluations.

        All arrays have one element per candidate, in order of their first observation; candidates
        without any evaluation come last and must not influence the others. `means`: posterior means
        on the model's scale (nan: no candidate has a score yet). `parents`: places in these arrays,
        -1 for none. Absurd scores count as failed.
        """
        ...

    def counted_failures(self, failed: Floats) -> Floats:
        """Failures of each candidate that count against it."""
        ...


class FailureShare:
    """Share of failures of each candidate, shrunk to that of candidates that also scored.

    r = sum of failed / (sum of (scored + failed - 1) + 2)     over candidates with a score
    q = (failed + 2 r) / (scored + failed + 2)                 its sd as that of a Beta law
    """

    def chances_to_fail(
        self, scored: Floats, failed: Floats, means: Floats, parents: Ints
    ) -> FailureChances:
        """Chances by this rule; means and parents are not used."""
        both = scored > 0
        again = float((scored + failed)[both].sum() - both.sum())
        rate = float(failed[both].sum()) / (again + 2.0)
        trials = scored + failed
        share = (failed + 2.0 * rate) / (trials + 2.0)
        spread = np.sqrt(share * (1.0 - share))
        return FailureChances(share, spread / np.sqrt(trials + 3.0), spread / (trials + 3.0))

    def counted_failures(self, failed: Floats) -> Floats:
        """All failures."""
        return failed


class ValueBeliefs(NamedTuple):
    """Posterior of each candidate, by number.

    `mean` and `variance` of its true reward on the model's scale, `scored` and `failed`
    evaluations, the `drift` of its children, `ruined` flags, and its chance of failing
    (`failing_step`: as `FailureChances.step`).
    """

    mean: Floats
    variance: Floats
    scored: Floats
    failed: Floats
    drift: Floats
    ruined: Flags
    failing: Floats
    failing_sd: Floats
    failing_step: Floats

    def at_places(self, places: Ints) -> ValueBeliefs:
        """Beliefs in another order."""
        return ValueBeliefs(
            self.mean[places],
            self.variance[places],
            self.scored[places],
            self.failed[places],
            self.drift[places],
            self.ruined[places],
            self.failing[places],
            self.failing_sd[places],
            self.failing_step[places],
        )


class Marginals(NamedTuple):
    """Posterior after some observations, by row."""

    scores: ScaledScores
    parameters: Parameters
    posterior: Posterior


class Inference:
    """Parameters and posterior, as a pure function of the observations in their order.

    Parameters are learnt at turns, which the observations alone determine, each from those of the
    turn before. The posterior of all observations given them is computed on demand and is never an
    input of later results.
    """

    def __init__(
        self, observations: Observations, learner: Learner, failure_model: FailureModel
    ) -> None:
        self._observations, self._learner = observations, learner
        self._failure_model, self._tree = failure_model, FamilyTree()
        self._turns: list[int] = []  # counts of observations not learnt from yet
        self._next_turn = 1
        self._learnt: Learnt | None = None
        self._learnt_at = 0  # observations
        self._marginals: Marginals | None = None
        self._marginals_at = 0
        self._beliefs: tuple[tuple[int, int], ValueBeliefs] | None = (
            None  # by numbers of observations and of candidates
        )

    def append_observation(
        self, id: str, reward: float | None, case: str, drew: bool = False
    ) -> None:
        """Enter one observation; `drew`: it drew random numbers."""
        is_turn = self._observations.append(id, reward, case, drew)
        count = self._observations.count
        if is_turn or count >= self._next_turn:
            self._turns.append(count)
            self._next_turn = next_turn(count)

    def learnt_parameters(self) -> Parameters | None:
        """Parameters as of the last turn; None before any score."""
        for count in self._turns:
            known = self._learnt.parameters if self._learnt else None
            sample = self._observations.sample_of_first(count)
            self._learnt, self._learnt_at = self._learner.learn(known, sample, self._tree), count
        self._turns.clear()
        return self._learnt.parameters if self._learnt else None

    def marginals(self) -> Marginals | None:
        """Posterior of all observations; None before any score."""
        count = self._observations.count
        self.learnt_parameters()
        if self._marginals is None or self._marginals_at != count:
            self._marginals, self._marginals_at = self._infer_marginals(count), count
        return self._marginals

    def _infer_marginals(self, count: int) -> Marginals | None:
        if self._learnt is None:
            return None
        known, scores = self._learnt
        if self._learnt_at != count:
            scores = ScaledScores.from_sample(
                self._observations.sample_of_first(count), known.scale
            )
        return Marginals(scores, *extended_posterior(known, scores, self._tree))

    def low_reward(self) -> float:
        """A low reward for failures to count as (`ScaledScores.low_reward`); 0 before any score."""
        found = self.marginals()
        return 0.0 if found is None else found.scores.low_reward

    def value_beliefs(self) -> ValueBeliefs:
        """Posterior of each candidate after all observations."""
        known = self._observations.count, len(self._observations.ids)
        if self._beliefs is None or self._beliefs[0] != known:
            found = self.marginals()
            self._beliefs = (
                known,
                self._unscored_beliefs() if found is None else self._scored_beliefs(found),
            )
        return self._beliefs[1]

    def _unscored_beliefs(self) -> ValueBeliefs:
        size, rows = len(self._observations.ids), self._observations.rows
        failed, none = np.zeros(size), np.zeros(size)
        if self._observations.count:
            sample = self._observations.sample_of_first(self._observations.count)
            failed = np.append(sample.failures, 0.0)[rows]
        return ValueBeliefs(
            none, np.full(size, np.inf), none, failed, none, np.zeros(size, bool), none, none, none
        )

    def _scored_beliefs(self, found: Marginals) -> ValueBeliefs:
        """Beliefs of candidates that take part, then of the others, in order of their numbers."""
        places, parents = self._candidate_places()
        size, known = len(parents), found.parameters
        mean, variance = self._predicted_values(found, parents)
        scored = padded_array(found.scores.counts, size, 0.0)
        failed = self._failure_model.counted_failures(padded_array(found.scores.failed, size, 0.0))
        drift, ruined = (
            padded_array(known.drifts, size, known.drift),
            padded_array(known.ruined, size, False),
        )
        failing = self._failure_model.chances_to_fail(scored, failed, mean, parents)
        beliefs = ValueBeliefs(mean, variance, scored, failed, drift, ruined, *failing)
        return beliefs if places is None else beliefs.at_places(places)

    def _candidate_places(self) -> tuple[Ints | None, Ints]:
        """Place of each candidate: its row, or after all rows; and by place its parent's.

        None if every candidate's place is its number.
        """
        observations = self._observations
        rows, parents = observations.rows, observations.parents
        if observations.is_in_order:
            return None, parents
        absent = np.flatnonzero(rows < 0)
        places, size = rows.copy(), len(rows)
        places[absent] = np.arange(size - len(absent), size)
        of_parents = np.empty(size, np.int64)
        of_parents[places] = np.where(parents >= 0, places[np.maximum(parents, 0)], -1)
        return places, of_parents

    def _predicted_values(self, found: Marginals, parents: Ints) -> tuple[Floats, Floats]:
        """Means and variances by place; candidates that take no part inherit them."""
        first, size = found.scores.size, len(parents)
        mean = padded_array(found.posterior.mean, size, 0.0)
        variance = padded_array(found.posterior.variance, size, 0.0)
        if first == size:
            return mean, variance
        prior, known = tree_prior(found.parameters, found.scores), found.parameters
        drift, far = padded_array(known.drifts, size, known.drift), 1.0 / prior.origin_precision
        is_known = np.arange(size) < first
        left = np.arange(first, size)
        roots = left[parents[left] < 0]
        mean[roots], variance[roots], is_known[roots] = prior.origin_mean, far, True
        while len(left := left[~is_known[left]]):
            now = left[is_known[parents[left]]]
            above = parents[now]
            mean[now] = mean[above] + drift[above]
            variance[now] = np.minimum(variance[above], far) + prior.step
            is_known[now] = True
        return mean, variance
