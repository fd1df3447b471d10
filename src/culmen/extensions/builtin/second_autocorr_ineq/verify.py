"""Certifies a step function for the second autocorrelation inequality: C2 as an exact rational."""

from fractions import Fraction

from culmen.evaluate.certify import certificate, convolution, down, dyadic, exact_text, without_dust
from evaluator import read


def certify(output, case=None):
    heights, negative = read(output)
    heights, dust = without_dust(heights)
    whole, _ = dyadic(heights)
    y = [0, *convolution(whole, whole), 0]
    value = Fraction(sum(a * a + a * b + b * b for a, b in zip(y, y[1:])), 3 * sum(y) * max(y))
    changes = [f"{negative} negative heights set to zero"] * bool(negative)
    changes += [f"{dust} heights below 2**-256 of the largest set to zero"] * bool(dust)
    return certificate(down(value), exact_text(value), changes, f"f proves C2 >= {down(value)!r}")
