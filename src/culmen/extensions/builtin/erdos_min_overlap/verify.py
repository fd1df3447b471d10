"""Certifies a step function for Erdos' minimum overlap problem: the largest overlap as an exact rational.

An integral that is not exactly 1 is repaired by making h (or 1 - h, where the integral is too small) smaller by one
rational factor, which keeps it inside [0, 1]. Overlaps at other than whole shifts lie between those at whole ones.
"""

from fractions import Fraction
from itertools import accumulate

from culmen.evaluate.certify import certificate, convolution, dyadic, exact_text, up, without_dust
from evaluator import read


def certify(output, case=None):
    heights, moved = read(output)
    heights, dust = without_dust(heights)
    whole, shift = dyadic([*heights, 1.0])  # the last one makes sure that 1 is on the grid
    n, one = len(heights), whole.pop()
    wanted = Fraction(n * one, 2)
    below = sum(whole) < wanted
    part = [one - h for h in whole] if below else whole  # what has to shrink
    factor = wanted / sum(part)
    value = Fraction(2, n) * largest(part, factor, one)
    changes = [f"{moved} heights moved into [0, 1]"] * bool(moved)
    changes += [f"{dust} heights below 2**-256 of the largest set to zero"] * bool(dust)
    changes += [f"integral off by {float(2 * sum(whole) / Fraction(n * one) - 1):.3g}, scaled to 1"] * (factor != 1)
    return certificate(up(value), exact_text(value), changes, f"h proves an overlap constant <= {up(value)!r}")


def largest(part, factor, one):
    """max_k sum_i p_i (1 - p_{i+k}) for p = factor * part / one.

    With p = h these are the overlaps; with p = 1 - h they are those of the opposite shifts.
    """
    n, reversed_part = len(part), part[::-1]
    products = convolution(part, reversed_part)  # entry n - 1 + k holds sum_i part_i part_{i-k}
    heads = [0, *accumulate(part)]
    best = None
    top, bottom = factor.numerator, factor.denominator
    for k in range(-(n - 1), n):  # i runs where i + k is inside
        single = heads[min(n, n - k)] - heads[max(0, -k)]
        value = top * (bottom * one * single - top * products[n - 1 - k])
        best = value if best is None else max(best, value)
    return Fraction(best, (bottom * one) ** 2)
