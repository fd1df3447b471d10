"""OpenEvolve's population by its rules.

Beside the package: tests/extensions/baselines/test_baselines_openevolve_package.py.
"""

from __future__ import annotations

import math
from collections import Counter
from random import Random

import pytest

from culmen.core.candidate import Candidate
from culmen.core.evaluation import Observation, Rollout, Status
from culmen.strategies.backbone import ProgramPopulation
from culmen.strategies.memory.grid import Axis, Elite, Selection


def population(
    islands: int = 3, archive: int = 100, most: int = 1000, **chosen: float
) -> ProgramPopulation:
    return ProgramPopulation(
        [Axis("a", 10)], islands, Selection(**{"elites": 0.1, **chosen}), archive, most
    )


def elite(name: str, reward: float, feature: float) -> Elite:
    candidate = Candidate.of({"p": name})
    return Elite(
        Rollout(candidate, (Observation(candidate.id, Status.OK, reward),), (reward,)),
        reward,
        (feature,),
    )


def filled(*programs: tuple[str, float, float], **made: float) -> ProgramPopulation:
    """A population with these programs (name, reward, feature) on its first island."""
    found = population(**made)
    for program in programs:
        found.islands[0].offer_elite(elite(*program))
    return found


def name(elite: Elite) -> str:
    return elite.rollout.candidate.text


def names(island) -> set[str]:
    return {name(member.elite) for member in island.members}


def archived(found: ProgramPopulation) -> list[str]:
    return sorted(name(member.elite) for member in found.archive)


def test_a_program_stays_without_a_cell_and_leaves_when_it_is_displaced() -> None:
    found = population()
    for name, reward, feature in (
        ("low", 1.0, 0.0),
        ("high", 1.0, 1.0),
        ("worse", 0.5, 0.95),
        ("better", 2.0, 0.96),
    ):
        found.islands[0].offer_elite(elite(name, reward, feature))
    assert names(found.islands[0]) == {"low", "worse", "better"}
    assert {member.elite.rollout.candidate.text for member in found.archive} == {
        "low",
        "worse",
        "better",
    }
    assert len(found.islands[0].cells) == 2


def test_the_best_go_to_both_neighbours_once_and_copies_stay() -> None:
    found = population(islands=4)
    for n, feature in enumerate((0.0, 1.0, 0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85)):
        found.islands[0].offer_elite(elite(f"p{n}", float(n), feature))
    found.copy_to_neighbours(0.29)
    assert [names(island) for island in found.islands[1:]] == [{"p8", "p9"}, set(), {"p8", "p9"}]
    found.copy_to_neighbours(0.29)
    assert [len(island) for island in found.islands] == [
        9,
        2,
        0,
        2,
    ]  # the first one began in a middle cell, and lost it


def test_the_archive_and_the_population_keep_their_sizes_and_the_best() -> None:
    found, rng = population(archive=5, most=12), Random(1)
    for n in range(100):
        found.islands[n % 3].offer_elite(elite(f"p{n}", 1000.0 - n, rng.random()))
    assert sum(map(len, found.islands)) == 12 and len(found.archive) <= 5
    assert "p0" in set().union(*map(names, found.islands))


def test_an_empty_island_draws_from_the_first_and_elites_are_its_own() -> None:
    found = population(exploration=0.0, exploitation=1.0)
    assert found.islands[2].draw_parent(Random(1)) is None
    found.islands[0].offer_elite(elite("first", 1.0, 0.0))
    assert found.islands[2].draw_parent(Random(1)).rollout.candidate.text == "first"
    found.islands[2].offer_elite(elite("own", 0.1, 0.5))
    assert {found.islands[2].draw_parent(Random(n)).rollout.candidate.text for n in range(20)} == {
        "own"
    }


def test_what_is_drawn_to_be_shown_is_near() -> None:
    found = population(top=0, diverse=3)
    for n in range(10):
        found.islands[0].offer_elite(elite(f"p{n}", float(n == 0), n / 9))
    island = found.islands[0]
    parent = next(m.elite for m in island.members if m.elite.rollout.candidate.text == "p9")
    drawn = [
        e.rollout.candidate.text
        for seed in range(40)
        for e in island.draw_inspirations(parent, Random(seed))[3:]
    ]
    near = [name for name in drawn if name in ("p7", "p8")]
    assert "p9" not in drawn and len(near) > len(drawn) / 4


def test_a_cell_is_a_place_within_what_was_seen() -> None:
    found = filled(("one", 1.0, 1.0))
    assert found.cell_of((1.0,)) == found.cell_of((7.0,)) == (5,)
    found.islands[0].offer_elite(elite("other", 1.0, 3.0))
    cells = [found.cell_of((value,))[0] for value in (-9.0, 1.0, 1.5, 2.0, 2.9, 3.0, 99.0)]
    assert cells == [0, 0, 2, 5, 9, 9, 9]


def test_the_mean_of_an_island_is_that_of_its_cells() -> None:
    found = filled(
        ("first", 0.0, 0.5), ("low", 3.0, 0.0), ("high", 9.0, 1.0), ("without a cell", 1.0, 1.0)
    )
    assert found.islands[0].quality == 4.0 and found.islands[1].quality is None


def test_those_without_a_cell_leave_first_then_the_worst_and_the_archive_forgets_them() -> None:
    found = filled(("best", 9.0, 0.5), ("kept", 5.0, 1.0), ("loose", 8.0, 0.75), most=3)
    assert archived(found) == ["best", "kept", "loose"]
    for added, left in (
        (("new", 1.0, 0.0), {"best", "kept", "new"}),
        (("newer", 0.5, 0.25), {"best", "kept", "newer"}),
    ):
        found.islands[0].offer_elite(elite(*added))
        assert names(found.islands[0]) == set(archived(found)) == left


def test_the_newest_and_the_first_of_the_best_stay_whatever_the_size() -> None:
    found = filled(("best", 1.0, 0.0), ("as good", 1.0, 0.0), most=1)
    assert names(found.islands[0]) == {"best", "as good"}
    found.islands[0].offer_elite(elite("low", 0.5, 1.0))
    assert names(found.islands[0]) == {"best", "low"}
    found.islands[0].offer_elite(elite("better", 2.0, 0.5))
    found.islands[0].offer_elite(elite("lower", 0.1, 0.75))
    assert names(found.islands[0]) == {"better", "lower"}


def test_a_full_archive_takes_what_is_better_than_its_worst_and_what_took_the_cell_of_one_of_it() -> (
    None
):
    found = filled(
        ("a", 1.0, 0.0), ("b", 2.0, 1.0), ("c", 3.0, 0.5), ("as b", 2.0, 0.75), archive=2
    )
    assert archived(found) == ["b", "c"]
    found.islands[0].offer_elite(elite("d", 2.5, 0.25))
    assert archived(found) == ["c", "d"]
    found.islands[0].offer_elite(elite("c again", 4.0, 0.5))
    assert archived(found) == ["c again", "d"]


def test_islands_exchange_when_the_one_that_is_furthest_has_made_its_interval() -> None:
    found = filled(("p0", 1.0, 0.0), ("p1", 2.0, 1.0), islands=2)
    assert [len(found.count_and_migrate(island, 2, 0.01)) for island in (0, 1, 0)] == [0, 0, 1]
    assert names(found.islands[1]) == {"p1"}
    found.islands[1].offer_elite(elite("p2", 3.0, 0.5))
    assert [len(found.count_and_migrate(island, 2, 0.01)) for island in (1, 0, 1, 0)] == [
        0,
        0,
        0,
        1,
    ]
    assert "p2" in names(found.islands[0])


@pytest.mark.parametrize(("rate", "sent"), [(0.0, 2), (0.5, 4), (1.0, 8)])
def test_a_share_goes_to_both_neighbours_at_least_one_program(rate: float, sent: int) -> None:
    found = filled(("p0", 1.0, 0.5), ("p1", 2.0, 0.0), ("p2", 3.0, 1.0), ("p3", 3.0, 0.25))
    assert len(found.count_and_migrate(0, 1, rate)) == sent


def test_all_migrants_are_chosen_before_the_first_is_copied() -> None:
    found = filled(("p0", 1.0, 0.5), islands=3)
    for island, (text, score) in enumerate((("a", 9.0), ("b", 5.0), ("c", 1.0))):
        found.islands[island].offer_elite(elite(text, score, 0.1 * island))
    found.copy_to_neighbours(0.0)  # one program of each island
    assert names(found.islands[1]) >= {"a", "c"} and names(found.islands[2]) >= {"a", "b"}
    found.copy_to_neighbours(0.0)  # copies take no place of their own programs
    assert "b" in names(found.islands[0])


def share(found: ProgramPopulation, of: str, draws: int = 4000) -> float:
    rng, home = Random(1), found.islands[0]
    return sum(name(home.draw_parent(rng)) == of for _ in range(draws)) / draws  # pyright: ignore[reportArgumentType]


def close(share: float, expected: float, draws: int = 4000) -> bool:
    return abs(share - expected) < 4.5 * math.sqrt(expected * (1 - expected) / draws)


def test_a_parent_is_drawn_from_all_from_the_archive_or_by_reward() -> None:
    programs = (("a", 1.0, 0.0), ("b", 0.5, 0.5), ("c", 0.5, 1.0))
    found = filled(*programs, archive=1, exploration=0.3, exploitation=0.3)
    assert close(share(found, "a"), 0.3 / 3 + 0.3 + 0.4 / 2) and close(
        share(found, "b"), 0.3 / 3 + 0.4 / 4
    )


def test_a_program_of_no_reward_weighs_a_thousandth() -> None:
    found = filled(("bad", -1.0, 0.0), ("poor", 0.003, 1.0), exploration=0.0, exploitation=0.0)
    assert close(share(found, "bad"), 1 / 4)


def drawn(found: ProgramPopulation, parent: str, draws: int = 4000) -> Counter[str]:
    """Counts of each program beside the two best of the island, which are shown first."""
    rng, home, seen = Random(1), found.islands[0], Counter[str]()
    chosen = next(member.elite for member in home.members if name(member.elite) == parent)
    for _ in range(draws):
        shown = [name(elite) for elite in home.draw_inspirations(chosen, rng)]
        assert shown[:2] == ["best", "second"] and parent not in shown and len(shown) <= 3
        seen.update(shown[2:])
    return seen


FAR = (("best", 9.0, 0.85), ("second", 8.0, 1.0), ("low", 1.0, 0.0))


def test_a_near_one_is_sought_three_times_up_to_two_cells_away_and_else_any_is_shown() -> None:
    """Of five steps one leads to the near one; those three cells away are found like any others."""
    for near in (0.25, 0.35, 0.55, 0.65):  # the parent is in cell 4
        found = filled(
            *FAR, ("parent", 1.0, 0.45), ("near", 1.0, near), ("three", 1.0, 0.75), top=0, diverse=2
        )
        seen, missed = drawn(found, "parent"), (4 / 5) ** 3
        assert close(seen["near"] / 4000, 1 - missed + missed / 4)
        assert close(seen["three"] / 4000, missed / 4) and close(seen["low"] / 4000, missed / 4)


@pytest.mark.parametrize("end", [0.0, 1.0])
def test_steps_over_an_end_of_the_grid_lead_to_its_last_cell(end: float) -> None:
    middle = (
        ("best", 9.0, 0.55),
        ("second", 8.0, 0.45),
        ("other end", 1.0, 1.0 - end),
        ("third", 1.0, 0.5),
    )
    found = filled(*middle, ("parent", 1.0, end), ("twin", 1.0, end), top=0, diverse=2)
    missed = (2 / 5) ** 3
    assert close(drawn(found, "parent")["twin"] / 4000, 1 - missed + missed / 4)


def test_the_best_are_shown_first_as_many_as_the_best_and_the_different_ones_together() -> None:
    found = filled(*((f"p{n}", float(n), n / 9) for n in range(9, -1, -1)), top=2, diverse=3)
    home = found.islands[0]
    shown = [name(elite) for elite in home.draw_inspirations(home.members[-1].elite, Random(1))]
    assert shown[:5] == ["p9", "p8", "p7", "p6", "p5"] and len(shown) == len(set(shown)) > 5
