"""Scores coefficients for the uncertainty inequality. The last sign change is found in exact arithmetic: floating-point
roots miss sign changes of high-degree polynomials, and a search would find out."""

from fractions import Fraction
from functools import cache

from culmen.evaluate.certify import Invalid, dyadic, pi, up, vector
from real_roots import last_sign_change

MOST = 60
WIDEST = 1200  # bits between the largest and the smallest coefficient


def score(output):
    coefficients, poly = read(output)
    low, high = bound(poly, 60)
    feedback = f"C4 <= {float(high):.9f} from {len(coefficients)} coefficients, degree {4 * len(coefficients)}"
    return {"score": up(high), "metrics": {"coefficients": len(coefficients)}, "feedback": feedback}


def read(output):
    """The coefficients, and P(x) / x^2 as integers: entry i belongs to x^(2i)."""
    coefficients = vector(output, "the coefficients", 1, MOST)
    whole, _ = dyadic(coefficients)
    if max(map(abs, whole)).bit_length() > WIDEST:
        raise Invalid("the coefficients differ too much in size")
    basis = [hermite(4 * k) for k in range(len(whole) + 1)]
    at_zero = sum(c * h[0] for c, h in zip(whole, basis))
    last = Fraction(-at_zero, basis[-1][0])
    scaled = [c * last.denominator for c in whole] + [last.numerator]
    poly = [sum(c * h[i] for c, h in zip(scaled, basis) if i < len(h)) for i in range(len(basis[-1]))][1:]
    while poly and poly[-1] == 0:
        poly.pop()
    if not poly:
        raise Invalid("the polynomial vanishes")
    return coefficients, poly if poly[-1] > 0 else [-c for c in poly]


def bound(poly, bits):
    """Rationals around u / (2 pi), where u = x^2 is the last sign change of P."""
    found = last_sign_change(poly, bits)
    if found is None:  # f >= 0 with f(0) = 0 is the integral of its transform f: only f = 0
        raise Invalid("the polynomial never changes sign")
    below, above = pi(bits + 20)
    return found[0] / (2 * above), found[1] / (2 * below)


@cache
def hermite(degree):
    """The physicists' Hermite polynomial of an even degree: entry i is the coefficient of x^(2i)."""
    before, now = [1], [0, 2]
    for n in range(1, degree):
        before, now = now, [a - b for a, b in zip([0] + [2 * c for c in now], [2 * n * c for c in before] + [0, 0])]
    return (now if degree else before)[::2]
