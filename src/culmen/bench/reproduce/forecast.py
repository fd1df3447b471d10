"""Forecast of calls, tokens and dollars of a place, from pilot runs of its contenders.

A pilot is a run of each contender on the first task with `SHARE` of the budget, made with the same
models. What an evaluation cost there, with the requests for programs and summaries that came with
it, is what each evaluation of the whole will cost; the final measurement costs what evaluations
alone did.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from culmen.bench.reproduce.places import PaperPlace
from culmen.bench.reproduce.running import Experimenter, Made, Report
from culmen.bench.suite import run_cells, tasks_of
from culmen.core.usage import Usage
from culmen.store import views

SHARE = 0.1
"""Share of a run's evaluations that its pilot has."""

LEAST, MOST = 12, 60
"""Evaluations of a pilot, at least and at most."""


class Forecast(msgspec.Struct, frozen=True):
    """Expected cost of the runs of an experiment and of its final measurement.

    `unpriced` is true if the price of a model is unknown, so that `dollars` are too few.
    """

    evaluations: float = 0.0
    calls: float = 0.0
    tokens: float = 0.0
    dollars: float = 0.0
    unpriced: bool = False

    def __add__(self, other: Forecast) -> Forecast:
        return Forecast(
            self.evaluations + other.evaluations,
            self.calls + other.calls,
            self.tokens + other.tokens,
            self.dollars + other.dollars,
            self.unpriced or other.unpriced,
        )

    def times(self, count: float) -> Forecast:
        """The same `count` times."""
        return Forecast(
            self.evaluations * count,
            self.calls * count,
            self.tokens * count,
            self.dollars * count,
            self.unpriced,
        )


def forecast_place(
    maker: Experimenter, place: PaperPlace, report: Report
) -> tuple[Forecast, Forecast]:
    """Forecasts for an experiment of a place: its runs, and its final measurement.

    Makes the pilots if they are missing.
    """
    whole = Forecast()
    asked: list[Forecast] = []
    for suite in maker.suites():
        limit = suite.budget.evaluations or MOST
        few = int(min(limit, max(LEAST, min(MOST, SHARE * limit))))
        tasks = tasks_of(suite)
        pilot = msgspec.structs.replace(
            suite,
            tasks=suite.tasks[:1],
            seeds=(0,),
            budget=msgspec.structs.replace(suite.budget, evaluations=few),
        )
        runs = len(suite.seeds) * len(tasks)
        for cell in run_cells(pilot, maker.folder / "pilots", maker.parts(suite)):
            report(f"pilot: {cell.task} {maker.label_of(cell.strategy)}, {few} evaluations")
            path = Path(cell.run)
            count = max(1, cell.evaluations)
            all_of_it = cost_of(_total(path)).times(1 / count)
            asked.append(cost_of(_asked_by_evaluator(path)).times(1 / count))
            whole += msgspec.structs.replace(all_of_it, evaluations=1.0).times(limit * runs)
    return whole, _final_cost(maker, place, asked)


def _final_cost(maker: Experimenter, place: PaperPlace, asked: Sequence[Forecast]) -> Forecast:
    """Cost of the final measurement, by what evaluations asked in the pilots."""
    count = final_evaluations(maker, place)
    if not asked or not count:
        return Forecast()
    mean = sum(asked, Forecast()).times(1 / len(asked))
    return msgspec.structs.replace(mean, evaluations=1.0).times(count)


def final_evaluations(maker: Experimenter, place: PaperPlace) -> int:
    """Evaluations of the final measurement of a place, at most."""
    from culmen.bench.reproduce.results import CHECKPOINTS

    suites = maker.suites()
    task = next(iter(tasks_of(suites[0]).values()))
    labels, repeats = len(maker.plan.contenders), 1 if maker.conditions.toy else place.repeats
    if place.show == "final":
        cases = len(task.split("test") or task.split("val") or task.split("train") or (None,))
        return (labels + 1) * cases * repeats
    if place.show == "course" and place.repeats > 1:
        cases = len(task.split("train") or (None,))
        return labels * maker.seeds * cases * repeats * CHECKPOINTS // 2
    return 0


def cost_of(usage: Usage) -> Forecast:
    """The cost of a usage."""
    return Forecast(0.0, usage.calls, usage.tokens, usage.dollars, usage.unpriced > 0)


def _total(run: Path) -> Usage:
    return sum((row.usage for row in views.call_costs(run)), Usage())


def _asked_by_evaluator(run: Path) -> Usage:
    rows = views.call_costs(run)
    return sum((row.usage for row in rows if row.effect == "ask"), Usage())


def spent_on(runs: Sequence[Made]) -> Forecast:
    """Real cost of finished runs, beside the forecast."""
    found = Forecast()
    for run in runs:
        cost = cost_of(_total(run.path))
        found += msgspec.structs.replace(cost, evaluations=float(run.cell.evaluations))
    return found
