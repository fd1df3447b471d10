"""Certifies coefficients for the uncertainty inequality: an enclosure of the last sign change, over 2 pi."""

from culmen.evaluate.certify import certificate, exact_text, up
from evaluator import bound, read


def certify(output, case=None):
    low, high = bound(read(output)[1], 110)
    return certificate(up(high), exact_text(low, high), (), f"f proves C4 <= {up(high)!r}")
