"""Next action of a search, by the knowledge gradient per share of budget.

The choice is between another evaluation of a candidate and a request for children.
"""

from __future__ import annotations

import math
from random import Random
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from culmen.evidence.pedigree import ValueModel
from culmen.strategies.costs import Costs
from culmen.strategies.memory.gain import expected_gains_of_best, largest_gains, largest_indices

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


class Repeats(NamedTuple):
    """Expected gains of another evaluation, by candidate.

    `rows` are the candidates that it could inform of, the largest gain first; `gains` is on the
    model's scale, not weighed by `AGAIN`; `share` is the cost of any of them.
    """

    rows: list[int]
    gains: list[float]
    share: float

    def best_option(self) -> tuple[float, int]:
        """(weighed gain per share, candidate) of the best; (0, -1) without any."""
        return (AGAIN * self.gains[0] / self.share, self.rows[0]) if self.rows else (0.0, -1)


class Requests(NamedTuple):
    """Expected gains of requests for children.

    For each parent in `rows`, and for k = 1, 2, ...: `gains`, on the model's scale, and `shares`,
    their costs.
    """

    rows: list[int]
    gains: list[Floats]
    shares: list[float]

    def best_option(self) -> tuple[float, int, int]:
        """(gain per share, place in `rows`, k) of the best."""
        best = (-1.0, 0, 1)
        for k, (gains, share) in enumerate(zip(self.gains, self.shares), 1):
            place = int(gains.argmax())
            best = max(best, (float(gains[place]) / share, place, k), key=lambda one: one[0])
        return best


# reasons of a decision
NO_SCORE = "no_score"  # there is nothing to compare yet
MEASURE = "measure"  # the leader is evaluated again to measure the noise
LINEAGE = "lineage"  # a record is overdue: the largest gain within another lineage
GAIN = "gain"  # the largest gain per share
WAIT = "wait"  # a request gains most, but as many are under way as the budget lets learn from


class WeighedMove(msgspec.Struct):
    """One decision: its move, the reason, and the gains that were compared.

    `best` is the leader's number, -1 without one. `made` are the candidates that the move brought,
    entered once they are known.
    """

    move: Move
    reason: str
    best: int = -1
    repeats: Repeats | None = None
    requests: Requests | None = None
    made: tuple[str, ...] = ()


class InFlight:
    """Evaluations and children under way, by number of the candidate or of the parent.

    `requests` is the number of requests for children, `since` that of repeats begun after the last.
    """

    def __init__(self, model: ValueModel) -> None:
        self._model = model
        # evaluations of candidates that were evaluated before
        self.repeats: dict[int, int] = {}
        self.children: dict[int, int] = {}
        self.requests = self.since = 0

    def count_move(self, move: Move, change: int) -> None:
        """Count a move as begun (`change` 1) or as ended (-1)."""
        flying = self.repeats if move.again else self.children
        self.requests += 0 if move.again else change
        if change > 0:
            self.since = self.since + 1 if move.again else 0
        node = self._model.index.get(move.again or move.parent)
        if node is not None:
            flying[node] = flying.get(node, 0) + change * (1 if move.again else move.k)
            if not flying[node]:
                del flying[node]


class StallRule:
    """Decides if a search has waited too long for a record, and which lineage it tries then."""

    def __init__(self, model: ValueModel, flying: InFlight, rng: Random) -> None:
        self._model, self._flying, self._rng = model, flying, rng
        self.records, self.lineages = Records(), Lineages()
        self._turns = 0

    def decide_turn(self, worth: Floats, best: int) -> tuple[bool, bool]:
        """(True if the next child is of another lineage, True if that lineage begins now)."""
        model, now = self._model, self._model.evaluations
        margin = (_EQUAL if model.is_noiseless else _MARGIN) * model.noise_step_variances[1] ** 0.5
        self.records.record_best(float(worth[best]), now, margin)
        chance = self.records.wait_chance(now)
        if chance >= _STALL or now - self.records.at < _PATIENCE:
            return False, False
        lineages, begins = self.lineages, False
        if lineages.members:
            lineages.record_best(max(float(worth[node]) for node in lineages.members), margin)
        if not lineages.members or lineages.should_give_up(self.records, _GIVE_UP):
            untried = self._untried_nodes()
            if not untried:
                return False, False
            lineages.begin_lineage(untried, [float(worth[node]) for node in untried], self._rng)
            begins = True
        self._turns += 1
        return begins or chance < _LOST or self._turns % 2 == 0, begins

    def _untried_nodes(self) -> list[int]:
        """Scored candidates that were never tried as a parent."""
        model = self._model
        childless = model.scored_counts > 0
        childless[model.parents[model.parents >= 0]] = False
        return [
            node for node in childless.nonzero()[0].tolist() if node not in self._flying.children
        ]

    def grow_lineage(self, parent: str, children: list[str]) -> None:
        """Count children of the present lineage."""
        if parent and self._model.index[parent] in self.lineages.members:
            for child in children:
                if child in self._model.index:  # the others lost their evaluations
                    self.lineages.add_child(self._model.index[child])


class KnowledgeGradient:
    """Choice of actions for any number of lanes at once; actions in flight count as pending.

    `most` is the largest number of children per request; `cases` the number of cases to evaluate a
    candidate on (1 without a data set).
    """

    def __init__(self, model: ValueModel, costs: Costs, cases: int, most: int, rng: Random) -> None:
        self.model, self.costs, self.cases, self.most, self.rng = model, costs, cases, most, rng
        self.flying = InFlight(model)
        self.stall = StallRule(model, self.flying, rng)

    def decide(self) -> WeighedMove:
        """The action with the largest expected gain per share of budget, and what was compared."""
        model = self.model
        worth = model.scaled_worths()
        if not len(worth) or not (model.scored_counts > 0).any():
            return WeighedMove(Move(parent=model.ids[0] if len(worth) else ""), NO_SCORE)
        best = self._leading_node(worth)
        if self._needs_repeat(best):
            return WeighedMove(Move(again=model.ids[best]), MEASURE, best)
        side, stalled = self.stall.decide_turn(worth, best)
        requests, repeats = self._weigh_requests(worth, best, side), None
        rate, place, k = requests.best_option()
        if not side and (not model.is_noiseless or model.failing_chances.mean.any()):
            repeats = self._weigh_repeats(worth, best)
            again, node = repeats.best_option()
            move = Move(again=model.ids[node], gain=again)
            if again > rate:
                return WeighedMove(move, GAIN, best, repeats, requests)
            if repeats.rows and self.costs.should_wait(self.flying.requests, self.flying.since):
                return WeighedMove(move, WAIT, best, repeats, requests)
        move = Move("", model.ids[requests.rows[place]], k, rate, stalled)
        return WeighedMove(move, LINEAGE if side else GAIN, best, repeats, requests)

    def _leading_node(self, worth: Floats) -> int:
        """The leader; of equal exact scores, the first."""
        least = float(worth.max())
        if self.model.is_noiseless:
            least -= _EQUAL * self.model.noise_step_variances[1] ** 0.5
        return int((worth >= least).argmax())

    def begin_move(self, move: Move) -> None:
        """Count a move as in flight; `end` it when its results are in the model."""
        self.flying.count_move(move, 1)

    def end_move(self, move: Move, children: list[str]) -> None:
        """Count a move as finished; `children` are its new candidates."""
        self.flying.count_move(move, -1)
        self.stall.grow_lineage(move.parent, children)

    def count_barren_request(self, id: str) -> None:
        """Count a request for children of this candidate without any new one."""
        self.model.count_barren_request(id)

    def leader_ids(self, most: int) -> list[str]:
        """The best candidates, best first."""
        return [self.model.ids[node] for node in largest_indices(self.model.scaled_worths(), most)]

    def _needs_repeat(self, best: int) -> bool:
        """True if the leader is to be evaluated again to measure the noise.

        Exactness is a hypothesis until two values of one candidate differ.
        """
        model = self.model
        if not self._can_inform(best):
            return False
        looks = (
            model.scored_counts[best] + model.failed_counts[best] + self.flying.repeats.get(best, 0)
        )
        if model.is_exact:
            enough = max(_CONFIRMED, _CHECKED * model.evaluations)
            unproven = not model.declared_exact and looks < 2 and model.confirmed_repeats < enough
            if unproven or self.cases == 1:
                return unproven
        few, many = (_LOOKS, _REPEATS) if self.cases == 1 else _ON_CASES
        return (
            looks < few
            and model.noise_degrees() + sum(map(int, self.flying.repeats.values())) < many
        )

    def _can_inform(self, node: int) -> bool:
        """True if another evaluation of this candidate could add information."""
        if not self.model.is_exact:
            return True
        known = (
            self.model.scored_counts[node]
            + self.model.failed_counts[node]
            + self.flying.repeats.get(node, 0)
        )
        return bool(known < self.cases + (self.model.declared_exact is None))

    def _weigh_repeats(self, worth: Floats, best: int) -> Repeats:
        """Expected gains of another evaluation of the candidates for which they are largest.

        Deviations are those expected after the evaluations in flight.
        """
        model, (noise, _) = self.model, self.model.noise_step_variances
        variance = model.variance.copy()
        for node, flying in self.flying.repeats.items():
            variance[node] = 1.0 / (1.0 / variance[node] + flying / noise)
        gaps = np.where(model.scored_counts > 0, worth[best] - worth, np.inf)
        gaps[best] = np.delete(gaps, best).min(initial=np.inf)
        steps = np.hypot(variance / np.sqrt(variance + noise), self._failing_step(worth))
        top, gains = largest_gains(gaps, steps, _AMONG)
        told = [*zip(top, gains.tolist())]
        if model.is_exact:
            told = [each for each in told if self._can_inform(each[0])]
        rows, gained = [node for node, _ in told], [gain for _, gain in told]
        return Repeats(rows, gained, self.costs.evaluation_share() or 1.0)

    def _failing_step(self, worth: Floats) -> Floats:
        """Deviation of each worth after one more evaluation, by its news of the chance to fail."""
        failing = self.model.failing_chances
        fall = np.divide(
            self.model.mean - worth, failing.mean, out=np.zeros(len(worth)), where=failing.mean > 0
        )
        return np.where(self.model.scored_counts > 0, failing.step * fall, 0.0)

    def _weigh_requests(self, worth: Floats, best: int, side: bool) -> Requests:
        """Expected gains of requests for children of the parents for which they are largest.

        With `side`, parents are in the present lineage only.
        """
        model, (noise, step) = self.model, self.model.noise_step_variances
        members = self.stall.lineages.members
        lead = max(worth[node] for node in members) if side else worth[best]
        gaps = np.where(model.scored_counts > 0, lead - worth - model.drift, np.inf)
        if side:
            inside = np.zeros(len(worth), bool)
            inside[members] = True
            gaps[~inside] = np.inf
        spread = model.variance + step
        deviations, weights = spread / np.sqrt(spread + noise), model.child_success_chances()
        for node, flying in self.flying.children.items():
            weights[node] /= 1.0 + CROWD * flying
        top, _ = largest_gains(gaps, deviations, _AMONG, weights)
        gains = expected_gains_of_best(gaps[top], deviations[top], self.most)
        return Requests(
            top,
            [each * weights[top] for each in gains],
            [self.costs.request_share(k) for k in range(1, self.most + 1)],
        )


_LUCK = 4.0  # fall of the best value, in margins, after which a record counts as luck


class Records:
    """The time that a search has waited for a record, and the chance of such a wait.

    After k records in W evaluations, S more without one have a chance of about (1 + S/W)^-k if
    records kept coming at the rate seen. A value is an estimate, and a record may prove to be worth
    far less: then the next record is the one that passes the best value of today, but the wait goes
    on, since there was no discovery.
    """

    def __init__(self) -> None:
        self.count = self.at = 0
        self.level = -math.inf

    def record_best(self, level: float, now: int, margin: float) -> bool:
        """Enter the best value after `now` evaluations; True if it is a record by over `margin`."""
        if level < self.level - _LUCK * margin:
            self.level = level
        if level <= self.level + margin:
            return False
        self.count += self.level > -math.inf  # the first value is no record
        self.level, self.at = level, now
        return True

    def wait_chance(self, now: int, evaluations: int = 0, records: int = 0) -> float:
        """Chance of a wait until `now`.

        `evaluations` and `records` were made elsewhere at the same rate.
        """
        waited, count = max(now - self.at, 0), self.count + records
        return (1.0 + waited / max(self.at + evaluations, 1)) ** -count


class Lineages:
    """Searches of their own inside a search that has stalled, one after another.

    A lineage is a candidate that was never tried as a parent, and its descendants. Its records
    count within the lineage alone, so a search can walk through worse candidates to better ones. It
    is given up when its wait has become improbable, too.
    """

    def __init__(self, longest: int = 60) -> None:
        self.number = 0  # number of the present lineage; 0 before the first
        self.members: list[int] = []  # nodes of it
        self._longest = longest
        self._records, self._now = Records(), 0
        self._evaluations = self._found = 0  # in lineages that were given up

    def begin_lineage(self, untried: list[int], level: list[float], rng: Random) -> None:
        """Begin with one of the `untried` nodes, drawn at random; `level` is the value of each."""
        self._evaluations, self._found = (
            self._evaluations + self._now,
            self._found + self._records.count,
        )
        node = rng.choice(untried)
        self.number, self.members = self.number + 1, [node]
        self._records, self._now = Records(), 0
        self._records.level = level[untried.index(node)]

    def add_child(self, node: int) -> None:
        """Enter a child of a member that was evaluated."""
        self.members.append(node)
        self._now += 1

    def record_best(self, level: float, margin: float) -> None:
        """Enter the best value of the lineage."""
        self._records.record_best(level, self._now, margin)

    def should_give_up(self, records: Records, threshold: float) -> bool:
        """True if the lineage should be given up."""
        chance = self._records.wait_chance(
            self._now, records.at + self._evaluations, records.count + self._found
        )
        return chance < threshold or self._now - self._records.at > self._longest
