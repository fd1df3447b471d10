"""Heights of a step function on [0, 2] with integral 1 that overlaps little with its complement."""

import numpy as np

N = 60
STEPS = 50
RATE = 0.05


# EVOLVE-BLOCK-START
def start():
    """High in the middle, low at the ends."""
    x = (np.arange(N) + 0.5) / N
    return 0.5 - 0.4 * np.cos(2 * np.pi * x)


def overlaps(h):
    """Overlap with the complement for the shifts -(N-1) .. N-1."""
    return np.correlate(1 - h, h, mode="full") * 2 / N


def balance(h):
    """Inside [0, 1] and with integral 1."""
    for _ in range(20):
        h = np.clip(h + 0.5 - h.mean(), 0, 1)
    return h


def improve(h):
    """Steps down the gradient of the largest overlap; returns the best seen."""
    best, level = h, overlaps(h).max()
    for step in range(STEPS):
        all_overlaps = overlaps(h)
        k = int(np.argmax(all_overlaps)) - (N - 1)
        gradient = np.zeros(N)
        i = np.arange(max(0, -k), min(N, N - k))
        gradient[i] += 1 - h[i + k]
        gradient[i + k] -= h[i]
        h = balance(h - RATE / (1 + step / 10) * gradient / np.linalg.norm(gradient))
        now = overlaps(h).max()
        if now < level:
            best, level = h, now
    return best
# EVOLVE-BLOCK-END


def run():
    return improve(balance(start()))
