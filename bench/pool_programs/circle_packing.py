"""Pieces of programs for `circle_packing`: first centers, moves, fits of radii."""

import numpy as np

N = 26
SEED, ROUNDS = 0, 1
NUMBERS: list[float] = []


def start_rows(rng):
    """Five rows of five, and one more between four of them."""
    side = (np.arange(5) + 0.5) / 5
    grid = np.array([[x, y] for y in side for x in side] + [[0.4, 0.4]])
    return grid + 0.01 * rng.normal(size=(N, 2))


def start_hexagonal(rng):
    """Rows of 5, 6, 4, 6 and 5 circles, shifted against each other."""
    rows = [5, 6, 4, 6, 5]
    points = [[(i + 0.5) / k, (j + 0.5) / 5] for j, k in enumerate(rows) for i in range(k)]
    return np.array(points) + 0.01 * rng.normal(size=(N, 2))


def start_spiral(rng):
    """A sunflower: each point a golden angle further on and a little further out."""
    k = np.arange(N) + 0.5
    angle, radius = k * np.pi * (3 - np.sqrt(5)) + rng.random(), 0.62 * np.sqrt(k / N)
    points = 0.5 + radius[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
    return np.clip(points, 0.06, 0.94)


def start_random(rng):
    """Uniform points."""
    return rng.random((N, 2))


def start_known(rng):
    """The centers of a packing that a longer search found, moved a little."""
    points = np.array(NUMBERS).reshape(N, 2)
    return np.clip(points + 0.002 * (SEED > 0) * rng.normal(size=(N, 2)), 0, 1)


def move_not(centers):
    """The centers as they are."""
    return centers


def fit_by_programme(centers):
    """The radii with the largest sum for these centers: a linear programme."""
    from scipy.optimize import linprog

    i, j = np.triu_indices(N, 1)
    distances = np.linalg.norm(centers[i] - centers[j], axis=1)
    rows = np.zeros((len(i), N))
    rows[np.arange(len(i)), i] = rows[np.arange(len(i)), j] = 1
    walls = np.minimum(centers, 1 - centers).min(axis=1)
    found = linprog(-np.ones(N), rows, distances, bounds=[(0, max(w, 0)) for w in walls])
    return np.maximum(found.x, 0)


def fit_by_growth(centers):
    """All radii grow together; a circle that touches another, or a wall, stops."""
    distances = np.linalg.norm(centers[:, None] - centers[None, :], axis=2)
    np.fill_diagonal(distances, np.inf)
    walls = np.minimum(centers, 1 - centers).min(axis=1)
    radii, growing = np.zeros(N), np.ones(N, bool)
    while growing.any():
        room = np.where(growing[None, :], 0.5, 1.0) * (distances - radii[None, :] - radii[:, None])
        step = np.minimum(room.min(axis=1), walls - radii)[growing].min()
        radii[growing] += max(step, 0)
        tight = (distances - radii[None, :] - radii[:, None]).min(axis=1) < 1e-12
        growing &= ~(tight | (walls - radii < 1e-12))
    return radii


def move_by_programmes(centers):
    """Sequential linear programming over centers and radii, in a shrinking box around them."""
    from scipy.optimize import linprog

    i, j = np.triu_indices(N, 1)
    pair = np.arange(len(i))
    gain = np.concatenate([np.zeros(2 * N), -np.ones(N)])
    box, best = 0.1, fit_by_programme(centers).sum()
    for _ in range(60):
        d = centers[i] - centers[j]
        length = np.maximum(np.linalg.norm(d, axis=1), 1e-9)
        near = np.flatnonzero(length < 0.5 + 2 * box)
        rows = np.zeros((len(i), 3 * N))
        for axis in range(2):
            rows[pair, 2 * i + axis] = -d[:, axis] / length
            rows[pair, 2 * j + axis] = d[:, axis] / length
        rows[pair, 2 * N + i] = rows[pair, 2 * N + j] = 1
        wall = np.zeros((4 * N, 3 * N))
        for axis in range(2):
            for sign in (0, 1):
                at = (2 * axis + sign) * N + np.arange(N)
                wall[at, 2 * np.arange(N) + axis] = 2 * sign - 1
                wall[at, 2 * N + np.arange(N)] = 1
        room = np.concatenate([centers[:, 0], 1 - centers[:, 0], centers[:, 1], 1 - centers[:, 1]])
        bounds = [(-box, box)] * (2 * N) + [(0, 0.5)] * N
        found = linprog(
            gain, np.vstack([rows[near], wall]), np.concatenate([length[near], room]), bounds=bounds
        )
        trial = np.clip(centers + found.x[: 2 * N].reshape(N, 2), 0, 1)
        value = fit_by_programme(trial).sum()
        if value > best + 1e-12:
            centers, best = trial, value
        else:
            box /= 3
        if box < 1e-9:
            break
    return centers


def move_by_slsqp(centers):
    """SciPy's SLSQP over centers and radii, pairs that lie far apart left out."""
    from scipy.optimize import minimize

    i, j = np.triu_indices(N, 1)
    near = np.linalg.norm(centers[i] - centers[j], axis=1) < 0.45
    i, j = i[near], j[near]
    pair, own = np.arange(len(i)), np.arange(N)

    def slack(x):
        p, r = x[: 2 * N].reshape(N, 2), x[2 * N :]
        gaps = np.linalg.norm(p[i] - p[j], axis=1) - r[i] - r[j]
        return np.concatenate([gaps, (p - r[:, None]).ravel(), (1 - p - r[:, None]).ravel()])

    def slope(x):
        p = x[: 2 * N].reshape(N, 2)
        d = p[i] - p[j]
        d /= np.maximum(np.linalg.norm(d, axis=1, keepdims=True), 1e-9)
        rows = np.zeros((len(i) + 4 * N, 3 * N))
        for axis in range(2):
            rows[pair, 2 * i + axis], rows[pair, 2 * j + axis] = d[:, axis], -d[:, axis]
            rows[len(i) + 2 * own + axis, 2 * own + axis] = 1
            rows[len(i) + 2 * N + 2 * own + axis, 2 * own + axis] = -1
            rows[len(i) + 2 * own + axis, 2 * N + own] = -1
            rows[len(i) + 2 * N + 2 * own + axis, 2 * N + own] = -1
        rows[pair, 2 * N + i] = rows[pair, 2 * N + j] = -1
        return rows

    gain = np.concatenate([np.zeros(2 * N), -np.ones(N)])
    found = minimize(
        lambda x: gain @ x,
        np.concatenate([centers.ravel(), np.full(N, 0.05)]),
        jac=lambda x: gain,
        bounds=[(0, 1)] * (2 * N) + [(0, 0.5)] * N,
        constraints={"type": "ineq", "fun": slack, "jac": slope},
        method="SLSQP",
        options={"maxiter": 100, "ftol": 1e-11},
    )
    return np.clip(found.x[: 2 * N].reshape(N, 2), 0, 1)


def move_by_penalty(centers):
    """L-BFGS on minus the sum of the radii, with a penalty for overlaps that grows."""
    from scipy.optimize import minimize

    i, j = np.triu_indices(N, 1)

    def cost(x, weight):
        p, r = x[: 2 * N].reshape(N, 2), x[2 * N :]
        d = p[i] - p[j]
        length = np.maximum(np.linalg.norm(d, axis=1), 1e-9)
        over = np.maximum(r[i] + r[j] - length, 0)
        low, high = np.maximum(r[:, None] - p, 0), np.maximum(p + r[:, None] - 1, 0)
        slope, grow = 2 * weight * (high - low), -1 + 2 * weight * (low + high).sum(axis=1)
        push = -2 * weight * (over / length)[:, None] * d
        np.add.at(slope, i, push)
        np.add.at(slope, j, -push)
        np.add.at(grow, i, 2 * weight * over)
        np.add.at(grow, j, 2 * weight * over)
        value = -r.sum() + weight * ((over**2).sum() + (low**2).sum() + (high**2).sum())
        return value, np.concatenate([slope.ravel(), grow])

    x = np.concatenate([centers.ravel(), np.full(N, 0.08)])
    bounds = [(0, 1)] * (2 * N) + [(0, 0.5)] * N
    for weight in (10, 100, 1e3, 1e4, 1e5):
        x = minimize(cost, x, (weight,), "L-BFGS-B", True, bounds=bounds).x
    return x[: 2 * N].reshape(N, 2)


def move_by_repulsion(centers):
    """Points push each other, and the walls push them, less and less."""
    for step in range(400):
        d = centers[:, None] - centers[None, :]
        length = np.linalg.norm(d, axis=2) + np.eye(N)
        force = (d / length[..., None] ** 4).sum(axis=1)
        force += 0.25 / np.maximum(centers, 0.02) ** 3 - 0.25 / np.maximum(1 - centers, 0.02) ** 3
        force /= np.linalg.norm(force, axis=1, keepdims=True) + 1e-9
        centers = np.clip(centers + 0.01 * (1 - step / 400) * force, 0.02, 0.98)
    return centers


def search_once():
    """One start, moved."""
    return move(start(np.random.default_rng(SEED)))


def search_several():
    """The best of several starts."""
    rng = np.random.default_rng(SEED)
    tries = [move(start(rng)) for _ in range(ROUNDS)]
    return max(tries, key=lambda centers: fit_radii(centers).sum())


def search_again():
    """One start; then again and again with two circles elsewhere, kept where that is better."""
    rng = np.random.default_rng(SEED)
    best = move(start(rng))
    level = fit_radii(best).sum()
    for _ in range(ROUNDS):
        trial = best.copy()
        trial[rng.choice(N, 2, replace=False)] = rng.random((2, 2))
        trial = move(trial)
        now = fit_radii(trial).sum()
        if now > level:
            best, level = trial, now
    return best


def start(rng):
    raise NotImplementedError


def move(centers):
    raise NotImplementedError


def fit_radii(centers):
    raise NotImplementedError
