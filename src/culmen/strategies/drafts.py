"""Drafts of one run: which may be the best, and the worth of telling them apart or of more."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from culmen.core.evaluation import Case, Rollout
from culmen.core.ports import Lab
from culmen.evidence.evidence import evidence_of
from culmen.strategies.costs import Costs
from culmen.strategies.memory.gain import expected_gain, largest_indices, normal_cdf

Floats = NDArray[np.float64]

_CLEAR = 3.0  # standard deviations by which the leader of drafts must lead to be clear
_REPEATS = 3  # most repeats to find out if scores have noise
_EVALUATIONS = 16  # evaluations of the run before each of these repeats
_SPLITS = 4  # splits of the rest of the budget that are weighed, besides that without drafts
_AMONG = 25  # drafts nearest to the leader of which the best is expected
_GRID, _TAIL = 64, 5.0  # points of an integral, and its limits in standard deviations


class DraftStandings(NamedTuple):
    """Scored drafts: worth, and its standard deviation once the looks under way are made.

    `rows` are their places in the account, ascending.
    """

    rows: NDArray[np.intp]
    worth: Floats
    sd: Floats

    @property
    def best(self) -> int:
        """Place of the leader."""
        return int(self.worth.argmax())

    def gap_errors(self) -> Floats:
        """Standard deviations of the gaps to the leader."""
        return np.hypot(self.sd, self.sd[self.best])


class Drafts:
    """Drafts of a run, the looks at them, and what is known of each.

    `looks` counts evaluations by draft and case, those under way too; `flying` the latter alone.
    """

    def __init__(self, lab: Lab) -> None:
        self.lab, self.costs, self.evidence = lab, Costs(lab), evidence_of(lab)
        self.cases: tuple[Case | None, ...] = lab.task.split("train") or (None,)
        self.looks: dict[str, dict[str, int]] = {}
        self.flying: dict[str, int] = {}

    def begin_looks(self, name: str, cases: Sequence[Case | None]) -> None:
        """Count evaluations as under way."""
        looks = self.looks.setdefault(name, {})
        for case in cases:
            looks[_case_id(case)] = looks.get(_case_id(case), 0) + 1
        self.flying[name] = self.flying.get(name, 0) + len(cases)

    def end_looks(self, rollout: Rollout) -> None:
        """Count evaluations as made."""
        name = rollout.candidate.id
        self.flying[name] -= len(rollout.observations)
        if not self.flying[name]:
            del self.flying[name]
        for seen in rollout.observations:
            self.costs.add_evaluation(seen.seconds, seen.usage)

    def least_seen_cases(self, name: str) -> list[Case | None]:
        """The cases on which a draft was evaluated least."""
        looks = self.looks.get(name, {})
        counts = [looks.get(_case_id(case), 0) for case in self.cases]
        return [case for case, made in zip(self.cases, counts) if made == min(counts)]

    def standings(self) -> DraftStandings:
        """All drafts that scored; what no evaluation can tell more of has no deviation."""
        beliefs, account = self.evidence.ranking.beliefs, self.evidence.account
        rows = np.flatnonzero(beliefs.known)
        sd = beliefs.worth_sd[rows].copy()
        noise = self._noise_near_best(beliefs.worth[rows]) if self.flying else 0.0
        known = DraftStandings(rows, beliefs.worth[rows], sd)
        if account.is_settled and len(self.cases) == 1:
            sd[:] = 0.0
        for name, looks in self.looks.items() if account.is_settled and sd.any() else ():
            place = self._place_of(name, known)
            if place is not None and len(looks) >= len(self.cases):
                sd[place] = 0.0
        for name, flying in self.flying.items():
            place = self._place_of(name, known)
            if place is not None and sd[place] > 0.0 and noise > 0.0:
                sd[place] = (sd[place] ** -2 + flying / noise) ** -0.5
        return known

    def _noise_near_best(self, worth: Floats) -> float:
        """Variance of one evaluation of a draft near the leader; 0 if nothing differed yet."""
        level = float(worth.max(initial=-np.inf))
        return self.evidence.ranking.noise_at(level).within or 0.0 if np.isfinite(level) else 0.0

    def _place_of(self, name: str, known: DraftStandings) -> int | None:
        """The place of a draft among those that scored; None if it is none of them."""
        tally = self.evidence.account.tally(name)
        if tally is None:
            return None
        place = int(np.searchsorted(known.rows, tally.order))
        return place if place < len(known.rows) and known.rows[place] == tally.order else None

    def may_be_best(self, name: str) -> bool:
        """True if a draft is within a standard deviation of the leader, or has no score yet."""
        known = self.standings()
        place = self._place_of(name, known)
        if place is None:
            return not self._is_failing(name)
        return bool(known.worth[known.best] - known.worth[place] <= known.gap_errors()[place])

    def _is_failing(self, name: str) -> bool:
        tally = self.evidence.account.tally(name)
        return tally is not None and tally.failures > 0

    def next_compared(self) -> str:
        """The less known one of the leader and its strongest rival; "" if the leader is clear."""
        known = self.standings()
        if len(known.rows) < 2 or self.lab.task.objective.metrics:
            return ""
        best, errors = known.best, known.gap_errors()
        leader = self.evidence.account.id_at(int(known.rows[best]))
        if self._should_measure_noise(leader):
            return leader
        gaps = known.worth[best] - known.worth
        gains = np.where(gaps < _CLEAR * errors, expected_gain(gaps, errors), 0.0)
        gains[best] = 0.0
        rival = int(gains.argmax())
        if not gains[rival] > 0.0:
            return ""
        if known.sd[best] > known.sd[rival]:
            return leader
        return self.evidence.account.id_at(int(known.rows[rival]))

    def _should_measure_noise(self, leader: str) -> bool:
        """True if a repeat of the leader is to show if scores have noise."""
        account = self.evidence.account
        few = account.repeated.repeats < min(_REPEATS, account.evaluations // _EVALUATIONS)
        few = few and not account.is_settled
        return few and account.is_exact is None and not self.flying.get(leader)

    def should_compare(self, proposals: int) -> bool:
        """True if more drafts, `proposals` a request, are worth less than telling these apart.

        The splits of the rest of the budget between the two are weighed.
        """
        known, share = self.standings(), self.costs.evaluation_share()
        if len(known.rows) < 2 or not share > 0.0 or self.lab.task.objective.metrics:
            return False
        noise = self._noise_near_best(known.worth)
        if self._should_measure_noise(self.evidence.account.id_at(int(known.rows[known.best]))):
            return True
        if not noise or not known.sd.any():
            return False
        left, price = 1.0 / share, self.costs.request_share(proposals) / share
        most = int(left / price)
        requests = [0, *(max(1, round(most * part / _SPLITS)) for part in range(1, _SPLITS + 1))]
        values = [
            gain_of_drafts(known.worth, each * proposals)
            + gain_of_looks(known, noise, left - each * price)
            for each in requests
        ]
        return max(values[1:]) <= values[0]


def gain_of_drafts(worth: Floats, more: int) -> float:
    """Expected rise of the best of normally distributed drafts by `more` of them.

    The largest of n is the normal score of Blom (1958).
    """
    scores = [
        NormalDist().inv_cdf((count - 0.375) / (count + 0.25))
        for count in (len(worth), len(worth) + more)
    ]
    return float(np.std(worth, ddof=1)) * (scores[1] - scores[0])


def gain_of_looks(known: DraftStandings, noise: float, looks: float) -> float:
    """Expected rise of the best posterior mean by `looks` at the drafts near the leader.

    `noise` is the variance of one. The looks are spread evenly over the drafts, each weighed by
    how near it is; the expected maximum of independent normals is an integral over a grid.
    """
    if not looks > 0.0:
        return 0.0
    gaps: Floats = known.worth[known.best] - known.worth
    sd: Floats = np.maximum(known.sd, 1e-9 * float(known.sd.max()))
    near: Floats = np.exp(-0.5 * (gaps / np.hypot(sd, sd[known.best])) ** 2)
    each = looks / float(near.sum())
    steps: Floats = sd * np.sqrt(each / (each + noise / sd**2))  # of the posterior means
    kept = largest_indices(near, _AMONG)
    low, high = -_TAIL * float(steps[known.best]), _TAIL * float(steps[kept].max())
    grid: Floats = np.linspace(low, high, _GRID)
    scaled: Floats = (grid[:, None] + gaps[kept]) / steps[kept]
    below: Floats = normal_cdf(scaled.ravel()).reshape(scaled.shape).prod(axis=1)
    return high - float((below[1:] + below[:-1]).sum() / 2 * (grid[1] - grid[0]))


def _case_id(case: Case | None) -> str:
    return "" if case is None else case.id
