"""Examples of other packages as cases.

The text that a model reads of them, and the arguments of their function.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from culmen.core.evaluation import Case
from culmen.core.json import JsonObject
from culmen.extensions.compat.example_cases import (
    SHOWN,
    Asked,
    cases_of,
    plain_example,
    shortened_text,
)


class Opaque:
    def __repr__(self) -> str:
        return "Opaque(" + "x" * 2 * SHOWN + ")"


@dataclass
class Pair:
    question: str
    answer: int


def test_examples_are_cases_of_two_splits_and_stay_what_they_were():
    opaque = Opaque()
    cases, examples = cases_of([Pair("1+1", 2), {"q": 3}], [opaque])
    assert [(case.id, case.split) for case in cases] == [
        ("train-0", "train"),
        ("train-1", "train"),
        ("val-0", "val"),
    ]
    assert [case.input for case in cases[:2]] == [{"question": "1+1", "answer": 2}, {"q": 3}]
    assert examples["val-0"] is opaque
    assert cases_of(None, []) == ([], {})


def test_what_is_no_plain_data_is_a_text_of_bounded_length():
    whole, half = repr(Opaque()), SHOWN // 2
    left_out = f"\n... {len(whole) - SHOWN} characters left out ...\n"
    assert plain_example(Opaque()) == whole[:half] + left_out + whole[-half:]
    endless: list[object] = []
    endless.append(endless)
    assert plain_example(endless) == "[[...]]"


@pytest.mark.parametrize("size", [SHOWN - 1, SHOWN])
def test_a_text_that_fits_is_whole(size: int):
    assert shortened_text("y" * size) == "y" * size
    assert shortened_text("y" * (SHOWN + 1)) != "y" * (SHOWN + 1)


class Judging(Asked[str]):
    def judge_example(
        self, candidate: str, has_example: bool, example: object
    ) -> tuple[object, JsonObject]:
        return self.fn(candidate, example), {"has_example": has_example}


def measure(candidate: str, example: object) -> float:
    return len(candidate) + len(str(example))


class Measure:
    def __call__(self, candidate: str, example: object) -> float:
        return measure(candidate, example)


def test_a_function_is_called_with_the_example_itself():
    opaque = Opaque()
    seen = []
    asked = Judging(
        lambda candidate, example: seen.append((candidate, example)) or 1.0, {"val-0": opaque}
    )
    assert asked("text", Case("val-0", "shown")) == (1.0, {"has_example": True})
    assert asked("text", None) == (1.0, {"has_example": False})
    assert seen[0] == ("text", opaque) and seen[1] == ("text", None)


def test_an_evaluator_is_known_by_the_code_of_its_function():
    """A run's journal notices a changed function by these two."""
    assert Judging(measure, {}).__code__ is measure.__code__
    assert Judging(measure, {}).__qualname__ == "measure"
    assert Judging(Measure(), {}).__code__ is Measure.__call__.__code__
    assert Judging(Measure(), {}).__qualname__ == "Measure"
