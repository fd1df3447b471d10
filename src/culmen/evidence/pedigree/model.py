"""The value model of a run: one object for observations, parameters and their posterior."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from culmen.evidence.pedigree.arrays import Floats, Ints, sum_by_row
from culmen.evidence.pedigree.inference import (
    FailureChances,
    FailureModel,
    FailureShare,
    Inference,
    Marginals,
    ValueBeliefs,
)
from culmen.evidence.pedigree.learning import Learner, StepLaw
from culmen.evidence.pedigree.observations import Observations

NOTHING = np.zeros(0)


@dataclass(frozen=True, slots=True)
class Value:
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
