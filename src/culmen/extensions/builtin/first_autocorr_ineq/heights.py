"""Heights of a step function on [-1/4, 1/4] whose autoconvolution should have a small maximum."""

import numpy as np

N = 120
STEPS = 200
RATE = 0.01


# EVOLVE-BLOCK-START
def start():
    """The square-root singularity at one end, which alone gives pi/2 in the limit."""
    x = (np.arange(N) + 0.5) / N
    return 1 / np.sqrt(x)


def slope(heights):
    """Gradient of the maximum of the autoconvolution, for heights with sum 1."""
    conv = np.convolve(heights, heights)
    k = int(np.argmax(conv))
    i = np.arange(max(0, k - N + 1), min(N, k + 1))
    gradient = np.zeros(N)
    gradient[i] = 2 * heights[k - i]
    return gradient - 2 * conv[k]


def improve(heights):
    """A few steps down the gradient, always returning the best seen."""
    best, level = heights, np.convolve(heights, heights).max()
    for step in range(STEPS):
        gradient = slope(heights)
        heights = heights - RATE / (step + 10) * gradient / np.linalg.norm(gradient)
        heights = np.maximum(heights, 0)
        heights /= heights.sum()
        now = np.convolve(heights, heights).max()
        if now < level:
            best, level = heights, now
    return best
# EVOLVE-BLOCK-END


def run():
    heights = start()
    return improve(heights / heights.sum())
