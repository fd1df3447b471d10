"""The recipes of the programs in the pools: which pieces go together, with which constants."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from compose import Constants, Recipe, recipes_of

Numbers = Sequence[float]


def task_recipes(task: str, known: Sequence[Numbers]) -> list[Recipe]:
    """All recipes for a task. `known` are results of longer searches, as flat lists."""
    return list(_RECIPES[task](known))


def _seeds(*seeds: int, **constants: int) -> list[Constants]:
    return [{"SEED": seed, **constants} for seed in seeds]


def _placed(known: Sequence[Numbers], *seeds: int) -> list[Constants]:
    return [{"SEED": seed, "NUMBERS": numbers} for numbers in known for seed in seeds]


def _circle_packing(known: Sequence[Numbers]) -> Iterator[Recipe]:
    starts = ("start_rows", "start_hexagonal", "start_spiral")
    moves = ("move_by_programmes", "move_by_slsqp", "move_by_penalty", "move_by_repulsion")
    best, grown = ("fit_by_programme",), ("fit_by_growth",)
    one, more, again = ("search_once",), ("search_several",), ("search_again",)
    names = ("place_centers", "start", "move", "fit_radii")
    for pieces, constants in (
        ((one, starts, moves[1:], best), _seeds(0, 1, 2)),
        ((one, starts, moves[2:], grown), _seeds(2)),
        ((one, starts, moves[3:], best + grown), _seeds(3, 4, 5)),
        ((more, ("start_random",), moves[1:3], best), _seeds(0, 1, ROUNDS=8)),
        ((again, (*starts, "start_random"), moves[1:2], best), _seeds(0, ROUNDS=8)),
        ((one, ("start_known",), ("move_not",), best), _placed(known, 0)),
        ((one, ("start_known",), moves[:3], best), _placed(known, 1, 2, 3, 4)),
    ):
        yield from recipes_of(dict(zip(names, pieces)), constants)


def _heilbronn_triangle(known: Sequence[Numbers]) -> Iterator[Recipe]:
    starts = ("start_random", "start_border", "start_spiral")
    ways = ("better_by_ascent", "better_by_programmes", "better_by_climbing", "better_by_both")
    for search, start, better, constants in (
        ("search_once", starts, ways, _seeds(0, 1)),
        ("search_several", starts, ways[::3], _seeds(2, ROUNDS=8)),
        ("search_again", starts, (ways[1], ways[3]), _seeds(3, ROUNDS=10)),
        ("search_once", ("start_known",), ("keep",), _placed(known, 0)),
        ("search_once", ("start_known",), ways, _placed(known, 1, 2)),
    ):
        yield from recipes_of({"search": (search,), "start": start, "better": better}, constants)


def _min_max_distance_ratio(known: Sequence[Numbers]) -> Iterator[Recipe]:
    starts = ("start_lattice", "start_rings", "start_disc", "start_random")
    ways = tuple(f"better_by_{way}" for way in ("programmes", "smoothing", "slsqp", "annealing"))
    for scatter, start, improve, better, constants in (
        ("scatter_once", starts, "improve_once", ways, _seeds(0, 1)),
        ("scatter_best", starts, "improve_once", ways[1:], _seeds(2)),
        ("scatter_once", starts[1:], "improve_again", ways[1:3], _seeds(3, ROUNDS=20)),
        ("scatter_once", ("start_known",), "improve_once", ("keep",), _placed(known, 0)),
        ("scatter_once", ("start_known",), "improve_once", ways, _placed(known, 1)),
    ):
        pieces = {"scatter": (scatter,), "start": start, "improve": (improve,), "better": better}
        yield from recipes_of(pieces, constants)


def _steps(
    starts: Sequence[str], ways: Sequence[str], known: Sequence[Numbers], sizes: Sequence[int]
) -> Iterator[Recipe]:
    """Step functions: every start with every way, and those that begin with known heights."""
    fresh = [
        {"SEED": seed, "SIZE": size, "ROUNDS": 12} for seed, size in enumerate((*sizes, sizes[0]))
    ]
    yield from recipes_of({"start": starts, "improve": ways}, fresh)
    for numbers in known:
        kept: list[Constants] = [{"NUMBERS": numbers}]
        yield from recipes_of({"start": ("start_known",), "improve": ("improve_not",)}, kept)
    for numbers in known:
        if len(numbers) > 130:
            continue  # long texts, and few of the ways are still fast
        more: list[Constants] = [{"SEED": 0, "ROUNDS": 12, "NUMBERS": numbers}]
        yield from recipes_of({"start": ("start_known", "start_finer"), "improve": ways}, more)
        between: list[Constants] = [{**more[0], "SIZE": len(numbers) * 3 // 2}]
        yield from recipes_of({"start": ("start_resampled",), "improve": ways}, between)


def _erdos_min_overlap(known: Sequence[Numbers]) -> Iterator[Recipe]:
    starts = ("start_cosine", "start_random", "start_plateaus")
    names = ("programmes", "smoothing", "subgradient", "moves")
    yield from _steps(starts, [f"improve_by_{name}" for name in names], known, (48, 80))


def _first_autocorr_ineq(known: Sequence[Numbers]) -> Iterator[Recipe]:
    starts = ("start_singular", "start_random", "start_comb")
    names = ("programmes", "smoothing", "subgradient", "moves")
    yield from _steps(starts, [f"improve_by_{name}" for name in names], known, (60, 90))


def _second_autocorr_ineq(known: Sequence[Numbers]) -> Iterator[Recipe]:
    starts = ("start_random", "start_comb", "start_two_parts")
    ways = (
        "improve_by_ascent",
        "improve_by_moves",
        "improve_by_quasi_newton",
        "improve_by_programmes",
    )
    yield from _steps(starts, ways, known, (60, 100, 150, 200, 250))


def _uncertainty_ineq(known: Sequence[Numbers]) -> Iterator[Recipe]:
    ways = tuple(f"better_by_{way}" for way in ("steps", "simplex", "differences", "programmes"))
    simple, search = ("start_simple",), ("search",)
    for size in (1, 2, 3, 4, 5):
        values = _seeds(0, 1, SIZE=size, ROUNDS=12)
        yield from recipes_of({"search": search, "start": simple, "better": ways}, values)
    for numbers in known:
        kept: list[Constants] = [{"NUMBERS": numbers}]
        pieces = {"search": search, "start": ("start_known",), "better": ("better_not",)}
        yield from recipes_of(pieces, kept)
        if len(numbers) <= 9:  # roots in floating point are right
            near: list[Constants] = [{"SEED": 1, "ROUNDS": 12, "NUMBERS": numbers}]
            pieces = {"search": search, "start": ("start_near",), "better": ways[:3]}
            yield from recipes_of(pieces, near)


_RECIPES: dict[str, Callable[[Sequence[Numbers]], Iterator[Recipe]]] = {
    "circle_packing": _circle_packing,
    "heilbronn_triangle": _heilbronn_triangle,
    "min_max_distance_ratio": _min_max_distance_ratio,
    "erdos_min_overlap": _erdos_min_overlap,
    "first_autocorr_ineq": _first_autocorr_ineq,
    "second_autocorr_ineq": _second_autocorr_ineq,
    "uncertainty_ineq": _uncertainty_ineq,
}
