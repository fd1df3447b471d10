"""Random search: look at 20 points, return the best; five times."""

import math
import random


def f(x, y):
    bowl = ((x - 2) ** 2 + (y + 1.5) ** 2) / 20
    return bowl - math.cos(3 * x) * math.cos(2 * y) + 0.5 * math.sin(5 * x + y)


# EVOLVE-BLOCK-START
def search(looks=20):
    best = [0.0, 0.0]
    for _ in range(looks):
        point = [random.uniform(-5, 5), random.uniform(-5, 5)]
        if f(*point) < f(*best):
            best = point
    return best
# EVOLVE-BLOCK-END


def run():
    return [search() for _ in range(5)]
