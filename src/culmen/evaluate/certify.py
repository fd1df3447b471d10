"""Exact arithmetic for verifiers: exact numbers, judged without tolerance.

A double is a dyadic rational, so all arithmetic here is exact: sums and products in integers over
one common power of two, convolutions by Kronecker substitution (the sequence packed into one big
number, multiplied once, cut up again), and square roots and pi only as enclosures. `down` or `up`
round bounds towards the worse side, as the last step.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Sequence
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from fractions import Fraction
from typing import Any

from culmen.core.json import JsonObject
from culmen.jail.scorer import Invalid

# entries smaller than the largest by more than 2**-256 are set to zero (they cost time, not value)
RANGE_BITS = 256
_EXACT_INTEGERS = 2**53  # up to which a float holds every integer
_TEXT_CHARS = 400  # characters of a rational before it is shown as an enclosure instead


# -- reading
# ------------------------------------------------------------------------------


def double(value: object, what: str) -> float:
    """A finite double.

    Raises Invalid for booleans, NaN, infinities, complex numbers, texts, and integers that are not
    exactly a double.
    """
    if type(value) is float and math.isfinite(value):
        return value
    if type(value) is int and -_EXACT_INTEGERS <= value <= _EXACT_INTEGERS:
        return float(value)
    raise Invalid(f"{what} must be a finite number")


def vector(value: object, what: str, least: int, most: int) -> list[float]:
    """A sequence (list or 1-d array) of `least` to `most` finite doubles, else Invalid."""
    items = _as_sequence(value, what)
    if not least <= len(items) <= most:
        size = f"{least}" if least == most else f"{least} to {most}"
        raise Invalid(f"{what} must be {size} numbers, not {len(items)}")
    return [double(item, f"{what}[{i}]") for i, item in enumerate(items)]


def points(value: object, what: str, count: int, width: int) -> list[list[float]]:
    """`count` points of `width` finite doubles each; raises Invalid for anything else."""
    rows = _as_sequence(value, what)
    if len(rows) != count:
        raise Invalid(f"{what} must be {count} points, not {len(rows)}")
    return [vector(row, f"{what}[{i}]", width, width) for i, row in enumerate(rows)]


def _as_sequence(value: Any, what: str) -> Sequence[object]:
    if type(value).__module__ == "numpy" and type(value).__name__ == "ndarray" and value.ndim:
        return value.tolist()
    if isinstance(value, list | tuple):
        return value
    raise Invalid(f"{what} must be a list or an array")


# -- exact values
# ------------------------------------------------------------------------------


def dyadic(values: Iterable[float]) -> tuple[list[int], int]:
    """Integers and a shift: value i is exactly integers[i] / 2**shift."""
    ratios = [value.as_integer_ratio() for value in values]
    shift = max((den.bit_length() - 1 for _, den in ratios), default=0)
    return [num << (shift - den.bit_length() + 1) for num, den in ratios], shift


def without_dust(values: Sequence[float]) -> tuple[list[float], int]:
    """The values with negligible ones set to zero, and their number.

    Negligible: below 2**-256 of the largest magnitude.
    """
    exponent = math.frexp(max(map(abs, values), default=0.0))[1] - RANGE_BITS
    kept = [value if math.frexp(value)[1] > exponent else 0.0 for value in values]
    return kept, sum(1 for old, new in zip(values, kept) if old != new)


def convolution(first: Sequence[int], second: Sequence[int]) -> list[int]:
    """The exact convolution of two sequences of integers >= 0.

    Kronecker substitution in base 10**digits. `decimal` multiplies by a number-theoretic transform,
    so 30,000 terms take about a second.
    """
    if not first or not second:
        return []
    bound = max(first) * max(second) * min(len(first), len(second))
    digits = len(str(bound))
    first_packed = _pack_decimal(first, digits)
    second_packed = first_packed if first is second else _pack_decimal(second, digits)
    context = Context(
        prec=min(MAX_PREC, digits * (len(first) + len(second))), Emax=MAX_EMAX, Emin=MIN_EMIN
    )
    text = str(context.multiply(first_packed, second_packed))
    count = len(first) + len(second) - 1
    text = text.zfill(count * digits)
    return [int(text[at : at + digits]) for at in range(len(text) - digits, -1, -digits)]


def _pack_decimal(values: Sequence[int], digits: int) -> Decimal:
    return Decimal("".join(str(value).zfill(digits) for value in reversed(values)))


def root_below(square: Fraction, bits: int = 120) -> Fraction:
    """A rational not above the square root, within 2**-bits of it (absolute)."""
    return Fraction(math.isqrt(math.floor(square * 4**bits)), 2**bits)


def pi(bits: int = 160) -> tuple[Fraction, Fraction]:
    """Rationals below and above pi, 2**-bits apart or less.

    Machin's formula: pi = 16 arctan(1/5) - 4 arctan(1/239).
    """
    work = bits + 16
    low, high = (Fraction(0), Fraction(0))
    for factor, base in ((16, 5), (-4, 239)):
        value, error = _arctan_with_error(base, work)
        low, high = (
            low + factor * value - abs(factor) * error,
            high + factor * value + abs(factor) * error,
        )
    return low, high


def _arctan_with_error(base: int, bits: int) -> tuple[Fraction, Fraction]:
    """arctan(1/base) and an error bound.

    The bound covers the rounding of the terms and the rest of the series: (3 terms + 3) / 2**bits.
    """
    power, total, term, count = (1 << bits) // base, 0, 1, 0
    while power:
        total += (power // term) * (-1 if count % 2 else 1)
        power //= base * base
        term, count = term + 2, count + 1
    return Fraction(total, 1 << bits), Fraction(3 * count + 3, 1 << bits)


# -- reporting
# ------------------------------------------------------------------------------


def down(value: Fraction) -> float:
    """The largest double that is not above a rational (-inf below all of them)."""
    try:
        number = float(value)
    except OverflowError:
        return sys.float_info.max if value > 0 else -math.inf
    return number if Fraction(number) <= value else math.nextafter(number, -math.inf)


def up(value: Fraction) -> float:
    """The smallest double that is not below a rational (inf above all of them)."""
    return -down(-value)


def exact_text(low: Fraction, high: Fraction | None = None) -> str:
    """A rational as `p/q`, or as an enclosure of 30 digits if that is long.

    Two rationals are written as their enclosure.
    """
    high = low if high is None else high
    if (
        low == high
        and low.numerator.bit_length() + low.denominator.bit_length() < 3.3 * _TEXT_CHARS
    ):
        return str(low)
    return f"[{_decimal_text(low, math.floor)}, {_decimal_text(high, math.ceil)}]"


def _decimal_text(value: Fraction, round_to_integer: Callable[[Fraction], int]) -> str:
    scaled = round_to_integer(value * 10**30)
    integer, rest = divmod(abs(scaled), 10**30)
    return f"{'-' if scaled < 0 else ''}{integer}.{rest:030d}"


def certificate(
    score: float,
    exact: str,
    changes: Sequence[str] = (),
    feedback: str = "",
    lead: str = "certified",
) -> JsonObject:
    """A verifier's result: the certified score and its exact form.

    `changes` are the repairs of the output; without changes the output passed as given.
    """
    repaired = "; ".join(changes)
    how = f"repaired: {repaired}" if changes else "passes as given, with zero tolerance"
    text = "\n".join(filter(None, (f"{lead} {score!r} ({how})", f"exactly {exact}", feedback)))
    return {
        "score": score,
        "exact": exact,
        "feasible": not changes,
        "repaired": repaired,
        "feedback": text,
    }
