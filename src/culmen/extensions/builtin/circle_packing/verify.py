"""Certifies 26 circles in the unit square: what violates a constraint is made smaller, and the sum is an exact rational."""

from fractions import Fraction

from culmen.evaluate.certify import Invalid, certificate, exact_text
from evaluator import SLACK, read, repair, rounded_down


def certify(output, case=None):
    try:
        points, radii = read(output)
    except ValueError as error:
        raise Invalid(str(error)) from None
    exact = [Fraction(r) for r in radii]
    worst, where = repair(points, exact)
    if worst > SLACK:
        raise Invalid(f"{where} by {float(worst):.3g}; at most {SLACK} is repaired")
    value = sum(exact)
    changes = [f"{where} by {float(worst):.3g}, radii made smaller"] if worst else []
    return certificate(rounded_down(value), exact_text(value), changes)
