"""Exact arithmetic against its definitions, written apart from it in plain fractions."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from culmen.evaluate import certify
from culmen.evaluate.certify import Invalid

FINITE = st.floats(allow_nan=False, allow_infinity=False)
COUNTS = st.lists(st.integers(0, 2**300), min_size=1, max_size=8)


@given(st.lists(FINITE, max_size=6))
def test_doubles_are_read_as_they_are(values: list[float]) -> None:
    whole, shift = certify.dyadic(values)
    assert [Fraction(w, 2**shift) for w in whole] == [Fraction(v) for v in values]


@given(COUNTS, COUNTS)
def test_convolution_is_the_convolution(first: list[int], second: list[int]) -> None:
    wanted = [0] * (len(first) + len(second) - 1)
    for i, a in enumerate(first):
        for j, b in enumerate(second):
            wanted[i + j] += a * b
    assert certify.convolution(first, second) == wanted


def test_long_convolutions_are_exact() -> None:
    ones = [1] * 3000
    assert certify.convolution(ones, ones) == [min(k + 1, 5999 - k) for k in range(5999)]
    assert certify.convolution([0] * 5, [0] * 3) == [0] * 7
    assert certify.convolution([], [1]) == []


@given(st.fractions(min_value=-(10**20), max_value=10**20))
def test_rounding_is_towards_the_worse_side(value: Fraction) -> None:
    low, high = certify.down(value), certify.up(value)
    assert Fraction(low) <= value <= Fraction(high) and high <= math.nextafter(low, math.inf)


@given(st.lists(FINITE, min_size=1, max_size=6))
def test_dust_is_what_is_far_below_the_largest(values: list[float]) -> None:
    kept, count = certify.without_dust(values)
    top = max(abs(v) for v in values)
    assert count == sum(a != b for a, b in zip(values, kept))
    for old, new in zip(values, kept):
        assert new == old or (new == 0 and abs(Fraction(old)) < Fraction(top) / 2**254)
        assert new == old or Fraction(top) > 0


def test_pi_is_enclosed() -> None:
    digits = Fraction(31415926535897932384626433832795028841971, 10**40)
    for bits in (10, 60, 130):
        low, high = certify.pi(bits)
        assert (
            low < digits + Fraction(1, 10**40)
            and high > digits
            and high - low <= Fraction(1, 2**bits)
        )


def test_square_roots_are_below() -> None:
    for square in (Fraction(2), Fraction(1, 3), Fraction(0), Fraction(10**30 + 1)):
        root = certify.root_below(square)
        assert root * root <= square < (root + Fraction(1, 2**119)) ** 2


def test_exact_texts() -> None:
    assert certify.exact_text(Fraction(-1, 3)) == "-1/3"
    assert certify.exact_text(Fraction(-1, 3), Fraction(1, 3)).startswith(
        "[-0.33333"
    ) and "334" in certify.exact_text(Fraction(-1, 3), Fraction(1, 3))
    low, high = certify.exact_text(Fraction(10**300 + 1, 3 * 10**300)).strip("[]").split(", ")
    assert Fraction(low) <= Fraction(10**300 + 1, 3 * 10**300) <= Fraction(high)
    assert certify.exact_text(Fraction(3**40_000, 2**60_000)).startswith(
        "["
    )  # beyond Python's limit for texts of integers


NO_NUMBERS = [
    math.nan,
    math.inf,
    -math.inf,
    True,
    1j,
    "1",
    None,
    [1.0],
    10**400,
    2**53 + 1,
    Fraction(1, 2),
]


@pytest.mark.parametrize("value", NO_NUMBERS, ids=repr)
def test_what_is_no_double_is_not_accepted(value: Any) -> None:
    with pytest.raises(Invalid, match=r"x\[1\] must be a finite number"):
        certify.vector([1.0, value], "x", 1, 5)


@pytest.mark.parametrize(
    "value",
    [1.0, "12", {"a": 1}, None, np.array(3.0), np.ones((2, 2)), np.array([1j]), np.array([True])],
    ids=repr,
)
def test_what_is_no_vector_is_not_accepted(value: Any) -> None:
    with pytest.raises(Invalid):
        certify.vector(value, "x", 1, 5)


def test_sizes_are_told() -> None:
    with pytest.raises(Invalid, match="x must be 2 to 3 numbers, not 4"):
        certify.vector(np.ones(4), "x", 2, 3)
    with pytest.raises(Invalid, match="p must be 3 points, not 2"):
        certify.points([[0, 1], [1, 2]], "p", 3, 2)
    with pytest.raises(Invalid, match=r"p\[1\] must be 2 numbers, not 3"):
        certify.points([[0, 1], [1, 2, 3]], "p", 2, 2)
    assert certify.vector(np.array([1, 2], dtype="i4"), "x", 2, 2) == [1.0, 2.0]
