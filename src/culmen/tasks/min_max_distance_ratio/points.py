"""16 points in the plane, far apart and close together at once."""

import numpy as np


# EVOLVE-BLOCK-START
def place():
    """The corners of a square grid."""
    side = np.arange(4.0)
    return np.array([[x, y] for x in side for y in side])
# EVOLVE-BLOCK-END


def run():
    return place()
