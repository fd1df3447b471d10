"""Priorities on small examples, quantiles, and samples that stay evenly spaced."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from culmen.core.candidate import Candidate
from culmen.core.errors import UserError
from culmen.core.evaluation import Observation, Rollout, Status
from culmen.strategies.memory.priorities import (
    Newest,
    RunningSample,
    ThisRound,
    Ucb,
    UcbSigma,
    interpolated_quantile,
)
from culmen.strategies.memory.queue import Statistics


def seen(*rounds: dict[str, list[float | None]]) -> Statistics:
    """Statistics of the rewards of each round (None: an evaluation that failed)."""
    statistics = Statistics()
    for number, found in enumerate(rounds):
        for name, rewards in found.items():
            candidate = Candidate.of({"p": name})
            made = [
                Observation(candidate.id, Status.ERROR if r is None else Status.OK, r)
                for r in rewards
            ]
            statistics.add_rollout(Rollout(candidate, tuple(made), tuple(rewards)), number)
    return statistics


def test_an_upper_bound_widens_with_beta_or_twice_sigma_and_narrows_with_evaluations() -> None:
    statistics = seen({"a": [1.0, 3.0], "b": [2.5, 2.5, 2.5, 2.5]})
    wide, narrow = math.sqrt(math.log(6) / 2), math.sqrt(math.log(6) / 4)
    assert Ucb(3.0)(statistics) == pytest.approx([2.0 + 3 * wide, 2.5 + 3 * narrow])
    assert UcbSigma(0.2)(statistics) == pytest.approx([2.0 + 0.4 * wide, 2.5 + 0.4 * narrow])
    assert Ucb()(statistics) == pytest.approx([2.0 + wide, 2.5 + narrow])
    assert UcbSigma()(statistics) == pytest.approx([2.0 + wide, 2.5 + narrow])
    horizon = math.sqrt(math.log(100) / 2)
    assert UcbSigma(0.2, 100)(statistics)[0] == pytest.approx(2.0 + 0.4 * horizon)


@pytest.mark.parametrize("number", [-0.1, math.inf, math.nan])
def test_the_width_of_a_bound_is_a_number_of_0_or_more(number: float) -> None:
    with pytest.raises(UserError, match="beta must be"):
        Ucb(number)
    with pytest.raises(UserError, match="sigma must be"):
        UcbSigma(number)
    assert Ucb(0.0).beta == UcbSigma(0.0).sigma == 0.0


def test_beam_search_follows_the_newest_generation_of_which_something_was_scored() -> None:
    first: dict[str, list[float | None]] = {"a": [9.0], "b": [8.0]}
    rounds: list[dict[str, list[float | None]]] = [
        first,
        {"a": [7.0], "c": [1.0, 3.0], "d": [None]},
        {"e": [None]},
    ]
    np.testing.assert_array_equal(ThisRound()(seen(*rounds[:1])), [9.0, 8.0])
    for many in (2, 3):
        found = ThisRound()(seen(*rounds[:many])).tolist()
        assert found[2:4] == [2.0, -math.inf] and all(map(math.isnan, found[:2] + found[4:]))
    np.testing.assert_array_equal(
        ThisRound()(seen(*rounds[:2], {"e": [5.0]})), [*[math.nan] * 4, 5.0]
    )
    assert ThisRound()(seen({"a": [None]})).tolist() == [-math.inf]


def test_the_newest_is_the_last_that_came_whatever_it_got() -> None:
    assert Newest()(seen({"a": [9.0]}, {"b": [None], "c": [1.0]})).tolist() == [1.0, 2.0, 3.0]


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=9).map(sorted), st.floats(0, 1))
def test_quantiles_are_those_of_numpy(values: list[float], q: float) -> None:
    assert interpolated_quantile(values, q) == pytest.approx(
        float(np.quantile(values, q)), abs=1e-9
    )


@given(st.integers(1, 20), st.integers(0, 200))
def test_a_running_sample_is_every_value_or_every_second_fourth_eighth(
    limit: int, many: int
) -> None:
    sample, stride = RunningSample(limit), 1
    sample.extend(float(n) for n in range(many))
    while len(range(0, many, stride)) > limit:
        stride *= 2
    assert sample.sorted_values() == [float(n) for n in range(0, many, stride)]
    assert len(sample) <= limit


def test_a_distance_to_nothing_is_no_value() -> None:
    sample = RunningSample(8)
    sample.extend([math.inf, 2.0, math.inf, 1.0])
    assert sample.sorted_values() == [1.0, 2.0] and sample.quantiles(0.0, 0.5) == [1.0, 1.5]
    assert RunningSample(8).quantiles(0.5) == []
