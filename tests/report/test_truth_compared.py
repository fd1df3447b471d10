"""Figures of a comparison against the journals of its runs, computed a second time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import fmean, median, quantiles
from typing import Any, NamedTuple

import msgspec
import pytest

from culmen.core.usage import Budget
from culmen.extensions.bench.page import compare_page
from culmen.extensions.web.runs import RunCatalog
from culmen.strategies.best_of_n import BestOfN
from culmen.strategies.catalog import strategy_paths
from culmen.strategies.pedigree import PedigreeSearch
from tests.gallery import Gallery, record, task
from tests.report.arithmetic import Arithmetic
from tests.report.recorded import Hopeless
from tests.report.test_truth import Claim, Claims, printed_document

SEEDS = range(5)  # from five runs on the page draws a band
KINDS: dict[str, tuple[Any, Any]] = {
    "exact": (Gallery(sigma=0.0, rough=0.0), task(deterministic=True)),
    "noisy": (Gallery(rough=0.0), task()),
    "minimised": (Gallery(rough=0.0, direction="min"), task(direction="min")),
    "nothing to find": (Hopeless(sigma=0.1, rough=0.0), task()),
}


class Compared(NamedTuple):
    """A folder of runs, the sums over each journal by name, and both surfaces."""

    sums: dict[str, Arithmetic]
    page: Any
    printed: Any


@pytest.fixture
def compared(request: pytest.FixtureRequest, tmp_path: Path) -> Compared:
    """Two strategies with five random seeds each, on a task of the kind that the test names."""
    world, about = KINDS[request.param]
    for name, strategy in (("pedigree", PedigreeSearch), ("best_of_n", BestOfN)):
        for seed in SEEDS:
            place = tmp_path / f"{name}-{seed}"
            budget = Budget(evaluations=40)
            record(place, strategy(), budget=budget, about=about, world=world, seed=seed)
    catalog = RunCatalog(tmp_path, {path: name for name, path in strategy_paths().items()})
    names = list(catalog.paths())
    page = compare_page([catalog.digest(name) for name in names], {})
    sums = {name: Arithmetic(tmp_path / name) for name in names}
    return Compared(sums, msgspec.to_builtins(page), printed_document("compare", tmp_path))


def rows(compared: Compared) -> Claims:
    """The table of runs, and the points of each curve."""
    for row in compared.page["runs"]:
        sums, name = compared.sums[row["name"]], row["name"]
        yield Claim(f"{name}: seed", row["seed"], sums.meta.seed)
        yield Claim(f"{name}: evaluations", row["evaluations"], len(sums.seen))
        yield Claim(f"{name}: dollars", row["dollars"], sum(c.dollars for c in sums.costs))
        yield Claim(f"{name}: seconds", row["seconds"], max(e.elapsed for _, e in sums.events))
        yield Claim(f"{name}: score", row["score"], final(sums))
        for point in row["points"]:
            at = sums.seen[point["evaluations"] - 1]
            yield Claim(f"{name}: dollars of a point", point["dollars"], sums.dollars_to(at.seq))
        for point in row["points"][:-1]:
            at = sums.seen[point["evaluations"] - 1]
            yield Claim(f"{name}: seconds of a point", point["seconds"], at.elapsed)


def final(sums: Arithmetic) -> float | None:
    """The mean of the fresh evaluations of the reported candidate."""
    fresh = sums.fresh(winner(sums)["id"])
    return fmean(sums.scores(fresh)) if fresh else None


def winner(sums: Arithmetic) -> Any:
    """The choice as the journal's last event has it."""
    return next(e.body["winner"] for _, e in reversed(sums.events) if "winner" in e.body)


def groups(compared: Compared) -> Claims:
    """Medians and quartiles of each group, at every tenth point."""
    points = {row["name"]: row["points"] for row in compared.page["runs"]}
    strategies = {name: sums.meta.strategy["path"] for name, sums in compared.sums.items()}
    yield Claim("groups", len(compared.page["groups"]), len(set(strategies.values())))
    for group in compared.page["groups"]:
        own = {strategies[name] for name in group["runs"]}
        alike = [name for name in strategies if strategies[name] in own]
        yield Claim("group: runs", (len(own), sorted(group["runs"])), (1, sorted(alike)))
        for axis in ("evaluations", "seconds", "dollars"):
            for x, *shown in group["bands"][axis][::10]:
                some = [at(points[name], axis, x) for name in group["runs"]]
                low, middle, high = quantiles(some, n=4, method="inclusive")
                for value, true in zip(shown, (middle, low, high), strict=True):
                    yield Claim(f"band over {axis} at {x}", value, true)


def at(points: list[dict[str, float]], axis: str, x: float) -> float:
    """The score of the last point no further than x."""
    return [each["score"] for each in points if each[axis] <= x][-1]


def statistics(compared: Compared) -> Claims:
    """Statistics on the page, in the terminal, and of the values of the runs themselves."""
    (part,), (again,) = compared.page["statistics"]["tasks"], compared.printed["tasks"]
    page_rows, printed_rows = ([row["mean"] for row in each["rows"]] for each in (part, again))
    yield Claim("in the terminal", printed_rows, page_rows)
    yield Claim("pairs in the terminal", list(again["pairs"]), list(part["pairs"]))
    values: dict[str, list[float]] = {}
    nothing: dict[str, int] = {}
    starts: set[float] = set()
    for run in part["runs"]:
        sums = compared.sums[f"{run['strategy']}-{run['seed']}"]
        values.setdefault(run["strategy"], []).append(run["value"])
        nothing[run["strategy"]] = nothing.get(run["strategy"], 0) + found_nothing(sums)
        yield Claim(f"{run['run']}: found nothing", run["nothing"], found_nothing(sums))
        if found_nothing(sums):
            starts.add(run["value"])
        else:
            yield Claim(f"{run['run']}: value", run["value"], final(sums))
    yield Claim("one value of the initial program", len(starts) <= 1, True)
    for start in starts:
        means = initial_means(compared)
        inside = min(means) - 1e-9 <= start <= max(means) + 1e-9
        yield Claim("initial program among its means", inside, True)
    yield from summed(compared, part, values, nothing)


def found_nothing(sums: Arithmetic) -> bool:
    """True if the choice is the initial program, or its gain lies within its margin."""
    made, first = winner(sums), next(iter(sums.candidates))
    gain = sums.sign * (made.get("gain") or 0.0)
    return made["id"] == first or gain <= (made.get("gain_margin") or 0.0)


def initial_means(compared: Compared) -> list[float]:
    """The mean of the fresh evaluations of the initial program, in each run that has some."""
    seen = [s.scores(s.fresh(next(iter(s.candidates)))) for s in compared.sums.values()]
    return [fmean(each) for each in seen if each]


def summed(
    compared: Compared, part: Any, values: dict[str, list[float]], nothing: dict[str, int]
) -> Claims:
    """Figures of each strategy, and the share of pairs in which one is better."""
    sign = next(iter(compared.sums.values())).sign
    for row in part["rows"]:
        own = values[row["strategy"]]
        yield Claim("runs", (row["runs"], row["nothing"]), (len(own), nothing[row["strategy"]]))
        yield Claim("best", row["best"], sign * max(sign * value for value in own))
        yield Claim("mean", row["mean"]["value"], fmean(own))
        yield Claim("median", row["median"]["value"], median(own))
        yield Claim("middle half", row["iqm"]["value"], fmean(sorted(own)[1:-1]))
        yield Claim("mean in its interval", is_inside(row["mean"]), True)
    for pair in part["pairs"]:
        yield Claim("pairs of equal seeds", pair["pairs"], len(SEEDS))
        yield Claim("probability in its interval", is_inside(pair["probability"]), True)
        if all(run["margin"] in (None, 0.0) for run in part["runs"]):
            wins = [won(sign * a, sign * b) for a, b in seeded(compared, pair)]
            yield Claim("probability of improvement", pair["probability"]["value"], fmean(wins))


def is_inside(estimate: dict[str, float]) -> bool:
    """The figure lies in its own interval."""
    return estimate["low"] - 1e-9 <= estimate["value"] <= estimate["high"] + 1e-9


def seeded(compared: Compared, pair: dict[str, str]) -> Iterator[tuple[float, float]]:
    """Final scores of both strategies for each random seed."""
    for seed in SEEDS:
        names = (f"{pair[side]}-{seed}" for side in ("first", "second"))
        first, second = (final(compared.sums[name]) for name in names)
        assert first is not None
        assert second is not None
        yield first, second


def won(one: float, other: float) -> float:
    """1 for the better, a half for equals."""
    return 0.5 if one == other else float(one > other)


SLOW = [pytest.param(n, marks=[] if n == "exact" else pytest.mark.slow) for n in KINDS]


@pytest.mark.parametrize("compared", SLOW, indirect=True)
def test_every_figure_of_a_comparison_is_the_journals(compared: Compared) -> None:
    claims = [c for surface in (rows, groups, statistics) for c in surface(compared)]
    assert len(claims) > 200
    assert [claim for claim in claims if not claim.holds] == []
