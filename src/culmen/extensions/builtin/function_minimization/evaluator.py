"""Scores points by the mean of the function there. Nothing that the program claims about the values is used."""

import math


def f(x, y):
    bowl = ((x - 2) ** 2 + (y + 1.5) ** 2) / 20
    return bowl - math.cos(3 * x) * math.cos(2 * y) + 0.5 * math.sin(5 * x + y)


def score(output):
    points = output.tolist() if type(output).__name__ == "ndarray" else output
    if not isinstance(points, (list, tuple)) or len(points) != 5:
        return {"score": None, "feedback": "run() must return five points [x, y]"}
    values = []
    for point in points:
        if not isinstance(point, (list, tuple)) or len(point) != 2:
            return {"score": None, "feedback": "each point must be two numbers [x, y]"}
        if any(type(v) not in (int, float) or not -5 <= v <= 5 for v in point):  # NaN fails the comparison too
            return {"score": None, "feedback": "x and y must be numbers between -5 and 5"}
        values.append(f(*point))
    found = ", ".join(f"f({x:.4f}, {y:.4f}) = {value:.6f}" for (x, y), value in zip(points, values))
    return {"score": sum(values) / 5, "feedback": found}
