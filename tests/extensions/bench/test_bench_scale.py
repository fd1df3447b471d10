"""The measurement of one driver: real engine and journal, workers on a virtual clock."""

from __future__ import annotations

from random import Random
from statistics import fmean

import pytest
from bench import bench_scale as scale
from bench.bench_scale import Figure

from culmen.strategies.catalog import make_strategy

FIGURE = Figure(10, 100, 1.0, 0.1, 2.0, 1.0, 1.0, 0.5, 0.9, 3, 100.0)


@pytest.mark.parametrize("workers", [1, 12])
def test_a_level_makes_what_it_should_and_keeps_its_workers_busy(
    workers: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(scale, "_LEAST", 40)
    found = scale.measure_driver(make_strategy("best_of_n", {}), workers)
    assert found.workers == workers and 40 <= found.evaluations < 40 + workers
    assert 0.5 < found.workers_busy <= 1.0 and 0 < found.driver_busy < 1.0
    assert found.per_second == pytest.approx(found.evaluations / (found.hours * 3600))
    assert 0 < found.batch <= workers
    assert found.driver_ms > 0 and found.calls >= 1


def test_what_limits_is_read_off_the_workers():
    assert FIGURE.limiting_resource == "workers"
    assert (
        Figure(10, 100, 1.0, 0.1, 2.0, 1.0, 1.0, 1.0, 0.7, 3, 100.0).limiting_resource == "driver"
    )
    assert (
        scale.saturating_workers([FIGURE], 60.0) == 30_000
    )  # 60 s of evaluation to 2 ms of the driver


def test_the_mean_duration_is_that_of_the_law():
    draws = Random(1)
    seconds = [
        scale.MEDIAN
        * draws.lognormvariate(0, scale.SPREAD)
        * (scale.SLOWER if draws.random() < scale.STRAGGLERS else 1)
        for _ in range(200_000)
    ]
    assert fmean(seconds) == pytest.approx(scale.mean_seconds(), rel=0.05)
