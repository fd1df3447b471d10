"""The grid as a machine: the best of every cell stays, whatever the layout does."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from culmen.core.candidate import Candidate
from culmen.core.evaluation import Rollout
from culmen.strategies.memory.grid import Axis, Elite, Grid, GridIsland, Selection

number = st.floats(-100, 100)


def rollout(n):
    return Rollout(Candidate.of({"p": str(n)}), (), ())


class Cells(RuleBasedStateMachine):
    @initialize(bins=st.integers(1, 5), fixed=st.booleans())
    def start(self, bins, fixed):
        self.fixed = fixed
        self.grid = Grid(
            [Axis("x", bins, -10.0, 10.0) if fixed else Axis("x", bins), Axis("y", 3, 0.0, 1.0)]
        )
        self.offered = []

    @rule(x=number, y=st.floats(-1, 2), reward=st.integers(0, 9))
    def add(self, x, y, reward):
        elite = rollout(len(self.offered))
        entered = self.grid.offer_elite(Elite(elite, float(reward), (x, y))).entered
        assert entered == any(e.rollout is elite for e in self.grid.ranked_elites())
        self.offered.append((float(reward), (x, y)))

    @invariant()
    def every_elite_has_a_cell_of_its_own_and_the_best_is_never_lost(self):
        if not getattr(self, "offered", None):
            return
        elites = self.grid.ranked_elites()
        cells = [self.grid.cell_of(e.features) for e in elites]
        assert len(dict.fromkeys(cells)) == len(cells) == len(self.grid)
        assert elites[0].reward == max(reward for reward, _ in self.offered)
        assert all(0 <= i < axis.bins for cell in cells for i, axis in zip(cell, self.grid.axes))

    @invariant()
    def a_fixed_grid_is_the_best_per_cell(self):
        if getattr(self, "offered", None) and self.fixed:
            best = {}
            for reward, features in self.offered:
                cell = self.grid.cell_of(features)
                best[cell] = max(reward, best.get(cell, reward))
            assert {
                self.grid.cell_of(e.features): e.reward for e in self.grid.ranked_elites()
            } == best


Cells.TestCase.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)
TestCells = Cells.TestCase


def test_an_adaptive_axis_spans_what_was_seen():
    grid = Grid([Axis("x", 2)])
    for n, x in enumerate((5.0, 0.0, 100.0)):
        grid.offer_elite(Elite(rollout(n), float(n), (x,)))
    assert len(grid) == 2  # 0 and 5 share the lower half now; the better stayed
    assert [e.features[0] for e in grid.ranked_elites()] == [100.0, 0.0]


def test_a_range_that_grows_keeps_its_other_end():
    grid = Grid([Axis("x", 4)])
    for n, x in enumerate((0.0, 10.0, 20.0)):
        grid.offer_elite(Elite(rollout(n), float(n), (x,)))
    assert {e.features[0]: grid.cell_of(e.features)[0] for e in grid.ranked_elites()} == {
        0.0: 0,
        10.0: 2,
        20.0: 3,
    }


@pytest.mark.parametrize("axis", [Axis("x", 4, 0.0, 4.0), Axis("x", 4)])
def test_of_equal_rewards_the_one_that_came_first_is_first(axis):
    grid = Grid([axis])
    for n, (x, reward) in enumerate([(0.0, 1.0), (4.0, 0.5), (1.0, 2.0), (0.0, 2.0), (2.0, 0.1)]):
        grid.offer_elite(Elite(rollout(n), reward, (x,)))
    assert [e.rollout.candidate.text for e in grid.ranked_elites()] == ["2", "3", "1", "4"]


def island(size, **chosen):
    made = GridIsland(Grid([Axis("x", 100, 0.0, 100.0)]), Selection(**chosen))
    for n in range(size):
        made.grid.offer_elite(Elite(rollout(n), float(n), (n + 0.5,)))
    return made


def test_the_best_share_has_at_least_one():
    home, rng = island(3, exploration=0.0, exploitation=1.0, elites=0.1), Random(1)
    assert {home.draw_parent(rng).reward for _ in range(50)} == {2.0}


def test_different_ones_are_sought_among_sixteen():
    """Of eighteen the farthest is drawn into the sixteen with a chance of 16/18."""
    home, rng = island(18, top=0, diverse=1), Random(1)
    parent = home.grid.elite_at_rank(0)
    shown = [home.draw_inspirations(parent, rng)[0].reward for _ in range(4000)]
    assert shown.count(0.0) / 4000 == pytest.approx(
        16 / 18, abs=4.5 * (16 / 18 * 2 / 18 / 4000) ** 0.5
    )
