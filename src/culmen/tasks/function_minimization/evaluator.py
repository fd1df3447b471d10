"""Scores a point by the value of the function there. Nothing that the program claims about the value is used."""

import math


def f(x, y):
    bowl = ((x - 2) ** 2 + (y + 1.5) ** 2) / 20
    return bowl - math.cos(3 * x) * math.cos(2 * y) + 0.5 * math.sin(5 * x + y)


def score(output):
    point = output.tolist() if type(output).__name__ == "ndarray" else output
    if not isinstance(point, (list, tuple)) or len(point) != 2:
        return {"score": None, "feedback": "run() must return two numbers [x, y]"}
    if any(type(v) not in (int, float) or not -5 <= v <= 5 for v in point):  # NaN fails the comparison too
        return {"score": None, "feedback": "x and y must be numbers between -5 and 5"}
    value = f(*point)
    return {"score": value, "feedback": f"f({point[0]:.4f}, {point[1]:.4f}) = {value:.6f}"}
