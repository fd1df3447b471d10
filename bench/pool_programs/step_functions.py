"""Pieces for programs whose construction is a step function, of whatever task.

They give heights of its steps.
"""

import numpy as np

SIZE = 60
NUMBERS: list[float] = []


def start_known():
    """The heights that a longer search found."""
    return np.array(NUMBERS)


def start_resampled():
    """The heights that a longer search found, between other borders."""
    h = np.array(NUMBERS)
    edges = np.append(0, np.cumsum(h))
    return np.diff(np.interp(np.linspace(0, len(h), SIZE + 1), np.arange(len(h) + 1), edges))


def improve_not(h):
    """The heights as they are."""
    return h
