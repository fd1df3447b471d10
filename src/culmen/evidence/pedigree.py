"""A value model of a whole run: what is known of every candidate, from its own evaluations and from its relatives'.

Quantitative genetics has estimated values on family trees like this since 1950 (C. R. Henderson's animal model and its
best linear unbiased prediction); inference is exact, by one pass up the tree and one down.

    true reward of a child = its parent's + step            step ~ N(m_p, t²), m_p around the mean drift mu
    observation            = true reward + case effect + noise       noise ~ N(0, s²)

Every number in it (mu, t, s, case effects) is estimated from the run itself, so the unit of the score does not matter.
Where an evaluator seems exact, values are what was measured. Failures are kept apart from scores: a candidate that
scores 1 half of the time and fails otherwise is worth half of the way from the floor to 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Item = TypeVar("Item", bound=np.generic)

DAMPING = 0.85  # of the mean drift: an undamped one makes a search timid
KIN = 6.0  # pseudo-children with the mean drift that each parent has
PRIOR = 2.0  # pseudo-steps of the first guess of t²
KNOWN = 10.0  # pseudo-steps, and repeats, of what an earlier run has learnt
LOST = 0.6  # share of the degrees of freedom that the parents' drifts take from t²
DOUBT = 12.0  # repeats that the estimate of the noise from all observations counts as, at most
TINY = 1e-8  # noise variance of an exact evaluator, as a share of the scores' variance
EVIDENCE = 3.0  # by how much the log likelihood of steps must be larger for scores to be taken as logarithms
ABSURD = 30.0  # spreads below the median and the first candidate from which a score counts as a failure
FAMILY = 3  # candidates without parents from which they tell what to expect of one another
GROUP = 16  # least number of nodes of one height that are done at once
RUIN = 3.0  # of what children gain, as a deviation: so far below its parent a child is ruined,
RUINED = 0.2  # where at least this share of the children is, and
FEW = 5  # at least so many are, and so many gained
HEAVY = 5.0  # Student's degrees of freedom, for noise with heavy tails


@dataclass(frozen=True, slots=True)
class Value:
    """What is known of one candidate: reward expected (failures at the floor) and its standard deviation, from `count`
    scored evaluations of its own and from its relatives; nan while nothing is known."""

    mean: float
    sd: float
    count: int
    failures: int


class Noise(NamedTuple):
    """What was found of the evaluator: `exact` while no repeat differed (a hypothesis until `repeats` were made), `sd`
    of one evaluation in units of the score (on a logarithmic scale: relative)."""

    exact: bool
    sd: float
    repeats: int


class StepLaw(NamedTuple):
    """How children differ from parents and evaluations from the truth, as deviations in units of the score; of
    logarithmic scores (`sign` not 0: that of all rewards) as logarithms."""

    noise: float
    step: float
    drift: float
    sign: int = 0


class ValueModel:
    """The model of one run. Rewards are higher-is-better; `floor` is the least one can be (None: the least seen).

    `exact` is a user's word on whether repeating an evaluation gives the same score; None: found out. Nodes are
    numbered as they are added; `index` gives a candidate's number, `parents` their first parents' (-1: none). `prior`
    is what was learnt of the same task before.
    """

    def __init__(self, floor: float | None = None, exact: bool | None = None, prior: StepLaw | None = None) -> None:
        self.declared, self._floor, self._prior = exact, floor, prior
        self.index: dict[str, int] = {}
        self.ids: list[str] = []
        self._parent = np.zeros(64, np.int64)
        self._height = np.zeros(64, np.int64)  # of a node above its lowest descendant
        self._sorted = 0  # how many nodes are sorted by height
        self._groups: list[Ints] = []
        self._top, self._top_parent = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self._failures = np.zeros(64)
        self._node, self._case = np.zeros(64, np.int64), np.zeros(64, np.int64)
        self._raw = np.zeros(64)
        self._count = self._entered = self._again = 0
        self._barren: dict[int, int] = {}  # requests for children that brought nothing new
        self._cases: dict[str, int] = {}
        self._firsts: dict[tuple[int, int], float] = {}  # first score of a node on a case
        self._values: dict[float, int] = {}  # which candidate had this very score (-1: several)
        self.confirmed = 0  # repeats that gave the same value, one that no other candidate has
        self.differed = False  # a repeat from the first
        self._scale: _Scale | None = None
        self._least: tuple[tuple[int, _Scale | None], float] | None = None  # the floor that was seen, and with what
        self._next_look = 0
        self._s2 = self._t2 = self._mu = math.nan
        self._t0, self._weight = 0.0, PRIOR
        self._between = self._centre = 0.0  # variance (0: unknown) and mean of candidates without parents
        self._effects = np.zeros(1)
        self._drift = np.zeros(0)
        self._ruined = np.zeros(0, bool)
        self._fresh = self._settled = False
        self.mean: Floats = np.zeros(0)
        self.variance: Floats = np.zeros(0)
        # sums of the observations, made anew by `update`
        self._n: Floats = np.zeros(0)
        self._absurd: Floats = np.zeros(0)
        self._failing: Floats = np.zeros(0)
        self._y: Floats = np.zeros(0)
        self._weights: Floats = np.zeros(0)
        self._own: Floats = np.zeros(0)
        self._cavity: Floats = np.zeros(0)
        self._at: Ints = np.zeros(0, np.int64)
        self._of: Ints = np.zeros(0, np.int64)
        self._df = 0.0

    def __len__(self) -> int:
        return len(self.ids)

    def add(self, id: str, parents: Sequence[str] = ()) -> int:
        """Enter a candidate with its parents, of which the first that is known counts; a known one stays as it is."""
        if id in self.index:
            return self.index[id]
        node = self.index[id] = len(self.ids)
        self.ids.append(id)
        self._parent, self._height = _room(self._parent, node), _room(self._height, node)
        self._failures = _room(self._failures, node)
        above = next((self.index[p] for p in parents if p in self.index and p != id), -1)
        self._parent[node] = above
        height = 0
        while above >= 0 and self._height[above] <= height:
            height += 1
            self._height[above], above = height, int(self._parent[above])
        self._fresh = False
        return node

    def observe(self, id: str, reward: float | None, case: str = "") -> None:
        """Enter one evaluation of a candidate on a case; None: it failed."""
        node = self.add(id)
        self._fresh = False
        self._entered += 1
        if reward is None:
            self._failures[node] += 1
            return
        place = self._count
        self._node, self._case = _room(self._node, place), _room(self._case, place)
        self._raw = _room(self._raw, place)
        self._node[place], self._raw[place] = node, reward
        number = self._case[place] = self._cases.setdefault(case, len(self._cases))
        self._count += 1
        self._repeat(node, int(number), reward)

    def _repeat(self, node: int, case: int, reward: float) -> None:
        """Judge exactness: two equal values count for it only if no other candidate has that value."""
        known = (node, case) in self._firsts
        first = self._firsts.setdefault((node, case), reward)
        self._again += known
        if reward != first:
            self.differed = True
        elif known and self._values.get(reward) == node:
            self.confirmed += 1
        self._values[reward] = node if self._values.get(reward, node) == node else -1

    def barren(self, id: str) -> None:
        """A request for children of this candidate brought nothing new."""
        self._barren[self.index[id]] = self._barren.get(self.index[id], 0) + 1

    @property
    def evaluations(self) -> int:
        """Observations entered so far, failures too."""
        return self._entered

    @property
    def exact(self) -> bool:
        """Whether repeating an evaluation on the same case is taken to give the same score."""
        return not self.differed if self.declared is None else self.declared

    @property
    def noiseless(self) -> bool:
        """Whether one evaluation tells all: exact, and there is at most one case."""
        return self.exact and len(self._cases) <= 1

    @property
    def parents(self) -> Ints:
        """First parent of each node, -1 for none."""
        return self._parent[: len(self)]

    @property
    def scored(self) -> Floats:
        """Scored evaluations of each node, without absurd scores."""
        self.update()
        return self._n

    @property
    def failed(self) -> Floats:
        """Failed evaluations of each node, absurd scores among them."""
        self.update()
        return self._failures[: len(self)] + self._absurd

    excused: dict[int, int] = {}

    def estimates(self) -> tuple[Floats, Floats]:
        """Posterior mean of each node's reward without failures, and its standard deviation."""
        self.update()
        if self._scale is None:
            return np.full(len(self), np.nan), np.full(len(self), np.inf)
        mean, sd = self.mean, np.sqrt(self.variance)
        if self._scale.sign:
            size = np.exp(np.minimum(self._scale.sign * mean, 700.0))
            mean, sd = self._scale.sign * size, size * sd
        return mean, sd

    def children(self, id: str) -> list[str]:
        """Ids of the candidates whose first parent this is, oldest first."""
        return [self.ids[i] for i in np.flatnonzero(self.parents == self.index[id])]

    def value(self, id: str) -> Value:
        """What is known of a candidate, in units of the reward; KeyError for an unknown one."""
        self.update()
        node = self.index[id]
        count, failures = int(self._n[node]), int(self._failures[node] + self._absurd[node])
        if self._scale is None:
            return Value(math.nan, math.nan, count, failures)
        mean, sd = self._scale.back(self.mean[node], math.sqrt(self.variance[node]))
        share = float(self._failing[node])
        floor = min(self.floor, mean)
        return Value(
            mean - share * (mean - floor), math.hypot((1 - share) * sd, self._flaw(node, mean)), count, failures
        )

    def worth(self) -> Floats:
        """Posterior mean of each node on the model's scale with failures at the floor; -inf for nodes without score."""
        self.update()
        if self._scale is None:
            return np.full(len(self), -np.inf)
        floor = np.minimum(self._scale.forth(np.array([self.floor]))[0], self.mean)
        return np.where(self._n > 0, self.mean - self._failing * (self.mean - floor), -np.inf)

    def expected(self) -> tuple[Floats, Floats]:
        """Posterior mean of each node, failures at the floor, and its standard deviation, in units of the reward; nan
        for nodes without score."""
        worth = self.worth()
        known = np.isfinite(worth)
        sd = np.where(known, np.sqrt(np.where(known, self.variance, 0.0)), np.nan)
        mean = np.where(known, worth, np.nan)
        if self._scale is not None and self._scale.sign:
            size = np.exp(np.minimum(self._scale.sign * mean, 700.0))
            mean, sd = self._scale.sign * size, size * sd
        return mean, sd

    @property
    def floor(self) -> float:
        """The reward of a failure: the declared one, else the least that was seen (absurd ones apart)."""
        if self._floor is not None:
            return self._floor
        known = self._count, self._scale
        if self._least is None or self._least[0] != known:
            good = self._raw[: self._count]
            good = good[self._scale.sound(good)] if self._scale else good
            self._least = known, float(good.min()) if len(good) else 0.0
        return self._least[1]

    @property
    def noise(self) -> Noise:
        """What was found of the evaluator's noise."""
        self.update()
        sd = 0.0 if self.noiseless or not self._s2 >= 0 else math.sqrt(self._s2)
        return Noise(self.exact, sd, self._again)

    @property
    def step(self) -> tuple[float, float]:
        """Variance of one evaluation (s²) and of a child's step (t²), on the model's scale; nan before any score."""
        self.update()
        return self._s2, self._t2

    @property
    def law(self) -> StepLaw | None:
        """What was learnt of steps and noise; None before any score."""
        self.update()
        if self._scale is None:
            return None
        return StepLaw(math.sqrt(self._s2), math.sqrt(self._t2), self._mu, self._scale.sign)

    @property
    def drift(self) -> Floats:
        """Expected step of a child of each node, on the model's scale."""
        self.update()
        return self._drift

    def births(self) -> Floats:
        """Chance that a child of each node is sound: scored, and not ruined; shrunk to that of all children."""
        self.update()
        below = self.parents >= 0
        tried = below & (self._n + self._failures[: len(self)] + self._absurd > 0)
        good = tried & (self._n > 0) & ~self._ruined
        share = (good.sum() + 1.0) / (tried.sum() + 1.0)
        size = len(self)
        asked = _tally(self.parents, tried, size) + 2.0
        for node, times in self._barren.items():
            asked[node] += times
        return (_tally(self.parents, good, size) + 2.0 * share) / asked

    def degrees(self) -> float:
        """Degrees of freedom of what repeats alone tell of the noise."""
        self.update()
        return self._df

    def update(self) -> None:
        """Bring the model up to date: sweeps until its numbers settle; at most three once they have."""
        if self._fresh:
            return
        self._fresh = True
        self._arrange()
        if self._scale is None:
            self.mean, self.variance = np.zeros(len(self)), np.full(len(self), np.inf)
            self._drift, self._ruined = np.zeros(len(self)), np.zeros(len(self), bool)
            return
        for _ in range(3 if self._settled else 30):
            before = (self._s2, self._t2, self._between)
            self._sweep()
            self._find_ruined()
            self._learn()
            after = (self._s2, self._t2, self._between)
            if all(abs(now - old) <= 0.03 * old for now, old in zip(after, before)):
                self._settled = True
                break

    # -- sums of the observations -------------------------------------------------------------------------------------

    def _arrange(self) -> None:
        """Scale, absurd scores, sums per node, repeats."""
        size, raw = len(self), self._raw[: self._count]
        if self._count and (self._scale is None or self._count >= self._next_look):
            new = _Scale.of(raw, float(raw[0]), *self._pairs_of_kin(raw))
            self._next_look = max(self._count + 1, int(self._count * 1.25))
            if self._scale is None or new.sign != self._scale.sign or self._count <= 8:
                self._s2 = self._t2 = math.nan
                self._settled = False
            self._scale = new
        if self._scale is None:
            self._n, self._absurd, self._failing = np.zeros(size), np.zeros(size), np.zeros(size)
            return
        sound = self._scale.sound(raw)
        self._at, self._of = self._node[: self._count][sound], self._case[: self._count][sound]
        self._y = self._scale.forth(raw[sound])
        self._absurd = _tally(self._node[: self._count], ~sound, size)
        self._n = _tally(self._at, None, size)
        if len(self._effects) < len(self._cases):
            self._effects = np.concatenate([self._effects, np.zeros(len(self._cases) - len(self._effects))])
        self._weights = np.ones(len(self._y))
        self._flaws(size)
        self._kin(size)

    def _pairs_of_kin(self, raw: Floats) -> tuple[Floats, Floats]:
        """Mean rewards of parents and of their children, where both were scored."""
        size, at = len(self), self._node[: self._count]
        counts = _tally(at, None, size)
        means = _tally(at, raw, size) / np.maximum(counts, 1)
        children = np.flatnonzero((self.parents >= 0) & (counts > 0) & (counts[np.maximum(self.parents, 0)] > 0))
        return means[self.parents[children]], means[children]

    def _flaws(self, size: int) -> None:
        """Chance of each candidate to fail: its own share, shrunk to that of candidates that also scored."""
        failed = self._failures[:size] + self._absurd
        both = self._n > 0
        again = float((self._n + failed)[both].sum() - both.sum())
        rate = float(failed[both].sum()) / (again + 2.0)
        self._failing = (failed + 2.0 * rate) / (self._n + failed + 2.0)

    def _flaw(self, node: int, mean: float) -> float:
        """Standard deviation that the uncertain chance to fail adds to a value."""
        share = float(self._failing[node])
        trials = float(self._n[node] + self._failures[node] + self._absurd[node])
        return math.sqrt(share * (1 - share) / (trials + 3.0)) * max(0.0, mean - self.floor)

    def _kin(self, size: int) -> None:
        """Nodes by height."""
        if self._sorted != size:
            self._sorted, heights = size, self._height[:size]
            counts = np.bincount(heights)
            high = int((counts >= GROUP).sum())  # as many nodes or fewer have the next height: each needs its own child
            order = np.argsort(heights, kind="stable")
            ends = np.cumsum(counts)[:high]
            self._groups = np.split(order, ends)[:high]
            self._top = np.sort(order[int(ends[-1]) if high else 0 :])
            place = np.full(size + 1, -1)
            place[self._top] = np.arange(len(self._top))
            self._top_parent = place[self._parent[self._top]]
        if not self._t2 > 0:
            self._guess()

    def _guess(self) -> None:
        """First numbers: those of the prior, else from the differences between children and parents."""
        size, prior = len(self), self._prior
        self._weight = PRIOR
        if prior is not None and self._scale is not None and prior.sign == self._scale.sign and prior.step > 0:
            self._weight = KNOWN
            self._t0 = self._t2 = prior.step**2
            self._s2 = TINY * self._t2 if self.noiseless else max(prior.noise**2, 1e-9 * self._t2)
            self._mu, self._drift = prior.drift, np.full(size, prior.drift)
            return
        y = _tally(self._at, self._y, size) / np.maximum(self._n, 1)
        parent = self._parent[:size]
        pair = np.flatnonzero((parent >= 0) & (self._n > 0) & (self._n[np.maximum(parent, 0)] > 0))
        gaps = (y[pair] - y[parent[pair]]) ** 2
        spread = float(np.mean(np.minimum(gaps, 9.0 * share_below(gaps, 0.5)))) if len(pair) else 0.0
        within, df = self._within()
        least = (1e-6 * float(np.abs(self._y).max(initial=0.0))) ** 2  # differences below this are rounding
        if spread <= least:
            spread = max(within / df if df else 0.0, float(np.var(self._y)), least) or 1.0
        self._t0, self._t2, self._mu = 0.5 * spread, spread, 0.0
        self._s2 = within / df if df and within > least else (TINY * spread if self.noiseless else 0.5 * spread)
        self._drift = np.zeros(size)

    def _within(self) -> tuple[float, float]:
        """Sum of squares within candidates after case effects, and its degrees of freedom."""
        size = len(self)
        y = self._y - self._effects[self._of]
        mean = _tally(self._at, y, size) / np.maximum(self._n, 1)
        rest = y - mean[self._at]
        self._df = float(np.maximum(self._n - 1, 0).sum())
        if self._df >= 8 and not self.noiseless:
            off = np.abs(rest[self._n[self._at] > 1])
            scale = 1.4826 * share_below(off, 0.5)
            if scale > 0 and float(off.max()) > 6.0 * scale:
                self._weights = self._student(rest, max(self._s2, scale * scale) if self._s2 > 0 else scale * scale)
        return float((self._weights * rest * rest).sum()), self._df

    def _student(self, rest: Floats, s2: float) -> Floats:
        """Weights of observations under Student noise: those far off count for less."""
        return (HEAVY + 1.0) / (HEAVY + rest * rest / s2)

    # -- inference ----------------------------------------------------------------------------------------------------

    def _sweep(self) -> None:
        """Exact posterior of every node given the numbers: messages up the tree, then down.

        Nodes of one height (above their lowest descendant) are independent of each other and done at once; the few of
        great height one by one.
        """
        size, t2 = len(self), self._t2
        parent = self._sound_parents()
        weight = _tally(self._at, self._weights, size) / self._s2
        pull = _tally(self._at, self._weights * (self._y - self._effects[self._of]), size) / self._s2
        drift = np.concatenate([self._drift, np.full(size - len(self._drift), self._mu)])
        above = drift[np.maximum(parent, 0)]
        up_weight, up_pull = np.zeros(size), np.zeros(size)
        for group in self._groups:
            sent = group[(parent[group] >= 0) & (weight[group] > 0)]
            up_weight[sent] = 1.0 / (1.0 / weight[sent] + t2)
            up_pull[sent] = up_weight[sent] * (pull[sent] / weight[sent] - above[sent])
            np.add.at(weight, parent[sent], up_weight[sent])
            np.add.at(pull, parent[sent], up_pull[sent])
        far, middle = self._origin()
        middle *= far
        self._climb(weight, pull, up_weight, up_pull, above, middle, far)
        cavity = self._cavity
        for group in reversed(self._groups):
            roots, below = group[parent[group] < 0], group[parent[group] >= 0]
            weight[roots] += far
            pull[roots] += middle
            over = parent[below]
            cavity[below] = np.maximum(weight[over] - up_weight[below], far)
            self._own[below] = weight[below]
            prior = 1.0 / (1.0 / cavity[below] + t2)
            pull[below] += prior * ((pull[over] - up_pull[below]) / cavity[below] + above[below])
            weight[below] += prior
        self.mean, self.variance = pull / weight, 1.0 / weight

    def _climb(
        self, weight: Floats, pull: Floats, up_weight: Floats, up_pull: Floats, above: Floats, middle: float, far: float
    ) -> None:
        """Both passes over the nodes of great height; changes the arrays where they stand."""
        top, t2 = self._top, self._t2
        w, h, uw, uh = weight[top].tolist(), pull[top].tolist(), [0.0] * len(top), [0.0] * len(top)
        kin = np.where(self._ruined[top], -1, self._top_parent).tolist()
        b, cavity = above[top].tolist(), [0.0] * len(top)
        for i in range(len(kin) - 1, -1, -1):
            p = kin[i]
            if p >= 0 and w[i] > 0:
                uw[i] = 1.0 / (1.0 / w[i] + t2)
                uh[i] = uw[i] * (h[i] / w[i] - b[i])
                w[p] += uw[i]
                h[p] += uh[i]
        self._own, self._cavity = np.zeros(len(self)), np.zeros(len(self))
        self._own[top] = w
        for i, p in enumerate(kin):
            if p < 0:
                w[i] += far
                h[i] += middle
                continue
            rest = w[p] - uw[i]
            cavity[i] = rest = rest if rest > far else far
            prior = 1.0 / (1.0 / rest + t2)
            h[i] += prior * ((h[p] - uh[i]) / rest + b[i])
            w[i] += prior
        weight[top], pull[top], up_weight[top], up_pull[top], self._cavity[top] = w, h, uw, uh, cavity

    def _sound_parents(self) -> Ints:
        """The parents that tell something of their children: a ruined child stands alone."""
        if len(self._ruined) != len(self):
            self._ruined = np.concatenate([self._ruined, np.zeros(len(self) - len(self._ruined), bool)])
        return np.where(self._ruined, -1, self.parents)

    def _find_ruined(self) -> None:
        """Which children fell so far below their parents that the change must have broken something.

        Where many do, steps have two laws; what can still be gained is told by those that went up.
        """
        size, parent = len(self), self.parents
        self._ruined = np.zeros(size, bool)
        if self.noiseless or len(self._cases) > 1:  # nothing is believed too easily; one case of many says too little
            return
        seen = np.flatnonzero((parent >= 0) & (self._n > 0))
        gaps = (_tally(self._at, self._y, size) / np.maximum(self._n, 1))[seen] - self.mean[parent[seen]]
        up = gaps[gaps > 0] ** 2
        if len(up) < FEW:
            return
        usual = math.sqrt(max(float(np.minimum(up, 9.0 * share_below(up, 0.5)).mean()), self._s2))
        fallen = gaps < -RUIN * usual
        between = ((gaps < -0.5 * RUIN * usual) & ~fallen).sum()  # a tail has more here than beyond, a second law less
        if fallen.sum() >= max(FEW, RUINED * len(seen), between):
            self._ruined[seen[fallen]] = True

    def _origin(self) -> tuple[float, float]:
        """Precision and mean of the prior of candidates without parents: next to none, but a common one from three
        on, who then tell what to expect of one another."""
        if self._between > 0:
            return 1.0 / self._between, self._centre
        return 1.0 / (1e4 * (self._t2 + self._spread() ** 2)), share_below(self._y, 0.5)

    def _spread(self) -> float:
        return float(self._y.max() - self._y.min())

    def _learn(self) -> None:
        """New numbers from the posterior: one step of expectation maximisation with the repeats as evidence."""
        size, t2 = len(self), self._t2
        parent = self._sound_parents()
        seen = np.flatnonzero((parent >= 0) & (self._n > 0) & (self._cavity > 0))  # 0: it stood alone in this sweep
        over = parent[seen]
        steps = self.mean[seen] - self.mean[over]
        born = np.bincount(over, minlength=size).astype(float)
        known = self._weight * self._prior.drift if self._prior and self._weight == KNOWN else 0.0
        self._mu = (DAMPING * float(steps.sum()) + known) / (len(seen) + self._weight)
        self._drift = (_tally(over, steps, size) + KIN * self._mu) / (born + KIN)
        if len(seen):
            rest = (steps - self._drift[over]) ** 2
            far = 9.0 * share_below(rest, 0.8)
            unsure = 1.0 / (1.0 / t2 + 1.0 / (1.0 / self._own[seen] + 1.0 / self._cavity[seen]))
            free = len(seen) + self._weight - LOST * float((born / (born + KIN)).sum())
            bounded = np.minimum(rest, far) if far > 0 else rest
            self._t2 = (float((bounded + unsure).sum()) + self._weight * self._t0) / free
        self._learn_origin(np.flatnonzero((self.parents < 0) & (self._n > 0)))
        if self.noiseless:
            self._s2 = TINY * self._t2
            return
        self._learn_effects()
        within, df = self._within()
        rest = (self._y - self._effects[self._of] - self.mean[self._at]) ** 2 + self.variance[self._at]
        doubt = DOUBT * min(1.0, len(self._y) / 40.0)
        everything = float((self._weights * rest).mean())
        few, guess = max(0.0, 1.0 - df / 4.0), 0.5 * self._t0  # one lucky pair of repeats must not decide
        if self._prior and self._weight == KNOWN and self._prior.noise > 0:
            few, guess = KNOWN, self._prior.noise**2
        sums, parts = within + doubt * everything + few * guess, df + doubt + few
        self._s2 = max(sums / parts, 1e-9 * self._t2)

    def _learn_origin(self, roots: Ints) -> None:
        """Mean and variance of the true rewards of candidates without parents."""
        if len(roots) < FAMILY:
            self._between = 0.0
            return
        means = self.mean[roots]
        self._centre = float(means.mean())
        spread = float(((means - self._centre) ** 2).sum()) / (len(roots) - 1)
        self._between = max(spread + float(self.variance[roots].mean()), 1e-6 * self._spread() ** 2, 1e-300)

    def _learn_effects(self) -> None:
        """Effects of the cases, crossed with the candidates: shrunk means of what is left on each, adding to zero."""
        cases = len(self._cases)
        if cases < 2:
            return
        rest = self._y - self.mean[self._at]
        counts = np.bincount(self._of, minlength=cases).astype(float)
        raw = np.bincount(self._of, rest, minlength=cases) / np.maximum(counts, 1)
        seen = counts > 0
        spread = max(
            float(np.mean(raw[seen] ** 2 - self._s2 / counts[seen])), 0.05 * float(np.mean(raw[seen] ** 2)), 1e-300
        )
        effects = raw * counts / (counts + self._s2 / spread)
        self._effects = np.where(seen, effects - effects[seen].mean(), 0.0)


class _Scale(NamedTuple):
    """How rewards enter the model: as they are, or as logarithms where they have one sign and steps from parents to
    children are more alike so; and below which reward one counts as a failure. `sign` is 0 for as they are, else that
    of all rewards."""

    sign: int
    least: float  # magnitude below which logarithms are cut
    absurd: float

    @classmethod
    def of(cls, raw: Floats, first: float, parents: Floats, children: Floats) -> _Scale:
        """From the rewards so far, the first candidate's, and those of parents and their children."""
        middle = share_below(raw, 0.5)
        spread = max(share_below(raw, 0.95) - share_below(raw, 0.25), abs(first - middle))
        absurd = min(middle, first) - ABSURD * spread if spread > 0 else -math.inf
        sign = int(np.sign(first))
        if sign and len(children) >= 6 and (np.sign(raw) == sign).all():
            steps, ratios = np.abs(children - parents), np.abs(np.log(children / parents))
            if ratios.any():  # Laplace likelihoods; the Jacobian of the logarithm is 1/score
                plain = -len(steps) * math.log(float(steps.mean()))
                logs = -len(steps) * math.log(float(ratios.mean())) - float(np.log(np.abs(children)).sum())
                if logs > plain + EVIDENCE:
                    return cls(sign, 0.01 * float(np.abs(raw).min()), -math.inf)
        return cls(0, 0.0, absurd)

    def sound(self, raw: Floats) -> NDArray[np.bool_]:
        """Which rewards are no failures."""
        return raw >= self.absurd

    def forth(self, raw: Floats) -> Floats:
        """On the model's scale."""
        if not self.sign:
            return raw
        return self.sign * np.log(np.maximum(self.sign * raw, self.least))

    def back(self, mean: float, sd: float) -> tuple[float, float]:
        """Mean and standard deviation in units of the reward."""
        if not self.sign:
            return float(mean), float(sd)
        size = math.exp(min(self.sign * mean, 700.0))
        return self.sign * size, size * sd


def _room(array: NDArray[Item], place: int) -> NDArray[Item]:
    """The array, twice as long (with zeros) if `place` does not fit."""
    if place < len(array):
        return array
    return np.concatenate([array, np.zeros_like(array)])


def _tally(at: Ints, weights: NDArray[Any] | None, size: int) -> Floats:
    """Sums by node; nodes below 0 are passed over."""
    if len(at) and at.min() < 0:
        keep = at >= 0
        at, weights = at[keep], None if weights is None else weights[keep]
    return np.bincount(at, weights, minlength=size).astype(float, copy=False)


def share_below(values: Floats, share: float) -> float:
    """The value below which about this share (under 1) of the values lies; none is made up, and it is quick."""
    place = int(share * len(values))
    return float(np.partition(values, place)[place])
