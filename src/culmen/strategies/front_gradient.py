"""Next action of a search for a Pareto front: most hypervolume per share of budget."""

from __future__ import annotations

import math
from random import Random
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from culmen.evidence.front import Floats, FrontModel, column_spans
from culmen.strategies.costs import Costs
from culmen.strategies.knowledge_gradient import (
    CROWD,
    GAIN,
    MEASURE,
    NO_SCORE,
    KnowledgeGradient,
    Move,
    Repeats,
    Requests,
    WeighedMove,
)
from culmen.strategies.memory.gain import largest_indices

Ints = NDArray[np.int64]

# per decision; the draws can be divided among any number of children up to four
_DIRECTIONS, _DRAWS = 24, 24
_AMONG = 40  # candidates with the farthest reach, beside the front, that are considered
_LEAST = -3.0  # least reach of a candidate that holds the constraints, in spans of the front
_SHRUNK = 8.0  # prior weight of no correlation, in steps


class _Sight(NamedTuple):
    """Samples from the models, on their own scales: a row for each node in `rows`."""

    rows: list[int]
    means: Floats
    variances: Floats
    origin: Floats
    units: Floats  # directions × objectives
    normals: Floats  # draws × metrics
    reached: Floats  # rows × directions


class FrontSampler:
    """Draws from the value models of the metrics, and their reach in random directions.

    Reach is the least reward of a candidate in units of the direction (random hypervolume
    scalarisations: Deng and Zhang, 2019; Golovin and Zhang, 2020). A candidate that violates a
    constraint reaches below all that do not, the less the larger the violation.
    """

    def __init__(self, front: FrontModel, rng: Random) -> None:
        self._front, self._rng = front, rng

    def draw_samples(self, front: list[int]) -> _Sight:
        """The models now, with fresh directions and draws."""
        models, many = self._front.models, len(self._front.objectives)
        means = np.column_stack([model.scaled_worths() for model in models])
        known = np.flatnonzero(np.isfinite(means).all(axis=1))
        edge = means[front][:, :many]
        span = column_spans(edge)
        origin = edge.min(axis=0) - 0.1 * span
        half = [[self._rng.gauss(0, 1) for _ in models] for _ in range(_DRAWS // 2)]
        draws = np.array([[sign * z for z in row] for row in half for sign in (1.0, -1.0)])
        draws = draws @ self._correlation_factor(means).T
        units = _draw_directions(many, self._rng) * span
        reached = self.direction_reach(means[known], origin, units)
        best = [int(known[place]) for place in largest_indices(reached.mean(axis=1), _AMONG)]
        rows = list(dict.fromkeys([*front, *best]))
        places = np.searchsorted(known, rows)
        variances = np.column_stack([model.variance for model in models])[rows]
        return _Sight(rows, means[rows], variances, origin, units, draws, reached[places])

    def _correlation_factor(self, means: Floats) -> Floats:
        """Cholesky factor of the correlations between the metrics of a child's step.

        Correlations are shrunk towards none. They matter because a gain in one metric often is a
        loss in another.
        """
        parents = self._front.models[0].parents
        both = (parents >= 0) & np.isfinite(means).all(axis=1)
        both &= np.isfinite(means[parents]).all(axis=1)
        steps = means[both] - means[parents[both]]
        flat = not len(steps) or (np.ptp(steps, axis=0) == 0).any()
        correlations = np.eye(means.shape[1]) if flat else np.atleast_2d(np.corrcoef(steps.T))
        share = len(steps) / (len(steps) + _SHRUNK)
        shrunk = share * correlations + (1 - share + 1e-9) * np.eye(len(correlations))
        return np.linalg.cholesky(shrunk).astype(np.float64)

    def direction_reach(self, values: Floats, origin: Floats, units: Floats) -> Floats:
        """Reach of values (..., metrics) in each direction (..., directions), in `units`.

        Values that violate constraints reach `_LEAST` less their excess, below all that hold them.
        """
        many = len(origin)
        reached = ((values[..., None, :many] - origin) / units).min(axis=-1)
        if not self._front.constraints:
            return reached
        excess = self._front.constraint_excess(values)[..., None]
        return np.where(excess > 0, _LEAST - excess, np.maximum(reached, _LEAST))


class FrontGradient(KnowledgeGradient):
    """Choice of actions like `KnowledgeGradient`, with hypervolume in place of the best value.

    Hypervolume is a mean over directions of the reach of the best candidate (`FrontSampler`). Its
    expected gain is estimated with draws from the value models of the metrics, so noise is judged
    metric by metric. Directions and draws come from `rng`, the lab's.
    """

    def __init__(self, front: FrontModel, costs: Costs, cases: int, most: int, rng: Random) -> None:
        self.front = front
        super().__init__(self.front.models[0], costs, cases, most, rng)
        self.sampler = FrontSampler(front, rng)

    def leader_ids(self, most: int) -> list[str]:
        """Candidates worth showing: the front, in random order."""
        ids = [self.front.ids[row] for row in self.front.front_rows()]
        self.rng.shuffle(ids)
        return ids[:most]

    def decide(self) -> WeighedMove:
        """The action with the largest expected gain of hypervolume per share of budget."""
        models = self.front.models
        self.model = next((model for model in models if not model.is_exact), models[0])
        ids, front = self.front.ids, self.front.front_rows()
        if not front:
            return WeighedMove(Move(parent=ids[0] if ids else ""), NO_SCORE)
        for row in front:
            if self._needs_repeat(row):
                return WeighedMove(Move(again=ids[row]), MEASURE, row)
        sight = self.sampler.draw_samples(front)
        requests, directions = self._weigh_front_requests(sight)
        repeats, (rate, place, k) = None, requests.best_option()
        if not all(model.is_noiseless for model in models):
            repeats = self._weigh_front_repeats(sight)
            more, node = repeats.best_option()
            if more > rate:
                move = Move(again=ids[node], gain=more)
                return WeighedMove(move, GAIN, front[0], repeats, requests)
        focus = self._focus_text(sight.units[directions[k - 1][place]], front)
        move = Move("", ids[requests.rows[place]], k, rate, focus=focus)
        return WeighedMove(move, GAIN, front[0], repeats, requests)

    def _weigh_front_requests(self, sight: _Sight) -> tuple[Requests, list[Ints]]:
        """Expected gains of requests for children; for each k and parent, the best direction."""
        laws = np.array([model.noise_step_variances for model in self.front.models])
        drift = np.column_stack([model.drift for model in self.front.models])[sight.rows]
        wide = sight.variances + laws[:, 1]
        deviations = wide / np.sqrt(wide + laws[:, 0])
        drawn = (sight.means + drift)[:, None, :] + deviations[:, None, :] * sight.normals
        reached = self.sampler.direction_reach(
            drawn, sight.origin, sight.units
        )  # rows × draws × directions
        best, weights = sight.reached.max(axis=0), self.model.child_success_chances()[sight.rows]
        for index, node in enumerate(sight.rows):
            weights[index] /= 1.0 + CROWD * self.flying.children.get(node, 0)
        requests, directions = Requests(sight.rows, [], []), list[Ints]()
        for k in range(1, min(self.most, 4) + 1):
            groups = reached.reshape(len(reached), _DRAWS // k, k, -1).max(axis=2)
            gains = np.maximum(groups - best, 0.0).mean(axis=1)  # rows × directions
            requests.gains.append(gains.mean(axis=1) * weights)
            requests.shares.append(self.costs.request_share(k))
            directions.append(gains.argmax(axis=1))
        return requests, directions

    def _weigh_front_repeats(self, sight: _Sight) -> Repeats:
        """Expected gains of another evaluation, the largest first."""
        noise = np.array([model.noise_step_variances[0] for model in self.front.models])
        variances = sight.variances.copy()
        for index, node in enumerate(sight.rows):
            variances[index] = 1.0 / (
                1.0 / variances[index]
                + self.flying.repeats.get(node, 0) / np.maximum(noise, 1e-300)
            )
        deviations = variances / np.sqrt(variances + noise)
        drawn = sight.means[:, None, :] + deviations[:, None, :] * sight.normals
        reached = self.sampler.direction_reach(drawn, sight.origin, sight.units)
        order: Floats = np.sort(sight.reached, axis=0)
        first, second = order[-1], order[-2:][0]
        others = np.asarray(np.where(sight.reached == first, second, first), dtype=np.float64)
        gains = (np.maximum(reached, others[:, None, :]).mean(axis=1) - first).mean(axis=1)
        places = [
            place
            for place in largest_indices(gains, len(gains))
            if self._can_inform(sight.rows[place])
        ]
        rows = [sight.rows[place] for place in places]
        return Repeats(rows, gains[places].tolist(), self.costs.evaluation_share() or 1.0)

    def _focus_text(self, toward: Floats, front: list[int]) -> str:
        """Text for a request for children: direction of the expected gain, and the known front."""
        goals = self.front.objectives
        means, _ = self.front.posterior_rewards()
        shares = toward / column_spans(means[front])
        wanted = ", ".join(
            f"{goal.name} {share:.0%}" for goal, share in zip(goals, shares / shares.sum())
        )
        step = math.ceil(len(front) / 4)  # members of the front that a request names
        members = [self.front.front_point(row).metrics for row in front[::step]]
        known = "; ".join(
            ", ".join(f"{goal.name} {each[goal.name]:.4g}" for goal in goals) for each in members
        )
        return (
            f"This request weighs the objectives so: {wanted}. Best trade-offs known (means): "
            f"{known}."
        )


def _draw_directions(many: int, rng: Random) -> Floats:
    """Positive unit vectors: for two objectives spread evenly, else uniform on the sphere."""
    if many == 2:
        angles = [
            (place + rng.random()) / _DIRECTIONS * math.pi / 2 for place in range(_DIRECTIONS)
        ]
        directions = np.array([[math.cos(angle), math.sin(angle)] for angle in angles])
    else:
        directions = np.abs(
            np.array([[rng.gauss(0, 1) for _ in range(many)] for _ in range(_DIRECTIONS)])
        )
        directions /= np.sqrt((directions**2).sum(axis=1, keepdims=True))
    return np.maximum(directions, 0.02)
