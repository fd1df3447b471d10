"""Scores a step function for Erdos' minimum overlap problem, in floating point."""

import numpy as np
from scipy.signal import fftconvolve

from culmen.evaluate.certify import Invalid, vector

MOST = 20_000
EDGE = 1e-6  # heights may leave [0, 1] by this much; they count as 0 or 1
SLACK = 1e-3  # the integral may be off by this much; the function is then scaled


def score(output):
    heights, _ = read(output)
    n, h = len(heights), np.array(heights)
    total = h.sum()
    h = h * (n / 2 / total) if total > n / 2 else 1 - (1 - h) * (n / 2 / (n - total))
    far = fftconvolve(1 - h, h[::-1]) if n > 1000 else np.correlate(1 - h, h, mode="full")
    k = int(np.argmax(far)) - (n - 1)
    i = np.arange(max(0, -k), min(n, n - k))
    value = 2 / n * float(h[i] @ (1 - h[i + k]))
    near = int((far > far.max() * (1 - 1e-6)).sum())
    feedback = f"overlap {value:.9f} with {n} steps, at shift {2 * k / n:.4f}; {near} shifts lie within 1e-6 of it"
    metrics = {"steps": n, "integral": float(2 * total / n), "near_maximum": near}
    return {"score": value, "metrics": metrics, "feedback": feedback}


def read(output):
    """The heights inside [0, 1], and how many had to be moved there."""
    heights = vector(output, "the heights", 2, MOST)
    if min(heights) < -EDGE or max(heights) > 1 + EDGE:
        raise Invalid(f"heights must lie between 0 and 1, not {min(heights):.6g} to {max(heights):.6g}")
    inside = [min(1.0, max(0.0, h)) for h in heights]
    integral = 2 * sum(inside) / len(inside)
    if abs(integral - 1) > SLACK:
        raise Invalid(f"the integral must be 1, not {integral:.6g}")
    return inside, sum(a != b for a, b in zip(heights, inside))
