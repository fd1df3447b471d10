"""The population of `openevolve` beside the package's own database.

The same programs, then the same draws.
"""

from __future__ import annotations

import random
from collections import Counter
from random import Random
from typing import Any

import pytest

from culmen.core.candidate import Candidate
from culmen.core.evaluation import Observation, Rollout, Status
from culmen.strategies.backbone import ProgramPopulation
from culmen.strategies.memory.grid import Axis, Elite, Selection

database = pytest.importorskip("openevolve.database", reason="pip install openevolve==0.4.1")
config = pytest.importorskip("openevolve.config")

ISLANDS, STEPS = 3, 1_000
ARCHIVE, MOST, RATE = 12, 60, 0.15


def scripted() -> list[tuple[int, str, float, tuple[float, float]]]:
    """Island, text, score and two features of each program that a scripted model gives.

    No two scores are alike.
    """
    rng = Random(5)
    scores = rng.sample(range(1, 100_000), 300)
    return [
        (rng.randrange(ISLANDS), f"x = {n}\n", score / 1e5, (rng.random(), rng.gauss(0, 1)))
        for n, score in enumerate(scores)
    ]


def theirs(interval: int) -> Any:
    random.seed(3)
    settings = config.DatabaseConfig(
        num_islands=ISLANDS,
        feature_dimensions=["a", "b"],
        feature_bins=6,
        random_seed=None,
        archive_size=ARCHIVE,
        population_size=MOST,
        migration_interval=interval,
        migration_rate=RATE,
    )
    found = database.ProgramDatabase(settings)
    for n, (island, text, score, (a, b)) in enumerate(scripted()):
        program = database.Program(
            id=str(n), code=text, metrics={"combined_score": score, "a": a, "b": b}
        )
        found.add(program, iteration=n, target_island=island)
        found.increment_island_generation(island)
        if found.should_migrate():
            found.migrate_programs()
    return found


def ours(interval: int) -> ProgramPopulation:
    chosen = Selection(elites=0.1, top=0, diverse=5)
    axes = [Axis("a", 6), Axis("b", 6)]
    found = ProgramPopulation(axes, ISLANDS, chosen, ARCHIVE, MOST)
    for island, text, score, features in scripted():
        candidate = Candidate.of({"main.py": text})
        rollout = Rollout(candidate, (Observation(candidate.id, Status.OK, score),), (score,))
        found.islands[island].offer_elite(Elite(rollout, score, features))
        found.count_and_migrate(island, interval, RATE)
    return found


def text_of(elite: Elite) -> str:
    return elite.rollout.candidate.text


def test_the_same_programs_stay_on_the_islands_in_the_cells_and_in_the_archive() -> None:
    package, own = theirs(20), ours(20)
    for number, island in enumerate(own.islands):
        assert Counter(text_of(m.elite) for m in island.members) == Counter(
            package.programs[name].code for name in package.islands[number]
        )
        cells = {
            "-".join(map(str, cell)): text_of(member.elite) for cell, member in island.cells.items()
        }
        assert cells == {
            key: package.programs[name].code
            for key, name in package.island_feature_maps[number].items()
        }
    assert Counter(text_of(member.elite) for member in own.archive) == Counter(
        package.programs[name].code for name in package.archive
    )


def test_parents_and_inspirations_are_drawn_alike_over_a_thousand_steps() -> None:
    never = (
        10**6
    )  # of a migrant and its origin, which score alike, the package keeps any one in its archive
    package, own, rng = theirs(never), ours(never), Random(8)
    for number, island in enumerate(own.islands):
        at = {
            text_of(m.elite): island.cell_of(m.elite.features) for m in island.members
        }  # of one cell theirs takes any
        ranked = sorted((m.elite for m in island.members), key=lambda elite: -elite.reward)
        counts = [Counter[Any]() for _ in range(4)]
        for _ in range(STEPS):
            parent, inspirations = package.sample_from_island(number, num_inspirations=5)
            drawn = island.draw_parent(rng)
            assert drawn is not None
            counts[0][parent.code] += 1
            counts[1][text_of(drawn)] += 1
            counts[2].update(at[program.code] for program in inspirations)
            counts[3].update(
                at[text_of(elite)] for elite in island._drawn_inspirations(drawn, ranked, 5, rng)
            )
        assert apart(*counts[:2]) < 0.12 and apart(*counts[2:]) < 0.12


def apart(one: Counter[Any], other: Counter[Any]) -> float:
    """Half of the summed differences of two shares: 0 for alike, 1 for nothing in common."""
    sizes = one.total(), other.total()
    assert abs(sizes[0] - sizes[1]) <= 0.02 * sizes[0]
    return sum(abs(one[key] / sizes[0] - other[key] / sizes[1]) for key in one | other) / 2


def test_a_draw_of_another_kind_is_told_apart() -> None:
    even, twice = (
        Counter({n: 50 for n in range(20)}),
        Counter({n: 100 * (n < 10) for n in range(20)}),
    )
    assert apart(even, twice) == pytest.approx(0.5)
