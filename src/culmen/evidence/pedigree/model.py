"""The value model of a run: one object for observations, parameters and their posterior.

Its parts: the interface for models of failures, the schedule of learning, and the present posterior
of all candidates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import msgspec
import numpy as np

from culmen.evidence.pedigree.arrays import Flags, Floats, Ints, padded_array, sum_by_row
from culmen.evidence.pedigree.learning import (
    Learner,
    Learnt,
    Parameters,
    StepLaw,
    extended_posterior,
    next_turn,
    tree_prior,
)
from culmen.evidence.pedigree.observations import Observations
from culmen.evidence.pedigree.scale import ScaledScores
from culmen.evidence.pedigree.tree import FamilyTree, Posterior


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


NOTHING = np.zeros(0)


class Value(msgspec.Struct, frozen=True):
    """Expected reward of a candidate, failures at the floor, and its standard deviation.

    From `count` scored evaluations and `failures` of its own and from its relatives; nan while
    no candidate has a score.
    """

    mean: float
    sd: float
    count: int
    failures: int


class Noise(NamedTuple):
    """Estimated noise of the evaluator.

    `exact` while no repeat differed (a hypothesis until `repeats` were made); `sd` of one
    evaluation in units of the score (on a logarithmic scale: relative).
    """

    exact: bool
    sd: float
    repeats: int


class ScaledModel:
    """Observations of one run, and the posterior of all candidates on the model's scale.

    Candidates are numbered as they are added; all arrays are by number.
    """

    def __init__(
        self,
        floor: float | None = None,
        exact: bool | None = None,
        prior: StepLaw | None = None,
        failing: FailureModel | None = None,
    ) -> None:
        self._floor = floor
        self._observations = Observations(exact)
        self._inference = Inference(self._observations, Learner(prior), failing or FailureShare())

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def ids(self) -> list[str]:
        """Candidates by number."""
        return self._observations.ids

    @property
    def index(self) -> dict[str, int]:
        """Numbers of the candidates."""
        return self._observations.index

    @property
    def parents(self) -> Ints:
        """Number of each candidate's parent, -1 for none."""
        return self._observations.parents

    def add_candidate(self, id: str, parents: Sequence[str] = ()) -> int:
        """Enter a candidate and return its number; a known one stays the same.

        Its parent is the first of `parents` that is known. Beliefs about others do not change.
        """
        return self._observations.add_candidate(id, parents)

    def observe(self, id: str, reward: float | None, case: str = "", drew: bool = False) -> None:
        """Enter one evaluation of a candidate on a case; None: it failed.

        From one that `drew` random numbers on, scores are not assumed to be exact.
        """
        self._inference.append_observation(id, reward, case, drew)

    @property
    def declared_exact(self) -> bool | None:
        """The user's declaration of exactness."""
        return self._observations.declared

    @property
    def evaluations(self) -> int:
        """Number of observations, failures included."""
        return self._observations.count

    @property
    def confirmed_repeats(self) -> int:
        """Number of repeats that gave the same value, one that no other candidate has."""
        return self._observations.confirmed

    @property
    def has_differed(self) -> bool:
        """True if a repeat differed from the first evaluation, or an evaluation drew."""
        return self._observations.differed_at is not None

    @property
    def is_exact(self) -> bool:
        """True if repeating an evaluation on the same case is assumed to give the same score."""
        return not self.has_differed if self.declared_exact is None else self.declared_exact

    @property
    def is_noiseless(self) -> bool:
        """True if one evaluation determines a candidate: exact, and at most one case."""
        return self.is_exact and self._observations.case_count <= 1

    @property
    def mean(self) -> Floats:
        """Posterior mean of each candidate on the model's scale; 0 before any score."""
        return self._inference.value_beliefs().mean

    @property
    def variance(self) -> Floats:
        """Posterior variance of each candidate on the model's scale; inf before any score."""
        return self._inference.value_beliefs().variance

    @property
    def scored_counts(self) -> Floats:
        """Scored evaluations of each candidate, without absurd scores."""
        return self._inference.value_beliefs().scored

    @property
    def failed_counts(self) -> Floats:
        """Failed evaluations of each candidate, absurd scores included."""
        return self._inference.value_beliefs().failed

    @property
    def drift(self) -> Floats:
        """Expected step of a child of each candidate, on the model's scale."""
        return self._inference.value_beliefs().drift

    def children_of(self, id: str) -> list[str]:
        """Ids of the candidates with this parent, oldest first."""
        return [self.ids[child] for child in np.flatnonzero(self.parents == self.index[id])]

    def scaled_worths(self) -> Floats:
        """Posterior mean of each candidate on the model's scale, failures at the floor.

        -inf for candidates without a score.
        """
        beliefs, known = self._inference.value_beliefs(), self._inference.learnt_parameters()
        if known is None:
            return np.full(len(self), -np.inf)
        worth = beliefs.mean
        if beliefs.failing.any():
            floor = np.minimum(known.scale.to_model_scale(np.array([self.floor]))[0], worth)
            worth = worth - beliefs.failing * (worth - floor)
        return np.where(beliefs.scored > 0, worth, -np.inf)

    @property
    def failing_chances(self) -> FailureChances:
        """Chance of each candidate to fail once more."""
        beliefs = self._inference.value_beliefs()
        return FailureChances(beliefs.failing, beliefs.failing_sd, beliefs.failing_step)

    @property
    def floor(self) -> float:
        """Reward of a failure: the declared one, else `ScaledScores.low_reward`."""
        return self._inference.low_reward() if self._floor is None else self._floor

    @property
    def noise_step_variances(self) -> tuple[float, float]:
        """Variance of one evaluation (s²) and of a step (t²) on the model's scale, or nan."""
        known = self._inference.learnt_parameters()
        return (math.nan, math.nan) if known is None else (known.noise, known.step)

    def noise_degrees(self) -> float:
        """Degrees of freedom for the noise from repeats."""
        found = self._inference.marginals()
        return 0.0 if found is None else found.scores.degrees


class ValueModel(ScaledModel):
    """The model of one run, in units of its rewards. Rewards are higher-is-better.

    `floor` is the reward of a failure. `exact` is the user's declaration that repeating an
    evaluation gives the same score; None: to be found out. `prior` is the law learnt by an earlier
    run of the same task, `failing` the model of failures.
    """

    def __init__(
        self,
        floor: float | None = None,
        exact: bool | None = None,
        prior: StepLaw | None = None,
        failing: FailureModel | None = None,
    ) -> None:
        super().__init__(floor, exact, prior, failing)
        self._rewards: tuple[ValueBeliefs | None, tuple[Floats, Floats]] = None, (NOTHING, NOTHING)
        self._barren: dict[int, int] = {}  # requests for children that brought nothing new

    def count_barren_request(self, id: str) -> None:
        """Count a request for children of this candidate that gave no new one."""
        self._barren[self.index[id]] = self._barren.get(self.index[id], 0) + 1

    def child_success_chances(self) -> Floats:
        """Chance that a child of each candidate is scored and not ruined, shrunk to that of all."""
        beliefs, size = self._inference.value_beliefs(), len(self)
        tried = (self.parents >= 0) & (beliefs.scored + beliefs.failed > 0)
        good = tried & (beliefs.scored > 0) & ~beliefs.ruined
        share = (good.sum() + 1.0) / (tried.sum() + 1.0)
        asked = sum_by_row(self.parents, tried, size) + 2.0
        for number, times in self._barren.items():
            asked[number] += times
        return (sum_by_row(self.parents, good, size) + 2.0 * share) / asked

    def marginals_of(self, ids: Sequence[str]) -> tuple[Marginals, Ints] | None:
        """Posterior of the whole run and the rows of these candidates; None if there is none."""
        found = self._inference.marginals()
        if found is None or not len(ids):
            return None
        return found, self._observations.rows[[self.index[id] for id in ids]]

    def value_of(self, id: str) -> Value:
        """Value of a candidate in units of the reward; KeyError for an unknown one."""
        number, beliefs = self.index[id], self._inference.value_beliefs()
        count, failures = int(beliefs.scored[number]), int(beliefs.failed[number])
        mean, sd = self._in_rewards()
        return Value(float(mean[number]), float(sd[number]), count, failures)

    def expected_rewards(self) -> tuple[Floats, Floats]:
        """Mean and standard deviation of each `value`; nan for candidates without a score."""
        known = self.scored_counts > 0
        mean, sd = self._in_rewards()
        return np.where(known, mean, np.nan), np.where(known, sd, np.nan)

    def sound_rewards(self) -> tuple[Floats, Floats]:
        """Means and standard deviations of rewards of evaluations that do not fail."""
        beliefs, known = self._inference.value_beliefs(), self._inference.learnt_parameters()
        if known is None:
            return np.full(len(beliefs.mean), np.nan), np.full(len(beliefs.mean), np.inf)
        return known.scale.to_rewards(beliefs.mean, np.sqrt(beliefs.variance))

    def reward_of_scaled(self, mean: float, sd: float) -> tuple[float, float]:
        """A mean and a standard deviation on the model's scale, in units of the reward."""
        known = self._inference.learnt_parameters()
        if known is None:
            return mean, sd
        means, sds = known.scale.to_rewards(np.array([mean]), np.array([sd]))
        return float(means[0]), float(sds[0])

    def _in_rewards(self) -> tuple[Floats, Floats]:
        """Means and standard deviations of the values of all candidates."""
        beliefs = self._inference.value_beliefs()
        if self._rewards[0] is not beliefs:
            mean, sd = self.sound_rewards()
            if self._inference.learnt_parameters() is not None:
                above = np.maximum(mean - self.floor, 0.0)
                mean = mean - beliefs.failing * above
                sd = np.hypot((1.0 - beliefs.failing) * sd, beliefs.failing_sd * above)
            self._rewards = beliefs, (mean, sd)
        return self._rewards[1]

    @property
    def noise(self) -> Noise:
        """Estimated noise of the evaluator."""
        variance = self.noise_step_variances[0]
        sd = 0.0 if self.is_noiseless or not variance >= 0 else math.sqrt(variance)
        return Noise(self.is_exact, sd, self._observations.repeats)

    @property
    def step_law(self) -> StepLaw | None:
        """Learnt law of steps and noise; None before any score."""
        known = self._inference.learnt_parameters()
        if known is None:
            return None
        noise, step = math.sqrt(known.noise), math.sqrt(known.step)
        return StepLaw(noise, step, known.drift, known.scale.sign)
