"""The exact scorer of circle packing: known packings, and everything that is not one."""

from __future__ import annotations

import importlib.util
import math
from fractions import Fraction
from itertools import combinations
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from culmen.tasks import example_path


def load_evaluator() -> ModuleType:
    path = example_path("circle_packing") / "evaluator.py"
    spec = importlib.util.spec_from_file_location("circle_evaluator", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


JUDGE = load_evaluator()


def grid() -> tuple[list[list[float]], list[float]]:
    """25 circles of radius 1/10 in rows, and one of radius 0.04 in a gap.

    Coordinates are not exact doubles.
    """
    centers = [[0.1 + 0.2 * i, 0.1 + 0.2 * j] for i in range(5) for j in range(5)]
    return [*centers, [0.2, 0.2]], [0.1] * 25 + [0.04]


def exact_grid() -> tuple[list[list[float]], list[float]]:
    """26 of the 64 circles of radius 1/16 that fit in 8 rows.

    All numbers are exact, neighbours touch.
    """
    places = [[(2 * i + 1) / 16, (2 * j + 1) / 16] for i in range(8) for j in range(8)]
    return places[:26], [1 / 16] * 26


def disjoint(centers: Any, radii: list[Fraction]) -> bool:
    """The definition, in rational arithmetic, written apart from the scorer."""
    points = [(Fraction(float(x)), Fraction(float(y))) for x, y in centers]
    inside = all(r >= 0 and r <= x <= 1 - r and r <= y <= 1 - r for (x, y), r in zip(points, radii))
    apart = (
        (p[0] - q[0]) ** 2 + (p[1] - q[1]) ** 2 >= (r + s) ** 2
        for (p, r), (q, s) in combinations(list(zip(points, radii)), 2)
    )
    return inside and all(apart)


def test_an_exact_packing_counts_in_full() -> None:
    centers, radii = exact_grid()
    seen = JUDGE.score((centers, radii))
    assert seen["score"] == 26 / 16 and seen["metrics"] == {"raw_sum": 26 / 16, "shrink": 0.0}
    assert "touch" in seen["feedback"]
    assert JUDGE.score([np.array(centers), np.array(radii)])["score"] == 26 / 16


def test_rounding_is_repaired_downwards() -> None:
    centers, radii = grid()
    assert not disjoint(centers, [Fraction(r) for r in radii])
    seen = JUDGE.score((centers, radii))
    assert 2.54 - 1e-12 < seen["score"] < 2.54 and 0 < seen["metrics"]["shrink"] < 1e-14


@pytest.mark.parametrize("size", [1e-9, 1e-7])
def test_an_overlap_gains_nothing(size: float) -> None:
    centers, radii = exact_grid()
    seen = JUDGE.score((centers, [r + size for r in radii]))
    assert 26 / 16 - 30 * size < seen["score"] <= 26 / 16
    assert seen["metrics"]["raw_sum"] > 26 / 16


def test_repair_gives_a_packing_of_the_score() -> None:
    centers, radii = grid()
    exact = [Fraction(r) + Fraction(1, 10**8) for r in radii]
    worst, _ = JUDGE.repair(centers, exact)
    assert 0 < worst < 1e-7 and disjoint(centers, exact)


@settings(deadline=None)
@given(st.lists(st.tuples(*[st.floats(0, 1)] * 3), min_size=26, max_size=26))
def test_repair_always_ends_in_a_packing(circles: list[tuple[float, float, float]]) -> None:
    centers, radii = [[x, y] for x, y, _ in circles], [r for *_, r in circles]
    exact = [Fraction(r) for r in radii]
    before = list(exact)
    JUDGE.repair(centers, exact)
    assert disjoint(centers, exact) and all(new <= old for new, old in zip(exact, before))
    seen = JUDGE.score((centers, radii))
    assert seen["score"] is None or Fraction(seen["score"]) <= sum(exact)


def test_a_score_is_never_above_the_certified_sum() -> None:
    for value in (Fraction(1, 3), Fraction(2, 3), Fraction(1, 10), Fraction(0), Fraction(5, 2)):
        assert Fraction(JUDGE.rounded_down(value)) <= value
        assert math.isclose(JUDGE.rounded_down(value), value, rel_tol=1e-15)
    for square in (Fraction(2), Fraction(1, 4), Fraction(0), Fraction(1, 2**2000)):
        assert JUDGE.root_below(square) ** 2 <= square


def changed(place: int, index: int, value: Any) -> tuple[Any, Any]:
    packing = [list(part) for part in exact_grid()]
    packing[place][index] = value
    return packing[0], packing[1]


CHEATS: dict[str, tuple[Any, str]] = {
    "NaN radius": (changed(1, 0, math.nan), "between 0 and 1"),
    "all NaN": (([[math.nan] * 2] * 26, [math.nan] * 26), "between 0 and 1"),
    "infinite radius": (changed(1, 0, math.inf), "between 0 and 1"),
    "negative radius": (changed(1, 0, -0.1), "between 0 and 1"),
    "huge int": (changed(1, 0, 10**400), "between 0 and 1"),
    "huge negative int": (changed(0, 0, [-(10**400), 0]), "between 0 and 1"),
    "boolean": (changed(1, 0, True), "between 0 and 1"),
    "complex": (changed(1, 0, 0.1 + 0j), "between 0 and 1"),
    "text": (changed(1, 0, "0.1"), "between 0 and 1"),
    "None": (changed(1, 0, None), "between 0 and 1"),
    "a radius that is a list": (changed(1, 0, [0.1]), "between 0 and 1"),
    "three coordinates": (changed(0, 0, [0.1, 0.1, 0.1]), "center 0 must be two numbers"),
    "a center that is a number": (changed(0, 3, 0.5), "center 3 must be two numbers"),
    "too few": ((exact_grid()[0][:25], exact_grid()[1]), "centers must be 26 points"),
    "too many radii": ((exact_grid()[0], exact_grid()[1] + [0.1]), "radii must be 26 numbers"),
    "an array of the wrong shape": ((np.zeros((2, 26)), np.zeros(26)), "centers must be 26 points"),
    "an array of no shape": ((np.array(1.0), np.zeros(26)), "centers must be 26 points"),
    "a complex array": ((np.zeros((26, 2)), np.full(26, 1j)), "between 0 and 1"),
    "a number": (2.7, "(centers, radii)"),
    "a claim": ({"score": 2.7}, "(centers, radii)"),
    "a claim beside the packing": ((*exact_grid(), 2.7), "(centers, radii)"),
    "nothing": (None, "(centers, radii)"),
    "outside": (changed(0, 0, [0.06, 0.0625]), "circle 0 leaves the square by 0.0025"),
    "overlapping": (changed(0, 1, [0.0625, 0.187]), "circles 0 and 1 overlap by 0.0005"),
    "all in one place": (([[0.5, 0.5]] * 26, [0.5] * 26), "overlap by"),
    "just above the slack": ((exact_grid()[0], [1 / 16 + 2e-6] * 26), "at most 1e-06 is repaired"),
}


@pytest.mark.parametrize("name", CHEATS)
def test_what_is_no_packing_gets_no_score(name: str) -> None:
    output, piece = CHEATS[name]
    seen = JUDGE.score(output)
    assert seen["score"] is None and piece in seen["feedback"]


def test_tiny_and_empty_circles_are_honest() -> None:
    centers, radii = exact_grid()
    radii[0], radii[1] = 0.0, 5e-324
    assert JUDGE.score((centers, radii))["score"] == 24 / 16
    assert JUDGE.score(([[0, 1]] * 26, [0] * 26))["score"] == 0
