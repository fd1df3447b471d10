"""The wild type's fitness plus the measured effects of a variant's substitutions, corrected for measured pairs."""

from itertools import combinations

import numpy as np

# EVOLVE-BLOCK-START
PAIRS = 0.1  # how much of what a measured pair deviates from the sum of its two effects is believed


def predict(train, fitness, test):
    measured = {tuple(variant): value for variant, value in zip(train, fitness)}
    wild = measured.get((), float(np.mean(fitness)))
    effect = {variant[0]: value - wild for variant, value in measured.items() if len(variant) == 1}
    excess = {
        variant: value - wild - effect[variant[0]] - effect[variant[1]]
        for variant, value in measured.items() if len(variant) == 2
    }
    predicted = []
    for variant in test:
        pairs = sum(excess.get(pair, 0.0) for pair in combinations(variant, 2))
        predicted.append(wild + sum(effect[each] for each in variant) + PAIRS * pairs)
    return predicted
# EVOLVE-BLOCK-END
