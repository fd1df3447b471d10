"""The gates of the strategy `gated`, on rewards written down here."""

from __future__ import annotations

import pytest

from culmen.core.candidate import Candidate
from culmen.core.errors import UserError
from culmen.core.evaluation import Rollout
from culmen.extensions.baselines.gated import Gated, changed_lines

ONE = Candidate.of({"a": "same\nold\n", "b": "x\n"})
LOW = 0.0


def rollout(*rewards: float | None) -> Rollout:
    return Rollout(ONE, (), rewards)


def test_gated_strict_takes_any_higher_mean() -> None:
    gate = Gated()
    assert gate.lets_pass(rollout(0, 1, 0), rollout(1, 1, 0), LOW)
    assert not gate.lets_pass(rollout(0, 1, 0), rollout(1, 0, 0), LOW)  # a tie


def test_gated_paired_wants_more_than_its_error() -> None:
    gate = Gated(gate="paired")
    # one case of four is better: the mean is as large as its standard error, whatever the gain
    assert not gate.lets_pass(rollout(0, 1, 0, 1), rollout(1, 1, 0, 1), LOW)
    assert gate.lets_pass(rollout(0, 0, 0, 1), rollout(1, 1, 0, 1), LOW)
    assert not gate.lets_pass(rollout(0, 0, 1, 1), rollout(1, 1, 0, 1), LOW)
    assert Gated(gate="paired", errors=0.0).lets_pass(rollout(0, 1, 0, 1), rollout(1, 1, 0, 1), LOW)


def test_gated_paired_compares_means_of_cases() -> None:
    """Two repeats of two cases: differences 0.5 and 0.5 have no error, 1 and 0 have one of 0.5."""
    gate = Gated(gate="paired", repeats=2)
    assert gate.lets_pass(rollout(0, 0, 0, 0), rollout(1, 0, 0, 1), LOW)
    assert not gate.lets_pass(rollout(0, 0, 0, 0), rollout(1, 1, 0, 0), LOW)


def test_gated_failures() -> None:
    """At the floor if there is one; else a text that failed loses to one that did not."""
    gate = Gated()
    assert not gate.lets_pass(rollout(0.5, 0.5), rollout(None, 0.9), LOW)
    assert gate.lets_pass(rollout(0.5, 0.3), rollout(None, 0.9), LOW)
    assert not gate.lets_pass(rollout(0.1, 0.1), rollout(None, 0.9), None)
    assert gate.lets_pass(rollout(None, 0.9), rollout(0.1, 0.1), None)


def test_gated_counts_changed_lines() -> None:
    other = Candidate.of({"a": "same\nnew\n", "b": "x\n"})
    assert changed_lines(ONE, other) == ["- old", "+ new"]
    with pytest.raises(UserError, match="no gate 'loose'"):
        Gated(gate="loose")
