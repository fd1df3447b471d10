"""Next action of a search, by the knowledge gradient per share of budget.

The choice is between another evaluation of a candidate and a request for children.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from culmen.evidence.pedigree import ValueModel
from culmen.memory.gain import expected_gain, expected_gain_of_best, largest_indices
from culmen.memory.records import Lineages, Records
from culmen.strategies.costs import Costs

Floats = NDArray[np.float64]

# repeats that determine the noise well, and most evaluations of one leader until then
_REPEATS, _LOOKS = 8, 3
# evaluations and repeats on a data set, where they also separate cases from candidates
_ON_CASES = (8, 40)
# leaders with a repeated score, and their share of evaluations, that confirm exactness
_CONFIRMED, _CHECKED = 5, 0.05
# weight of another evaluation against a child: gains of children compound, which one step does not
# see
AGAIN = 0.5
CROWD = 0.3  # a child with j brothers in flight gains 1 / (1 + 0.3 j)
# chance of the wait for a record below which half, and all, children are of other lineages
_STALL, _LOST = 0.01, 1e-4
_GIVE_UP = 0.1  # the same chance for a lineage, below which the next one begins
_PATIENCE = 20  # evaluations without a record that are never a stall
_MARGIN = 0.5  # steps by which a record must pass the last one under noise
_EQUAL = 1e-6  # steps by which exact scores must differ to be different
_AMONG = 25  # candidates of largest gain that are considered


class Move(NamedTuple):
    """Next action: evaluate `again`, or ask for `k` children of `parent` ("": from scratch).

    `gain` is the expected gain per share of the remaining budget; `stalled` is True if the action
    begins a new lineage; `focus` is context for the request.
    """

    again: str = ""
    parent: str = ""
    k: int = 1
    gain: float = 0.0
    stalled: bool = False
    focus: str = ""


class KnowledgeGradient:
    """Choice of actions for any number of lanes at once; actions in flight count as pending.

    `most` is the largest number of children per request; `cases` the number of cases to evaluate a
    candidate on (1 without a data set).
    """

    def __init__(self, model: ValueModel, costs: Costs, cases: int, most: int, rng: Random) -> None:
        self.model, self.costs, self.cases, self.most, self.rng = model, costs, cases, most, rng
        # evaluations in flight of candidates that were evaluated before
        self.repeating: dict[int, int] = {}
        self.expected: dict[int, int] = {}  # children in flight, by parent
        self.records, self.lineages = Records(), Lineages()
        self._turns = 0

    def choose_move(self) -> Move:
        """The action with the largest expected gain per share of budget."""
        model = self.model
        worth = model.scaled_worths()
        if not len(worth) or not (model.scored_counts > 0).any():
            return Move(parent=model.ids[0] if len(worth) else "")
        best = self._leading_node(worth)
        if self._needs_repeat(best):
            return Move(again=model.ids[best])
        side, stalled = self._stall_decision(worth, best)
        rate, parent, k = self._best_request(worth, best, side)
        if not side and (not model.is_noiseless or model.failing_chances.mean.any()):
            again, node = self._best_repeat(worth, best)
            if again > rate:
                return Move(again=model.ids[node], gain=again)
        return Move("", model.ids[parent], k, rate, stalled)

    def _leading_node(self, worth: Floats) -> int:
        """The leader; of equal exact scores, the first."""
        least = float(worth.max())
        if self.model.is_noiseless:
            least -= _EQUAL * self.model.noise_step_variances[1] ** 0.5
        return int((worth >= least).argmax())

    def begin_move(self, move: Move) -> None:
        """Count a move as in flight; `end` it when its results are in the model."""
        self._count_in_flight(move, 1)

    def end_move(self, move: Move, children: list[str]) -> None:
        """Count a move as finished; `children` are its new candidates."""
        self._count_in_flight(move, -1)
        self.grow_lineage(move, children)

    def count_barren_request(self, id: str) -> None:
        """Count a request for children of this candidate without any new one."""
        self.model.count_barren_request(id)

    def leader_ids(self, most: int) -> list[str]:
        """The best candidates, best first."""
        return [self.model.ids[node] for node in largest_indices(self.model.scaled_worths(), most)]

    def grow_lineage(self, move: Move, children: list[str]) -> None:
        """Count children of the present lineage."""
        if move.parent and self.model.index[move.parent] in self.lineages.members:
            for child in children:
                if child in self.model.index:  # the others lost their evaluations
                    self.lineages.add_child(self.model.index[child])

    def _count_in_flight(self, move: Move, change: int) -> None:
        flying = self.repeating if move.again else self.expected
        node = self.model.index.get(move.again or move.parent)
        if node is not None:
            flying[node] = flying.get(node, 0) + change * (1 if move.again else move.k)
            if not flying[node]:
                del flying[node]

    def _needs_repeat(self, best: int) -> bool:
        """True if the leader is to be evaluated again to measure the noise.

        Exactness is a hypothesis until two values of one candidate differ.
        """
        model = self.model
        if not self._can_inform(best):
            return False
        looks = model.scored_counts[best] + model.failed_counts[best] + self.repeating.get(best, 0)
        if model.is_exact:
            enough = max(_CONFIRMED, _CHECKED * model.evaluations)
            unproven = not model.declared_exact and looks < 2 and model.confirmed_repeats < enough
            if unproven or self.cases == 1:
                return unproven
        few, many = (_LOOKS, _REPEATS) if self.cases == 1 else _ON_CASES
        return looks < few and model.noise_degrees() + sum(self.repeating.values()) < many

    def _can_inform(self, node: int) -> bool:
        """True if another evaluation of this candidate could add information."""
        if not self.model.is_exact:
            return True
        known = (
            self.model.scored_counts[node]
            + self.model.failed_counts[node]
            + self.repeating.get(node, 0)
        )
        return bool(known < self.cases + (self.model.declared_exact is None))

    def _best_repeat(self, worth: Floats, best: int) -> tuple[float, int]:
        """(gain per share of another evaluation, node of the candidate) with the largest gain.

        Deviations are those expected after the evaluations in flight.
        """
        model, (noise, _) = self.model, self.model.noise_step_variances
        variance = model.variance.copy()
        for node, flying in self.repeating.items():
            variance[node] = 1.0 / (1.0 / variance[node] + flying / noise)
        gaps = np.where(model.scored_counts > 0, worth[best] - worth, np.inf)
        gaps[best] = np.delete(gaps, best).min(initial=np.inf)
        gains = expected_gain(
            gaps, np.hypot(variance / np.sqrt(variance + noise), self._failing_step(worth))
        )
        for node in np.argsort(-gains, kind="stable")[:_AMONG]:
            if self._can_inform(int(node)):
                return AGAIN * float(gains[node]) / (self.costs.evaluation_share() or 1.0), int(
                    node
                )
        return 0.0, best

    def _failing_step(self, worth: Floats) -> Floats:
        """Deviation of each worth after one more evaluation, by its news of the chance to fail."""
        failing = self.model.failing_chances
        fall = np.divide(
            self.model.mean - worth, failing.mean, out=np.zeros(len(worth)), where=failing.mean > 0
        )
        return np.where(self.model.scored_counts > 0, failing.step * fall, 0.0)

    def _best_request(self, worth: Floats, best: int, side: bool) -> tuple[float, int, int]:
        """(gain per share of a request for children, node of the parent, k) with the largest gain.

        With `side`, parents are in the present lineage only.
        """
        model, (noise, step) = self.model, self.model.noise_step_variances
        lead = max(worth[node] for node in self.lineages.members) if side else worth[best]
        gaps = np.where(model.scored_counts > 0, lead - worth - model.drift, np.inf)
        if side:
            inside = np.zeros(len(worth), bool)
            inside[self.lineages.members] = True
            gaps[~inside] = np.inf
        spread = model.variance + step
        deviations, weights = spread / np.sqrt(spread + noise), model.child_success_chances()
        for node, flying in self.expected.items():
            weights[node] /= 1.0 + CROWD * flying
        first = expected_gain(gaps, deviations) * weights
        top = largest_indices(first, _AMONG)
        best_request = (-1.0, top[0], 1)
        for k in range(1, self.most + 1):
            gains = expected_gain_of_best(gaps[top], deviations[top], k) * weights[top]
            index = int(gains.argmax())
            best_request = max(
                best_request,
                (float(gains[index]) / self.costs.request_share(k), int(top[index]), k),
                key=lambda one: one[0],
            )
        return best_request

    def _stall_decision(self, worth: Floats, best: int) -> tuple[bool, bool]:
        """(True if the next child is of another lineage, True if that lineage begins now)."""
        model, now = self.model, self.model.evaluations
        margin = (_EQUAL if model.is_noiseless else _MARGIN) * model.noise_step_variances[1] ** 0.5
        self.records.record_best(float(worth[best]), now, margin)
        chance = self.records.wait_chance(now)
        if chance >= _STALL or now - self.records.at < _PATIENCE:
            return False, False
        lineages, begins = self.lineages, False
        if lineages.members:
            lineages.record_best(max(float(worth[node]) for node in lineages.members), margin)
        if not lineages.members or lineages.should_give_up(self.records, _GIVE_UP):
            childless = model.scored_counts > 0
            childless[model.parents[model.parents >= 0]] = False
            untried = [
                node for node in childless.nonzero()[0].tolist() if node not in self.expected
            ]
            if not untried:
                return False, False
            lineages.begin_lineage(untried, [float(worth[node]) for node in untried], self.rng)
            begins = True
        self._turns += 1
        return begins or chance < _LOST or self._turns % 2 == 0, begins
