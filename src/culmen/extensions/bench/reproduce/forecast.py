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

from culmen.extensions.bench.reproduce.places import PaperPlace
from culmen.extensions.bench.reproduce.running import Experimenter, Made, Report
from culmen.extensions.bench.suite import run_cells, tasks_of
from culmen.report.forecast import Cost, RunForecast, spent_so_far

SHARE = 0.1
"""Share of a run's evaluations that its pilot has."""

LEAST, MOST = 12, 60
"""Evaluations of a pilot, at least and at most."""


def forecast_place(maker: Experimenter, place: PaperPlace, report: Report) -> tuple[Cost, Cost]:
    """Forecasts for an experiment of a place: its runs, and its final measurement.

    Makes the pilots if they are missing.
    """
    whole = Cost()
    asked: list[Cost] = []
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
            one = RunForecast(count, *spent_so_far(path)).times(1 / count)
            asked.append(one.answers)
            whole += one.times(limit * runs).total
    return whole, _final_cost(maker, place, asked)


def _final_cost(maker: Experimenter, place: PaperPlace, asked: Sequence[Cost]) -> Cost:
    """Cost of the final measurement, by the evaluations of the pilots."""
    count = final_evaluations(maker, place)
    if not asked or not count:
        return Cost()
    mean = sum(asked, Cost()).times(1 / len(asked))
    return msgspec.structs.replace(mean, evaluations=1.0).times(count)


def final_evaluations(maker: Experimenter, place: PaperPlace) -> int:
    """Evaluations of the final measurement of a place, at most."""
    from culmen.extensions.bench.reproduce.results import CHECKPOINTS

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


def spent_on(runs: Sequence[Made]) -> Cost:
    """Real cost of finished runs, beside the forecast."""
    found = Cost()
    for run in runs:
        found += RunForecast(run.cell.evaluations, *spent_so_far(run.path)).total
    return found
