"""Certifies a step function for the first autocorrelation inequality: C1 as an exact rational."""

from fractions import Fraction

from culmen.evaluate.certify import certificate, convolution, dyadic, exact_text, up, without_dust
from evaluator import read


def certify(output, case=None):
    heights, negative = read(output)
    heights, dust = without_dust(heights)
    whole, _ = dyadic(heights)
    value = Fraction(2 * len(whole) * max(convolution(whole, whole)), sum(whole) ** 2)
    changes = [f"{negative} negative heights set to zero"] * bool(negative)
    changes += [f"{dust} heights below 2**-256 of the largest set to zero"] * bool(dust)
    return certificate(up(value), exact_text(value), changes, f"f proves C1 <= {up(value)!r}")
