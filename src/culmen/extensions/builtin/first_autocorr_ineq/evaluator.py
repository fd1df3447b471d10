"""Scores a step function for the first autocorrelation inequality, in floating point."""

import numpy as np
from scipy.signal import fftconvolve

from culmen.evaluate.certify import Invalid, vector

MOST = 100_000
SLACK = 1e-6  # heights may lie below zero by this share of the largest; they count as zero


def score(output):
    heights, _ = read(output)
    h = np.array(heights)
    h = np.ldexp(h, -int(np.frexp(h.max())[1]))  # a common power of two: nothing over- or underflows
    conv = fftconvolve(h, h) if len(h) > 1000 else np.convolve(h, h)
    k = int(np.argmax(conv))
    i = np.arange(max(0, k - len(h) + 1), min(len(h), k + 1))
    value = 2 * len(h) * float(h[i] @ h[k - i]) / float(h.sum()) ** 2
    at = (k + 1) / (2 * len(h)) - 0.5
    near = int((conv > conv.max() * (1 - 1e-6)).sum())
    feedback = f"C1 = {value:.9f} with {len(h)} steps; the maximum is at x = {at:.4f}; {near} points lie within 1e-6 of it"
    return {"score": value, "metrics": {"steps": len(h), "near_maximum": near}, "feedback": feedback}


def read(output):
    """The heights with those just below zero set to zero, and how many these were."""
    heights = vector(output, "the heights", 2, MOST)
    lowest, highest = min(heights), max(heights)
    if highest <= 0:
        raise Invalid("at least one height must be above zero")
    if lowest < -SLACK * highest:
        raise Invalid(f"a height of {lowest:.3g} is negative")
    return [max(0.0, h) for h in heights], sum(h < 0 for h in heights)
