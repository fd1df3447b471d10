"""Scores a step function for the second autocorrelation inequality, in floating point."""

import numpy as np
from scipy.signal import fftconvolve

from culmen.evaluate.certify import Invalid, vector

MOST = 100_000
SLACK = 1e-6  # heights may lie below zero by this share of the largest; they count as zero


def score(output):
    heights, _ = read(output)
    h = np.array(heights)
    h = np.ldexp(h, -int(np.frexp(h.max())[1]))  # a common power of two: nothing over- or underflows
    conv = np.maximum(fftconvolve(h, h), 0) if len(h) > 1000 else np.convolve(h, h)
    y = np.concatenate([[0.0], conv, [0.0]])
    a, b = y[:-1], y[1:]
    value = float(np.sum(a * a + a * b + b * b) / (3 * y.sum() * y.max()))
    flat = float((y > 0.99 * y.max()).mean())
    feedback = f"C2 = {value:.9f} with {len(h)} steps; g is within 1% of its maximum on {flat:.1%} of its support"
    return {"score": value, "metrics": {"steps": len(h), "flat_share": flat}, "feedback": feedback}


def read(output):
    """The heights with those just below zero set to zero, and how many these were."""
    heights = vector(output, "the heights", 2, MOST)
    lowest, highest = min(heights), max(heights)
    if highest <= 0:
        raise Invalid("at least one height must be above zero")
    if lowest < -SLACK * highest:
        raise Invalid(f"a height of {lowest:.3g} is negative")
    return [max(0.0, h) for h in heights], sum(h < 0 for h in heights)
