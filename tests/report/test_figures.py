"""Numbers, times and texts as people read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from culmen.report.displays import Pace
from culmen.report.figures import (
    clock_text,
    column_decimals,
    count_text,
    dollars_text,
    duration_text,
    escape_controls,
    number_text,
    plus_minus,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0.0, "0"),
        (3.0, "3"),
        (2.5, "2.5"),
        (2.6359831, "2.63598"),
        (-0.9129003071, "-0.9129"),
        (123456.789, "123457"),
        (1e-7, "1e-07"),
        (1.5e12, "1.5e+12"),
    ],
)
def test_number(value: float | None, text: str) -> None:
    assert number_text(value) == text


@given(st.lists(st.floats(-1e8, 1e8), min_size=1))
def test_a_column_shows_its_largest_value_to_six_digits(values: list[float]) -> None:
    places, top = column_decimals(values), max(abs(v) for v in values)
    assert 0 <= places <= 10
    if top >= 1e-4:
        assert float(f"{top:.{places}f}") == pytest.approx(top, rel=1e-5)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (9.94, "9.9 s"), (59.4, "59 s"), (200, "3 min 20 s"), (7500, "2 h 05 min")],
)
def test_duration(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_small_words() -> None:
    assert (clock_text(67.9), clock_text(3723)) == ("1:07", "1:02:03")
    assert (
        count_text(1, "evaluation"),
        count_text(1204, "evaluation"),
        count_text(2, "query"),
    ) == (
        "1 evaluation",
        "1,204 evaluations",
        "2 queries",
    )
    assert (dollars_text(0), dollars_text(0.01234), dollars_text(4.2)) == ("$0", "$0.0123", "$4.20")
    assert (plus_minus(None), plus_minus(0.001234)) == ("", " ± 0.0012")


def test_control_characters_are_spelled_out() -> None:
    assert escape_controls("a\x1b[31mb\x07\tc\r\n\x9b") == "a\\x1b[31mb\\x07\tc\n\\x9b"
    assert (
        escape_controls("a\u202eb\u2066c\u200f\u061c\u2028")
        == "a\\u202eb\\u2066c\\u200f\\u061c\\u2028"
    )


def test_pace_tells_since_when_nothing_has_finished() -> None:
    """Ten seconds without a result are long enough to wonder."""
    pace = Pace()
    for at, evaluations in ((0.0, 0), (5.0, 3), (14.0, 3), (20.0, 3)):
        pace.record_reading(at, evaluations)
    assert [pace.seconds_without_result(at) for at in (14.0, 15.0, 20.0)] == [0.0, 10.0, 15.0]
    pace.record_reading(21.0, 4)
    assert pace.seconds_without_result(21.5) == 0.0
