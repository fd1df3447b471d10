"""Memories do the same whatever Python's hash seed: each seed in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_CHILD = """
from random import Random
from culmen.core.candidate import Candidate
from culmen.core.evaluation import Rollout
from culmen.strategies.memory.epsilon_net import EpsilonNet
from culmen.strategies.memory.grid import Axis, Elite, Grid
from culmen.strategies.memory.grid import GridIsland, Selection, migrate_to_next
from culmen.extensions.baselines.pareto import Frontier
from culmen.extensions.baselines.tree import Tree

rng, out = Random(1), []
islands = [GridIsland(Grid([Axis("x", 4), Axis("name", 3)]), Selection()) for _ in range(3)]
for n in range(200):
    made = Rollout(Candidate.of({"p": f"text {n}"}), (), ())
    at = islands[n % 3].grid.offer_elite(Elite(made, rng.choice([0.0, 1.0, 2.0]), (rng.random(), rng.random())))
    parent = islands[n % 3].draw_parent(rng)
    shown = islands[n % 3].draw_inspirations(parent, rng)
    out.append((at.outcome, parent.rollout.candidate.id, [e.rollout.candidate.id for e in shown]))
    if n % 20 == 0:
        out.append([placed.outcome for placed in migrate_to_next(islands, n % 3, 0.5)])
net = EpsilonNet(0.3)
for n in range(20):
    some = [Candidate.of({"p": f"{n} {m}"}) for m in range(5)]
    out.append([c.id for c in net.admit(some, [[rng.random(), rng.random()] for _ in some])])
front, tree = Frontier(), Tree(most=40, children=2)
for n in range(60):
    front.add(f"key {n}", {f"case {m}": rng.choice([0.0, 0.5, 1.0, None]) for m in range(6)})
    out.append((front.sample_candidate(rng), front.led_case_counts()))
tree.add_root(Rollout(Candidate.of({"p": "root"}), (), ()), 0.0)
for n in range(60):
    node = tree.take_node(1.0)
    if node is not None:
        grown = [(Rollout(Candidate.of({"p": f"{n} {m}"}), (), ()), rng.random()) for m in range(3)]
        out.append([each.rollout.candidate.id for each in tree.expand(node, grown)])
print(out)
"""


@pytest.mark.extension("baselines")
def test_three_hash_seeds_give_the_same_memories() -> None:
    told = set()
    for seed in ("0", "1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", _CHILD],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        told.add(done.stdout)
    assert len(told) == 1 and len(told.pop()) > 1000
