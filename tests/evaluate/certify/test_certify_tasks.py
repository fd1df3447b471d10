"""The verifiers of the mathematical tasks, by known values and definitions written apart.

Also everything that is a trick.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from culmen.evaluate.certify import Invalid
from culmen.tasks import example_path, load
from tests.evaluate.certify.modules import NAMES, modules

pytestmark = pytest.mark.extension("builtin")

STEP = ("first_autocorr_ineq", "second_autocorr_ineq", "erdos_min_overlap")


def certify(task: str, output: Any) -> dict[str, Any]:
    return modules(task)["verify"].certify(output)


def search(task: str, output: Any) -> dict[str, Any]:
    return modules(task)["evaluator"].score(output)


def exact(answer: dict[str, Any]) -> Fraction:
    return Fraction(answer["exact"])


# -- definitions, in plain fractions
# -------------------------------------------------------------------------------


def autoconvolution(h: list[Fraction]) -> list[Fraction]:
    result = [Fraction(0)] * (2 * len(h) - 1)
    for i, a in enumerate(h):
        for j, b in enumerate(h):
            result[i + j] += a * b
    return result


def first(h: list[Fraction]) -> Fraction:
    return 2 * len(h) * max(autoconvolution(h)) / sum(h) ** 2


def second(h: list[Fraction]) -> Fraction:
    y = [Fraction(0), *autoconvolution(h), Fraction(0)]
    square = sum((a * a + a * b + b * b) / 3 for a, b in pairwise(y))
    return square / (sum((a + b) / 2 for a, b in pairwise(y)) * max(y))


def overlap(h: list[Fraction]) -> Fraction:
    n = len(h)
    shifts = (
        sum(h[i] * (1 - h[i + k]) for i in range(n) if 0 <= i + k < n) for k in range(1 - n, n)
    )
    return Fraction(2, n) * max(shifts)


HEIGHTS = st.lists(
    st.floats(0, 1).map(lambda h: h if h > 1e-9 else 0.0), min_size=2, max_size=7
).filter(any)


@settings(deadline=None)
@given(HEIGHTS)
def test_autocorrelations_are_their_definitions(heights: list[float]) -> None:
    kept = [Fraction(h) for h in heights]
    one, two = (certify(task, heights) for task in STEP[:2])
    assert exact(one) == first(kept) <= Fraction(one["score"]) and one["feasible"]
    assert exact(two) == second(kept) >= Fraction(two["score"]) and two["feasible"]
    assert one["score"] == pytest.approx(search(STEP[0], heights)["score"], rel=1e-12)
    assert two["score"] == pytest.approx(search(STEP[1], heights)["score"], rel=1e-12)


@settings(deadline=None)
@given(st.lists(st.integers(0, 64), min_size=1, max_size=5), st.integers(-490, 490))
def test_overlaps_are_their_definition(parts: list[int], millionths: int) -> None:
    heights = [k / 64 for k in parts] + [1 - k / 64 for k in parts]
    answer = certify(STEP[2], heights)
    assert answer["feasible"] and exact(answer) == overlap([Fraction(h) for h in heights])
    assert answer["score"] == pytest.approx(search(STEP[2], heights)["score"], rel=1e-12)
    moved = [min(1.0, max(0.0, h + millionths / 1e6)) for h in heights]
    repaired = certify(STEP[2], moved)
    plain, total = [Fraction(h) for h in moved], sum(map(Fraction, moved))
    n = len(moved)
    if total == Fraction(n, 2):
        return
    factor = Fraction(n, 2) / (total if total > Fraction(n, 2) else n - total)
    fixed = [h * factor if total > Fraction(n, 2) else 1 - (1 - h) * factor for h in plain]
    assert sum(fixed) == Fraction(n, 2) and all(0 <= h <= 1 for h in fixed)
    assert not repaired["feasible"] and "scaled to 1" in repaired["repaired"]
    assert Fraction(repaired["score"]) >= overlap(fixed) and repaired["score"] == pytest.approx(
        float(overlap(fixed))
    )


# -- known values
# --------------------------------------------------------------------------------------------------


def test_constant_functions() -> None:
    for n in (2, 7, 1200):
        assert exact(certify(STEP[0], [3.0] * n)) == 2
        assert exact(certify(STEP[1], [0.1] * n)) == Fraction(2, 3)
        assert exact(certify(STEP[2], [0.5] * n)) == Fraction(1, 2)


def test_published_coefficients_have_the_published_bound() -> None:
    """Three coefficients (AlphaEvolve, B.4): 0.352099104422527729.

    These are more digits than a double has.
    """
    answer = certify(
        "uncertainty_ineq", [0.3292519302257546, -0.01158510802599293, -8.921606035407065e-05]
    )
    assert answer["exact"].startswith("[0.352099104422527729")
    assert answer["feasible"] and answer["score"] == 0.35209910442252773
    low, high = map(Fraction, answer["exact"].strip("[]").split(", "))
    assert high - low <= Fraction(1, 10**29) and high <= Fraction(answer["score"])


def test_a_root_that_can_be_written_down() -> None:
    """One coefficient, with C4 <= 3 / (2 pi).

    P = H_0 - H_4 / 12 = -(4/3) x^2 (x^2 - 3) up to its sign.
    """
    answer = certify("uncertainty_ineq", [1.0])
    assert answer["score"] == pytest.approx(3 / (2 * math.pi), rel=1e-15)
    assert certify("uncertainty_ineq", [-1.0])["score"] == answer["score"]


def test_a_square_grid() -> None:
    grid = [[i, j] for i in range(4) for j in range(4)]
    assert (
        certify("min_max_distance_ratio", grid)
        == certify("min_max_distance_ratio", np.array(grid) * 1e-150 * 2**-20) | {"exact": "18"}
        or exact(certify("min_max_distance_ratio", grid)) == 18
    )


def test_hand_made_points() -> None:
    points = [
        [0, 0],
        [1, 0],
        [0, 1],
        [0.25, 0.25],
        [0.5, 0.25],
        [0.25, 0.5],
        [0.125, 0.375],
        [0.375, 0.125],
    ]
    points += [[0.5, 0.375], [0.0625, 0.6875], [0.75, 0.0625]]
    placed = [(Fraction(x), Fraction(y)) for x, y in points]
    areas = (
        abs((b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0]))
        for a, b, c in combinations(placed, 3)
    )
    answer = certify("heilbronn_triangle", points)
    assert exact(answer) == min(areas) and answer["feasible"]
    assert answer["score"] == pytest.approx(
        search("heilbronn_triangle", points)["score"], abs=1e-15
    )


GOALS = {  # what the plain optimiser certifies within a second or two of processor time, and cannot beat
    "first_autocorr_ineq": (1.5028, 1.56),
    "second_autocorr_ineq": (0.80, 0.9627),
    "uncertainty_ineq": (0.318, 0.3522),
    "circle_packing": (2.3, 2.635983084918),
    "erdos_min_overlap": (0.38087, 0.384),
    "heilbronn_triangle": (0.01, 0.0365298898801),
    "min_max_distance_ratio": (12.889229907694, 17.9),
}


@pytest.mark.slow
@pytest.mark.parametrize("task", NAMES)
def test_baselines_certify_more_than_the_seed_and_not_more_than_the_record(task: str) -> None:
    output = modules(task)["baseline"].optimise(0, 2.0)
    answer, objective = certify(task, output), load(example_path(task)).objective
    low, high = GOALS[task]
    assert low <= answer["score"] <= high
    assert objective.start is not None and objective.reward(answer["score"]) > objective.reward(
        objective.start
    )
    assert answer["score"] == pytest.approx(search(task, output)["score"], rel=1e-9)


def test_the_rigid_optimum_of_the_ratio() -> None:
    """Contact graph with 22 shortest and 8 longest pairs: 12.889229907694006312..."""
    baseline, rng = modules("min_max_distance_ratio")["baseline"], np.random.default_rng(0)
    best = math.inf
    for _ in range(400):
        x = baseline.climb(
            baseline.PROBLEM, np.append(rng.uniform(-2, 2, 32), 0.0), math.inf, 0.5, beat=-best
        )
        best = min(best, certify("min_max_distance_ratio", x[:-1].reshape(16, 2))["score"])
        if best < 12.88923:
            break
    assert 12.889229907694006 <= best < 12.8892299077


# -- tricks
# --------------------------------------------------------------------------------------------------------


def good(task: str) -> Any:
    """An output that passes, as plain lists."""
    if task == "circle_packing":
        return [
            [[(2 * i + 1) / 16, (2 * j + 1) / 16] for i in range(8) for j in range(8)][:26],
            [1 / 16] * 26,
        ]
    if task == "heilbronn_triangle":
        return [[i / 32, (i * i % 11) / 32] for i in range(11)]
    if task == "min_max_distance_ratio":
        return [[float(i), float(j)] for i in range(4) for j in range(4)]
    return [1.0, -0.01] if task == "uncertainty_ineq" else [0.25, 0.75, 0.5, 0.5]


def replaced(value: Any, new: Any) -> Any:
    """The first number replaced by something else."""
    if isinstance(value, list):
        return [replaced(value[0], new), *value[1:]]
    return new


ODD = [
    math.nan,
    math.inf,
    -math.inf,
    True,
    1e400,
    10**400,
    -(10**400),
    1j,
    "1",
    None,
    [],
    {},
    b"1",
    2**60 + 1,
]


@pytest.mark.parametrize("task", NAMES)
def test_only_finite_numbers_in_the_right_shape(task: str) -> None:
    assert certify(task, good(task))["score"] == pytest.approx(search(task, good(task))["score"])
    broken = [replaced(good(task), odd) for odd in ODD]
    broken += [
        None,
        1.0,
        "text",
        {},
        [],
        [[]],
        {"score": 99.0},
        np.array(1.0),
        np.ones((3, 3, 3)),
        [good(task)] * 3,
    ]
    broken += [np.array([math.nan] * 16), (good(task), 99.0)]
    for output in broken:
        with pytest.raises(Invalid):
            certify(task, output)
        if task == "circle_packing":
            assert search(task, output)["score"] is None
        else:
            with pytest.raises(Invalid):
                search(task, output)


@pytest.mark.parametrize("task", NAMES)
def test_nothing_a_program_claims_is_believed(task: str) -> None:
    for claim in (
        {"output": good(task), "score": 1e9},
        [good(task), 1.5, 0.1, 4096.9999],
        (good(task), 1e-9),
    ):
        with pytest.raises(Invalid):
            certify(task, claim)


def test_an_all_nan_function_scores_nothing() -> None:
    for task in STEP:
        with pytest.raises(Invalid, match="finite"):
            certify(task, [math.nan] * 100)


def test_slack_gains_nothing_in_an_overlap() -> None:
    """The function scaled to integral 1 counts; more than 1e-3 off is not repaired."""
    larger = [h * (1 + 9e-4) for h in [0.25, 0.75, 0.75, 0.25] * 10]
    fixed = [Fraction(h) * 20 / sum(map(Fraction, larger)) for h in larger]
    assert Fraction(certify("erdos_min_overlap", larger)["score"]) >= overlap(fixed)
    with pytest.raises(Invalid, match="the integral must be 1"):
        certify("erdos_min_overlap", [h * 0.998 for h in [0.25, 0.75, 0.75, 0.25] * 10])
    with pytest.raises(Invalid, match="between 0 and 1"):
        certify("erdos_min_overlap", [1.00001, 0.0, 0.5, 0.5])
    assert not certify("erdos_min_overlap", [1 + 5e-7, 0.0, 0.5, 0.5 - 5e-7])["feasible"]


@pytest.mark.parametrize("task", STEP[:2])
def test_negative_heights(task: str) -> None:
    answer = certify(task, [1.0, -1e-7, 0.5, 1.0])
    assert not answer["feasible"] and answer["repaired"] == "1 negative heights set to zero"
    assert answer["exact"] == certify(task, [1.0, 0.0, 0.5, 1.0])["exact"]
    for heights in ([1.0, -1e-5, 1.0], [-1.0, -1.0], [0.0, 0.0], [-5e-324, 0.0]):
        with pytest.raises(Invalid):
            certify(task, heights)


@pytest.mark.parametrize("task", STEP[:2])
def test_cluster_is_free_and_extremes_do_not_overflow(task: str) -> None:
    heights = [0.5, 1.0, 0.25, 0.75, 0.0]
    value = certify(task, heights)["exact"]
    for exponent in (-1000, -1072, 1000, 1023):
        scaled = [math.ldexp(h, exponent) for h in heights]
        assert certify(task, scaled)["exact"] == value
        assert search(task, scaled)["score"] == pytest.approx(float(Fraction(value)))
    dusty = certify(task, [*heights, 5e-324])
    assert not dusty["feasible"] and dusty["exact"] == certify(task, [*heights, 0.0])["exact"]


def test_points_as_close_as_denormals_gain_nothing() -> None:
    """Squares of distances near 1e-162 are denormal.

    In careless floating point the ratio then falls below 12.88.
    """
    output = modules("min_max_distance_ratio")["baseline"].optimise(0, 0.5)
    honest = certify("min_max_distance_ratio", output)["score"]
    for exponent in (-530, -540, -1000):
        small = [[math.ldexp(x, exponent) for x in point] for point in output]
        assert certify("min_max_distance_ratio", small)["score"] >= 12.889229907694006
        assert search("min_max_distance_ratio", small)["score"] == pytest.approx(honest, rel=1e-3)
    tiny = [[math.ldexp(round(8 * x), -1074) for x in point] for point in output]
    assert certify("min_max_distance_ratio", tiny)["score"] >= 12.889229907694006


def test_points_in_one_place() -> None:
    grid = good("min_max_distance_ratio")
    for points in ([*grid[:15], grid[0]], [[0.0, 0.0]] * 16):
        for judge in (certify, search):
            with pytest.raises(Invalid, match="in the same place"):
                judge("min_max_distance_ratio", points)
    near = [*grid[:15], [5e-324, 0.0]]
    assert certify("min_max_distance_ratio", near)["score"] == math.inf  # which is no score
    with pytest.raises(Invalid, match="too close"):
        search("min_max_distance_ratio", near)


def test_points_outside_the_triangle() -> None:
    points = good("heilbronn_triangle")
    assert certify("heilbronn_triangle", [points[0], *points[:10]])["score"] == 0
    moved = [[-9e-7, -9e-7], *points[1:]]
    answer = certify("heilbronn_triangle", moved)
    assert (
        not answer["feasible"]
        and answer["exact"] == certify("heilbronn_triangle", [[0.0, 0.0], *points[1:]])["exact"]
    )
    beyond = certify("heilbronn_triangle", [[0.5, 0.5 + 9e-7], *points[1:]])
    assert not beyond["feasible"] and beyond["repaired"].startswith("1 points")
    ulp = certify("heilbronn_triangle", [[math.nextafter(0.3, 1), 0.7], *points[1:]])
    assert ulp["feasible"] == (Fraction(math.nextafter(0.3, 1)) + Fraction(0.7) <= 1)
    for x, y in ((-2e-6, 0.5), (0.5, 0.500003), (2.0, 0.1)):
        with pytest.raises(Invalid, match="outside the triangle"):
            certify("heilbronn_triangle", [[x, y], *points[1:]])


def test_circles_that_pass_only_within_a_tolerance() -> None:
    centers, radii = good("circle_packing")
    passes = certify("circle_packing", [centers, radii])
    assert passes["feasible"] and exact(passes) == Fraction(26, 16)
    for size in (1e-17, 1e-12, 9e-7):
        within = certify("circle_packing", [centers, [r + size for r in radii]])
        assert within["score"] <= 26 / 16 and within["feasible"] == (1 / 16 + size == 1 / 16)
    with pytest.raises(Invalid, match="at most 1e-06 is repaired"):
        certify("circle_packing", [centers, [r + 2e-6 for r in radii]])


@settings(deadline=None, max_examples=30)
@given(st.permutations(range(16)), st.booleans())
def test_order_and_mirrors_do_not_matter(order: list[int], mirrored: bool) -> None:
    rng = np.random.default_rng(3)
    points = rng.random((16, 2)).tolist()
    moved = [[y, x] if mirrored else [x, y] for x, y in (points[i] for i in order)]
    assert (
        certify("min_max_distance_ratio", moved)["exact"]
        == certify("min_max_distance_ratio", points)["exact"]
    )
    eleven = [[x / 2, y / 2] for x, y in points[:11]]
    again = [[y, x] if mirrored else [x, y] for x, y in (eleven[i] for i in order if i < 11)]
    assert (
        certify("heilbronn_triangle", again)["exact"]
        == certify("heilbronn_triangle", eleven)["exact"]
    )


@settings(deadline=None, max_examples=30)
@given(st.lists(st.floats(-1, 1), min_size=1, max_size=12), st.integers(-200, 200))
def test_uncertainty_bounds_are_never_below_what_is_proved(
    values: list[float], exponent: int
) -> None:
    coefficients = [math.ldexp(c, exponent - 12 * k) for k, c in enumerate(values)]
    try:
        answer = certify("uncertainty_ineq", coefficients)
    except Invalid as error:
        assert "vanishes" in str(error) or "differ too much" in str(error)
        return
    assert answer["score"] >= 0.2025
    assert answer["score"] == pytest.approx(
        search("uncertainty_ineq", coefficients)["score"], rel=1e-12
    )


def test_odd_coefficients() -> None:
    for coefficients, piece in (
        ([0.0], "vanishes"),
        ([0.0] * 60, "vanishes"),
        ([1.0] * 61, "1 to 60"),
        ([], "1 to 60"),
    ):
        with pytest.raises(Invalid, match=piece):
            certify("uncertainty_ineq", coefficients)
    with pytest.raises(Invalid, match="differ too much"):
        certify("uncertainty_ineq", [1e300, 1e-300])
