"""Pieces of programs for `heilbronn_triangle`: placements, and ways to better them."""

from itertools import combinations

import numpy as np

N = 11
TRIPLES = np.array(list(combinations(range(N), 3)))
SEED, ROUNDS = 0, 1
NUMBERS: list[float] = []


def start_random(rng):
    """Uniform points: what falls beyond the long side is reflected."""
    points = rng.random((N, 2))
    return np.where(points.sum(axis=1, keepdims=True) > 1, 1 - points, points)


def start_border(rng):
    """Three points on each side, two inside."""
    t = (np.arange(3) + rng.random(3)) / 3
    sides = [[a, 0.0] for a in t] + [[0.0, a] for a in t] + [[a, 1 - a] for a in t]
    return np.array(sides + (0.15 + 0.25 * rng.random((2, 2))).tolist())


def start_spiral(rng):
    """A sunflower in barycentric coordinates."""
    k = np.arange(N) + 0.5
    angle, radius = k * np.pi * (3 - np.sqrt(5)) + rng.random(), 0.45 * np.sqrt(k / N)
    points = 1 / 3 + radius[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
    return inside(points)


def start_known(rng):
    """A placement that a longer search found, moved a little."""
    points = np.array(NUMBERS).reshape(N, 2)
    return inside(points + 0.01 * (SEED > 0) * rng.normal(size=(N, 2)))


def keep(points):
    """The points as they are."""
    return points


def better_by_ascent(points):
    """Adam on a mean of the areas that weighs the small ones, ever more sharply."""
    a, b, c = TRIPLES.T
    best = points
    mean, square = np.zeros((N, 2)), np.zeros((N, 2))
    for step in range(1000):
        share = step / 1000
        u, v = points[b] - points[a], points[c] - points[a]
        signed = u[:, 0] * v[:, 1] - u[:, 1] * v[:, 0]
        weight = np.exp(-30 * 100**share * (abs(signed) - abs(signed).min()))
        weight *= np.sign(signed) / weight.sum()
        slope = np.zeros((N, 2))
        for at, d in ((a, points[b] - points[c]), (b, points[c] - points[a]), (c, -u)):
            np.add.at(slope, at, weight[:, None] * np.column_stack([d[:, 1], -d[:, 0]]))
        mean, square = 0.8 * mean + 0.2 * slope, 0.95 * square + 0.05 * slope**2
        scale = np.sqrt(square / (1 - 0.95 ** (step + 1))) + 1e-9
        points = inside(points + 0.03 * 0.01**share * mean / (1 - 0.8 ** (step + 1)) / scale)
        best = max(best, points, key=smallest)
    return best


def better_by_programmes(points):
    """Sequential linear programming: every triangle keeps its side, and at least the area t."""
    from scipy.optimize import linprog

    a, b, c = TRIPLES.T
    row, box = np.arange(len(a)), 0.05
    gain = np.append(np.zeros(2 * N), -1.0)
    for _ in range(60):
        u, v = points[b] - points[a], points[c] - points[a]
        signed = u[:, 0] * v[:, 1] - u[:, 1] * v[:, 0]
        sign = np.sign(signed)
        rows = np.zeros((len(a) + N, 2 * N + 1))
        for i, j, k in ((a, b, c), (b, c, a), (c, a, b)):
            rows[row, 2 * i] = -sign * (points[j] - points[k])[:, 1]
            rows[row, 2 * i + 1] = -sign * (points[k] - points[j])[:, 0]
        rows[row, -1] = 1
        for i in range(N):
            rows[len(a) + i, 2 * i : 2 * i + 2] = 1
        limits = np.concatenate([abs(signed), 1 - points.sum(axis=1)])
        low, high = np.maximum(-box, -points.ravel()), np.full(2 * N, box)
        bounds = [*zip(low, high), (None, None)]
        found = linprog(gain, rows, limits, bounds=bounds)
        if found.status != 0:
            break
        trial = inside(points + found.x[:-1].reshape(N, 2))
        if smallest(trial) > smallest(points) + 1e-15:
            points = trial
        else:
            box /= 3
        if box < 1e-10:
            break
    return points


def better_by_climbing(points):
    """One point moved at a time, by less and less; kept where that is better."""
    rng = np.random.default_rng(SEED + 1)
    best = smallest(points)
    for step in range(6000):
        trial = points.copy()
        at = rng.integers(N)
        trial[at] += 0.2 * 0.002 ** (step / 6000) * rng.normal(size=2)
        trial = inside(trial)
        now = smallest(trial)
        if now >= best:
            points, best = trial, now
    return points


def better_by_both(points):
    """Ascent, then linear programming."""
    return better_by_programmes(better_by_ascent(points))


def smallest(points):
    """The smallest triangle, as a share of the whole."""
    a, b, c = (points[TRIPLES[:, i]] for i in range(3))
    return np.abs((b - a)[:, 0] * (c - a)[:, 1] - (b - a)[:, 1] * (c - a)[:, 0]).min()


def inside(points):
    """Points outside moved to the border."""
    points = np.maximum(points, 0)
    return points / np.maximum(1, points.sum(axis=1, keepdims=True))


def search_once():
    """One start, bettered."""
    return better(start(np.random.default_rng(SEED)))


def search_several():
    """The best of several starts."""
    rng = np.random.default_rng(SEED)
    return max((better(start(rng)) for _ in range(ROUNDS)), key=smallest)


def search_again():
    """Again and again with one to three points elsewhere, kept where that is better."""
    rng = np.random.default_rng(SEED)
    best = better(start(rng))
    for _ in range(ROUNDS):
        trial = best.copy()
        for at in rng.choice(N, rng.integers(1, 4), replace=False):
            trial[at] = rng.random(2)
        best = max(best, better(inside(trial)), key=smallest)
    return best


def start(rng):
    raise NotImplementedError


def better(points):
    raise NotImplementedError
