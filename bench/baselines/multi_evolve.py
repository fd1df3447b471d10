"""What programs of other kinds score here: python bench/baselines/multi_evolve.py

`ridge` is a linear model of single substitutions, `pairwise` has pairs of substitutions too, `through_a_curve` fits the
linear model on the log odds of the scaled fitness, and `pairwise_through_a_curve` both.
"""

from itertools import combinations

import numpy as np

STRENGTHS = 10.0 ** np.arange(-3, 3)


def constant(train, fitness, test):
    """The mean of what was measured."""
    return [float(np.mean(fitness))] * len(test)


def ridge(train, fitness, test):
    """Ridge regression on which substitutions a variant has."""
    return fitted(train, np.array(fitness), test, pairs=False)


def pairwise(train, fitness, test):
    """The same with the pairs of substitutions that were measured, shrunk ten times as much."""
    return fitted(train, np.array(fitness), test, pairs=True)


def through_a_curve(train, fitness, test):
    """Ridge regression on log odds: for what saturates."""
    return fitted(train, log_odds(fitness), test, pairs=False)


def pairwise_through_a_curve(train, fitness, test):
    """Pairs and log odds."""
    return fitted(train, log_odds(fitness), test, pairs=True)


def log_odds(fitness):
    """The log odds of values scaled to between 0.02 and 0.98."""
    low, high = min(fitness), max(fitness)
    share = 0.02 + 0.96 * (np.array(fitness) - low) / max(high - low, 1e-12)
    return np.log(share / (1 - share))


def fitted(train, values, test, pairs):
    """Predictions of the ridge regression whose strength did best in leave-one-out."""
    terms = {(each,): 1.0 for variant in train for each in variant}
    if pairs:
        terms |= {pair: 10**-0.5 for variant in train for pair in combinations(variant, 2)}
    known, asked = matrix(train, terms), matrix(test, terms)
    center, mean = known.mean(axis=0), values.mean()
    u, s, vt = thin(known - center)
    best = None
    for strength in STRENGTHS:
        shrunk = s**2 / (s**2 + strength)
        fit = u @ (shrunk * (u.T @ (values - mean)))
        leverage = (u**2 * shrunk).sum(axis=1) + 1 / len(values)
        error = float(np.mean(((values - mean - fit) / np.maximum(1 - leverage, 1e-9)) ** 2))
        if best is None or error < best[0]:
            best = error, vt.T @ (s / (s**2 + strength) * (u.T @ (values - mean)))
    return (mean + (asked - center) @ best[1]).tolist()


def thin(x):
    """The thin singular value decomposition without what is nearly 0, by the smaller of the two products of x."""
    wide = x.shape[1] > x.shape[0]
    squares, vectors = np.linalg.eigh(x @ x.T if wide else x.T @ x)
    kept = squares > 1e-10 * squares.max()
    s, vectors = np.sqrt(squares[kept]), vectors[:, kept]
    return (vectors, s, (x.T @ vectors / s).T) if wide else (x @ vectors / s, s, vectors.T)


def matrix(variants, terms):
    """Which terms a variant has, shape (variants, terms); a term's weight is the root of how little it is shrunk."""
    places = {term: place for place, term in enumerate(terms)}
    weights = list(terms.values())
    made = np.zeros((len(variants), len(terms)))
    for row, variant in enumerate(variants):
        for term in [(each,) for each in variant] + list(combinations(variant, 2)):
            if term in places:
                made[row, places[term]] = weights[places[term]]
    return made


if __name__ == "__main__":
    from programs import show

    names = ("constant", "ridge", "pairwise", "through_a_curve", "pairwise_through_a_curve")
    show(__file__, {name: f"predict = {name}" for name in names}, seeds=1)
