"""Enclosure of the last sign change of a polynomial with integer coefficients.

Roots of even multiplicity are divided out exactly; the quotient is bisected from the right with
Descartes' rule of signs (Vincent-Collins-Akritas) until one simple root is alone in its interval.
Polynomials are lists of integers, lowest degree first, without trailing zeros.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

Poly = list[int]
_PRIME = 2**61 - 1


def last_sign_change(poly: Sequence[int], bits: int = 100) -> tuple[Fraction, Fraction] | None:
    """Rationals low <= r <= high around the largest r > 0 where the sign changes, or None.

    They are at most 2**-bits of their size apart (equal if a bisection point is r).
    """
    odd_factors = odd_part(_trim_zeros(list(poly)))
    while len(odd_factors) > 1 and odd_factors[0] == 0:
        odd_factors = odd_factors[1:]
    if len(odd_factors) < 2:
        return None
    scale = _root_bound_exponent(odd_factors)
    degree = len(odd_factors) - 1
    start = [
        c << (scale * i) if scale >= 0 else c << (-scale * (degree - i))
        for i, c in enumerate(odd_factors)
    ]
    return _rightmost_root(start, Fraction(2) ** scale, bits)


def odd_part(poly: Poly) -> Poly:
    """The product of the distinct factors of odd multiplicity, up to a constant.

    It changes sign where `poly` does. With p_0 = p and p_(i+1) = gcd(p_i, p_i'),
    w_i = p_i / p_(i+1) has the factors of multiplicity above i.
    """
    if len(poly) < 3 or _coprime_modulo(poly, _derivative_of(poly)):
        return poly
    chain = [_primitive_part(poly)]
    while len(chain[-1]) > 1:
        chain.append(polynomial_gcd(chain[-1], _derivative_of(chain[-1])))
    above = [divide_exactly(a, b) for a, b in pairwise(chain)] + [[1]]
    result = [1]
    for odd, even in zip(above[::2], [*above[1::2], [1]]):
        result = multiply_polynomials(result, divide_exactly(odd, even))
    return result


def polynomial_gcd(first: Poly, second: Poly) -> Poly:
    """Greatest common divisor, primitive (primitive remainder sequence)."""
    first, second = _primitive_part(first), _primitive_part(second)
    while second:
        first, second = second, _primitive_part(_pseudo_remainder(first, second))
    return first


def divide_exactly(poly: Poly, by: Poly) -> Poly:
    """The primitive quotient of an exact division; raises ValueError if there is a remainder."""
    rest, quotient = [Fraction(c) for c in poly], list[Fraction]()
    for top in range(len(poly) - 1, len(by) - 2, -1):
        factor = rest[top] / by[-1]
        quotient.append(factor)
        for i, c in enumerate(by):
            rest[top - len(by) + 1 + i] -= factor * c
    if any(rest):
        raise ValueError("the division is not exact")
    common = math.lcm(*(q.denominator for q in quotient))
    return _primitive_part([int(q * common) for q in reversed(quotient)])


def multiply_polynomials(first: Poly, second: Poly) -> Poly:
    """The product."""
    result = [0] * (len(first) + len(second) - 1)
    for i, a in enumerate(first):
        for j, b in enumerate(second):
            result[i + j] += a * b
    return result


def _rightmost_root(poly: Poly, scale: Fraction, bits: int) -> tuple[Fraction, Fraction] | None:
    """The largest root in (0, 1) of a square-free polynomial, times `scale`.

    Leaves are visited from the right.
    """
    waiting: list[tuple[Poly, Fraction, Fraction]] = [(poly, Fraction(0), Fraction(1))]
    while waiting:
        node, low, high = waiting.pop()
        if not node:  # a midpoint that is a root itself
            return low * scale, low * scale
        variations = _count_sign_changes(_shift_by_one(node[::-1]))
        if variations == 1:
            return _bisect_root(node, low, high, scale, bits)
        if variations > 1:
            middle = (low + high) / 2
            degree = len(node) - 1
            left = [c << (degree - i) for i, c in enumerate(node)]
            right = _shift_by_one(left)
            waiting_middle = right[0] == 0
            if waiting_middle:
                left, right = _without_one(left), right[1:]
            waiting.append((_without_powers_of_two(left), low, middle))
            if waiting_middle:
                waiting.append(([], middle, middle))
            waiting.append((_without_powers_of_two(right), middle, high))
    return None


def _bisect_root(
    node: Poly, low: Fraction, high: Fraction, scale: Fraction, bits: int
) -> tuple[Fraction, Fraction]:
    """Bisect the one root that `node` has in (0, 1), which stands for (low, high)."""
    at, level = 0, 0  # the root lies between at / 2**level and (at + 1) / 2**level
    sign = _sign_at(node, 0, 0)
    while (high - low) * 2**bits > (low + (high - low) * Fraction(at, 2**level)) * 2**level:
        at, level = 2 * at, level + 1
        middle = _sign_at(node, at + 1, level)
        if middle == 0:
            exact = (low + (high - low) * Fraction(at + 1, 2**level)) * scale
            return exact, exact
        at += middle == sign
    width = (high - low) / 2**level
    return (low + width * at) * scale, (low + width * (at + 1)) * scale


def _sign_at(poly: Poly, numerator: int, level: int) -> int:
    """Sign at numerator / 2**level."""
    total = 0
    for i, c in enumerate(reversed(poly)):
        total = total * numerator + (c << (level * i))
    return (total > 0) - (total < 0)


def _root_bound_exponent(poly: Poly) -> int:
    """k such that every root is below 2**k in magnitude (Fujiwara's bound, by bit lengths)."""
    top, degree = abs(poly[-1]).bit_length() - 1, len(poly) - 1
    ratios = [-((top - abs(c).bit_length()) // (degree - i)) for i, c in enumerate(poly[:-1]) if c]
    return 1 + max(ratios, default=0)


def _shift_by_one(poly: Poly) -> Poly:
    """p(x + 1)."""
    result = list(poly)
    for start in range(len(result) - 1):
        for i in range(len(result) - 2, start - 1, -1):
            result[i] += result[i + 1]
    return result


def _without_one(poly: Poly) -> Poly:
    """p(x) / (x - 1), for a root at 1."""
    result = list(poly[1:])
    for i in range(len(result) - 2, -1, -1):
        result[i] += result[i + 1]
    return result


def _count_sign_changes(poly: Poly) -> int:
    signs = [c > 0 for c in poly if c]
    return sum(a != b for a, b in pairwise(signs))


def _without_powers_of_two(poly: Poly) -> Poly:
    """The polynomial without common powers of two."""
    shift = min((c & -c).bit_length() - 1 for c in poly if c)
    return [c >> shift for c in poly]


def _derivative_of(poly: Poly) -> Poly:
    return [i * c for i, c in enumerate(poly)][1:]


def _trim_zeros(poly: Poly) -> Poly:
    while poly and poly[-1] == 0:
        poly.pop()
    return poly


def _primitive_part(poly: Poly) -> Poly:
    common = math.gcd(*poly)
    return [c // common for c in poly] if common else []


def _pseudo_remainder(poly: Poly, by: Poly) -> Poly:
    rest = list(poly)
    while len(rest) >= len(by):
        top, offset = rest[-1], len(rest) - len(by)
        rest = [c * by[-1] for c in rest]
        for i, c in enumerate(by):
            rest[offset + i] -= top * c
        _trim_zeros(rest)
    return rest


def _coprime_modulo(first: Poly, second: Poly) -> bool:
    """True if a greatest common divisor modulo a prime is constant.

    Then the greatest common divisor over the integers is constant, too.
    """
    if first[-1] % _PRIME == 0 or second[-1] % _PRIME == 0:
        return False
    first, second = (
        _trim_zeros([c % _PRIME for c in first]),
        _trim_zeros([c % _PRIME for c in second]),
    )
    while second:
        inverse = pow(second[-1], -1, _PRIME)
        while len(first) >= len(second):
            factor, offset = first[-1] * inverse % _PRIME, len(first) - len(second)
            for i, c in enumerate(second):
                first[offset + i] = (first[offset + i] - factor * c) % _PRIME
            _trim_zeros(first)
        first, second = second, first
    return len(first) == 1
