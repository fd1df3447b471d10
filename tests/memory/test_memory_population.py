"""OpenEvolve's population by its rules; beside the package: tests/strategies/test_strategies_openevolve_package.py."""

from __future__ import annotations

from random import Random

from culmen.core.candidate import Candidate
from culmen.core.evaluation import Observation, Rollout, Status
from culmen.memory.grid import Axis, Elite, Selection
from culmen.memory.population import ProgramPopulation


def population(islands: int = 3, archive: int = 100, most: int = 1000, **chosen: float) -> ProgramPopulation:
    return ProgramPopulation([Axis("a", 10)], islands, Selection(**{"elites": 0.1, **chosen}), archive, most)


def elite(name: str, reward: float, feature: float) -> Elite:
    candidate = Candidate.of({"p": name})
    return Elite(Rollout(candidate, (Observation(candidate.id, Status.OK, reward),), (reward,)), reward, (feature,))


def names(island) -> set[str]:
    return {member.elite.rollout.candidate.text for member in island.members}


def test_a_program_stays_without_a_cell_and_leaves_when_it_is_displaced() -> None:
    found = population()
    for name, reward, feature in (("low", 1.0, 0.0), ("high", 1.0, 1.0), ("worse", 0.5, 0.95), ("better", 2.0, 0.96)):
        found.islands[0].offer(elite(name, reward, feature))
    assert names(found.islands[0]) == {"low", "worse", "better"}
    assert {member.elite.rollout.candidate.text for member in found.archive} == {"low", "worse", "better"}
    assert len(found.islands[0].cells) == 2


def test_the_best_go_to_both_neighbours_once_and_copies_stay() -> None:
    found = population(islands=4)
    for n, feature in enumerate((0.0, 1.0, 0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85)):
        found.islands[0].offer(elite(f"p{n}", float(n), feature))
    found.migrate(0.29)
    assert [names(island) for island in found.islands[1:]] == [{"p8", "p9"}, set(), {"p8", "p9"}]
    found.migrate(0.29)
    assert [len(island) for island in found.islands] == [
        9,
        2,
        0,
        2,
    ]  # the first one began in a middle cell, and lost it


def test_the_archive_and_the_population_keep_their_sizes_and_the_best() -> None:
    found, rng = population(archive=5, most=12), Random(1)
    for n in range(100):
        found.islands[n % 3].offer(elite(f"p{n}", 1000.0 - n, rng.random()))
    assert sum(map(len, found.islands)) == 12 and len(found.archive) <= 5
    assert "p0" in set().union(*map(names, found.islands))


def test_an_empty_island_draws_from_the_first_and_elites_are_its_own() -> None:
    found = population(exploration=0.0, exploitation=1.0)
    assert found.islands[2].parent(Random(1)) is None
    found.islands[0].offer(elite("first", 1.0, 0.0))
    assert found.islands[2].parent(Random(1)).rollout.candidate.text == "first"
    found.islands[2].offer(elite("own", 0.1, 0.5))
    assert {found.islands[2].parent(Random(n)).rollout.candidate.text for n in range(20)} == {"own"}


def test_what_is_drawn_to_be_shown_is_near() -> None:
    found = population(top=0, diverse=3)
    for n in range(10):
        found.islands[0].offer(elite(f"p{n}", float(n == 0), n / 9))
    island = found.islands[0]
    parent = next(m.elite for m in island.members if m.elite.rollout.candidate.text == "p9")
    drawn = [e.rollout.candidate.text for seed in range(40) for e in island.inspirations(parent, Random(seed))[3:]]
    near = [name for name in drawn if name in ("p7", "p8")]
    assert "p9" not in drawn and len(near) > len(drawn) / 4
