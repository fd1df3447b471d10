"""The verdict keeps the initial program unless another is better."""

from __future__ import annotations

from culmen.evidence.account import Tally
from culmen.evidence.verdict import steadily_above


def test_scores_that_never_changed_are_steadily_above_lower_ones_that_never_did() -> None:
    zero, one = Tally("a", 0, count=3), Tally("b", 1, count=3, mean=1.0)
    assert steadily_above(one, zero) and not steadily_above(zero, one)
    assert not steadily_above(one, None) and not steadily_above(one, Tally("a", 0, count=2))
    assert not steadily_above(Tally("b", 1, count=3, mean=1.0, squares=0.5), zero)
    assert not steadily_above(one, Tally("a", 0, count=3, failures=1))
