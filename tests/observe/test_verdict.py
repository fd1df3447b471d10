"""The verdict: per cent, the way to the target, and confidence, from the result alone."""

from __future__ import annotations

from typing import Any

import pytest

from culmen.core.result import NoiseReport, RunResult, Score
from culmen.core.task import Objective
from culmen.observe.statements import result_headline, state_label
from culmen.observe.verdict import confidence_text, gain_text, percent_gain, target_text, way_text


def result(first: float, best: float, margin: float | None = 0.0, **fields: Any) -> RunResult:
    """A confirmed result of four evaluations."""
    given: dict[str, Any] = {"margin": margin, "confirmed": True, "noise": NoiseReport(True), **fields}
    return RunResult("b", best, 4, initial=Score("a", first, 4, 0.0, margin), gain=best - first,
                     gain_margin=margin, **given)  # fmt: skip


@pytest.mark.parametrize(
    ("before", "after", "margin", "text"),
    [(0.75, 1.0, None, " (33 %)"), (20.0, 12.0, None, " (40 %)"), (-12.0, -9.0, None, " (25 %)"),
     (100.0, 100.5, None, " (0.5 %)"), (100.0, 103.25, None, " (3.2 %)"), (10.0, 12.34, 0.01, " (23.4 %)"),
     (-1.0, 3.0, None, ""), (0.0, 3.0, None, ""), (0.5, 0.0, None, ""), (0.001, 0.9, None, ""), (1.0, 1.0, None, "")],
)  # fmt: skip
def test_per_cent_only_where_the_scale_has_it(before: float, after: float, margin: float | None, text: str):
    assert percent_gain(before, after, margin) == text


def test_a_gain_within_noise_or_no_gain_has_no_per_cent():
    assert gain_text(result(0.5, 0.75)) == "+0.25 (50 %)"
    assert gain_text(result(0.5, 0.58, 0.1)) == "+0.08"
    assert gain_text(result(0.5, 0.4)) == "-0.1"
    assert gain_text(result(20.0, 12.0, direction="min")) == "-8 (40 %)"


def test_the_way_to_target_and_best_known():
    aim = Objective(target=1.0)
    assert way_text(result(0.5, 0.75), aim) == "50 % of the way to the target 1"
    assert way_text(result(0.5, 1.0), aim) == "the target 1 is reached"
    assert way_text(result(0.5, 0.9999), aim) == "99 % of the way to the target 1"  # not reached
    assert way_text(result(0.5, 0.4), aim) == "" == way_text(result(0.5, 0.6), Objective())
    both = Objective(target=0.7, known=1.0)
    assert way_text(result(0.5, 0.75), both) == "the target 0.7 is reached, 50 % of the way to the best known value 1"
    assert target_text(result(0.5, 1.1), both) == "the target 0.7 is reached, beyond the best known value 1"
    assert target_text(result(0.5, 1.0), Objective(known=1.0)) == "as good as the best known value 1"
    down = Objective("min", target=10.0)
    assert way_text(result(20.0, 12.0, direction="min"), down) == "80 % of the way to the target 10"


def test_the_end_line_has_the_way_only_where_the_gain_is_shown():
    aim = Objective(target=1.0)
    assert result_headline(result(0.5, 0.75), True, aim) == (
        "initial 0.5 → best 0.75: +0.25 (50 %), exact; 50 % of the way to the target 1"
    )
    assert "of the way" not in result_headline(result(0.5, 0.55, 0.1), True, aim)


def test_confidence_in_plain_words():
    assert confidence_text(result(0.5, 0.75)) == "scores are exact (4 fresh evaluations)"
    assert confidence_text(result(0.5, 0.75, 0.1)) == "95 % sure of +0.15 to +0.35, beyond noise (4 fresh evaluations)"
    assert ", so there may be none" in confidence_text(result(0.5, 0.55, 0.1))
    assert "is not known" in confidence_text(result(0.5, 0.75, None))
    assert "is not known" in confidence_text(result(0.5, 0.75, noise=NoiseReport()))


def test_states_for_display():
    assert state_label("finished", "evaluations") == "out of budget" == state_label("finished", "dollars")
    assert state_label("finished", "user") == "stopped" and state_label("finished", "target") == "finished"
    assert state_label("failed", "evaluations") == "failed" and state_label("running", "") == "running"
