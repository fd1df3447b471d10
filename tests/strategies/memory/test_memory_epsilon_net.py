"""The semantic filter: Algorithm 4 word by word, and as a machine over many batches."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from culmen.core.candidate import Candidate
from culmen.core.errors import UserError
from culmen.strategies.memory.epsilon_net import EpsilonNet, KeepAll
from culmen.strategies.memory.priorities import Quantile
from culmen.testing.memory_kit import check_filter

# whole coordinates: distances are exact, so that ties are ties for the net and for the reference
# alike
point = st.tuples(st.integers(-4, 4), st.integers(-4, 4), st.integers(-4, 4))
points = st.lists(point, max_size=8)
epsilons = st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.3, 3.0, 5.0])


def farthest_first(
    net: list[tuple[float, ...]], raw: list[tuple[float, ...]], epsilon: float
) -> list[int]:
    """Algorithm 4, word by word.

    Returns indices of the admitted rows of `raw`, in order, for members `net`.
    """
    members, remaining, new = list(net), list(range(len(raw))), list[int]()
    while remaining:
        distances = {
            i: min((math.dist(raw[i], member) for member in members), default=math.inf)
            for i in remaining
        }
        farthest = max(remaining, key=lambda i: (distances[i], -i))
        if distances[farthest] < epsilon:
            break
        new.append(farthest)
        members.append(raw[farthest])
        remaining.remove(farthest)
    return new


def named(rows, start=0):
    return [Candidate.of({"p": f"{start + n}: {row}"}) for n, row in enumerate(rows)]


class Net(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.net, self.epsilon, self.members, self.count = EpsilonNet(1.5), 1.5, [], 0

    @rule(rows=points)
    def admit(self, rows):
        candidates = named(rows, self.count)
        self.count += len(rows)
        expected = farthest_first(self.members, rows, self.epsilon)
        assert self.net.admit(candidates, rows) == [candidates[i] for i in expected]
        self.members += [rows[i] for i in expected]

    @rule(rows=points)
    def admit_again(self, rows):
        candidates = named(rows)
        first = self.net.admit(candidates, rows)
        self.members += [rows[candidates.index(c)] for c in first]
        assert self.net.admit(candidates, rows) == []
        self.count += 100

    @invariant()
    def no_two_members_are_closer_than_epsilon(self):
        assert len(self.net) == len(self.members)
        gaps = [math.dist(a, b) for i, a in enumerate(self.members) for b in self.members[:i]]
        assert all(gap >= self.epsilon for gap in gaps)


Net.TestCase.settings = settings(max_examples=60, stateful_step_count=12, deadline=None)
TestNet = Net.TestCase


@given(points, points, epsilons)
def test_admission_is_farthest_first(members, raw, epsilon):
    net = EpsilonNet(epsilon)
    net.add(named(members), members)
    candidates = named(raw, 100)
    assert net.admit(candidates, raw) == [
        candidates[i] for i in farthest_first(members, raw, epsilon)
    ]


@given(st.lists(st.lists(st.tuples(st.integers(0, 9), point), max_size=6), max_size=6), epsilons)
def test_filters_keep_the_contract(batches, epsilon):
    offers = [[(Candidate.of({"p": str(n)}), row) for n, row in batch] for batch in batches]
    check_filter(lambda: EpsilonNet(epsilon), offers)
    check_filter(KeepAll, offers)


def test_an_exact_duplicate_is_refused_at_epsilon_zero_and_an_equal_vector_is_not():
    net, (a, b) = EpsilonNet(0.0), named([(1, 0), (1, 0)])
    assert net.admit([a, a], [(1, 0), (1, 0)]) == [a]
    assert net.admit([a, b], [(1, 0), (1, 0)]) == [b]


def test_a_distance_of_exactly_epsilon_is_admitted():
    net = EpsilonNet(5.0)
    net.add(named([(0, 0)]), [(0, 0)])
    assert len(net.admit(named([(3, 4)], 1), [(3, 4)])) == 1
    assert net.admit(named([(3, 3)], 2), [(3, 3)]) == []


def test_close_vectors_are_measured_exactly_although_products_are_not():
    """Differences far below float32's error in |a|^2 + |b|^2 - 2ab still decide."""
    rng = np.random.default_rng(0)
    base = rng.normal(size=(2000, 64)).astype(np.float32)
    base /= np.linalg.norm(base, axis=1, keepdims=True)
    net = EpsilonNet(0.0)
    net.add(named(base.tolist()), base)
    near = base[1234] + np.float32(1e-4)
    expected = np.linalg.norm(base.astype(float) - near.astype(float), axis=1).min()
    assert net.nearest_distances(near[None, :])[0] == pytest.approx(expected, abs=1e-9)


def test_a_quantile_refuses_about_that_share_whatever_the_scale():
    for scale in (0.01, 1.0):
        rng, net = np.random.default_rng(1), EpsilonNet(Quantile(0.3))
        rows = rng.uniform(size=(600, 12)) * scale
        for start in range(0, 600, 5):
            net.admit(named(rows[start : start + 5].tolist(), start), rows[start : start + 5])
        assert 0.2 < net.refused / 600 < 0.5
        assert net.facts()["quantiles"]["q0.5"] > 0


def test_a_quantile_is_written_q_and_lies_between_0_and_1():
    assert Quantile.parse("q0.1") == Quantile(0.1) and str(Quantile(0.25)) == "q0.25"
    assert Quantile.parse("0.1") is None
    with pytest.raises(UserError, match="between 0 and 1"):
        Quantile.parse("q1.5")


def test_what_is_admitted_is_no_reason_to_widen():
    net = EpsilonNet(0.5, widens=True)
    for n in range(60):
        assert net.admit(named([n], n), [(float(n), 0.0)])
    assert net.crowded == 0 and net.epsilon == 0.5
    for n in range(40):
        net.admit(named([n], 100 + n), [(n + 0.25, 0.0)])
    assert net.crowded > 0 and net.epsilon == 0.25


def line(net, *distances):
    """Admit one candidate after the other, each at its distance from the member at 0.

    Each is far from the others.
    """
    if not len(net):
        net.add(named(["0"]), [(0.0,) * 60])
    for distance in distances:
        at = len(net) if distance >= 1 else 0
        row = [0.0] * 60
        row[at] = distance
        net.admit([Candidate.of({"p": f"{net.refused} {len(net)} {distance}"})], [row])


def test_crowded_counts_each_time_that_more_than_half_of_twenty_were_refused():
    net = EpsilonNet(1.0)
    line(net, *[1.5] * 10, *[0.5] * 10)
    assert net.crowded == 0  # just half
    line(net, 0.5)
    assert net.crowded == 1
    line(net, *[0.5] * 19)
    assert net.crowded == 1  # it begins to count anew
    line(net, 0.5)
    assert net.crowded == 2 and net.epsilon == 1.0


def test_a_net_widens_to_the_lower_quartile_of_the_twenty():
    net, near = EpsilonNet(1.0, widens=True), [n / 16 for n in range(1, 12)]
    line(net, *[1.5] * 9, *near)
    assert net.epsilon == pytest.approx(np.quantile([*near, *[1.5] * 9], 0.25))
    line(net, 0.7)
    assert len(net) == 11 and net.refused == 11  # such a distance is enough now


def test_the_first_member_counts_as_two_away_in_the_quartile():
    net = EpsilonNet(9.0, widens=True)
    for n in range(21):
        net.admit(named([n], n), [(3.0 * min(n, 1),)])
    assert net.epsilon == 3.0
    other = EpsilonNet(9.0, widens=True)
    for n in range(20):
        other.admit(named([n], n), [(0.0,)])
    assert other.epsilon == 0.0  # at no distance is refused as well
    assert other.crowded == 1


def test_a_quantile_refuses_by_distance_from_the_twentieth_on():
    net = EpsilonNet(Quantile(0.5))
    line(net, *[1.5] * 19)
    assert net.epsilon == 0.0
    line(net, 1.5)
    assert net.epsilon == 1.5


def test_the_facts_of_a_net():
    net = EpsilonNet(9.0)
    line(net, *[n / 20 for n in range(21)])
    expected = {f"q{q:g}": pytest.approx(q, abs=1e-6) for q in (0.05, 0.1, 0.25, 0.5, 0.75, 0.9)}
    assert net.facts()["quantiles"] == expected
    assert net.facts() == {"size": 1, "refused": 21, "epsilon": net.epsilon, "quantiles": expected}
    assert EpsilonNet().facts()["epsilon"] == 0.1


def test_the_nearest_member_is_found_also_among_many_near_ones_far_from_the_origin():
    """There the products of float32 tell none of them from another."""
    rows = (1000 + np.random.default_rng(0).normal(size=(60, 3)) / 10).astype(np.float32)
    net = EpsilonNet(0.1)
    net.add(named(range(40)), rows[:40].tolist())
    gaps = rows[40:, None].astype(np.float64) - rows[None, :40]
    assert net.nearest_distances(rows[40:]).tolist() == pytest.approx(
        np.sqrt((gaps**2).sum(axis=2)).min(axis=1), abs=1e-8
    )


def test_facts_tell_distances_to_six_decimals():
    net, (first, second) = EpsilonNet(0.1), named([0, 1])
    net.add([first], [[0.0, 0.0]])
    net.admit([second], [[1 / 3, 0.0]])
    assert set(net.facts()["quantiles"].values()) == {0.333333}


def test_keeping_all_keeps_each_content_once_in_the_order_given():
    a, b, c = named([(1, 0), (2, 0), (3, 0)])
    kept = KeepAll()
    assert kept.admit([b, a, a]) == [b, a] and kept.refused == 1
    assert kept.admit([a, c, b]) == [c] and kept.facts() == {"size": 3, "refused": 3}
    assert b in kept and named([(9, 9)])[0] not in kept
