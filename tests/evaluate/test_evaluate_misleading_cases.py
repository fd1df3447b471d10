"""Columns of cases that give the answer away, and those that do not."""

from __future__ import annotations

import pytest

from culmen.core.evaluation import Case
from culmen.evaluate.misleading_cases import case_problems, how_it_tells, telling_columns


@pytest.mark.parametrize(
    ("values", "answers", "how"),
    [
        ("abab", "abab", "is"),
        ("1212", "abab", "goes with"),
        ("121233", "ababaa", "goes with"),  # several values of one answer
        ("1234", "abab", ""),  # an id: each value is seen once
        ("1212", "abba", ""),
        ("1111", "abab", ""),
    ],
)
def test_how_a_column_tells_the_answer(values: str, answers: str, how: str) -> None:
    assert how_it_tells(list(values), list(answers)) == how


def test_columns_of_plain_inputs_and_of_answers_with_parts() -> None:
    cases = [Case(str(n), {"x": n, "code": n % 2}, {"team": "ab"[n % 2]}) for n in range(6)]
    assert list(telling_columns(cases)) == [("code", "team", "goes with")]
    assert list(telling_columns([Case(str(n), n, n) for n in range(6)])) == [("value", "", "is")]
    assert list(telling_columns(cases[:3])) == []


def test_cases_without_inputs_are_no_copies_of_one_another() -> None:
    assert list(case_problems([Case(str(n), None, n) for n in range(5)])) == []
    assert list(case_problems(())) == []
