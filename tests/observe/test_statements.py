"""What is said of a result: the headline, how it was measured, doubts, noise, digits."""

from __future__ import annotations

from typing import Any

import pytest

from culmen.core.event import Entry
from culmen.core.result import NoiseReport, RunResult, Score, read_result
from culmen.observe.figures import difference_text, plus_minus, score_with_margin
from culmen.observe.statements import (
    best_score_text,
    end_reason,
    noise_sentence,
    reported_score_text,
    result_doubts,
    result_headline,
    score_basis_text,
)
from culmen.observe.words import describe_entry

INITIAL = Score("a", 0.44, 6, 0.04, 0.09, fresh=True)


def told(**fields: Any) -> RunResult:
    """A confirmed result that is better than its initial program."""
    given = {"id": "b", "score": 0.52, "count": 6, "se": 0.017, "margin": 0.035, "confirmed": True}
    more = {"initial": INITIAL, "gain": 0.08, "gain_margin": 0.1, "noise": NoiseReport(False, 0.1, 5)}
    return RunResult(**{**given, **more, **fields})


def test_the_headline_compares_with_the_initial_program():
    line = "initial 0.440 ± 0.09 → best 0.520 ± 0.035: +0.08"
    assert result_headline(told()) == f"{line}, within noise"
    assert result_headline(told(gain_margin=0.05)) == f"{line}0 (18 %), beyond noise"
    assert result_headline(told(gain_margin=None)) == f"{line} (18 %), noise not known"
    worse = result_headline(told(gain_margin=0.05, direction="min"))
    assert worse.startswith("nothing better than the initial program was found: ")
    exact = {"margin": 0.0, "gain": 0.25, "gain_margin": 0.0, "initial": Score("a", 0.27, 1, 0.0, 0.0)}
    assert result_headline(told(**exact, noise=NoiseReport(True))) == "initial 0.27 → best 0.52: +0.25 (93 %), exact"
    assert result_headline(told(**exact, noise=NoiseReport())).endswith(
        "+0.25 (93 %), noise not known"
    )  # nobody showed it


def test_the_headline_says_that_the_initial_program_was_kept_and_how_often_the_best_failed():
    other = Score("c", 0.523456, 6, 0.02, 0.04)
    kept = told(score=0.5, margin=0.1, kept_initial=True, challenger=other)
    assert result_headline(kept) == (
        "kept the initial program (0.50 ± 0.1): nothing was shown to be better (best other: 0.523 ± 0.04)"
    )
    assert "no other one has scored yet" in result_headline(told(kept_initial=True), is_over=False)
    assert result_headline(told(failures=2, count=12)).endswith("; failed 2 of 12 evaluations")
    unsure = told(confirmed=False, gain=None, gain_margin=None)
    assert result_headline(unsure, is_over=False).endswith("best 0.520 ± 0.035, not confirmed by fresh evaluations yet")


def test_how_it_was_measured_names_both_intervals():
    assert score_basis_text(told()) == "mean of 6 evaluations made after it was chosen"
    some = told(split="test", cases=10, of=100, count=10, new_margin=0.09)
    assert score_basis_text(some) == (
        "mean of 10 evaluations made after it was chosen, on 10 of 100 test cases; "
        "0.520 ± 0.035 for the cases of this task, 0.520 ± 0.09 for new cases of the kind"
    )
    whole = score_basis_text(told(split="val", cases=25, of=25, count=25, failures=3))
    assert whole.endswith("on all 25 val cases; 3 of them failed and count as the floor")
    assert "not confirmed" in score_basis_text(told(confirmed=False))


@pytest.mark.parametrize("direction", ["max", "min"])
def test_doubts_follow_the_direction(direction: str):
    sign = 1 if direction == "max" else -1

    def pills(**fields: Any) -> list[tuple[str, str]]:
        return [(each.level, each.words) for each in result_doubts(told(direction=direction, **fields))]

    assert pills(gain=sign * 0.3, gain_margin=0.05) == []  # it improved
    assert pills(gain=sign * 0.04, gain_margin=0.05) == [("warn", "not clearly better than the initial program")]
    assert pills(gain=-sign * 0.1, gain_margin=0.05) == [("bad", "no better than the initial program")]
    fell = pills(gain=sign * 0.3, gain_margin=0.05, search_score=0.52 + sign * 0.4)
    assert fell == [("warn", f"fell from {0.52 + sign * 0.4:.3f}")]
    assert pills(gain=sign * 0.3, gain_margin=0.05, search_score=0.52 - sign * 0.4) == []


def test_doubts_about_kept_programs_and_failures():
    assert result_doubts(None) == [] and result_doubts(told(confirmed=False)) == []
    assert result_doubts(told(kept_initial=True))[0].words == "initial program kept"
    assert result_doubts(told(gain_margin=0.01, failures=2, count=12))[0].words == "failed 2 of 12 evaluations"


@pytest.mark.parametrize(
    ("value", "margin", "text"),
    [(0.52312, 0.035, "0.523 ± 0.035"), (1234.5, 20.0, "1234 ± 20"), (0.5, None, "0.5"), (2.5, 0.0, "2.5"),
     (0.123456, 0.14, "0.12 ± 0.14"), (1234.5, 123.4, "1234 ± 120")],
)  # fmt: skip
def test_a_score_has_the_digits_that_its_interval_tells(value: float, margin: float | None, text: str):
    assert score_with_margin(value, margin) == text


def test_an_interval_ends_at_the_bounds_of_the_score():
    assert score_with_margin(1.0, 0.35, (0.0, 1.0)) == "1.00 (0.65 to 1)"
    assert score_with_margin(0.1, 0.35, (0.0, 1.0)) == "0.10 (0 to 0.45)"
    assert score_with_margin(0.5, 0.35, (0.0, 1.0)) == "0.50 ± 0.35"
    assert score_with_margin(-1.36, 0.14, (-1.3579, None)) == "-1.36 (-1.3579 to -1.22)"  # it is beyond
    assert score_with_margin(-1.3567, 0.14, (-1.3579, None)) == "-1.357 (-1.3579 to -1.22)"  # not -1.36, beyond it
    assert reported_score_text(told(score=1.0, margin=0.35, bounds=(None, 1.0))) == "1.00 (0.65 to 1)"


def test_differences_have_the_digits_of_their_margins():
    assert difference_text(0.083456, 0.14) == "+0.08" and difference_text(-0.0834, 0.011) == "-0.083"
    assert difference_text(0.083456, None) == "+0.0835" and difference_text(0.25, 0.0) == "+0.25"
    assert plus_minus(0.0) == "" and plus_minus(None) == ""


def test_noise_in_one_sentence():
    assert noise_sentence(NoiseReport(True, 0.0, 12)) == "Scores are exact, as 12 repeated evaluations showed."
    assert noise_sentence(NoiseReport(True)) == "Scores are exact, as the task declares."
    assert noise_sentence(NoiseReport(False, 0.4912, 7)) == (
        "Scores are noisy: one evaluation deviates by about 0.49 (7 repeated evaluations)."
    )
    assert noise_sentence(NoiseReport(False, 0.0, 9)).startswith("Evaluations of one program fail now and then")
    unknown = noise_sentence(NoiseReport(None, 0.0, 3, 0.63))
    assert "too few to tell" in unknown and "up to 63% of repeats may differ" in unknown
    assert noise_sentence(NoiseReport()) == "Noise is not known: nothing was evaluated twice."


def test_a_note_on_noise_is_told_in_the_same_sentence():
    for exact, sd in ((True, 0.0), (False, 0.31), (None, 0.0)):
        body = {"note": "noise", "exact": exact, "sd": sd, "repeats": 4, "told": "as strategies once said"}
        assert describe_entry(Entry("note", body=body)) == noise_sentence(NoiseReport(exact, sd, 4))


def test_ends_and_lines_of_progress():
    assert (
        end_reason("running", "") == ""
        and end_reason("finished", "evaluations") == "the budget of evaluations is spent"
    )
    assert end_reason("failed", "", "KeyError") == "KeyError" and end_reason("interrupted", "") == "nothing is lost"
    assert best_score_text(None) == "no score yet" and best_score_text(told(margin=0.14)) == "best 0.52 ± 0.14"


def test_a_result_of_before_is_read_with_the_direction_of_its_task():
    old = read_result({"id": "abc", "score": 0.5, "count": 12, "direction": "min", "bounds": [0.0, None]})
    assert old.score_difference(1.0, 2.0) == 1.0 and old.bounds == (0.0, None)
