"""Enclosures of the real roots of polynomials, of the task `uncertainty_ineq`."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.evaluate.certify.modules import modules

ROOTS: Any = modules("uncertainty_ineq")["real_roots"]
ROOT_VALUES = st.fractions(min_value=-5, max_value=5, max_denominator=50)


def product(roots: list[Fraction]) -> list[int]:
    result = [1]
    for root in roots:
        result = ROOTS.multiply_polynomials(result, [-root.numerator, root.denominator])
    return result


@settings(deadline=None)
@given(
    st.lists(ROOT_VALUES, min_size=1, max_size=6), st.lists(ROOT_VALUES, max_size=2), st.booleans()
)
def test_the_last_sign_change_is_enclosed(
    simple: list[Fraction], doubled: list[Fraction], no_real: bool
) -> None:
    roots = [*simple, *doubled, *doubled]
    poly = ROOTS.multiply_polynomials(product(roots), [7, 1, 3] if no_real else [-1])
    odd = [root for root in set(roots) if roots.count(root) % 2 and root > 0]
    found = ROOTS.last_sign_change(poly)
    if not odd:
        assert found is None
        return
    assert found is not None and found[0] <= max(odd) <= found[1]
    assert found[1] - found[0] <= max(odd) / 2**99


def test_a_double_root_that_splits_by_rounding_is_not_missed() -> None:
    """(x - 3)^2 - 10^-40 changes sign twice next to 3; with + it does not at all."""
    tiny = 10**40
    split = [9 * tiny - 1, -6 * tiny, tiny]
    found = ROOTS.last_sign_change(split, 200)
    assert found is not None and found[0] <= 3 + Fraction(1, 10**20) <= found[1]
    assert ROOTS.last_sign_change([9 * tiny + 1, -6 * tiny, tiny]) is None
    both = ROOTS.last_sign_change(
        ROOTS.multiply_polynomials([9 * tiny + 1, -6 * tiny, tiny], [-1, 1])
    )
    assert both is not None and both[0] <= 1 <= both[1]


def test_factors_of_even_multiplicity_are_divided_out() -> None:
    a, b, c = [-1, 1], [-2, 1], [5, 0, 1]
    poly = ROOTS.multiply_polynomials(
        ROOTS.multiply_polynomials(
            ROOTS.multiply_polynomials(a, a),
            ROOTS.multiply_polynomials(ROOTS.multiply_polynomials(b, b), b),
        ),
        c,
    )
    assert ROOTS.odd_part(poly) == ROOTS.multiply_polynomials(b, c) and ROOTS.polynomial_gcd(
        poly, ROOTS.multiply_polynomials(a, b)
    ) == ROOTS.multiply_polynomials(a, b)
    assert (
        ROOTS.divide_exactly(poly, a)[-1] == 1
        and ROOTS.last_sign_change([]) is None
        and ROOTS.last_sign_change([4]) is None
    )
    with pytest.raises(ValueError, match="not exact"):
        ROOTS.divide_exactly(poly, [-7, 1])
    assert ROOTS.last_sign_change([0, 0, -1, 1]) == (1, 1)


def test_wilkinson() -> None:
    found = ROOTS.last_sign_change(product([Fraction(i) for i in range(1, 31)]))
    assert found is not None and found[0] <= 30 <= found[1]
