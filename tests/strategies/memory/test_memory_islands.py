"""Islands, trees and frontiers against plain references.

The grid against pyribs where it is installed.
"""

from __future__ import annotations

import math
from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from culmen.core.candidate import Candidate
from culmen.core.evaluation import Rollout
from culmen.extensions.baselines.pareto import Frontier
from culmen.extensions.baselines.tree import Tree, TreeNode
from culmen.strategies.memory.grid import Axis, Elite, Grid, GridIsland, Selection, migrate_to_next


def rollout(n: object) -> Rollout:
    return Rollout(Candidate.of({"p": str(n)}), (), ())


def elite(n: int, reward: float, x: float) -> Elite:
    return Elite(rollout(n), reward, (x,))


def island(size: int, selection: Selection | None = None, bins: int = 100) -> GridIsland:
    made = GridIsland(Grid([Axis("x", bins, 0.0, float(bins))]), selection or Selection())
    for n in range(size):
        made.grid.offer_elite(elite(n, float(n), n + 0.5))
    return made


offers = st.lists(st.tuples(st.integers(0, 6), st.floats(0, 10), st.floats(0, 1)), max_size=60)


@settings(deadline=None)
@given(offers=offers)
def test_the_grid_is_the_archive_of_ribs(offers: list[tuple[int, float, float]]) -> None:
    """A grid of fixed bounds holds what pyribs' GridArchive holds, insertion by insertion."""
    archives = pytest.importorskip("ribs.archives")
    theirs = archives.GridArchive(solution_dim=1, dims=[7, 4], ranges=[(0.0, 10.0), (0.0, 1.0)])
    mine = Grid([Axis("x", 7, 0.0, 10.0), Axis("y", 4, 0.0, 1.0)])
    for n, (reward, x, y) in enumerate(offers):
        x, y = (
            round(x, 3) + 1e-4,
            round(y, 3) * 0.999 + 1e-5,
        )  # away from the borders, where rounding decides
        told = theirs.add_single([float(n)], float(reward), [x, y])
        placed = mine.offer_elite(Elite(rollout(n), float(reward), (x, y)))
        assert placed.outcome == ("refused", "replaced", "new")[int(told["status"])]
    data = theirs.data()
    held = {
        int(i): (float(s[0]), float(o))
        for i, s, o in zip(data["index"], data["solution"], data["objective"])
    }
    cells = [(mine.cell_of(e.features), e) for e in mine.ranked_elites()]
    assert {
        x * 4 + y: (float(e.rollout.candidate.parts["p"]), e.reward) for (x, y), e in cells
    } == held


@settings(deadline=None)
@given(
    offers=st.lists(st.tuples(st.integers(0, 5), st.floats(-50, 50)), max_size=60),
    bins=st.integers(1, 6),
)
def test_ranks_follow_rewards_whatever_the_layout_does(
    offers: list[tuple[int, float]], bins: int
) -> None:
    grid = Grid([Axis("x", bins)])
    for n, (reward, x) in enumerate(offers):
        before = {id(e) for e in grid.ranked_elites()}
        placed = grid.offer_elite(elite(n, float(reward), x))
        holders = grid.ranked_elites()
        assert placed.entered == any(e.rollout.candidate.parts["p"] == str(n) for e in holders)
        if placed.replaced is not None and placed.entered:
            assert placed.replaced.reward < reward and id(placed.replaced) in before
        assert [e.reward for e in holders] == sorted((e.reward for e in holders), reverse=True)
        assert [grid.elite_at_rank(rank) for rank in range(len(grid))] == holders
        assert len({grid.cell_of(e.features) for e in holders}) == len(holders) == len(grid)
        assert grid.quality == pytest.approx(sum(e.reward for e in holders) / len(holders))


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (Selection(exploration=1.0, exploitation=0.0), lambda n: 1 / 10),
        (
            Selection(exploration=0.0, exploitation=1.0, elites=0.3),
            lambda n: 1 / 3 if n >= 7 else 0.0,
        ),
        (Selection(exploration=0.0, exploitation=0.0), lambda n: (n + 1) / 55),
    ],
    ids=["exploration", "exploitation", "weighted"],
)
def test_parents_are_drawn_as_declared(selection: Selection, expected) -> None:
    home, rng, draws = island(10, selection), Random(1), 6000
    seen = Counter(int(home.draw_parent(rng).reward) for _ in range(draws))  # pyright: ignore[reportOptionalMemberAccess]
    for n in range(10):
        share = expected(n)
        assert abs(seen[n] / draws - share) <= 4.5 * math.sqrt(share * (1 - share) / draws)


def test_inspirations_are_the_best_and_far_ones() -> None:
    home, rng = island(12, Selection(top=3, diverse=2)), Random(2)
    parent = home.grid.elite_at_rank(0)
    shown = home.draw_inspirations(parent, rng)
    assert [e.reward for e in shown] == [10.0, 9.0, 8.0, 0.0, 1.0]
    assert home.draw_inspirations(home.grid.elite_at_rank(5), rng)[0] is home.best
    assert island(1).draw_inspirations(island(1).grid.elite_at_rank(0), rng)[1:] == []
    assert island(0).draw_parent(rng) is None and island(0).best is None


@given(
    sizes=st.lists(st.integers(0, 9), min_size=1, max_size=4),
    rate=st.floats(0, 1),
    source=st.integers(0, 3),
)
def test_migration_goes_round_the_ring(sizes: list[int], rate: float, source: int) -> None:
    homes = [island(size) for size in sizes]
    source %= len(homes)
    before = [home.grid.ranked_elites() for home in homes]
    placed = migrate_to_next(homes, source, rate)
    target = (source + 1) % len(homes)
    sent = (
        0
        if rate == 0 or target == source
        else min(sizes[source], max(1, math.ceil(rate * sizes[source])))
    )
    assert len(placed) == sent
    for i, home in enumerate(homes):
        if i != target:
            assert home.grid.ranked_elites() == before[i]
    if placed and before[source]:
        assert (
            homes[target].best is not None and homes[target].best.reward >= before[source][0].reward
        )


@settings(deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.lists(st.integers(0, 20), max_size=4), st.integers(0, 2)), max_size=25
    )
)
def test_the_tree_scores_by_the_formula(steps: list[tuple[list[int], int]]) -> None:
    tree, c, serial = Tree(most=12, children=2), 0.7, 0
    tree.add_root(rollout("root"), 3.0)
    tree.add_root(rollout("other"), 1.0)
    for rewards, _ in steps:
        scores = tree.puct_scores(c)
        node = tree.take_node(c)
        assert node is not None
        assert scores[tree.nodes.index(node)] == max(scores)
        others = [n for n in tree.nodes if n.parent is not None] or tree.nodes
        scale = max(max(n.reward for n in others) - min(n.reward for n in others), 1e-6)
        size = len(tree)
        ordered = sorted(tree.nodes, key=lambda n: -n.reward)
        for n, score in zip(tree.nodes, scores, strict=True):
            prior = (size - ordered.index(n)) / (size * (size + 1) / 2)
            value = n.best if n.best is not None else n.reward
            assert score == pytest.approx(
                value + c * scale * prior * math.sqrt(1 + tree.expansions) / (1 + n.expansions)
            )
        counts = {id(n): n.expansions for n in tree.nodes}
        found = [(rollout(serial + i), float(reward)) for i, reward in enumerate(rewards)]
        serial += len(rewards)
        kept = tree.expand(node, found)
        assert [n.reward for n in kept] == sorted((float(r) for r in rewards), reverse=True)[:2]
        for n in tree.nodes:
            assert n.expansions == counts.get(id(n), 0) + (n in node.with_ancestors())
        assert len(tree) <= 12 and sum(n.parent is None for n in tree.nodes) == 2
    assert tree.expansions == len(steps)


def test_lanes_do_not_meet_on_one_line() -> None:
    tree = Tree(most=1000, children=3)
    tree.add_root(rollout("a"), 5.0)
    tree.add_root(rollout("b"), 0.0)
    first = tree.take_node(0.0)
    assert first is not None
    child = tree.expand(first, [(rollout("c"), 9.0)])[0]
    held = tree.take_node(0.0)
    assert held in (first, child)
    assert tree.take_node(0.0) is tree.nodes[1]  # the best that is free
    assert tree.take_node(0.0) in (first, child)  # all lines are in hand: they are shared
    nothing = Tree(most=1000, children=3)
    assert nothing.take_node(1.0) is None and nothing.puct_scores(1.0) == []


def test_equal_rewards_differ_by_their_ranks_alone_and_little() -> None:
    tree = Tree(most=10, children=1)
    tree.add_root(rollout("a"), 1.0)
    tree.add_root(rollout("b"), 1.0)
    assert tree.puct_scores(1e6) == pytest.approx([1.0 + 2 / 3, 1.0 + 1 / 3])


def test_beyond_its_size_a_tree_drops_its_worst_but_no_root_and_none_in_use() -> None:
    tree = Tree(most=4, children=4)
    tree.add_root(rollout("a"), 0.0)
    tree.add_root(rollout("b"), -1.0)

    def rewards(node: TreeNode | None, *children: float) -> list[float]:
        assert node is not None
        tree.expand(node, [(rollout(reward), reward) for reward in children])
        return sorted(node.reward for node in tree.nodes)

    assert rewards(tree.take_node(0.0), 1.0, 2.0) == [-1.0, 0.0, 1.0, 2.0]
    best, released, last = (tree.take_node(0.0) for _ in range(3))
    assert best is not None and best.reward == 2.0 and last is tree.nodes[1]
    assert rewards(released) == [-1.0, 0.0, 1.0, 2.0]
    assert rewards(last, 5.0, 4.0, 3.0) == [-1.0, 0.0, 2.0, 5.0]


table = st.lists(st.lists(st.integers(0, 3) | st.none(), min_size=3, max_size=3), max_size=8)


@given(rows=table)
def test_the_frontier_against_its_definition(rows: list[list[int | None]]) -> None:
    frontier = Frontier()
    seen: dict[str, list[float]] = {}
    for n, row in enumerate(rows):
        rewards = {f"c{i}": None if r is None else float(r) for i, r in enumerate(row)}
        mine = [-math.inf if r is None else float(r) for r in row]
        leads = any(all(a >= other[i] for other in seen.values()) for i, a in enumerate(mine))
        assert frontier.add(f"k{n}", rewards) == leads
        assert not frontier.add(f"k{n}", rewards)
        seen[f"k{n}"] = mine

    def worse(a: list[float], b: list[float]) -> bool:
        return a != b and all(x <= y for x, y in zip(a, b))

    best = [max((row[i] for row in seen.values()), default=0.0) for i in range(3)]
    on_top = {k: sum(row[i] == best[i] for i in range(3)) for k, row in seen.items()}
    on_top = {k: count for k, count in on_top.items() if count}
    expected = {k: c for k, c in on_top.items() if not any(worse(seen[k], seen[o]) for o in on_top)}
    assert frontier.led_case_counts() == expected
    drawn = frontier.sample_candidate(Random(0))
    assert drawn in expected if rows else drawn is None
