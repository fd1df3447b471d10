"""26 circles in the unit square, placed on rings by hand."""

import numpy as np

N = 26


# EVOLVE-BLOCK-START
def place_centers():
    """One circle in the middle, 8 on a ring around it, 16 on an outer ring, and one in a corner."""
    centers = np.zeros((N, 2))
    centers[0] = [0.5, 0.5]
    for i in range(8):
        angle = 2 * np.pi * i / 8
        centers[1 + i] = [0.5 + 0.3 * np.cos(angle), 0.5 + 0.3 * np.sin(angle)]
    for i in range(16):
        angle = 2 * np.pi * i / 16
        centers[9 + i] = [0.5 + 0.7 * np.cos(angle), 0.5 + 0.7 * np.sin(angle)]
    return np.clip(centers, 0.01, 0.99)


def fit_radii(centers):
    """Start from the distance to the walls; where two circles overlap, shrink both by the same factor."""
    distances = np.linalg.norm(centers[:, None] - centers[None, :], axis=2).tolist()
    radii = np.minimum(centers, 1 - centers).min(axis=1).tolist()
    for i in range(N):
        for j in range(i + 1, N):
            if radii[i] + radii[j] > distances[i][j]:
                shrink = distances[i][j] / (radii[i] + radii[j])
                radii[i] *= shrink
                radii[j] *= shrink
    return radii
# EVOLVE-BLOCK-END


def run():
    centers = place_centers()
    return centers, fit_radii(centers)
