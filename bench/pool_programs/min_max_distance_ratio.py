"""Pieces of programs for `min_max_distance_ratio`: placements, and ways to better them."""

import numpy as np

N = 16
SEED, ROUNDS = 0, 1
NUMBERS: list[float] = []


def start_lattice(rng):
    """Rows of a triangular lattice, 4 points each, moved a little."""
    rows = [[x + 0.5 * (y % 2), y * np.sqrt(3) / 2] for y in range(4) for x in range(4)]
    return np.array(rows) + 0.05 * rng.normal(size=(N, 2))


def start_rings(rng):
    """One point, five around it, ten around these."""
    points = [[0.0, 0.0]]
    for count, radius in ((5, 1.0), (10, 1.9)):
        angle = 2 * np.pi * (np.arange(count) + rng.random()) / count
        points += (radius * np.column_stack([np.cos(angle), np.sin(angle)])).tolist()
    return np.array(points)


def start_disc(rng):
    """The points of a triangular lattice nearest to a random place, moved a little."""
    x, y = np.meshgrid(np.arange(-4, 5), np.arange(-4, 5))
    lattice = np.column_stack([(x + 0.5 * y).ravel(), (np.sqrt(3) / 2 * y).ravel()])
    order = np.linalg.norm(lattice - rng.random(2), axis=1).argsort()
    return lattice[order[:N]] + 0.1 * rng.normal(size=(N, 2))


def start_random(rng):
    """Uniform points in a square."""
    return rng.uniform(-2, 2, (N, 2))


def start_known(rng):
    """A placement that a longer search found, moved a little."""
    points = np.array(NUMBERS).reshape(N, 2)
    return points + 0.02 * (SEED > 0) * rng.normal(size=(N, 2))


def keep(points):
    """The points as they are."""
    return points


def better_by_programmes(points):
    """Sequential linear programming: all squares at least 1, the largest as small as possible."""
    from scipy.optimize import linprog

    i, j = np.triu_indices(N, 1)
    pair, box = np.arange(len(i)), 0.3
    points = points / np.sqrt(((points[i] - points[j]) ** 2).sum(axis=1).min())
    for _ in range(80):
        d = points[i] - points[j]
        squares = (d**2).sum(axis=1)
        rows = np.zeros((2 * len(i), 2 * N + 1))
        for axis in range(2):
            for sign, at in ((-2, pair), (2, pair + len(i))):
                rows[at, 2 * i + axis] = sign * d[:, axis]
                rows[at, 2 * j + axis] = -sign * d[:, axis]
        rows[pair + len(i), -1] = -1
        limits = np.concatenate([squares - 1, -squares])
        bounds = [(-box, box)] * (2 * N) + [(None, None)]
        found = linprog(np.append(np.zeros(2 * N), 1.0), rows, limits, bounds=bounds)
        trial = points + found.x[:-1].reshape(N, 2)
        trial = trial / np.sqrt(((trial[i] - trial[j]) ** 2).sum(axis=1).min())
        if ratio(trial) < ratio(points) - 1e-13:
            points = trial
        else:
            box /= 3
        if box < 1e-9:
            break
    return points


def better_by_smoothing(points):
    """L-BFGS on smooth stand-ins for the largest and the smallest distance, ever sharper."""
    from scipy.optimize import minimize

    i, j = np.triu_indices(N, 1)

    def cost(x, sharp):
        p = x.reshape(N, 2)
        d = p[i] - p[j]
        logs = np.log(np.maximum((d**2).sum(axis=1), 1e-12))
        up, down = np.exp(sharp * (logs - logs.max())), np.exp(sharp * (logs.min() - logs))
        value = logs.max() - logs.min() + (np.log(up.sum()) + np.log(down.sum())) / sharp
        pull = (up / up.sum() - down / down.sum()) / np.exp(logs)
        slope = np.zeros((N, 2))
        np.add.at(slope, i, 2 * pull[:, None] * d)
        np.add.at(slope, j, -2 * pull[:, None] * d)
        return value, slope.ravel()

    for sharp in (10, 30, 100, 300, 1000, 3000):
        points = minimize(cost, points.ravel(), (sharp,), "L-BFGS-B", True).x.reshape(N, 2)
    return points


def better_by_slsqp(points):
    """SciPy's SLSQP: squares between 1 and s, s as small as possible."""
    from scipy.optimize import minimize

    i, j = np.triu_indices(N, 1)
    pair = np.arange(len(i))
    points = points / np.sqrt(((points[i] - points[j]) ** 2).sum(axis=1).min())

    def slack(x):
        p = x[:-1].reshape(N, 2)
        squares = ((p[i] - p[j]) ** 2).sum(axis=1)
        return np.concatenate([squares - 1, x[-1] - squares])

    def slope(x):
        d = 2 * (x[:-1].reshape(N, 2)[i] - x[:-1].reshape(N, 2)[j])
        rows = np.zeros((2 * len(i), 2 * N + 1))
        for axis in range(2):
            rows[pair, 2 * i + axis], rows[pair, 2 * j + axis] = d[:, axis], -d[:, axis]
        rows[len(i) :] = -rows[: len(i)]
        rows[len(i) :, -1] = 1
        return rows

    begin = np.append(points.ravel(), ratio(points))
    gain = np.append(np.zeros(2 * N), 1.0)
    constraints = {"type": "ineq", "fun": slack, "jac": slope}
    options = {"maxiter": 150, "ftol": 1e-13}
    found = minimize(
        lambda x: x[-1],
        begin,
        jac=lambda x: gain,
        constraints=constraints,
        options=options,
        method="SLSQP",
    )
    trial = found.x[:-1].reshape(N, 2)
    return trial if ratio(trial) < ratio(points) else points


def better_by_annealing(points):
    """One point moved at a time; what is worse is taken by chance, ever more rarely."""
    rng = np.random.default_rng(SEED + 1)
    best, level, now = points, ratio(points), ratio(points)
    for step in range(4000):
        heat = 1 - step / 4000
        trial = points.copy()
        trial[rng.integers(N)] += 0.3 * heat**2 * rng.normal(size=2) + 1e-4 * rng.normal(size=2)
        value = ratio(trial)
        if value < now or rng.random() < np.exp((now - value) / (0.5 * heat**3 + 1e-9)):
            points, now = trial, value
        if now < level:
            best, level = points, now
    return best


def ratio(points):
    """The largest distance over the smallest, squared."""
    i, j = np.triu_indices(N, 1)
    squares = ((points[i] - points[j]) ** 2).sum(axis=1)
    return squares.max() / squares.min()


def scatter_once():
    """One start."""
    return start(np.random.default_rng(SEED))


def scatter_best():
    """The best of several starts."""
    rng = np.random.default_rng(SEED)
    return min((start(rng) for _ in range(50)), key=ratio)


def improve_once(points):
    """One way down."""
    return better(points)


def improve_again(points):
    """Again and again with two points elsewhere, kept where that is better."""
    rng = np.random.default_rng(SEED + 2)
    best = better(points)
    for _ in range(ROUNDS):
        trial = best.copy()
        middle, width = trial.mean(axis=0), np.ptp(trial, axis=0)
        trial[rng.choice(N, 2, replace=False)] = middle + width * (rng.random((2, 2)) - 0.5)
        trial = better(trial)
        best = min(best, trial, key=ratio)
    return best


def start(rng):
    raise NotImplementedError


def better(points):
    raise NotImplementedError
