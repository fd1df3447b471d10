"""Scores predictions for variants of high order; their measured values stay in this process.

The program runs in another one. It is called once per data set, with training data and the variants to predict, both in
an order that was shuffled, so that the order tells nothing about the values.
"""

from pathlib import Path

import numpy as np
import variants

TOP, WEIGHTS = 5, (0.7, 0.3)
# real data sets are read at once, so that a file of the wrong format is reported before any run
FOLDER = Path(__file__).with_name("data")
FILES = {path.name: variants.split(variants.read(path)) for path in sorted(FOLDER.glob("*.csv"))}


def data_set(info):
    """Training variants, their values, variants to predict, their values: of a CSV file in data/, or made up."""
    if "csv" in info:
        if info["csv"] not in FILES:
            raise FileNotFoundError(f"a case asks for data/{info['csv']}, which is not there")
        return FILES[info["csv"]]
    return variants.split(variants.FitnessLandscape(**info["landscape"]).sample(**info.get("sample", {})))


def score(call, case):
    train, fitness, test, measured = shuffled(*data_set(case.info))
    predicted = call([list(v) for v in train], fitness, [list(v) for v in test])
    fault, values = plain(predicted, len(test))
    if fault:
        return {"score": None, "feedback": fault}
    r, precision = pearson(values, measured), precision_at(values, measured, TOP)
    orders = sorted({len(variant) for variant in test})
    by_order = {order: [place for place, variant in enumerate(test) if len(variant) == order] for order in orders}
    each = ", ".join(
        f"{order}: {pearson([values[p] for p in places], [measured[p] for p in places]):.2f}"
        for order, places in by_order.items()
        if len(places) > 2
    )
    share = max(1, -(-len(test) // 20))
    return {
        "score": WEIGHTS[0] * r + WEIGHTS[1] * precision,
        "metrics": {
            "pearson": r,
            "precision_at_5": precision,
            "precision_top_5_percent": precision_at(values, measured, share),
        },
        "feedback": f"Pearson's r {r:.4f}, precision at {TOP} {precision:.1f}; r by number of substitutions: {each}",
    }


def shuffled(train, fitness, test, measured):
    """The same, always in the same new order: files are often sorted by what was measured."""
    rng = np.random.default_rng(len(train) + 1000 * len(test))
    first, second = rng.permutation(len(train)), rng.permutation(len(test))
    known = [train[p] for p in first], [fitness[p] for p in first]
    return *known, [test[p] for p in second], [measured[p] for p in second]


def plain(predicted, count):
    """The reason why these are no predictions ("" if they are), and the predictions as floats."""
    values = predicted.tolist() if isinstance(predicted, np.ndarray) else predicted
    if not isinstance(values, list) or len(values) != count:
        return f"predict() must return {count} numbers, one for each variant in test", []
    if any(type(value) not in (int, float) or not abs(value) <= 1e100 for value in values):  # NaN is not <= either
        return "predictions must be finite real numbers, at most 1e100 in size", []
    return "", [float(value) for value in values]


def pearson(predicted, measured):
    """Pearson's correlation; 0 where either does not vary."""
    x, y = (np.asarray(each, dtype=float) for each in (predicted, measured))
    x, y = (each / max(np.abs(each).max(), 1e-300) for each in (x, y))
    flat = np.ptp(x) == 0 or np.ptp(y) == 0
    x, y = x - x.mean(), y - y.mean()
    size = np.sqrt((x * x).sum()) * np.sqrt((y * y).sum())
    return 0.0 if flat else float(np.clip((x * y).sum() / size, -1, 1))


def precision_at(predicted, measured, k):
    """The share of the `k` best predicted that are among the `k` best measured.

    Equal predictions are taken in the least favourable order: a constant has found nothing.
    """
    measured = np.asarray(measured, dtype=float)
    best = set(np.argsort(-measured, kind="stable")[:k].tolist())
    order = sorted(range(len(measured)), key=lambda place: (-predicted[place], measured[place]))
    return len(best.intersection(order[:k])) / k
