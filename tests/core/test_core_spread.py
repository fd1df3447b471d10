"""Mean and spread of numbers that come one by one."""

from __future__ import annotations

import math
from random import Random
from statistics import mean, stdev

import pytest

from culmen.core.spread import Spread, sum_floats


def spread_of(values: list[float]) -> Spread:
    spread = Spread()
    for value in values:
        spread.add(value)
    return spread


def test_the_likely_sum_is_that_of_the_textbook() -> None:
    values = [Random(3).expovariate(0.01) for _ in range(50)]
    spread = spread_of(values)
    assert (spread.count, spread.mean) == (50, pytest.approx(mean(values)))
    room = 3 * math.sqrt(7) + 2 * 7 / math.sqrt(50)
    assert spread.likely_sum(7) == pytest.approx(7 * mean(values) + room * stdev(values))


def test_little_is_known_from_few_numbers() -> None:
    assert spread_of([]).likely_sum(1) == math.inf
    assert spread_of([4.0]).likely_sum(1) == pytest.approx(4.0 + 5 * 4.0)


def test_floats_are_added_from_left_to_right() -> None:
    assert sum_floats([1.0, 1e100, 1.0, -1e100]) == 0.0  # the compensated sum is 2
    assert sum_floats([0.1] * 10) == 0.9999999999999999
    assert sum_floats([1e308, 1e308]) == math.inf
    assert sum_floats([]) == 0.0
